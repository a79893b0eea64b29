//! A send work request as the bytes of a WQE.
//!
//! In: a [`SendRequest`], the queue's number and a slot index. Out: whole zero-padded slots.

use super::datagram::Datagram;
use super::error::check_limit;
use super::{Bind, Qpn, Registration, Result, Srqn, VerbsError};
use rnic_abi::limits::*;
use rnic_abi::work_request::*;
use zerocopy::IntoBytes;

const SEGMENT_BYTES: usize = WQE_SEGMENT_BYTES as usize;
const SLOT_BYTES: usize = WQE_SLOT_BYTES as usize;
/// The longest WQE.
pub(crate) const WQE_BYTES: usize = SLOT_BYTES * MAX_WQE_SLOTS as usize;

/// A scatter-gather element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    pub address: u64,
    pub length_bytes: u32,
    pub lkey: u32,
}

impl Sge {
    pub(crate) fn segment(&self) -> DataSegment {
        DataSegment { address: self.address.into(), length_bytes: self.length_bytes.into(), lkey: self.lkey.into() }
    }
}

/// Where an RDMA operation acts on the remote side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub address: u64,
    pub rkey: u32,
}

/// What an atomic works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// Stores `swap` where the word equals `compare`.
    CompareSwap {
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        add: u64,
    },
}

impl Operands {
    fn segment(self) -> AtomicSegment {
        match self {
            Self::CompareSwap { compare, swap } => AtomicSegment { swap_or_add: swap.into(), compare: compare.into() },
            Self::FetchAdd { add } => AtomicSegment { swap_or_add: add.into(), compare: 0.into() },
        }
    }
}

