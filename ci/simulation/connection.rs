//! A connection: two queue pairs, a direction each way, and where it stands in its life.

use crate::commands::Drain;
pub use crate::flow::Flow;
use crate::operations::{Fault, FaultKind};
use rnic_shim::verbs::{Cqn, Qpn};

/// One side.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub host: usize,
    pub qpn: Qpn,
    pub send_cq: Cqn,
    pub receive_cq: Cqn,
    /// The shared receive queue that its receives come from.
    pub shared: Option<usize>,
}

/// What both sides are connected with; chosen anew at each connection.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub mtu: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    /// READs and atomics that may be outstanding, for both ends.
    pub rd_atomics: u8,
}

impl Profile {
    pub fn timeout_ns(&self) -> u64 {
        4096 << self.timeout
    }
}

/// A receive work request that has not completed.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub number: u64,
    pub at: u32,
    pub size: u32,
}

/// Why a connection is to fail.
#[derive(Clone, Copy, Debug)]
pub enum Doom {
    /// One message of a flow.
    Fault { flow: usize, fault: &'static Fault },
    /// The key of a flow's region is gone, or of its view; messages before this number may have met it.
    Rekey { flow: usize, before: u64, view: bool },
    /// Memory refused a read of it.
    Memory,
    /// An adapter at one end was reset.
    Reset,
}

impl Doom {
    pub fn flow(&self) -> Option<usize> {
        match self {
            Self::Fault { flow, .. } | Self::Rekey { flow, .. } => Some(*flow),
            Self::Memory | Self::Reset => None,
        }
    }

    pub fn kind(&self) -> Option<FaultKind> {
        match self {
            Self::Fault { fault, .. } => Some(fault.kind),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Both ends are in the error state and complete what is posted.
    Ending,
    /// Both ends are in RESET until frames of before are gone.
    Resting {
        until_ns: u64,
    },
}

#[derive(Debug)]
pub struct Connection {
    pub ends: [End; 2],
    /// By the sending side.
    pub flows: [Flow; 2],
    pub phase: Phase,
    pub doom: Option<Doom>,
    /// Sides that went to RESET and told nobody.
    pub gone: [bool; 2],
    /// The side that stays in RTR for a while, and until when.
    pub late: Option<(usize, u64)>,
    /// Sides whose driver has heard that the peer is there.
    pub established: [bool; 2],
    /// Sides that have told that they take no more of a shared receive queue.
    pub last_receive: [bool; 2],
    /// Send queues that are being drained.
    pub drains: [Drain; 2],
    /// Queue pairs that do not exist between two lives.
    pub destroyed: [bool; 2],
    /// Both sides retransmit selectively.
    pub selective: bool,
    /// Of an initiator and a target: the first side alone sends.
    pub extended: bool,
    pub profile: Profile,
}

impl Connection {
    pub fn runs(&self) -> bool {
        self.phase == Phase::Running
    }

    /// One side waits for nothing any more: its queue pair failed, by a request or by a receive, or was reset.
    pub fn has_given_up(&self, side: usize) -> bool {
        let flow = &self.flows[side];
        flow.failed || flow.flushed || self.flows[1 - side].receive_failed || self.gone[side] || !self.runs()
    }

    /// The sends of one side may have run out of retries, or of patience with a receiver, by now.
    pub fn may_have_failed(&self, side: usize, now_ns: u64) -> bool {
        let requester = &self.flows[side].requester;
        requester.may_have_given_up(now_ns) || requester.may_have_lost_patience(self.profile.rnr_retry)
    }

    /// The receives of one side's queue pair are not its own.
    pub fn shares(&self, side: usize) -> bool {
        self.ends[side].shared.is_some() || self.extended
    }

    /// A side that can send.
    pub fn sends(&self, side: usize) -> bool {
        !self.extended || side == 0
    }

    /// In the error state it has nothing of a shared receive queue any more.
    pub fn has_let_go(&self, side: usize) -> bool {
        self.ends[side].shared.is_none() || self.last_receive[side] || self.gone[side]
    }

    /// Anything may have become of its messages.
    pub fn is_excused(&self) -> bool {
        matches!(self.doom, Some(Doom::Memory | Doom::Reset))
    }
}
