//! Reads in flight and who waits for them.
//!
//! A stage that misses something registers itself as a [`Waiter`] and answers [`Stop::Blocked`]; when the read
//! completes, the waiter's stage runs again and finds what it missed, or the fault that the read ended with.
//! Progress that must not be lost stays with the item, not here.

use crate::context::key::Refusal;
use crate::context::translation::Owner;
use crate::numbers::{Cqn, Eqn, Qpn, Srqn};
use crate::planted::planted;
use crate::tx::gather::Gathering;
use crate::tx::reply::Replying;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    Transmit(Qpn),
    WqeFetch(Qpn),
    /// A packet whose payload has come and which waits for its context to leave.
    Staged(Qpn),
    Respond(Qpn),
    Timeout(Qpn),
    Inbound(Qpn),
    ReceiveWqe(Qpn),
    Completion(Cqn),
    Event(Eqn),
    Command,
}

impl Waiter {
    /// The queue pair whose stage it is.
    pub const fn queue_pair(self) -> Option<Qpn> {
        match self {
            Self::Transmit(qpn)
            | Self::WqeFetch(qpn)
            | Self::Staged(qpn)
            | Self::Respond(qpn)
            | Self::Timeout(qpn)
            | Self::Inbound(qpn)
            | Self::ReceiveWqe(qpn) => Some(qpn),
            Self::Completion(_) | Self::Event(_) | Self::Command => None,
        }
    }

    /// It asks again at its turn, not in the step in which the fill comes back.
    pub const fn is_scheduled(self) -> bool {
        matches!(self, Self::Transmit(_) | Self::Staged(_) | Self::Respond(_))
    }
}

/// What a cache fill brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    QueuePair(Qpn),
    CompletionQueue(Cqn),
    SharedReceiveQueue(Srqn),
    RdAtomic(Qpn),
    Key(u32),
    Line { owner: Owner, address: u64 },
}

/// A read in flight.
#[derive(Debug)]
pub(crate) enum Awaited {
    Fill {
        fill: Fill,
        waiters: Vec<Waiter>,
    },
    /// A fill that brings what is not true any more.
    Outdated {
        waiters: Vec<Waiter>,
    },
    Command,
    Wqes {
        qpn: Qpn,
        index: u16,
        slots: u16,
    },
    ReceiveWqe {
        qpn: Qpn,
        index: u16,
    },
    SharedIndices {
        srqn: Srqn,
        position: u16,
        count: u16,
    },
    Gather(Box<Gathering>),
    Reply(Box<Replying>),
    Atomic {
        qpn: Qpn,
    },
    Record {
        cqn: Cqn,
    },
}

/// Every read in flight, by tag.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    reads: BTreeMap<DmaTag, Awaited>,
    fills: BTreeMap<Fill, DmaTag>,
    /// How a waiter's fill failed, until it asks again. A waiter waits for one fill at a time.
    faults: BTreeMap<Waiter, (Fill, Diagnostic)>,
}

impl Pending {
    pub fn insert(&mut self, tag: DmaTag, awaited: Awaited) {
        if let Awaited::Fill { fill, .. } = &awaited {
            self.fills.insert(*fill, tag);
        }
        self.reads.insert(tag, awaited);
    }

    pub fn remove(&mut self, tag: DmaTag) -> Option<Awaited> {
        let awaited = self.reads.remove(&tag)?;
        if let Awaited::Fill { fill, .. } = &awaited {
            self.fills.remove(fill);
        }
        Some(awaited)
    }

    /// What a fill in flight brings is older than what is known now: those who wait for it ask again.
    pub fn outdate(&mut self, fill: Fill) {
        let awaited = self.fills.remove(&fill).and_then(|tag| self.reads.get_mut(&tag));
        if let Some(awaited) = awaited
            && let Awaited::Fill { waiters, .. } = awaited
            && !planted("outdated_fills_used")
        {
            *awaited = Awaited::Outdated { waiters: std::mem::take(waiters) };
        }
    }

    /// Joins a fill that is in flight already.
    pub fn join(&mut self, wanted: Fill, waiter: Waiter) -> bool {
        let awaited = self.fills.get(&wanted).and_then(|tag| self.reads.get_mut(tag));
        let Some(Awaited::Fill { waiters, .. }) = awaited else { return false };
        if !waiters.contains(&waiter) && !planted("waiter_forgotten") {
            waiters.push(waiter);
        }
        true
    }

