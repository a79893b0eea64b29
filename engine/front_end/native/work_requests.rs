//! Send and receive work queue entries.

use super::*;
use crate::context::page_list::PageList;
use crate::context::queue_pair::Service;
use crate::numbers::{Key, Srqn};
use rnic_abi::work_request::*;
use rnic_abi::{
    AtomicSegment, BindSegment, ControlSegment, DataSegment, DatagramSegment, FlushSegment, RegisterSegment,
    RemoteSegment, WorkOpcode, XrcSegment, limits,
};
use zerocopy::FromBytes;

const SEGMENT: usize = WQE_SEGMENT_BYTES as usize;
const SEGMENTS_AT: usize = 6;

/// Slots of the WQE whose first bytes are these: at least one, at most the longest WQE's.
pub(super) fn slots(first_bytes: &[u8]) -> u16 {
    let segments = first_bytes.get(SEGMENTS_AT).copied().unwrap_or(1);
    u16::from(segments).div_ceil(4).clamp(1, MAX_WQE_SLOTS as u16)
}

fn operation(opcode: u8) -> Option<Operation> {
    Some(match WorkOpcode(opcode) {
        WorkOpcode::SEND => Operation::Send,
        WorkOpcode::SEND_IMM => Operation::SendImm,
        WorkOpcode::SEND_INV => Operation::SendInv,
        WorkOpcode::LOCAL_INV => Operation::LocalInv,
        WorkOpcode::REG_MR => Operation::RegisterMr,
        WorkOpcode::BIND_MW => Operation::BindMw,
        WorkOpcode::WRITE => Operation::Write,
        WorkOpcode::WRITE_IMM => Operation::WriteImm,
        WorkOpcode::READ => Operation::Read,
        WorkOpcode::CMP_SWAP => Operation::CompareSwap,
        WorkOpcode::FETCH_ADD => Operation::FetchAdd,
        WorkOpcode::ATOMIC_WRITE => Operation::AtomicWrite,
        WorkOpcode::FLUSH => Operation::Flush,
        _ => return None,
    })
}

pub(super) fn decode_send(expected: Expected, bytes: &[u8]) -> Result<SendWork, Diagnostic> {
    let (control, rest) = ControlSegment::read_from_prefix(bytes).map_err(|_| Diagnostic::WqeLength)?;
    let qpn = u32::from_le_bytes([control.qpn[0], control.qpn[1], control.qpn[2], 0]);
    if qpn != expected.qpn.0 {
        return Err(Diagnostic::WqeQpn);
    }
    if control.slot_index.get() != expected.slot_index {
        return Err(Diagnostic::WqeIndex);
    }
    let operation = operation(control.opcode).filter(|asked| allows(expected.service, *asked));
    let operation = operation.ok_or(Diagnostic::WqeOpcode)?;
    let known = WQE_SIGNALED | WQE_SOLICITED | WQE_FENCE | WQE_INLINE;
    if control.flags & !known != 0 || control.reserved.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    let segments = usize::from(control.segments);
    let slots = segments.div_ceil(4);
    if segments == 0 || slots > usize::from(expected.available_slots) || segments * SEGMENT > bytes.len() {
        return Err(Diagnostic::WqeLength);
    }
    let rest = &rest[..(segments - 1) * SEGMENT];
    let (destination, rest) = if expected.service.is_datagram() { datagram(rest)? } else { (None, rest) };
    let on_xrc = expected.service == Service::XrcInitiator && !operation.is_local();
    let (srqn, rest) = if on_xrc { xrc(rest)? } else { (None, rest) };
    let (remote, rest) = if operation.names_remote() { remote(rest)? } else { (None, rest) };
    let (operands, rest) = if operation.is_atomic() { operands(operation, rest)? } else { ((0, 0), rest) };
    let inline = control.flags & WQE_INLINE != 0;
    if inline && !has_payload(operation) {
        return Err(Diagnostic::WqeInlineRead);
    }
    let body = match operation {
        Operation::RegisterMr => register_body(&control, rest)?,
        Operation::BindMw => bind_body(&control, rest)?,
        Operation::Flush => flush_body(&control, rest)?,
        _ if inline => inline_body(control.inline_bytes.get(), rest)?,
        _ => gather_body(&control, rest)?,
    };
    let length = match &body {
        Body::Inline(data) => data.len() as u64,
        Body::Register(_) | Body::Bind(_) | Body::Flush(_) => 0,
        Body::Gather(elements) => elements.iter().map(|element| u64::from(element.length_bytes)).sum(),
    };
    if length > u64::from(limits::MAX_MESSAGE_BYTES) {
        return Err(Diagnostic::MessageTooLong);
    }
    if (operation.is_atomic() || operation == Operation::AtomicWrite) && length != u64::from(ATOMIC_BYTES) {
        return Err(Diagnostic::AtomicLength);
    }
    if operation == Operation::LocalInv && segments != 1 {
        return Err(Diagnostic::WqeLength);
    }
    let (remote_address, rkey) = remote.unwrap_or((0, Key(control.immediate.get())));
    Ok(SendWork {
        operation,
        signaled: control.flags & WQE_SIGNALED != 0,
        solicited: control.flags & WQE_SOLICITED != 0,
        fence: control.flags & WQE_FENCE != 0,
        immediate: control.immediate.get(),
        remote_address,
        rkey,
        swap_or_add: operands.0,
        compare: operands.1,
        length_bytes: length as u32,
        slots: slots as u16,
        destination,
        srqn,
        body,
    })
}

