//! What the device counts, as its link's ledger has it, as the model says, and as the guest's own tools show it.

use super::pair::Guests;
use super::{lab, shell};
use crate::bench::fabric::{Fabric, by_class};
use rnic_ci::guest::Guest;
use rnic_pcie::{Cause, Class, Crossing};
use std::collections::BTreeMap;

const MESSAGES: u64 = 1000;
/// perftest's own message size and path MTU. Messages of this size ask for a completion each.
const PACKETS_A_MESSAGE: u64 = 65536 / 4096;
/// The depth of its queues.
const DEPTH: u64 = 128;

/// Crossings of queue pairs' operations, and all others: commands, events, registers.
fn split(crossings: Vec<Crossing>) -> (Vec<Crossing>, Vec<Crossing>) {
    crossings.into_iter().partition(|crossing| {
        matches!(crossing.origin.cause, Cause::Send { .. } | Cause::Packet { .. } | Cause::Receive { .. })
    })
}

pub fn a_thousand_writes_cross_as_the_model_says_and_rdma_statistic_agrees() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let (server, client) = (fabric.watch("A"), fabric.watch("B"));
    let before = fabric.counters("B");
    guests.succeed(&format!("ib_write_bw -F -d rnic0 -n {MESSAGES}"));
    let (operations, housekeeping) = split(client.crossings());
    let again = fabric.counters("B").retransmitted_pkts - before.retransmitted_pkts;
    let mut counted = by_class(&operations);
    // A fetch brings what has been announced since the last one, and a completion queue is asked how far it was polled when
    // it looks full: how often, the processors' pace decides.
    let fetches = counted.remove(&Class::WqeFetch).unwrap_or_default();
    assert!((MESSAGES.div_ceil(32)..=MESSAGES).contains(&fetches), "{fetches} fetches of work requests");
    let looks = counted.remove(&Class::RecordFetch).unwrap_or_default();
    assert!((MESSAGES / DEPTH - 1..=MESSAGES).contains(&looks), "{looks} looks at the consumer's record");
    let model = BTreeMap::from([
        (Class::Doorbell, MESSAGES),
        (Class::PayloadRead, MESSAGES * PACKETS_A_MESSAGE + again),
        (Class::CqeWrite, MESSAGES),
    ]);
    assert_eq!(counted, model, "the requester; {again} packets were sent again");
    let known = |crossing: &Crossing| {
        matches!(crossing.origin.cause, Cause::Command { .. } | Cause::Event { .. } | Cause::Maintenance)
    };
    assert_eq!(housekeeping.iter().find(|crossing| !known(crossing)), None);
    let (operations, _) = split(server.crossings());
    assert_eq!(
        by_class(&operations),
        BTreeMap::from([(Class::PayloadWrite, MESSAGES * PACKETS_A_MESSAGE)]),
        "the responder"
    );
    for (name, guest) in [("A", &mut guests.server), ("B", &mut guests.client)] {
        agrees(&fabric, name, guest);
    }
    guests.end();
}

/// What no stock program uses: a word that appears at once, and the certainty that it is there.
pub fn atomic_writes_and_flushes_reach_the_other_guest() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let before = fabric.counters("A");
    let executed = |fabric: &Fabric| {
        let now = fabric.counters("A");
        (now.rx_atomic_writes - before.rx_atomic_writes, now.rx_flushes - before.rx_flushes)
    };
    guests.succeed(&format!("rnic_verbs_user -d rnic0 -g 1 -n {MESSAGES}"));
    assert_eq!(executed(&fabric), (MESSAGES, MESSAGES));
    // The program knows the status that it has to get, and that nothing is written.
    for wrong in ["align", "right"] {
        let client = format!("rnic_verbs_user -d rnic0 -g 1 -w {wrong} 10.0.0.1");
        guests.succeed_with("rnic_verbs_user -d rnic0 -g 1", &client);
    }
    assert_eq!(executed(&fabric), (MESSAGES, MESSAGES), "what is refused is not executed");
    for (name, guest) in [("A", &mut guests.server), ("B", &mut guests.client)] {
        agrees(&fabric, name, guest);
    }
    guests.end();
}

/// `rdma statistic` in the guest shows every counter of the device, and nothing else.
#[track_caller]
fn agrees(fabric: &Fabric, name: &str, guest: &mut Guest) {
    let text = shell(guest, "rdma statistic show link rnic0/1");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[..2], ["link", "rnic0/1"], "{text}");
    let told: BTreeMap<&str, u64> =
        words[2..].chunks(2).map(|pair| (pair[0], pair[1].parse().unwrap_or_else(|_| panic!("{text}")))).collect();
    let ledger = fabric.adapter(name).call(|adapter| adapter.function.link.ledger().snapshot()).expect("an answer");
    let port = fabric.counters(name).named().into_iter().map(|(name, value)| (name.to_owned(), value));
    let classes = Class::ALL.iter().filter(|class| !class.name().starts_with("net_"));
    let classes = classes.map(|class| (format!("pcie_{}", class.name()), ledger.class(*class).crossings));
    let counted: BTreeMap<String, u64> = port.chain(classes).collect();
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), counted.keys().map(String::as_str).collect::<Vec<_>>());
    for (counter, value) in &counted {
        // Asking is commands: these have gone on since.
        let asks = ["pcie_command_", "pcie_register_"].iter().any(|begin| counter.starts_with(begin));
        let same = if asks { told[counter.as_str()] <= *value } else { told[counter.as_str()] == *value };
        assert!(same, "{counter}: {} in guest {name}, {value} in the device", told[counter.as_str()]);
    }
}
