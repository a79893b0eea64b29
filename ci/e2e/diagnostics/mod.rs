//! Every diagnostic of the table, provoked over a live server's sockets and seen by `rnic events --json`.
//!
//! Each rule is broken by a driver that writes what no driver should, on adapters that are brought up anew: in the bring-up
//! itself ([`bringing_up`]), by registers and doorbells ([`host`]), commands ([`commands`]), or work requests ([`work`],
//! [`fetching`]). A new number needs a row there, or a reason here.

mod bringing_up;
mod commands;
mod fetching;
mod host;
mod pair;
mod work;

use crate::bench::program;
use crate::bench::raw_driver::*;
use crate::bench::serving::Serving;
use pair::{Pair, QPNS};
use rnic_abi::diagnostic::RULES;
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, Diagnostic};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

type Break = fn(&mut Pair);
/// A rule, and how it is broken.
type Row = (Diagnostic, Break);

/// Rules of requests that the raw driver does not build: of shared receives, and work on keys.
const OF_OTHER_REQUESTS: &str = "the raw driver makes no such request: engine/tests/diagnostics.rs breaks it";

/// What no driver can provoke, what is never in the stream, and what the raw driver has no request for.
const NOT_IN_THE_STREAM: &[(Diagnostic, &str)] = &[
    (
        Diagnostic::MsnDisagrees,
        "only a peer's adapter that counts messages otherwise provokes it: engine/tests/diagnostics.rs forges its answer",
    ),
    (Diagnostic::SrqIndex, OF_OTHER_REQUESTS),
    (Diagnostic::SrqFetchFault, OF_OTHER_REQUESTS),
    (Diagnostic::XrcQueue, OF_OTHER_REQUESTS),
    (Diagnostic::XrcTarget, OF_OTHER_REQUESTS),
    (Diagnostic::XrcDomain, OF_OTHER_REQUESTS),
    (Diagnostic::BindWindow, OF_OTHER_REQUESTS),
    (Diagnostic::BindRegion, OF_OTHER_REQUESTS),
    (Diagnostic::BindRange, OF_OTHER_REQUESTS),
    (Diagnostic::BindAccess, OF_OTHER_REQUESTS),
    (Diagnostic::RegisterState, OF_OTHER_REQUESTS),
    (Diagnostic::RegisterShape, OF_OTHER_REQUESTS),
    (Diagnostic::NotPrivileged, OF_OTHER_REQUESTS),
    (Diagnostic::MulticastGid, OF_OTHER_REQUESTS),
    (Diagnostic::MulticastQueuePair, OF_OTHER_REQUESTS),
    (Diagnostic::MulticastFull, OF_OTHER_REQUESTS),
    (Diagnostic::FlushPlacement, OF_OTHER_REQUESTS),
    (Diagnostic::DatagramTooLong, OF_OTHER_REQUESTS),
    (Diagnostic::DatagramAddress, OF_OTHER_REQUESTS),
    (Diagnostic::Flushed, "it explains completions and is no event: seen in vendor_err by the step after this one"),
];

/// What `rnic events --json` says beyond the places, which move on.
fn events(serving: &Serving, places: &mut BTreeMap<String, u64>) -> Vec<Value> {
    let output = program::run(program::command(&format!("events --json --folder {}", serving.folder().display())));
    assert!(output.status.success(), "{}", output.standard_error);
    let lines = output.standard_output.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut fresh = Vec::new();
    for event in lines.filter(|line| line["kind"] == "event") {
        let place = places.entry(event["adapter"].as_str().expect("an adapter").to_owned()).or_default();
        let sequence = event["sequence"].as_u64().expect("a number");
        if sequence > *place {
            *place = sequence;
            fresh.push(event);
        }
    }
    fresh
}