    pub fn note_fault(&mut self, waiter: Waiter, fill: Fill, diagnostic: Diagnostic) {
        self.faults.insert(waiter, (fill, diagnostic));
    }

    /// The fault with which this waiter's fill has ended.
    pub fn take_fault(&mut self, waiter: Waiter, fill: Fill) -> Option<Diagnostic> {
        if self.faults.get(&waiter)?.0 != fill {
            return None;
        }
        self.faults.remove(&waiter).map(|(_, diagnostic)| diagnostic)
    }

    pub fn forget_fault(&mut self, waiter: Waiter) {
        self.faults.remove(&waiter);
    }

    /// A queue pair starts anew: what its stages met before says nothing of it.
    pub fn forget_faults_of(&mut self, qpn: Qpn) {
        let of = [Waiter::Transmit, Waiter::Staged, Waiter::Respond, Waiter::WqeFetch, Waiter::Inbound];
        for waiter in of {
            self.faults.remove(&waiter(qpn));
        }
    }

    /// A key that is invalidated takes its faults along.
    pub fn forget_key_faults(&mut self, index: u32) {
        self.faults.retain(|_, (fill, _)| match fill {
            Fill::Key(failed) => *failed != index,
            Fill::Line { owner, .. } => *owner != Owner::Key(index),
            Fill::QueuePair(_) | Fill::CompletionQueue(_) | Fill::SharedReceiveQueue(_) | Fill::RdAtomic(_) => true,
        });
    }

    /// The newest read in flight.
    pub fn newest(&self) -> Option<DmaTag> {
        self.reads.keys().next_back().copied()
    }

    /// Payload reads up to this one are in flight: what a deregistration waits for.
    pub fn payload_reads_until(&self, newest: DmaTag) -> bool {
        self.reads.range(..=newest).any(|(_, awaited)| match awaited {
            Awaited::Gather(_) | Awaited::Reply(_) | Awaited::Atomic { .. } => true,
            // A list that a key was given is read on behalf of an access.
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => matches!(owner, Owner::Key(_)),
            _ => false,
        })
    }

    /// Reads on behalf of a queue pair are in flight: what its destruction waits for.
    pub fn reads_of(&self, wanted: Qpn) -> bool {
        self.reads.values().any(|awaited| match awaited {
            Awaited::Fill { fill: Fill::QueuePair(qpn) | Fill::RdAtomic(qpn), .. } => *qpn == wanted,
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => {
                *owner == Owner::SendQueue(wanted.0) || *owner == Owner::ReceiveQueue(wanted.0)
            }
            Awaited::Wqes { qpn, .. } | Awaited::ReceiveWqe { qpn, .. } | Awaited::Atomic { qpn } => *qpn == wanted,
            Awaited::Reply(replying) => replying.qpn == wanted,
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

    /// Reads on behalf of a shared receive queue are in flight.
    pub fn reads_of_srq(&self, wanted: Srqn) -> bool {
        let owners = [Owner::SharedReceiveQueue(wanted.0), Owner::SharedIndices(wanted.0)];
        self.reads.values().any(|awaited| match awaited {
            Awaited::Fill { fill: Fill::SharedReceiveQueue(srqn), .. } | Awaited::SharedIndices { srqn, .. } => {
                *srqn == wanted
            }
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => owners.contains(owner),
            _ => false,
        })
    }

    /// Fills of a key or of its page list are in flight.
    pub fn reads_of_key(&self, wanted: u32) -> bool {
        self.fills.contains_key(&Fill::Key(wanted)) || self.lines_of(Owner::Key(wanted))
    }

    /// Fills of an owner's page list up to this read are in flight.
    pub fn lines_until(&self, wanted: Owner, newest: DmaTag) -> bool {
        self.reads.range(..=newest).any(|(_, awaited)| match awaited {
            Awaited::Fill { fill: Fill::Line { owner, .. }, .. } => *owner == wanted,
            _ => false,
        })
    }

    /// Fills of an owner's page list are in flight.
    pub fn lines_of(&self, wanted: Owner) -> bool {
        self.fills.keys().any(|fill| matches!(fill, Fill::Line { owner, .. } if *owner == wanted))
    }
}
