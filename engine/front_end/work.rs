//! Neutral work requests, completions and events.

use crate::context::page_list::PageList;
use crate::context::queue_pair::AddressVector;
use crate::numbers::{Key, Qpn, Srqn};
use arrayvec::ArrayVec;
use rnic_abi::Diagnostic;

/// Elements of the longest work request.
pub const MAX_ELEMENTS: usize = 15;
/// Bytes of the longest inline payload.
pub const MAX_INLINE: usize = 240;

/// One scatter-gather element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub address: u64,
    pub length_bytes: u32,
    pub key: Key,
}

pub type ScatterList = ArrayVec<Element, MAX_ELEMENTS>;

/// What a send work request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    LocalInv,
    RegisterMr,
    BindMw,
}

/// The packet of a message for which the peer needs a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesReceive {
    Never,
    AtFirst,
    AtLast,
}

impl Operation {
    pub const fn has_immediate(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }

    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// When a receive of the peer is needed for it.
    pub const fn takes_receive(self) -> TakesReceive {
        match self {
            Self::Send | Self::SendImm | Self::SendInv => TakesReceive::AtFirst,
            Self::WriteImm => TakesReceive::AtLast,
            _ => TakesReceive::Never,
        }
    }

    /// It acts on memory of the peer that it names.
    pub const fn names_remote(self) -> bool {
        self.is_write() || self.awaits_response()
    }

    /// It sends nothing and is done at its turn.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::LocalInv | Self::RegisterMr | Self::BindMw)
    }

    /// It ends when its response has come, not when an acknowledgement covers it.
    pub const fn awaits_response(self) -> bool {
        self.brings_data() || matches!(self, Self::AtomicWrite | Self::Flush)
    }

    /// Its response has something for its elements.
    pub const fn brings_data(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }
}

/// Where the payload comes from or, for what brings data, goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Gather(ScatterList),
    Inline(ArrayVec<u8, MAX_INLINE>),
    /// What a fast region is from now on.
    Register(Registration),
    /// What a window shows from now on.
    Bind(Binding),
    /// What is made sure of.
    Flush(Placement),
}

/// How far, and what, a FLUSH flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub global: bool,
    pub persistent: bool,
    /// All of the key's memory; else so many bytes.
    pub region: bool,
    pub length_bytes: u32,
}

/// A registration by work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub access: u32,
    pub start: u64,
    pub length_bytes: u64,
    /// `None` where the fields were no page list.
    pub pages: Option<PageList>,
}

/// A window's place in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub access: u32,
    pub region: Key,
    pub address: u64,
    pub length_bytes: u64,
}

/// Where one datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    pub av: AddressVector,
    pub qpn: Qpn,
    /// With its high bit set the queue pair's own is sent.
    pub qkey: u32,
}

/// A send work request as the transmit path knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWork {
    pub operation: Operation,
    pub signaled: bool,
    pub solicited: bool,
    pub fence: bool,
    pub immediate: u32,
    pub remote_address: u64,
    /// The key of the remote memory; of SEND with invalidate and of LOCAL_INV the one that is invalidated, of REG_MR and
    /// BIND_MW the one from now on.
    pub rkey: Key,
    /// Operands of an atomic.
    pub swap_or_add: u64,
    pub compare: u64,
    pub length_bytes: u32,
    pub slots: u16,
    /// Of a datagram; a connection knows where its packets go.
    pub destination: Option<Destination>,
    /// On an extended connection: the peer's shared receive queue that it is for.
    pub srqn: Option<Srqn>,
    pub body: Body,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Success,
    LocalLength,
    LocalQpOperation,
    LocalProtection,
    Flushed,
    WindowBind,
    BadResponse,
    RemoteInvalidRequest,
    RemoteAccess,
    RemoteOperation,
    RetryExceeded,
    RnrRetryExceeded,
    General,
}

/// What kind of work completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    Sent(Operation),
    Received {
        immediate: Option<u32>,
        invalidated: Option<Key>,
        by_write: bool,
    },
    /// A send work request whose opcode could not be understood.
    Unknown,
}

/// Where a datagram came from: what an answer needs beside the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    pub qpn: Qpn,
    pub mac: [u8; 6],
    /// Identifier and priority of its 802.1Q tag.
    pub vlan: Option<(u16, u8)>,
    pub is_ipv6: bool,
    pub pkey_index: u16,
}

/// A completion before it becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub qpn: Qpn,
    /// The shared receive queue whose slot `wqe_index` is.
    pub srqn: Option<Srqn>,
    pub wqe_index: u16,
    pub kind: CompletionKind,
    pub status: Status,
    pub length_bytes: u32,
    pub source_qpn: Qpn,
    /// Of a datagram that was received.
    pub datagram: Option<DatagramSource>,
    pub solicited: bool,
    pub diagnostic: Option<Diagnostic>,
}

/// An event before it becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRecord {
    Completion {
        cqn: u32,
        consumer: u32,
    },
    Command {
        slot: u16,
    },
    CqError {
        cqn: u32,
        diagnostic: Diagnostic,
    },
    QpFatal {
        qpn: u32,
        diagnostic: Diagnostic,
    },
    QpRequestError {
        qpn: u32,
        diagnostic: Diagnostic,
    },
    QpAccessError {
        qpn: u32,
        diagnostic: Diagnostic,
    },
    CommunicationEstablished {
        qpn: u32,
    },
    SendQueueDrained {
        qpn: u32,
    },
    /// A queue pair in the error state takes no more from its shared receive queue.
    LastWqeReached {
        qpn: u32,
    },
    SrqError {
        srqn: u32,
        diagnostic: Diagnostic,
    },
    SrqLimitReached {
        srqn: u32,
    },
    /// The device has stopped for good.
    DeviceFatal {
        diagnostic: Diagnostic,
    },
    PortActive {
        port: u8,
    },
    PortError {
        port: u8,
    },
}
