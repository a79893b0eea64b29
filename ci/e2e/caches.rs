//! Caches of one entry, over the vfio-user socket: what a working set that does not fit costs.

use crate::bench::fabric::{Fabric, by_class, of_operations};
use crate::bench::station::{Retries, Station};
use crate::bench::transaction::over_socket;
use rnic_pcie::{Class, Crossing};
use rnic_shim::exchange::Endpoint;
use rnic_shim::transaction::{ipv4_gid, payload};
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// Two queue pairs on each of two adapters, connected.
struct TwoEach {
    a: Station,
    b: Station,
    pairs: [(Endpoint, Endpoint); 2],
}

impl TwoEach {
    fn bring_up(fabric: &Fabric) -> TwoEach {
        let mut a = Station::open(over_socket(&fabric.socket("A")), ipv4_gid([10, 0, 0, 1]));
        let mut b = Station::open(over_socket(&fabric.socket("B")), ipv4_gid([10, 0, 0, 2]));
        let pairs = [0, 1].map(|_| {
            let (own, peer) = (a.create_queue_pair(), b.create_queue_pair());
            a.connect(&own, &peer, Retries::default());
            b.connect(&peer, &own, Retries::default());
            (own, peer)
        });
        TwoEach { a, b, pairs }
    }

    /// One WRITE_IMM on one of the pairs, to its end on both sides.
    fn operate(&mut self, pair: usize, immediate: u32) {
        let (own, peer) = self.pairs[pair];
        let message = payload(immediate.into(), 4096);
        self.a.fill(&message);
        self.b.receive(&peer);
        self.a.write(&own, &peer, 4096, Some(immediate)).expect("posted");
        let done = self.a.completion(LIMIT);
        assert_eq!((done.status, done.qpn), (0, own.qpn));
        let arrived = self.b.completion(LIMIT);
        assert_eq!((arrived.status, arrived.qpn, arrived.immediate), (0, peer.qpn, Some(immediate)));
        assert!(self.b.holds(4096) == message);
    }
}

/// Crossings of both sides' operations over some turns, and of contexts that were written back for them. Where the machine
/// stood still for so long that a timer repeated a packet or a doorbell's line was cut, which crosses more, they are taken anew.
fn turns(qp_cache_entries: usize, order: &[usize]) -> [Vec<Crossing>; 2] {
    let taken = (0..5).find_map(|_| turns_once(qp_cache_entries, order));
    taken.expect("turns in which no timer ended and no line was cut")
}

/// `None` if there were crossings of another kind.
fn turns_once(qp_cache_entries: usize, order: &[usize]) -> Option<[Vec<Crossing>; 2]> {
    let fabric = Fabric::with(|options| options.engine.qp_cache_entries = qp_cache_entries);
    let mut two = TwoEach::bring_up(&fabric);
    // What bring-up left in the cache is not the question.
    two.operate(1, 1);
    let watches = ["A", "B"].map(|name| fabric.watch(name));
    (7..).zip(order).for_each(|(immediate, pair)| two.operate(*pair, immediate));
    let [a, b] = watches.map(|watch| watch.crossings());
    let disturbed = ["A", "B"].iter().any(|name| {
        let counters = fabric.counters(name);
        counters.retransmitted_pkts + counters.diagnostics > 0
    });
    if disturbed {
        return None;
    }
    let [own, peers] = [0, 1].map(|side| two.pairs.map(|pair| if side == 0 { pair.0.qpn } else { pair.1.qpn }));
    Some([of_operations(&a, &own), of_operations(&b, &peers)])
}

fn without(mut counts: BTreeMap<Class, u64>, class: Class) -> (BTreeMap<Class, u64>, u64) {
    let count = counts.remove(&class).unwrap_or(0);
    (counts, count)
}

pub fn two_queue_pairs_in_turn_with_a_cache_of_one_fetch_a_context_an_operation_a_side() {
    let in_turn = [0, 1, 0, 1, 0, 1, 0, 1];
    let (roomy, narrow) = (turns(1024, &in_turn), turns(1, &in_turn));
    for (side, (roomy, narrow)) in roomy.iter().zip(&narrow).enumerate() {
        let (roomy, fetched_roomy) = without(by_class(roomy), Class::ContextFetch);
        let (narrow, fetched) = without(by_class(narrow), Class::ContextFetch);
        assert_eq!((fetched_roomy, fetched), (0, in_turn.len() as u64), "side {side}");
        let (narrow, _) = without(narrow, Class::ContextWriteback);
        assert_eq!(narrow, roomy, "and nothing else is added, but what a dirty entry writes back; side {side}");
    }
    // The same queue pair again and again fits into one entry.
    for (side, crossings) in turns(1, &[1, 1, 1, 1]).iter().enumerate() {
        assert_eq!(by_class(crossings).get(&Class::ContextFetch), None, "side {side}");
    }
}
