//! Reads in flight and who waits for them.
//!
//! A stage that misses something registers itself as a [`Waiter`] and answers [`Stop::Blocked`]; when the read
//! completes, the waiter's stage runs again and finds what it missed. Progress that must not be lost stays with
//! the item, not here.

use crate::context::key::Refusal;
use crate::context::translation::Owner;
use crate::numbers::{Cqn, Eqn, Qpn};
use crate::tx::gather::Gathering;
use rnic_abi::Diagnostic;
use rnic_pcie::DmaTag;
use std::collections::BTreeMap;

/// Why a stage could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A read is in flight; the waiter is called when it is done.
    Blocked,
    /// A key does not allow it.
    Refused(Refusal),
    /// Host memory failed, or held what it must not.
    Broken(Diagnostic),
}

/// What runs again when a fill is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    Transmit(Qpn),
    WqeFetch(Qpn),
    Respond(Qpn),
    Timeout(Qpn),
    Inbound(Qpn),
    ReceiveWqe(Qpn),
    Completion(Cqn),
    Event(Eqn),
    Command,
}

/// What a cache fill brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    QueuePair(Qpn),
    CompletionQueue(Cqn),
    Key(u32),
    Line { owner: Owner, address: u64 },
}

/// A read in flight.
#[derive(Debug)]
pub(crate) enum Awaited {
    Fill { fill: Fill, waiters: Vec<Waiter> },
    Command,
    Wqes { qpn: Qpn, index: u16 },
    ReceiveWqe { qpn: Qpn },
    Gather(Box<Gathering>),
    Record { cqn: Cqn },
}

/// Every read in flight, by tag.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    reads: BTreeMap<DmaTag, Awaited>,
    /// Fills that failed and whose waiters have not asked again yet.
    faults: Vec<(Fill, Diagnostic)>,
}

impl Pending {
    pub fn insert(&mut self, tag: DmaTag, awaited: Awaited) {
        self.reads.insert(tag, awaited);
    }

    pub fn remove(&mut self, tag: DmaTag) -> Option<Awaited> {
        self.reads.remove(&tag)
    }

    /// Joins a fill that is in flight already.
    pub fn join(&mut self, wanted: Fill, waiter: Waiter) -> bool {
        for awaited in self.reads.values_mut() {
            if let Awaited::Fill { fill, waiters } = awaited
                && *fill == wanted
            {
                if !waiters.contains(&waiter) {
                    waiters.push(waiter);
                }
                return true;
            }
        }
        false
    }

    pub fn note_fault(&mut self, fill: Fill, diagnostic: Diagnostic) {
        self.faults.push((fill, diagnostic));
    }

    /// A fault that a fill has left for whoever asks next.
    pub fn take_fault(&mut self, fill: Fill) -> Option<Diagnostic> {
        if self.faults.is_empty() {
            return None;
        }
        let at = self.faults.iter().position(|(failed, _)| *failed == fill)?;
        Some(self.faults.swap_remove(at).1)
    }

    /// A fill's fault is nobody's once its waiters have run.
    pub fn forget_fault(&mut self, fill: Fill) {
        self.faults.retain(|(failed, _)| *failed != fill);
    }

    /// The newest read in flight.
    pub fn newest(&self) -> Option<DmaTag> {
        self.reads.keys().next_back().copied()
    }

    /// Payload reads up to this one are in flight: what a deregistration waits for.
    pub fn payload_reads_until(&self, newest: DmaTag) -> bool {
        self.reads.range(..=newest).any(|(_, awaited)| matches!(awaited, Awaited::Gather(_)))
    }

    /// Reads on behalf of a queue pair are in flight: what its destruction waits for.
    pub fn reads_of(&self, wanted: Qpn) -> bool {
        self.reads.values().any(|awaited| match awaited {
            Awaited::Fill { fill: Fill::QueuePair(qpn), .. } => *qpn == wanted,
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => {
                *owner == Owner::SendQueue(wanted.0) || *owner == Owner::ReceiveQueue(wanted.0)
            }
            Awaited::Wqes { qpn, .. } | Awaited::ReceiveWqe { qpn, .. } => *qpn == wanted,
            Awaited::Gather(gathering) => gathering.qpn == wanted,
            _ => false,
        })
    }

    /// Reads on behalf of a completion queue are in flight.
    pub fn reads_of_cq(&self, wanted: Cqn) -> bool {
        self.reads.values().any(|awaited| match awaited {
            Awaited::Fill { fill: Fill::CompletionQueue(cqn), .. } | Awaited::Record { cqn } => *cqn == wanted,
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => *owner == Owner::CompletionQueue(wanted.0),
            _ => false,
        })
    }

    /// Fills of a key or of its page list are in flight.
    pub fn reads_of_key(&self, wanted: u32) -> bool {
        self.reads.values().any(|awaited| match awaited {
            Awaited::Fill { fill: Fill::Key(index), .. } => *index == wanted,
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => *owner == Owner::Key(wanted),
            _ => false,
        })
    }

    /// Fills of an owner's page list are in flight.
    pub fn lines_of(&self, wanted: Owner) -> bool {
        self.reads
            .values()
            .any(|awaited| matches!(awaited, Awaited::Fill { fill: Fill::Line { owner, .. }, .. } if *owner == wanted))
    }
}
