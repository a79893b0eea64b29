//! The operations of the programs: one row an operation. A new one is a row here, and what its packets look like.

use rnic_abi::WorkOpcode;

/// Whose packets a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Send,
    Write,
    Read,
    Atomic,
    AtomicWrite,
    Flush,
    /// No packets: it works on a key of its own side.
    Local,
}

/// One kind of work request.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    pub name: &'static str,
    pub opcode: WorkOpcode,
    pub weight: u32,
    pub family: Family,
    pub immediate: bool,
    /// Items of the checklist that each message exercises.
    pub items: &'static [usize],
}

impl Operation {
    pub fn consumes_receive(&self) -> bool {
        self.family == Family::Send || self.immediate
    }

    /// It has an answer of its own: its request is one packet, and its answers take the PSNs.
    pub fn is_answered(&self) -> bool {
        self.brings_data() || matches!(self.family, Family::AtomicWrite | Family::Flush)
    }

    /// Its answer has bytes.
    pub fn brings_data(&self) -> bool {
        matches!(self.family, Family::Read | Family::Atomic)
    }

    /// It names memory of the peer.
    pub fn is_remote(&self) -> bool {
        !matches!(self.family, Family::Send | Family::Local)
    }

    /// The BTH opcode of a packet.
    pub fn wire_opcode(&self, first: bool, last: bool) -> u8 {
        let base = match self.family {
            Family::Send | Family::Local => 0x00,
            Family::Write => 0x06,
            Family::Read => return 0x0c,
            Family::Flush => return 0x1c,
            Family::AtomicWrite => return 0x1d,
            Family::Atomic => return if self.opcode == WorkOpcode::CMP_SWAP { 0x13 } else { 0x14 },
        };
        if last && self.opcode == WorkOpcode::SEND_INV {
            return if first { 0x17 } else { 0x16 };
        }
        match (first, last, self.immediate) {
            (true, false, _) => base,
            (false, false, _) => base + 1,
            (false, true, false) => base + 2,
            (false, true, true) => base + 3,
            (true, true, false) => base + 4,
            (true, true, true) => base + 5,
        }
    }
}

/// The BTH opcode of an answer: `first` of its request, `last` of its message.
pub fn answer_opcode(family: Family, first: bool, last: bool) -> u8 {
    match (family, first, last) {
        (Family::Atomic, ..) => 0x12,
        (_, true, false) => 0x0d,
        (_, false, false) => 0x0e,
        (_, false, true) => 0x0f,
        (_, true, true) => 0x10,
    }
}

pub static OPERATIONS: &[Operation] = &[
    Operation {
        name: "SEND",
        opcode: WorkOpcode::SEND,
        weight: 25,
        family: Family::Send,
        immediate: false,
        items: &[2, 6, 18, 41, 45],
    },
    Operation {
        name: "SEND_IMM",
        opcode: WorkOpcode::SEND_IMM,
        weight: 15,
        family: Family::Send,
        immediate: true,
        items: &[2, 6, 18, 41, 45],
    },
    Operation {
        name: "WRITE",
        opcode: WorkOpcode::WRITE,
        weight: 35,
        family: Family::Write,
        immediate: false,
        items: &[2, 6, 11, 14, 41, 45],
    },
    Operation {
        name: "WRITE_IMM",
        opcode: WorkOpcode::WRITE_IMM,
        weight: 25,
        family: Family::Write,
        immediate: true,
        items: &[2, 6, 11, 14, 18, 39, 41, 45],
    },
    Operation {
        name: "READ",
        opcode: WorkOpcode::READ,
        weight: 25,
        family: Family::Read,
        immediate: false,
        items: &[2, 11, 14],
    },
    Operation {
        name: "CMP_SWAP",
        opcode: WorkOpcode::CMP_SWAP,
        weight: 8,
        family: Family::Atomic,
        immediate: false,
        items: &[2],
    },
    Operation {
        name: "FETCH_ADD",
        opcode: WorkOpcode::FETCH_ADD,
        weight: 8,
        family: Family::Atomic,
        immediate: false,
        items: &[2],
    },
    Operation {
        name: "ATOMIC_WRITE",
        opcode: WorkOpcode::ATOMIC_WRITE,
        weight: 6,
        family: Family::AtomicWrite,
        immediate: false,
        items: &[2],
    },
    Operation {
        name: "FLUSH",
        opcode: WorkOpcode::FLUSH,
        weight: 6,
        family: Family::Flush,
        immediate: false,
        items: &[2],
    },
    // Drawn where there is a key for them.
    Operation {
        name: "SEND_INV",
        opcode: WorkOpcode::SEND_INV,
        weight: 0,
        family: Family::Send,
        immediate: false,
        items: &[2, 6, 18, 41, 45],
    },
    Operation {
        name: "BIND_MW",
        opcode: WorkOpcode::BIND_MW,
        weight: 0,
        family: Family::Local,
        immediate: false,
        items: &[],
    },
    Operation {
        name: "REG_MR",
        opcode: WorkOpcode::REG_MR,
        weight: 0,
        family: Family::Local,
        immediate: false,
        items: &[],
    },
    Operation {
        name: "LOCAL_INV",
        opcode: WorkOpcode::LOCAL_INV,
        weight: 0,
        family: Family::Local,
        immediate: false,
        items: &[],
    },
];

