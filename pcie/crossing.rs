//! The vocabulary of crossings: what a transfer over the PCIe link was for, and why it happened.
//!
//! The words are RDMA's, the meaning is not interpreted here: the ledger counts by [`Class`] and the trace
//! carries [`Cause`] through, so that a transfer cannot be made without saying both.

use crate::DmaFault;

/// Which way a crossing's data travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The host wrote to or read from a BAR.
    Host,
    /// The device read host memory.
    DeviceRead,
    /// The device wrote host memory.
    DeviceWrite,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $direction:ident;)*) => {
        /// What a crossing is for. The names are those of the reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class { $($(#[$doc])* $variant,)* }

        impl Class {
            /// Every class, in the order of the reports.
            pub const ALL: &'static [Class] = &[$(Class::$variant,)*];

            /// The name in reports and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Class::$variant => $name,)* }
            }

            /// Which way the class's data travels.
            pub const fn direction(self) -> Direction {
                match self { $(Class::$variant => Direction::$direction,)* }
            }
        }
    };
}

classes! {
    /// A send queue's doorbell: one 8-byte store, or one assembled line of 64.
    Doorbell = "doorbell", Host;
    /// Work requests read off a send queue ring.
    WqeFetch = "wqe_fetch", DeviceRead;
    /// The gather of one packet.
    PayloadRead = "payload_read", DeviceRead;
    /// The scatter of one packet.
    PayloadWrite = "payload_write", DeviceWrite;
    /// A receive work request read off its ring.
    RecvWqeFetch = "recv_wqe_fetch", DeviceRead;
    /// One completion queue entry.
    CqeWrite = "cqe_write", DeviceWrite;
    /// One event queue entry and the MSI-X message it raises, if it raises one.
    Event = "event", DeviceWrite;
    /// The read half of an atomic at the responder.
    AtomicRead = "atomic_read", DeviceRead;
    /// The write half of an atomic at the responder, or the write of an ATOMIC_WRITE.
    AtomicWrite = "atomic_write", DeviceWrite;
    /// A QP, CQ or SRQ context read into its cache.
    ContextFetch = "context_fetch", DeviceRead;
    /// A dirty context or key written back from its cache.
    ContextWriteback = "context_writeback", DeviceWrite;
    /// A memory protection table entry read into the key cache.
    KeyFetch = "key_fetch", DeviceRead;
    /// One cache line of a page list.
    TranslationFetch = "translation_fetch", DeviceRead;
    /// A receive queue's doorbell.
    RecvDoorbell = "recv_doorbell", Host;
    /// A completion queue armed for an event.
    CqArm = "cq_arm", Host;
    /// An event queue's consumer index and arm.
    EqUpdate = "eq_update", Host;
    /// A register written.
    RegisterWrite = "register_write", Host;
    /// A register read.
    RegisterRead = "register_read", Host;
    /// A consumer record read from host memory.
    RecordFetch = "record_fetch", DeviceRead;
    /// One command read off the command queue.
    CommandFetch = "command_fetch", DeviceRead;
    /// One command's completion.
    CommandCompletion = "command_completion", DeviceWrite;
    /// What a FLUSH at the responder reads back: behind it everything that was written before is in host memory.
    FlushRead = "flush_read", DeviceRead;
    /// The Ethernet function: a queue's notification.
    NetDoorbell = "net_doorbell", Host;
    /// The Ethernet function: a register written.
    NetRegisterWrite = "net_register_write", Host;
    /// The Ethernet function: a register read.
    NetRegisterRead = "net_register_read", Host;
    /// The Ethernet function: a piece of an available ring, its flags and index or its entries.
    NetAvailableFetch = "net_available_fetch", DeviceRead;
    /// The Ethernet function: a descriptor, or a whole indirect table.
    NetDescriptorFetch = "net_descriptor_fetch", DeviceRead;
    /// The Ethernet function: the gather of one frame, or of one control command.
    NetPayloadRead = "net_payload_read", DeviceRead;
    /// The Ethernet function: the scatter of one frame, or of one control command's answer.
    NetPayloadWrite = "net_payload_write", DeviceWrite;
    /// The Ethernet function: entries of a used ring, and its index.
    NetUsedWrite = "net_used_write", DeviceWrite;
    /// The Ethernet function: one MSI-X message.
    NetEvent = "net_event", DeviceWrite;
}

/// Why a crossing happened: the operation or the housekeeping it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A send work request: `count` of them from ring index `index`. `attempt > 0` is a retransmission.
    Send { qpn: u32, index: u16, count: u16, attempt: u16 },
    /// A receive work request of a QP (or SRQ).
    Receive { qpn_or_srqn: u32, index: u16 },
    /// An inbound packet. `attempt > 0` marks work done again for a duplicate.
    Packet { qpn: u32, psn: u32, attempt: u16 },
    /// A command in its slot.
    Command { slot: u16 },
    /// An asynchronous event of its own (a completion event carries the cause of its completion).
    Event { eqn: u32, index: u32 },
    /// The Ethernet function: a queue, and the place in its ring (the queue `0xffff` is the configuration).
    Net { queue: u16, index: u16 },
    /// Nobody's operation: registers, arms, receive doorbells, cache flushes.
    Maintenance,
}

/// The two halves of an operation: the one that asks, and the one that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    Requester,
    Responder,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Requester, Self::Responder];

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requester => "requester",
            Self::Responder => "responder",
        }
    }
}

impl Cause {
    /// Whose operation it was: the queue's number and the role it had; nobody's is housekeeping.
    pub const fn operation(self) -> Option<(u32, Role)> {
        match self {
            Self::Send { qpn, .. } => Some((qpn, Role::Requester)),
            Self::Packet { qpn, .. } => Some((qpn, Role::Responder)),
            Self::Receive { qpn_or_srqn, .. } => Some((qpn_or_srqn, Role::Responder)),
            Self::Command { .. } | Self::Event { .. } | Self::Net { .. } | Self::Maintenance => None,
        }
    }
}

/// What every transfer has to say before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub class: Class,
    pub cause: Cause,
}

impl Origin {
    pub const fn new(class: Class, cause: Cause) -> Self {
        Self { class, cause }
    }
}

/// Transaction layer packets of a crossing, by kind. A register read by the host is an MRd and a CplD as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tlps {
    pub mrd: u32,
    pub mwr: u32,
    pub cpld: u32,
}

/// Bytes on the link, headers and framing included: `down` from host to device, `up` from device to host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    pub down: u64,
    pub up: u64,
}

/// How a host access was seen to arrive, beside how it is counted: a 64-byte line through a trapped BAR arrives
/// as eight messages of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub messages: u32,
    pub bytes: u32,
}

/// One crossing as the trace records it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Position in the function's own order of crossings, from 1.
    pub sequence: u64,
    pub time_ns: u64,
    pub origin: Origin,
    pub bytes: u32,
    /// Contiguous IOVA pieces.
    pub ranges: u16,
    pub tlps: Tlps,
    pub wire_bytes: WireBytes,
    /// Host accesses only.
    pub observed: Option<Observed>,
    /// Why it failed, where it did.
    pub fault: Option<DmaFault>,
}