/// Bytes of this side go with it, so that they may stand in the work request.
const fn has_payload(operation: Operation) -> bool {
    !operation.brings_data() && !matches!(operation, Operation::RegisterMr | Operation::BindMw | Operation::Flush)
}

/// The operations of each transport service.
const fn allows(service: Service, operation: Operation) -> bool {
    use Operation::*;
    match service {
        Service::Rc => true,
        Service::Uc => matches!(operation, Send | SendImm | Write | WriteImm) || operation.is_local(),
        Service::Ud | Service::Gsi => matches!(operation, Send | SendImm),
        Service::XrcInitiator => !matches!(operation, AtomicWrite | Flush),
        Service::XrcTarget => false,
    }
}

/// Where a datagram goes. Whether its source exists is known when it leaves.
fn datagram(rest: &[u8]) -> Result<(Option<Destination>, &[u8]), Diagnostic> {
    let (segment, rest) = DatagramSegment::read_from_prefix(rest).map_err(|_| Diagnostic::WqeLength)?;
    let av = &segment.av;
    if segment.reserved.get() != 0 || av.reserved0 != 0 || av.reserved1.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    // There is one P_Key, at index 0.
    let usable = av.flow_label.get() <= 0xf_ffff
        && av.service_level <= 7
        && segment.dest_qpn.get() <= 0xff_ffff
        && segment.pkey_index.get() == 0;
    let destination = Destination {
        av: super::commands::address_vector(av),
        qpn: Qpn(segment.dest_qpn.get()),
        qkey: segment.qkey.get(),
    };
    if usable { Ok((Some(destination), rest)) } else { Err(Diagnostic::DatagramAddress) }
}

/// The shared receive queue at the peer. Whether it exists is known there.
fn xrc(rest: &[u8]) -> Result<(Option<Srqn>, &[u8]), Diagnostic> {
    let (segment, rest) = XrcSegment::read_from_prefix(rest).map_err(|_| Diagnostic::WqeLength)?;
    let srqn = segment.srqn.get();
    if segment.reserved0.get() != 0 || segment.reserved1.get() != 0 || srqn > 0xff_ffff {
        return Err(Diagnostic::WqeReserved);
    }
    Ok((Some(Srqn(srqn)), rest))
}

type Remote = Option<(u64, Key)>;

fn remote(rest: &[u8]) -> Result<(Remote, &[u8]), Diagnostic> {
    let (segment, rest) = RemoteSegment::read_from_prefix(rest).map_err(|_| Diagnostic::WqeLength)?;
    if segment.reserved.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    Ok((Some((segment.address.get(), Key(segment.rkey.get()))), rest))
}