#[track_caller]
fn assert_seen(serving: &Serving, places: &mut BTreeMap<String, u64>, diagnostic: Diagnostic) {
    let rule = diagnostic.rule();
    let start = Instant::now();
    let mut seen = Vec::new();
    while start.elapsed() < Duration::from_secs(10) {
        seen.extend(events(serving, places));
        if let Some(event) = seen.iter().find(|event| event["number"] == rule.number) {
            assert_eq!(event["name"], rule.name);
            assert_eq!(event["severity"], rule.severity().name());
            assert_eq!((&event["sentence"], &event["section"]), (&rule.sentence.into(), &rule.section.into()));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} {} was not seen: {seen:?}", rule.number, rule.name);
}

pub fn every_rule_that_is_broken_over_a_live_socket_is_an_event() {
    let serving = Serving::start("A B");
    let mut pair = Pair::attach(&serving);
    let mut places = BTreeMap::new();
    let mut provoked = BTreeSet::new();
    for (diagnostic, break_it) in bringing_up::ROWS {
        pair.reset();
        break_it(&mut pair);
        assert_seen(&serving, &mut places, *diagnostic);
        provoked.insert(diagnostic.number());
    }
    for (diagnostic, break_it) in [host::ROWS, commands::ROWS, work::ROWS, fetching::ROWS].concat() {
        pair.reset();
        pair.up(Making::default());
        events(&serving, &mut places);
        break_it(&mut pair);
        pair.a.settle();
        assert_seen(&serving, &mut places, diagnostic);
        provoked.insert(diagnostic.number());
    }
    for (diagnostic, reason) in NOT_IN_THE_STREAM {
        assert!(!reason.is_empty() && provoked.insert(diagnostic.number()), "{diagnostic:?} is provoked after all");
    }
    let missing: Vec<_> = RULES.iter().filter(|rule| !provoked.contains(&rule.number)).map(|rule| rule.name).collect();
    assert_eq!(missing, [""; 0], "no driver breaks these, and no reason is given");
    println!("{} rules, {} of them not in the stream", provoked.len(), NOT_IN_THE_STREAM.len());
}

/// The number of a broken rule wherever a driver looks: the completion of a command, `vendor_err`, the event, the register.
pub fn the_number_stands_everywhere_a_driver_looks() {
    let serving = Serving::start("A B");
    let mut pair = Pair::attach(&serving);
    pair.reset();
    pair.up(Making::default());
    let (_, answered) = pair.a.command(CommandOpcode::DESTROY_CQ, object(CQN).as_bytes());
    assert_eq!(answered, Diagnostic::ObjectBusy.number());
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), answered);
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC_OBJECT), CQN);
    // A refused key, and a request behind it that is flushed.
    pair.a.post(&Work { elements: vec![(VIRTUAL, 8, 0x900)], ..Work::write() });
    pair.a.send(&Work::write());
    let [failed, flushed] = [pair.a.completion(), pair.a.completion()];
    assert_eq!(failed.vendor_err.get(), Diagnostic::LKeyInvalid.number());
    assert_eq!(flushed.vendor_err.get(), Diagnostic::Flushed.number());
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), Diagnostic::LKeyInvalid.number());
    let event = pair.a.event(0);
    assert_eq!((event.object.get(), event.data.get()), (QPNS[0], Diagnostic::LKeyInvalid.number()));
}

/// A strict server's adapter stops at a warning, tells its driver, and comes back by a reset.
pub fn a_strict_server_stops_its_adapter_at_a_warning() {
    let serving = Serving::start("A B --strict");
    let mut pair = Pair::attach(&serving);
    pair.reset();
    pair.up(Making::default());
    pair.a.ring(DB_SEND, queue_doorbell(0x3f, 1));
    let number = Diagnostic::DoorbellNoQueue.number();
    assert_eq!(pair.a.register(REG_STATUS) & STATUS_FATAL, STATUS_FATAL);
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), number);
    let event = pair.a.event(0);
    assert_eq!((event.event_type, event.data.get()), (rnic_abi::EventType::DEVICE_FATAL.0, number));
    assert_eq!(pair.b.register(REG_STATUS) & STATUS_FATAL, 0, "the other adapter goes on");
    pair.reset();
    pair.up(Making::default());
    pair.a.send(&Work::write());
    assert_eq!(pair.a.completion().status, 0);
}
