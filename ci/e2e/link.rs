//! A link that goes down and comes back under a transaction, over the vfio-user socket.

use crate::bench::fabric::Fabric;
use crate::bench::transaction::{Pair, over_socket};
use rnic_abi::EventType;
use rnic_abi::registers::STATUS_LINK_UP;
use rnic_shim::transaction::TransactionSpec;
use rnic_shim::verbs::Eqn;
use std::time::{Duration, Instant};

fn lost_frames(fabric: &Fabric) -> u64 {
    fabric.adapter("A").call(|adapter| adapter.port.link_down_frames).expect("an answer")
}

fn events(pair: &mut Pair) -> Vec<(EventType, u32)> {
    let device = pair.requester.device();
    std::iter::from_fn(|| device.poll_event(Eqn(0)).expect("event queue 0"))
        .map(|event| (event.event_type, event.object))
        .collect()
}

pub fn frames_are_lost_while_the_link_is_down_and_the_driver_is_told_of_both_changes() {
    let fabric = Fabric::new();
    // A retry timer of 67 ms, and seven of them.
    let spec = TransactionSpec { timeout: 14, retry_cnt: 7, ..TransactionSpec::default() };
    let ways = ["A", "B"].map(|name| over_socket(&fabric.socket(name)));
    let mut pair = Pair::bring_up(ways, &spec);
    assert_ne!(pair.requester.device().status().expect("read") & STATUS_LINK_UP, 0);
    assert_eq!(events(&mut pair), []);

    fabric.adapter("A").set_link(false).expect("an answer");
    assert_eq!(pair.requester.device().status().expect("read") & STATUS_LINK_UP, 0);
    assert_eq!(events(&mut pair), [(EventType::PORT_ERR, 1)]);
    pair.requester.post().expect("posted");
    let start = Instant::now();
    while lost_frames(&fabric) == 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "nothing was sent, so nothing was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fabric.counters("B").rcvd_pkts, 0, "nothing came through");

    fabric.adapter("A").set_link(true).expect("an answer");
    assert_eq!(events(&mut pair), [(EventType::PORT_ACTIVE, 1)]);
    pair.requester.wait().expect("the requester's completion");
    pair.responder.wait().expect("the responder's completion");
    for side in [&mut pair.requester, &mut pair.responder] {
        let verdict = side.verify().expect("verified");
        assert!(verdict.is_good(), "{:?}", verdict.faults);
    }
    assert!(fabric.counters("A").retransmitted_pkts > 0, "it got through by being sent again");
    pair.close();
}
