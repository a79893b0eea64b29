//! An outside counter: guests' memory is not shared, so every DMA is a message, and QEMU's own trace counts them all.

use crate::bench::agent::{self, Agent};
use crate::bench::fabric::{Fabric, of_operations};
use crate::bench::laboratory;
use crate::bench::program;
use crate::bench::rows::{assert_right, rows};
use crate::bench::trace_judge::{Seen, Told, Way, agree, compare};
use rnic_ci::guest::{GuestMemory, GuestSpec};
use rnic_ci::qemu::trace::TraceRecord;
use rnic_shim::transaction::TransactionSpec;
use serde_json::Value;
use std::path::Path;

/// Guests that the suite drives itself: everything that crossed since the adapters were there.
pub fn qemus_trace_tells_the_same_crossings_in_guests() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let watches = agent::watch(&fabric);
    let spec_of = |name: &str| GuestSpec {
        memory: GuestMemory::Messages,
        trace: true,
        ..GuestSpec::new(name, &fabric.socket(name))
    };
    let [requester, responder] = ["A", "B"].map(|name| Agent::start(&lab, &spec_of(name)));
    let spec =
        TransactionSpec { armed: true, timeout: 18, length_bytes: 10_000, path_mtu_bytes: 1024, ..Default::default() };
    agent::bring_up(&requester, &responder, &spec);
    agent::operate(&requester, &responder);
    let qpns = [spec.requester_qpn, spec.responder_qpn];
    for ((watch, agent), (qpn, expected)) in
        watches.iter().zip([&requester, &responder]).zip(qpns.into_iter().zip([13, 13]))
    {
        let crossings = watch.crossings();
        assert_eq!(of_operations(&crossings, &[qpn]).len(), expected);
        let told: Vec<Told> = crossings.iter().map(Told::from).collect();
        let seen = agree(agent.guest.trace().expect("a trace"), &told);
        println!("{}: {} crossings, {} DMA messages", agent.guest.name(), told.len(), seen.dma.len());
    }
}

/// `rnic demo --unshared`: its report of the operation against what QEMU saw last.
pub fn qemu_counts_the_same_crossings_when_every_dma_is_a_message() {
    for arguments in ["--armed", "--armed --length 10000 --mtu 1024", "--armed --doorbell 8"] {
        let folder = tempfile::tempdir().expect("a folder");
        let report = program::report(&format!("{arguments} --unshared --trace {}", folder.path().display()), 0);
        assert_right(&report);
        for (host, name) in ["A", "B"].iter().enumerate() {
            let records = records(&folder.path().join(format!("{name}.trace")));
            let told: Vec<Told> = rows(&report, host).iter().map(told).collect();
            assert_operation(&records, &told, &format!("{arguments}, host {name}"));
        }
    }
}

/// The operation's messages are the last ones: the requester's begin with its bell's stores, the responder's after them.
#[track_caller]
fn assert_operation(records: &[TraceRecord], told: &[Told], what: &str) {
    let is_access = |record: &TraceRecord| record.event == "vfio_user_region_rw";
    let stores: u64 = told.iter().filter(|row| row.direction == Way::Store).map(|row| row.messages).sum();
    let accesses: Vec<usize> = (0..records.len()).filter(|at| is_access(&records[*at])).collect();
    let begin = accesses[accesses.len() - (stores as usize).max(1)];
    let mut seen = Seen::of(&records[begin..]);
    if stores == 0 {
        // The arm, which was the last access, is no part of the operation.
        seen.stores.clear();
    }
    compare(&seen, told).unwrap_or_else(|sentence| panic!("{what}: {sentence}: {seen:?}"));
}

fn records(path: &Path) -> Vec<TraceRecord> {
    let text = std::fs::read_to_string(path).expect("QEMU's trace");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(event, detail)| TraceRecord { event: event.to_owned(), detail: detail.to_owned() }).collect()
}

/// A row of the demo's report.
fn told(row: &Value) -> Told {
    let number = |value: &Value| value.as_u64().expect("a number");
    let class = row["class"].as_str().expect("a class");
    let (bytes, ranges) = (number(&row["bytes"]), number(&row["ranges"]));
    let (class, direction, messages, bytes, vector) = match class {
        "doorbell" => {
            let seen = &row["observed"];
            ("doorbell", Way::Store, number(&seen["messages"]), number(&seen["bytes"]), false)
        }
        "event" => ("event", Way::Write, 1, bytes - 4, true),
        "payload_write" | "cqe_write" => ("a write", Way::Write, ranges, bytes, false),
        _ => ("a read", Way::Read, ranges, bytes, false),
    };
    Told { class, direction, messages, bytes, vector }
}
