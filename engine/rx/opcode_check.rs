//! Opcode check: does the packet fit the message that is arriving, the path MTU, and the queue pair's rights?
//!
//! In: a packet in sequence. Out: an [`Arrival`]: what the packet adds to which message. Errors are the peer's.

use super::atomic_reply::Modify;
use super::fault::Fault;
use crate::context::queue_pair::{Inbound, QpContext};
use crate::numbers::Key;
use crate::planted::planted;
use crate::rx::psn_check::InSequence;
use rnic_abi::Diagnostic;
use rnic_abi::command::{
    ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_PERSISTENT, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE,
};
use rnic_abi::limits::MAX_MESSAGE_BYTES;
use rnic_abi::work_request::ATOMIC_BYTES;
use rnic_wire::{Headers, Operation, feth, psn};

const INVALID: Fault = Fault::InvalidRequest(Diagnostic::InvalidRequest);

/// What a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Send,
    Write {
        address: u64,
        rkey: Key,
        length_bytes: u32,
    },
    Read {
        address: u64,
        rkey: Key,
        length_bytes: u32,
    },
    Atomic {
        address: u64,
        rkey: Key,
        modify: Modify,
    },
    AtomicWrite {
        address: u64,
        rkey: Key,
        bytes: [u8; ATOMIC_BYTES as usize],
    },
    /// `rights` are the `ACCESS_*` bits that it takes; without a length it is of all of the key's memory.
    Flush {
        address: u64,
        rkey: Key,
        length_bytes: Option<u32>,
        rights: u32,
    },
}

/// What a packet brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub message: Message,
    /// Bytes of the message before this packet.
    pub offset: u64,
    pub length_bytes: u32,
    pub first: bool,
    pub last: bool,
    pub immediate: Option<u32>,
    /// The key that goes out of use when the message is there.
    pub invalidate: Option<Key>,
    pub solicited: bool,
}

impl Arrival {
    /// A receive work request is used up by this packet's message at this packet.
    pub fn completes_receive(&self) -> bool {
        self.last && (self.message == Message::Send || self.immediate.is_some())
    }

    /// A message of one packet without payload.
    pub const fn whole(message: Message) -> Self {
        Self {
            message,
            offset: 0,
            length_bytes: 0,
            first: true,
            last: true,
            immediate: None,
            invalidate: None,
            solicited: false,
        }
    }
}

pub(crate) fn check(context: &QpContext, in_sequence: &InSequence<'_, '_>) -> Result<Arrival, Fault> {
    let packet = in_sequence.0;
    let info = packet.description;
    let (first, last) = (info.position.starts_message(), info.position.ends_message());
    let payload_bytes = packet.payload.len() as u32;
    let (message, offset) = message_of(context, in_sequence, info.operation, first)?;
    check_length(context, &message, offset, payload_bytes, first, last)?;
    let length_bytes = match message {
        Message::Atomic { .. } => ATOMIC_BYTES,
        // One byte is read back.
        Message::Flush { length_bytes, .. } => length_bytes.unwrap_or(1).min(1),
        _ => payload_bytes,
    };
    let immediate =
        info.headers.contains(Headers::IMMDT).then(|| u32::from_be_bytes(packet.headers.extension.immdt.immediate));
    let invalidate = info.headers.contains(Headers::IETH).then_some(Key(packet.headers.extension.ieth.remote_key));
    // Of a message's packets the last one's counts: it is the one that completes.
    let solicited = packet.headers.bth.solicited_event && !planted("solicited_never");
    Ok(Arrival { message, offset, length_bytes, first, last, immediate, invalidate, solicited })
}

fn message_of(
    context: &QpContext,
    in_sequence: &InSequence<'_, '_>,
    operation: Operation,
    first: bool,
) -> Result<(Message, u64), Fault> {
    let extension = &in_sequence.0.headers.extension;
    match (operation, first, context.responder.inbound) {
        (Operation::Send | Operation::SendImmediate | Operation::SendInvalidate, true, Inbound::None) => {
            Ok((Message::Send, 0))
        }
        (
            Operation::Send | Operation::SendImmediate | Operation::SendInvalidate,
            false,
            Inbound::Send { received_bytes },
        ) => Ok((Message::Send, received_bytes)),
        (Operation::Write | Operation::WriteImmediate, true, Inbound::None) => {
            allowed(context, ACCESS_REMOTE_WRITE)?;
            let reth = &extension.reth;
            let (address, rkey) = (reth.virtual_address, Key(reth.remote_key));
            Ok((Message::Write { address, rkey, length_bytes: reth.dma_length }, 0))
        }
        (Operation::ReadRequest, true, Inbound::None) => {
            allowed(context, ACCESS_REMOTE_READ)?;
            let reth = &extension.reth;
            let (address, rkey) = (reth.virtual_address, Key(reth.remote_key));
            Ok((Message::Read { address, rkey, length_bytes: reth.dma_length }, 0))
        }
        (Operation::CompareSwap | Operation::FetchAdd, true, Inbound::None) => {
            allowed(context, ACCESS_REMOTE_ATOMIC)?;
            let atomic = &extension.atomic_eth;
            if !atomic.virtual_address.is_multiple_of(ATOMIC_BYTES.into()) && !planted("atomics_unaligned") {
                return Err(Fault::InvalidRequest(Diagnostic::AtomicAlignment));
            }
            let modify = match operation {
                Operation::FetchAdd => Modify::FetchAdd { add: atomic.swap_or_add },
                _ => Modify::CompareSwap { compare: atomic.compare, swap: atomic.swap_or_add },
            };
            let (address, rkey) = (atomic.virtual_address, Key(atomic.remote_key));
            Ok((Message::Atomic { address, rkey, modify }, 0))
        }
        (Operation::AtomicWrite, true, Inbound::None) => atomic_write(context, in_sequence),
        (Operation::Flush, true, Inbound::None) => flush(context, in_sequence),
        (
            Operation::Write | Operation::WriteImmediate,
            false,
            Inbound::Write { address, rkey, length_bytes, received_bytes },
        ) => Ok((Message::Write { address, rkey, length_bytes }, received_bytes.into())),
        // Middle without first, first inside a message, another operation inside a message, or one that this
        // responder does not do.
        _ => Err(INVALID),
    }
}

