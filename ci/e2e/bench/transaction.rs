//! One operation between two drivers in this process, whatever their backings are, and what crossed for it.

use super::fabric::{Fabric, of_operations};
use rnic_pcie::Crossing;
use rnic_shim::backing::Backing;
use rnic_shim::backings::in_process::ModelHost;
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::transaction::{Role, Side, TransactionSpec};
use std::path::Path;
use std::time::Duration;

/// A driver's way to an adapter over its socket, with memory that it shares.
pub fn over_socket(path: &Path) -> Box<dyn Backing> {
    let limit = Duration::from_secs(10);
    Box::new(Socket::connect(path, ModelHost::default(), MemoryAccess::Shared, limit).expect("a client of the adapter"))
}

/// Both sides, connected and ready.
pub struct Pair {
    pub requester: Side,
    pub responder: Side,
    qpns: [u32; 2],
}

impl Pair {
    pub fn bring_up(backings: [Box<dyn Backing>; 2], spec: &TransactionSpec) -> Pair {
        let [a, b] = backings;
        // Arming is the responder's choice; the requester polls.
        let requester_spec = TransactionSpec { armed: false, ..spec.clone() };
        let mut requester = Side::open(a, requester_spec, Role::Requester).expect("the requester opens its device");
        let mut responder = Side::open(b, spec.clone(), Role::Responder).expect("the responder opens its device");
        let own = requester.bring_up().expect("the requester's queues");
        let peer = responder.bring_up().expect("the responder's queues");
        responder.connect(own).expect("the responder connects");
        requester.connect(peer).expect("the requester connects");
        responder.arm().expect("the responder arms");
        Pair { requester, responder, qpns: [own.qpn, peer.qpn] }
    }

    /// Makes both adapters forget what they have cached.
    pub fn flush_caches(&mut self) {
        use rnic_abi::command::*;
        let all = FLUSH_QP | FLUSH_CQ | FLUSH_KEY | FLUSH_TRANSLATION;
        for side in [&mut self.requester, &mut self.responder] {
            side.device().flush_caches(all).expect("flushed");
        }
    }

    /// Post, complete and verify on both sides.
    #[track_caller]
    pub fn run(&mut self) {
        self.requester.post().expect("posted");
        self.requester.wait().expect("the requester's completion");
        self.responder.wait().expect("the responder's completion");
        for side in [&mut self.requester, &mut self.responder] {
            let verdict = side.verify().expect("verified");
            assert!(verdict.is_good(), "{:?}: {:?}", side.report().role, verdict.faults);
        }
    }

    /// Runs it and gives the operation's crossings of adapters A and B.
    #[track_caller]
    pub fn run_watched(&mut self, fabric: &Fabric) -> [Vec<Crossing>; 2] {
        let watches = ["A", "B"].map(|name| fabric.watch(name));
        self.run();
        let [a, b] = watches.map(|watch| watch.crossings());
        [of_operations(&a, &self.qpns[..1]), of_operations(&b, &self.qpns[1..])]
    }

    /// Ends both drivers in order; the backings come back.
    pub fn close(self) -> [Box<dyn Backing>; 2] {
        [self.requester, self.responder].map(|side| side.close().expect("closed"))
    }
}