/// The row of an opcode.
pub fn named(opcode: WorkOpcode) -> &'static Operation {
    OPERATIONS.iter().find(|operation| operation.opcode == opcode).unwrap_or(&OPERATIONS[0])
}

/// What must fail, and how. `statuses` are those of the message itself on a wire that loses nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    pub kind: FaultKind,
    pub status: rnic_abi::CompletionStatus,
    /// What the receiver's driver hears; `None` when it hears nothing.
    pub event: Option<rnic_abi::EventType>,
    /// Status of the receiver's work request in use.
    pub receive_status: Option<rnic_abi::CompletionStatus>,
    pub items: &'static [usize],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Local keys: no such key, bytes behind the region, a key of another protection domain.
    LKey,
    LKeyRange,
    LKeyPd,
    /// Remote keys of a WRITE: unknown, one byte too far at either end, a sum beyond 2^64, no right, another domain.
    RKey,
    RKeyBehind,
    RKeyBefore,
    RKeyWraps,
    RKeyRight,
    RKeyPd,
    /// Both are bad: the local one decides.
    BothKeys,
    /// An atomic on a word that is not aligned.
    Unaligned,
    /// What a READ or an atomic brings has no place.
    LandingKey,
    /// What it brings is not 8 bytes.
    AtomicLength,
    /// Opcode that does not exist.
    Opcode,
    /// The receive work request is too small, or its key is bad, or its bytes are behind its region.
    ReceiveSmall,
    ReceiveKey,
    ReceiveRange,
    /// The peer has gone to RESET without a word.
    PeerGone,
    /// The receiver never posts, and patience is limited.
    NeverReady,
    /// A window on a region that lets nobody bind one, or beyond its region; a key invalidated that is free; a fast region
    /// with rights that do not exist.
    BindRegion,
    BindRange,
    FreeKey,
    RegisterRights,
}

impl FaultKind {
    /// The sender notices by itself: no packet of the message leaves.
    pub fn is_local(self) -> bool {
        let of_keys = matches!(self, Self::BindRegion | Self::BindRange | Self::FreeKey | Self::RegisterRights);
        of_keys
            || self == Self::AtomicLength
            || matches!(self, Self::LKey | Self::LKeyRange | Self::LKeyPd | Self::BothKeys | Self::Opcode)
    }

    pub fn needs_receive(self) -> bool {
        matches!(self, Self::ReceiveSmall | Self::ReceiveKey | Self::ReceiveRange | Self::NeverReady)
    }

    /// Whether a message of this family can have it.
    pub fn fits(self, family: Family) -> bool {
        match self {
            Self::BindRegion | Self::BindRange | Self::FreeKey | Self::RegisterRights => family == Family::Local,
            Self::RKey | Self::RKeyRight | Self::RKeyPd => !matches!(family, Family::Send | Family::Local),
            Self::RKeyBehind | Self::RKeyBefore | Self::RKeyWraps => {
                matches!(family, Family::Write | Family::Read | Family::Flush)
            }
            Self::BothKeys => family == Family::Write,
            Self::Unaligned => matches!(family, Family::Atomic | Family::AtomicWrite),
            Self::LandingKey => matches!(family, Family::Read | Family::Atomic),
            // What is wrong with an element shows only where an element is used.
            Self::ReceiveSmall | Self::ReceiveKey | Self::ReceiveRange | Self::NeverReady => family == Family::Send,
            Self::LKey | Self::LKeyRange | Self::LKeyPd | Self::Opcode => {
                matches!(family, Family::Send | Family::Write)
            }
            Self::AtomicLength => family == Family::Atomic,
            Self::PeerGone => true,
        }
    }
}