/// What is swapped in or added, and what is compared.
fn operands(operation: Operation, rest: &[u8]) -> Result<((u64, u64), &[u8]), Diagnostic> {
    let (segment, rest) = AtomicSegment::read_from_prefix(rest).map_err(|_| Diagnostic::WqeLength)?;
    let compare = segment.compare.get();
    if operation == Operation::FetchAdd && compare != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    Ok(((segment.swap_or_add.get(), compare), rest))
}

/// The segment count must be the one that the inline length asks for, no more and no less.
fn inline_body(length: u16, rest: &[u8]) -> Result<Body, Diagnostic> {
    if length > limits::MAX_INLINE_BYTES {
        return Err(Diagnostic::WqeInline);
    }
    let length = usize::from(length);
    if length.div_ceil(SEGMENT) * SEGMENT != rest.len() {
        return Err(Diagnostic::WqeLength);
    }
    let data = rest[..length].try_into().map_err(|_| Diagnostic::WqeInline)?;
    Ok(Body::Inline(data))
}

/// A segment that must be all there is behind the control segment.
fn only<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(
    control: &ControlSegment,
    rest: &[u8],
) -> Result<T, Diagnostic> {
    if control.inline_bytes.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    T::read_from_bytes(rest).map_err(|_| Diagnostic::WqeLength)
}

fn register_body(control: &ControlSegment, rest: &[u8]) -> Result<Body, Diagnostic> {
    let segment: RegisterSegment = only(control, rest)?;
    let pages = &segment.pages;
    let reserved = segment.reserved0.get() != 0 || segment.reserved1.get() != 0;
    if reserved || pages.reserved0.get() != 0 || pages.reserved1.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    Ok(Body::Register(Registration {
        access: segment.access.get(),
        start: segment.start.get(),
        length_bytes: segment.length_bytes.get(),
        pages: PageList::new(pages.root.get(), pages.page_shift, pages.levels),
    }))
}

fn bind_body(control: &ControlSegment, rest: &[u8]) -> Result<Body, Diagnostic> {
    let segment: BindSegment = only(control, rest)?;
    if segment.reserved.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    Ok(Body::Bind(Binding {
        access: segment.access.get(),
        region: Key(segment.lkey.get()),
        address: segment.address.get(),
        length_bytes: segment.length_bytes.get(),
    }))
}

fn flush_body(control: &ControlSegment, rest: &[u8]) -> Result<Body, Diagnostic> {
    let segment: FlushSegment = only(control, rest)?;
    let (placement, length_bytes) = (segment.placement.get(), segment.length_bytes.get());
    let region = placement & FLUSH_REGION != 0;
    let known = FLUSH_GLOBAL | FLUSH_PERSISTENT | FLUSH_REGION;
    if segment.reserved.get() != 0 || placement & !known != 0 || (region && length_bytes != 0) {
        return Err(Diagnostic::WqeReserved);
    }
    let (global, persistent) = (placement & FLUSH_GLOBAL != 0, placement & FLUSH_PERSISTENT != 0);
    if !global && !persistent {
        return Err(Diagnostic::FlushPlacement);
    }
    Ok(Body::Flush(Placement { global, persistent, region, length_bytes }))
}

fn gather_body(control: &ControlSegment, rest: &[u8]) -> Result<Body, Diagnostic> {
    if control.inline_bytes.get() != 0 {
        return Err(Diagnostic::WqeReserved);
    }
    elements(rest).map(Body::Gather)
}

fn elements(bytes: &[u8]) -> Result<ScatterList, Diagnostic> {
    let mut list = ScatterList::new();
    for chunk in bytes.chunks_exact(SEGMENT) {
        let segment = DataSegment::read_from_bytes(chunk).map_err(|_| Diagnostic::WqeLength)?;
        let element = Element {
            address: segment.address.get(),
            length_bytes: segment.length_bytes.get(),
            key: Key(segment.lkey.get()),
        };
        list.try_push(element).map_err(|_| Diagnostic::WqeLength)?;
    }
    Ok(list)
}

/// A receive WQE ends at its stride or at the first element of length zero.
pub(super) fn decode_receive(bytes: &[u8]) -> Result<ScatterList, Diagnostic> {
    let mut list = elements(bytes)?;
    if let Some(end) = list.iter().position(|element| element.length_bytes == 0) {
        list.truncate(end);
    }
    Ok(list)
}