/// The bytes of a message.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Where they come from; of a READ, where they go.
    Elements(&'a [Sge]),
    /// Copied into the WQE; not for READ, FLUSH and atomics.
    Inline(&'a [u8]),
    /// Of an atomic: the word that was there goes to these elements, 8 bytes together, in the host's byte order.
    Atomic(Operands, &'a [Sge]),
    /// Of a FLUSH: bytes from the remote address on, and `FLUSH_*` bits.
    Flush { length_bytes: u32, placement: u32 },
    /// Of BIND_MW.
    Bind(Bind),
    /// Of REG_MR.
    Register(&'a Registration),
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    pub wr_id: u64,
    pub opcode: WorkOpcode,
    pub payload: Payload<'a>,
    /// For WRITE, WRITE_IMM, READ, FLUSH, ATOMIC_WRITE and atomics, and only there.
    pub remote: Option<Remote>,
    /// On a datagram queue pair, and only there.
    pub datagram: Option<Datagram>,
    /// On an XRC initiator, and only there: the peer's shared receive queue. Not of work that sends nothing.
    pub srqn: Option<Srqn>,
    /// For the opcodes with immediate data; for SEND_INV the peer's key and for LOCAL_INV the own key to invalidate; for
    /// BIND_MW and REG_MR the key from now on.
    pub immediate: u32,
    pub signaled: bool,
    pub solicited: bool,
    pub fence: bool,
}

impl SendRequest<'_> {
    fn flags(&self) -> u8 {
        let inline = matches!(self.payload, Payload::Inline(_));
        [(self.signaled, WQE_SIGNALED), (self.solicited, WQE_SOLICITED), (self.fence, WQE_FENCE), (inline, WQE_INLINE)]
            .into_iter()
            .filter(|(set, _)| *set)
            .fold(0, |flags, (_, bit)| flags | bit)
    }
}

/// An encoded WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    bytes: [u8; WQE_BYTES],
    pub segments: u8,
}

impl Wqe {
    /// The slots it takes.
    pub fn slots(&self) -> u16 {
        usize::from(self.segments).div_ceil(SLOT_BYTES / SEGMENT_BYTES) as u16
    }

    pub fn slot(&self, index: usize) -> Option<&[u8; SLOT_BYTES]> {
        self.bytes.get(index * SLOT_BYTES..)?.first_chunk()
    }

    /// Writes where it stands: known only when its slots are reserved, and its length before.
    pub fn set_slot_index(&mut self, slot_index: u16) {
        self.bytes[4..6].copy_from_slice(&slot_index.to_le_bytes());
    }
}

/// Opcodes with a remote segment, atomics apart.
const NAME_REMOTE: [WorkOpcode; 5] =
    [WorkOpcode::WRITE, WorkOpcode::WRITE_IMM, WorkOpcode::READ, WorkOpcode::FLUSH, WorkOpcode::ATOMIC_WRITE];

/// Opcodes with a segment of their own where others have elements or inline bytes.
const WITH_BODY: [WorkOpcode; 3] = [WorkOpcode::FLUSH, WorkOpcode::BIND_MW, WorkOpcode::REG_MR];

/// What a WQE has room for.
struct Room {
    elements: u64,
    inline_bytes: u16,
}

impl Room {
    fn of(request: &SendRequest<'_>, names_remote: bool) -> Self {
        let (elements, inline_bytes) = match (&request.datagram, request.srqn) {
            (Some(_), _) => (MAX_DATAGRAM_SGE, MAX_DATAGRAM_INLINE_BYTES),
            (None, Some(_)) => (MAX_XRC_SGE + u8::from(!names_remote), MAX_XRC_INLINE_BYTES),
            (None, None) => (MAX_SEND_SGE + u8::from(!names_remote), MAX_INLINE_BYTES),
        };
        Self { elements: elements.into(), inline_bytes }
    }
}

/// Encodes a request. What the device would refuse by its numbers alone is still refused by the device; only what
/// cannot be encoded fails here.
pub(crate) fn encode(request: &SendRequest<'_>, qpn: Qpn, max_inline_bytes: u16) -> Result<Wqe> {
    let mut wqe = Writer { bytes: [0; WQE_BYTES], used: SEGMENT_BYTES };
    let is_atomic = matches!(request.opcode, WorkOpcode::CMP_SWAP | WorkOpcode::FETCH_ADD);
    let names_remote = is_atomic || NAME_REMOTE.contains(&request.opcode);
    if let Some(datagram) = &request.datagram {
        wqe.push(datagram.segment().as_bytes())?;
    }
    if let Some(srqn) = request.srqn {
        wqe.push(XrcSegment { srqn: srqn.0.into(), ..XrcSegment::zeroed() }.as_bytes())?;
    }
    match request.remote {
        Some(Remote { address, rkey }) if names_remote => {
            let remote = RemoteSegment { address: address.into(), rkey: rkey.into(), reserved: 0.into() };
            wqe.push(remote.as_bytes())?;
        }
        None if !names_remote => {}
        _ => {
            let what = format!("{:?} with remote address {:?}", request.opcode, request.remote);
            return Err(VerbsError::WorkRequest { what });
        }
    }
    let mut inline_bytes = 0;
    // What stands before the elements takes room from them.
    let most = Room::of(request, names_remote);
    match request.payload {
        Payload::Elements(elements) => {
            if is_atomic || WITH_BODY.contains(&request.opcode) {
                return Err(VerbsError::WorkRequest { what: format!("{:?} without operands", request.opcode) });
            }
            wqe.push_elements(elements, most.elements)?;
        }
        Payload::Atomic(operands, elements) => {
            let fits = match operands {
                Operands::CompareSwap { .. } => request.opcode == WorkOpcode::CMP_SWAP,
                Operands::FetchAdd { .. } => request.opcode == WorkOpcode::FETCH_ADD,
            };
            if !fits {
                return Err(VerbsError::WorkRequest { what: format!("{:?} with {operands:?}", request.opcode) });
            }
            wqe.push(operands.segment().as_bytes())?;
            wqe.push_elements(elements, most.elements - 1)?;
        }
        Payload::Flush { length_bytes, placement } => {
            if request.opcode != WorkOpcode::FLUSH {
                return Err(VerbsError::WorkRequest { what: format!("{:?} with a placement", request.opcode) });
            }
            let reserved = 0.into();
            let segment = FlushSegment { length_bytes: length_bytes.into(), placement: placement.into(), reserved };
            wqe.push(segment.as_bytes())?;
        }
        Payload::Bind(bind) if request.opcode == WorkOpcode::BIND_MW => wqe.push(bind.segment().as_bytes())?,
        Payload::Register(region) if request.opcode == WorkOpcode::REG_MR => wqe.push(region.segment().as_bytes())?,
        Payload::Bind(_) | Payload::Register(_) => {
            let what = format!("{:?} with the body of another operation", request.opcode);
            return Err(VerbsError::WorkRequest { what });
        }
        Payload::Inline(_)
            if is_atomic || request.opcode == WorkOpcode::READ || WITH_BODY.contains(&request.opcode) =>
        {
            return Err(VerbsError::WorkRequest { what: format!("{:?} with inline data", request.opcode) });
        }
        Payload::Inline(bytes) => {
            check_limit("inline data", bytes.len() as u64, max_inline_bytes.min(most.inline_bytes).into())?;
            inline_bytes = bytes.len() as u16;
            wqe.push(bytes)?;
        }
    }
    let segments = wqe.used.div_ceil(SEGMENT_BYTES) as u8;
    let [a, b, c, _] = qpn.0.to_le_bytes();
    let control = ControlSegment {
        opcode: request.opcode.0,
        qpn: [a, b, c],
        segments,
        flags: request.flags(),
        immediate: request.immediate.into(),
        inline_bytes: inline_bytes.into(),
        ..ControlSegment::zeroed()
    };
    wqe.bytes[..SEGMENT_BYTES].copy_from_slice(control.as_bytes());
    Ok(Wqe { bytes: wqe.bytes, segments })
}

struct Writer {
    bytes: [u8; WQE_BYTES],
    used: usize,
}

impl Writer {
    fn push_elements(&mut self, elements: &[Sge], most: u64) -> Result<()> {
        check_limit("number of elements", elements.len() as u64, most)?;
        elements.iter().try_for_each(|element| self.push(element.segment().as_bytes()))
    }

    fn push(&mut self, part: &[u8]) -> Result<()> {
        let end = self.used + part.len();
        let room = self.bytes.get_mut(self.used..end).ok_or(VerbsError::Limit {
            what: "WQE",
            wanted: end as u64,
            most: WQE_BYTES as u64,
        })?;
        room.copy_from_slice(part);
        self.used = end;
        Ok(())
    }
}