macro_rules! faults {
    ($table:ident: $($name:literal $kind:ident $status:ident, $event:expr, $receive:expr, [$($item:literal),*];)*) => {
        pub static $table: &[Fault] = &[$(Fault {
            name: $name,
            kind: FaultKind::$kind,
            status: rnic_abi::CompletionStatus::$status,
            event: $event,
            receive_status: $receive,
            items: &[$($item),*],
        },)*];
    };
}

const ACCESS: Option<rnic_abi::EventType> = Some(rnic_abi::EventType::QP_ACCESS_ERR);
const REQUEST: Option<rnic_abi::EventType> = Some(rnic_abi::EventType::QP_REQ_ERR);
const FATAL: Option<rnic_abi::EventType> = Some(rnic_abi::EventType::QP_FATAL);
const LENGTH: Option<rnic_abi::CompletionStatus> = Some(rnic_abi::CompletionStatus::LOC_LEN_ERR);
const PROTECTION: Option<rnic_abi::CompletionStatus> = Some(rnic_abi::CompletionStatus::LOC_PROT_ERR);

faults! {
    FAULTS:
    "bad lkey" LKey LOC_PROT_ERR, None, None, [59, 73, 75];
    "lkey range" LKeyRange LOC_PROT_ERR, None, None, [59, 73, 75];
    "lkey of another PD" LKeyPd LOC_PROT_ERR, None, None, [59, 73, 84];
    "bad rkey" RKey REM_ACCESS_ERR, ACCESS, None, [13, 53, 73, 103];
    "behind the region" RKeyBehind REM_ACCESS_ERR, ACCESS, None, [13, 14, 53, 73, 92];
    "before the region" RKeyBefore REM_ACCESS_ERR, ACCESS, None, [13, 53, 73, 92];
    "address wraps" RKeyWraps REM_ACCESS_ERR, ACCESS, None, [13, 53, 73, 92];
    "no remote right" RKeyRight REM_ACCESS_ERR, ACCESS, None, [13, 53, 73];
    "rkey of another PD" RKeyPd REM_ACCESS_ERR, ACCESS, None, [13, 53, 73, 84];
    "both keys bad" BothKeys LOC_PROT_ERR, None, None, [59, 60, 73];
    "unaligned atomic" Unaligned REM_INV_REQ_ERR, REQUEST, None, [16, 53, 73];
    "landing key bad" LandingKey LOC_PROT_ERR, None, None, [61, 73];
    "atomic of another length" AtomicLength LOC_LEN_ERR, None, None, [62, 73];
    "no such opcode" Opcode LOC_QP_OP_ERR, None, None, [69, 73];
    "receive too small" ReceiveSmall REM_INV_REQ_ERR, REQUEST, LENGTH, [19, 53, 73, 103];
    "receive key bad" ReceiveKey REM_OP_ERR, FATAL, PROTECTION, [20, 53, 73, 103];
    "receive range" ReceiveRange REM_OP_ERR, FATAL, PROTECTION, [20, 53, 73];
    "peer gone" PeerGone RETRY_EXC_ERR, None, None, [55, 73, 109];
    "never ready" NeverReady RNR_RETRY_EXC_ERR, None, None, [54, 73];
}

// Of work requests without packets; windows and fast regions draw from these.
faults! {
    LOCAL_FAULTS:
    "window on a region without the right" BindRegion MW_BIND_ERR, None, None, [73, 85];
    "window beyond its region" BindRange MW_BIND_ERR, None, None, [73, 85];
    "free key invalidated" FreeKey LOC_QP_OP_ERR, None, None, [73, 90];
    "registration with unknown rights" RegisterRights LOC_QP_OP_ERR, None, None, [73, 90];
}
