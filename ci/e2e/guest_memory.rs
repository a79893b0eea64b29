//! Outside eyes on memory: QEMU itself, asked over QMP, finds the payload in guest B and nothing around it.

use crate::bench::agent::{self, Agent};
use crate::bench::fabric::{Fabric, class_names, of_operations};
use crate::bench::laboratory;
use rnic_ci::guest::GuestSpec;
use rnic_shim::transaction::{CANARY, Operation, TransactionSpec, payload};
use rnic_shim::verbs::MrLayout;

const PAGE_BYTES: usize = 4096;

pub fn qmp_finds_the_payload_in_guest_b_and_canaries_around_it() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let requester = Agent::start(&lab, &GuestSpec::new("A", &fabric.socket("A")));
    let mut responder = Agent::start(&lab, &GuestSpec::new("B", &fabric.socket("B")));
    let folder = tempfile::tempdir().expect("a folder");
    let story = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let listed = TransactionSpec { layout: MrLayout::List, ..story.clone() };
    for (number, spec) in [
        TransactionSpec { seed: 77, ..story.clone() },
        TransactionSpec { seed: 78, ..listed.clone() },
        TransactionSpec { seed: 79, length_bytes: 10_000, path_mtu_bytes: 1024, ..listed.clone() },
        TransactionSpec { seed: 80, length_bytes: 4097, operation: Operation::SendImm, ..listed },
    ]
    .into_iter()
    .enumerate()
    {
        agent::bring_up(&requester, &responder, &spec);
        let watches = agent::watch(&fabric);
        agent::operate(&requester, &responder);
        let [_, b] = watches.map(|watch| watch.crossings());
        let placed = class_names(&of_operations(&b, &[spec.responder_qpn]));
        let packets = spec.length_bytes.div_ceil(spec.path_mtu_bytes) as usize;
        assert_eq!(placed.iter().filter(|class| **class == "payload_write").count(), packets);
        let pages = pages(&responder, &spec);
        let saved = folder.path().join(format!("memory{number}"));
        let mut page = |address: u64| {
            responder.guest.qmp().save_memory(address, PAGE_BYTES as u64, &saved).expect("pmemsave");
            std::fs::read(&saved).expect("the saved page")
        };
        let found: Vec<u8> = pages.iter().flat_map(|address| page(*address)).collect();
        let message = payload(spec.seed, spec.length_bytes);
        let whole = found.len() >= message.len() && found[..message.len()] == message[..];
        assert!(whole, "the payload stands at its target, {pages:x?}");
        assert!(found[message.len()..].iter().all(|byte| *byte == CANARY), "and nothing behind it in its last page");
        // The pages that lie beside those of the message in physical memory, wherever the list has put them.
        let lowest = pages.iter().min().expect("a page");
        let highest = pages.iter().max().expect("a page");
        for neighbour in [lowest - PAGE_BYTES as u64, highest + PAGE_BYTES as u64] {
            assert!(page(neighbour).iter().all(|byte| *byte == CANARY), "the page at {neighbour:#x} is untouched");
        }
    }
}

/// The pages that the message covers, in its order, as the device addresses them.
fn pages(responder: &Agent, spec: &TransactionSpec) -> Vec<u64> {
    let report = responder.step("report");
    let listed = report["pages"].as_array().expect("pages").iter().map(|page| page.as_u64().expect("an address"));
    let count = (spec.length_bytes as usize).div_ceil(PAGE_BYTES);
    match spec.layout {
        MrLayout::Contiguous => {
            let first = listed.clone().next().expect("a page");
            (first..).step_by(PAGE_BYTES).take(count).collect()
        }
        _ => listed.take(count).collect(),
    }
}