fn atomic_write(context: &QpContext, in_sequence: &InSequence<'_, '_>) -> Result<(Message, u64), Fault> {
    allowed(context, ACCESS_REMOTE_WRITE)?;
    let reth = &in_sequence.0.headers.extension.reth;
    let bytes = in_sequence.0.payload.try_into().map_err(|_| INVALID)?;
    if reth.dma_length != ATOMIC_BYTES {
        return Err(INVALID);
    }
    if !reth.virtual_address.is_multiple_of(ATOMIC_BYTES.into()) && !planted("atomics_unaligned") {
        return Err(Fault::InvalidRequest(Diagnostic::AtomicAlignment));
    }
    Ok((Message::AtomicWrite { address: reth.virtual_address, rkey: Key(reth.remote_key), bytes }, 0))
}

fn flush(context: &QpContext, in_sequence: &InSequence<'_, '_>) -> Result<(Message, u64), Fault> {
    let extension = &in_sequence.0.headers.extension;
    let (reth, asked) = (&extension.reth, extension.feth);
    let right = |bit: u8, access: u32| if asked.placement_type & bit != 0 { access } else { 0 };
    let rights = right(feth::GLOBAL, ACCESS_FLUSH_GLOBAL) | right(feth::PERSISTENT, ACCESS_FLUSH_PERSISTENT);
    let known = asked.placement_type & !(feth::GLOBAL | feth::PERSISTENT) == 0 && rights != 0;
    let length_bytes = match asked.selectivity {
        feth::RANGE => Some(reth.dma_length),
        feth::REGION => None,
        _ => return Err(INVALID),
    };
    if !known || (context.access & rights != rights && !planted("queue_pair_rights_unchecked")) {
        return Err(INVALID);
    }
    Ok((Message::Flush { address: reth.virtual_address, rkey: Key(reth.remote_key), length_bytes, rights }, 0))
}

/// The queue pair grants the right; the key is another matter.
fn allowed(context: &QpContext, right: u32) -> Result<(), Fault> {
    if context.access & right == 0 && !planted("queue_pair_rights_unchecked") { Err(INVALID) } else { Ok(()) }
}

/// First and middle packets are full, and so have no pad (what is padded was whole words when it was parsed); a last one holds something; a WRITE's bytes are as many as its RETH says.
fn check_length(
    context: &QpContext,
    message: &Message,
    offset: u64,
    length: u32,
    first: bool,
    last: bool,
) -> Result<(), Fault> {
    let mtu = context.path_mtu_bytes();
    let fits = match (first, last) {
        (_, false) => length == mtu || planted("short_middle_packets"),
        (true, true) => length <= mtu,
        (false, true) => (1..=mtu).contains(&length) || (length == 0 && planted("empty_last_packets")),
    };
    let end = offset + u64::from(length);
    let total = match message {
        Message::Send => end <= MAX_MESSAGE_BYTES.into(),
        // Its responses have to fit into half of the PSNs, or no duplicate could be told from a request of the future.
        Message::Read { length_bytes, .. } => {
            length == 0 && *length_bytes <= MAX_MESSAGE_BYTES && context.packets_of(*length_bytes) < psn::MODULUS / 2
        }
        Message::Atomic { .. } => length == 0,
        Message::AtomicWrite { .. } => length == ATOMIC_BYTES,
        Message::Flush { length_bytes, .. } => length == 0 && length_bytes.unwrap_or(0) <= MAX_MESSAGE_BYTES,
        Message::Write { length_bytes, .. } if *length_bytes > MAX_MESSAGE_BYTES => {
            planted("writes_beyond_the_longest")
        }
        Message::Write { length_bytes, .. } if last => end == u64::from(*length_bytes) || planted("short_writes"),
        Message::Write { length_bytes, .. } => end <= u64::from(*length_bytes),
    };
    if fits && total { Ok(()) } else { Err(INVALID) }
}
