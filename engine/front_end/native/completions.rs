//! Completion and event queue entries.

use super::*;
use crate::planted::planted;
use rnic_abi::completion::*;
use rnic_abi::event::EQE_PHASE;
use rnic_abi::{CompletionOpcode, CompletionStatus, Eqe, EventType};
use zerocopy::IntoBytes;

fn status(status: Status) -> CompletionStatus {
    match status {
        Status::Success => CompletionStatus::SUCCESS,
        Status::LocalLength => CompletionStatus::LOC_LEN_ERR,
        Status::LocalQpOperation => CompletionStatus::LOC_QP_OP_ERR,
        Status::LocalProtection => CompletionStatus::LOC_PROT_ERR,
        Status::Flushed => CompletionStatus::WR_FLUSH_ERR,
        Status::WindowBind => CompletionStatus::MW_BIND_ERR,
        Status::BadResponse => CompletionStatus::BAD_RESP_ERR,
        Status::RemoteInvalidRequest => CompletionStatus::REM_INV_REQ_ERR,
        Status::RemoteAccess => CompletionStatus::REM_ACCESS_ERR,
        Status::RemoteOperation => CompletionStatus::REM_OP_ERR,
        Status::RetryExceeded => CompletionStatus::RETRY_EXC_ERR,
        Status::RnrRetryExceeded => CompletionStatus::RNR_RETRY_EXC_ERR,
        Status::General => CompletionStatus::GENERAL_ERR,
    }
}

fn opcode(kind: CompletionKind) -> CompletionOpcode {
    match kind {
        CompletionKind::Sent(Operation::Send) => CompletionOpcode::SEND,
        CompletionKind::Sent(Operation::SendImm) => CompletionOpcode::SEND_IMM,
        CompletionKind::Sent(Operation::SendInv) => CompletionOpcode::SEND_INV,
        CompletionKind::Sent(Operation::LocalInv) => CompletionOpcode::LOCAL_INV,
        CompletionKind::Sent(Operation::RegisterMr) => CompletionOpcode::REG_MR,
        CompletionKind::Sent(Operation::BindMw) => CompletionOpcode::BIND_MW,
        CompletionKind::Sent(Operation::Write) => CompletionOpcode::WRITE,
        CompletionKind::Sent(Operation::WriteImm) => CompletionOpcode::WRITE_IMM,
        CompletionKind::Sent(Operation::Read) => CompletionOpcode::READ,
        CompletionKind::Sent(Operation::CompareSwap) => CompletionOpcode::CMP_SWAP,
        CompletionKind::Sent(Operation::FetchAdd) => CompletionOpcode::FETCH_ADD,
        CompletionKind::Sent(Operation::AtomicWrite) => CompletionOpcode::ATOMIC_WRITE,
        CompletionKind::Sent(Operation::Flush) => CompletionOpcode::FLUSH,
        CompletionKind::Received { by_write: false, .. } => CompletionOpcode::RECV,
        CompletionKind::Received { by_write: true, .. } => CompletionOpcode::RECV_RDMA_WITH_IMM,
        CompletionKind::Unknown => CompletionOpcode(0),
    }
}

pub(super) fn encode_completion(completion: &Completion, now_ns: u64, phase: bool, out: &mut [u8]) {
    let (immediate, invalidated) = match completion.kind {
        CompletionKind::Received { immediate, invalidated, .. } => (immediate, invalidated),
        _ => (None, None),
    };
    let with_immediate = if immediate.is_some() { CQE_WITH_IMM } else { 0 };
    let with_invalidate = if invalidated.is_some() { CQE_WITH_INV } else { 0 };
    let solicited = if completion.solicited { CQE_SOLICITED } else { 0 };
    let mut cqe = Cqe::zeroed();
    cqe.qpn = completion.qpn.0.into();
    cqe.wqe_index = completion.wqe_index.into();
    cqe.opcode = opcode(completion.kind).0;
    cqe.status = status(completion.status).0;
    cqe.byte_len = completion.length_bytes.into();
    cqe.immediate = immediate.or(invalidated.map(|key| key.0)).unwrap_or(0).into();
    cqe.src_qpn = completion.source_qpn.0.into();
    cqe.vendor_err =
        completion.diagnostic.filter(|_| !planted("vendor_codes_lost")).map_or(0, Diagnostic::number).into();
    let shared = if completion.srqn.is_some() { CQE_SRQ } else { 0 };
    cqe.flags = (with_immediate | with_invalidate | solicited | shared).into();
    cqe.srqn = completion.srqn.map_or(0, |srqn| srqn.0).into();
    if let Some(source) = &completion.datagram {
        datagram_source(&mut cqe, source);
    }
    cqe.time_ns = now_ns.into();
    cqe.phase = (u32::from(phase) * CQE_PHASE).into();
    out.copy_from_slice(cqe.as_bytes());
}

/// What an answer to a datagram needs.
fn datagram_source(cqe: &mut Cqe, source: &DatagramSource) {
    let (vlan_flag, (vlan_id, service_level)) = source.vlan.map_or((0, (0, 0)), |vlan| (CQE_WITH_VLAN, vlan));
    cqe.flags = (cqe.flags.get() | CQE_GRH | CQE_WITH_SMAC | vlan_flag).into();
    cqe.pkey_index = source.pkey_index.into();
    cqe.vlan_id = vlan_id.into();
    cqe.service_level = service_level;
    cqe.network_type = if source.is_ipv6 { NETWORK_IPV6 } else { NETWORK_IPV4 };
    cqe.source_mac = source.mac;
}

pub(super) fn encode_event(event: &EventRecord, phase: bool, out: &mut [u8]) {
    let (event_type, object, data) = match *event {
        EventRecord::Completion { cqn, consumer } => (EventType::COMPLETION, cqn, consumer),
        EventRecord::Command { slot } => (EventType::COMMAND, slot.into(), 0),
        EventRecord::CqError { cqn, diagnostic } => (EventType::CQ_ERR, cqn, diagnostic.number()),
        EventRecord::QpFatal { qpn, diagnostic } => (EventType::QP_FATAL, qpn, diagnostic.number()),
        EventRecord::QpRequestError { qpn, diagnostic } => (EventType::QP_REQ_ERR, qpn, diagnostic.number()),
        EventRecord::QpAccessError { qpn, diagnostic } => (EventType::QP_ACCESS_ERR, qpn, diagnostic.number()),
        EventRecord::CommunicationEstablished { qpn } => (EventType::COMM_EST, qpn, 0),
        EventRecord::SendQueueDrained { qpn } => (EventType::SQ_DRAINED, qpn, 0),
        EventRecord::LastWqeReached { qpn } => (EventType::QP_LAST_WQE_REACHED, qpn, 0),
        EventRecord::SrqError { srqn, diagnostic } => (EventType::SRQ_ERR, srqn, diagnostic.number()),
        EventRecord::SrqLimitReached { srqn } => (EventType::SRQ_LIMIT_REACHED, srqn, 0),
        EventRecord::DeviceFatal { diagnostic } => (EventType::DEVICE_FATAL, 0, diagnostic.number()),
        EventRecord::PortActive { port } => (EventType::PORT_ACTIVE, port.into(), 0),
        EventRecord::PortError { port } => (EventType::PORT_ERR, port.into(), 0),
    };
    let mut eqe = Eqe::zeroed();
    eqe.event_type = event_type.0;
    eqe.object = object.into();
    eqe.data = data.into();
    eqe.phase = (u32::from(phase) * EQE_PHASE).into();
    out.copy_from_slice(eqe.as_bytes());
}
