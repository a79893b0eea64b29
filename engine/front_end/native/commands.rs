//! Command slots and their completions.

use super::*;
use crate::context::completion_queue::Moderation;
use crate::context::gid::GidEntry;
use crate::context::key::{KeyKind, WindowType};
use crate::context::page_list::PageList;
use crate::context::queue_pair::{AddressVector, QpState, Service};
use crate::front_end::commands::*;
use crate::numbers::{Cqn, Eqn, Key, Pdn, Qpn, Srqn, XrcDomain};
use rnic_abi::command::{self as abi, *};
use rnic_abi::{CommandOpcode, CommandStatus, PageListFields, limits};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const HEADER: usize = 16;

/// The body of a command: its bytes beyond the structure are reserved.
fn body<T: FromBytes + KnownLayout + Immutable>(slot: &[u8]) -> Result<T, CommandError> {
    let (value, rest) = T::read_from_prefix(slot.get(HEADER..).unwrap_or(&[])).map_err(|_| CommandError::range(0))?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(reserved());
    }
    Ok(value)
}

const fn reserved() -> CommandError {
    CommandError::new(CommandStatus::BAD_PARAMETER, Diagnostic::CommandReserved, 0)
}

fn must_be_zero(fields: &[u64]) -> Result<(), CommandError> {
    if fields.iter().any(|field| *field != 0) { Err(reserved()) } else { Ok(()) }
}

fn page_list(fields: &PageListFields, object: u32) -> Result<PageList, CommandError> {
    must_be_zero(&[fields.reserved0.get().into(), fields.reserved1.get().into()])?;
    PageList::new(fields.root.get(), fields.page_shift, fields.levels).ok_or(CommandError::new(
        CommandStatus::BAD_PARAMETER,
        Diagnostic::PageListInvalid,
        object,
    ))
}

fn state(code: u8) -> Result<QpState, CommandError> {
    QpState::from_code(code).ok_or(CommandError::range(code.into()))
}

pub(super) fn decode(slot: &[u8]) -> Result<Command, CommandError> {
    let (header, _) = CommandHeader::read_from_prefix(slot).map_err(|_| CommandError::range(0))?;
    must_be_zero(&[header.reserved0.get().into(), header.reserved1.get(), (header.flags & !COMMAND_NOTIFY).into()])?;
    match CommandOpcode(header.opcode) {
        CommandOpcode::QUERY_DEVICE => body::<[u8; 0]>(slot).map(|_| Command::QueryDevice),
        CommandOpcode::SET_TABLE => set_table(body(slot)?),
        CommandOpcode::FLUSH_CACHES => flush(body(slot)?),
        CommandOpcode::SET_GID => set_gid(body(slot)?),
        CommandOpcode::QUERY_COUNTERS => query_counters(body(slot)?),
        CommandOpcode::CREATE_EQ => create_eq(body(slot)?),
        CommandOpcode::DESTROY_EQ => number(body(slot)?).map(|n| Command::DestroyEq(Eqn(n))),
        CommandOpcode::CREATE_CQ => create_cq(body(slot)?),
        CommandOpcode::DESTROY_CQ => number(body(slot)?).map(|n| Command::DestroyCq(Cqn(n))),
        CommandOpcode::CREATE_QP => create_qp(body(slot)?),
        CommandOpcode::MODIFY_QP => modify_qp(body(slot)?),
        CommandOpcode::QUERY_QP => number(body(slot)?).map(|n| Command::QueryQp(Qpn(n))),
        CommandOpcode::DESTROY_QP => number(body(slot)?).map(|n| Command::DestroyQp(Qpn(n))),
        CommandOpcode::CREATE_SRQ => create_srq(body(slot)?),
        CommandOpcode::MODIFY_SRQ => modify_srq(body(slot)?),
        CommandOpcode::QUERY_SRQ => number(body(slot)?).map(|n| Command::QuerySrq(Srqn(n))),
        CommandOpcode::DESTROY_SRQ => number(body(slot)?).map(|n| Command::DestroySrq(Srqn(n))),
        CommandOpcode::REREGISTER_KEY => reregister_key(body(slot)?),
        CommandOpcode::ALLOCATE_KEY => allocate_key(body(slot)?),
        CommandOpcode::ATTACH_MULTICAST => {
            multicast(body(slot)?).map(|(qpn, gid)| Command::AttachMulticast { qpn, gid })
        }
        CommandOpcode::DETACH_MULTICAST => {
            multicast(body(slot)?).map(|(qpn, gid)| Command::DetachMulticast { qpn, gid })
        }
        CommandOpcode::REGISTER_KEY => register_key(body(slot)?),
        CommandOpcode::DEREGISTER_KEY => number(body(slot)?).map(|n| Command::DeregisterKey(Key(n))),
        CommandOpcode::MODIFY_CQ => modify_cq(body(slot)?),
        CommandOpcode::RESIZE_CQ => resize_cq(body(slot)?),
        _ => Err(CommandError::new(CommandStatus::BAD_OPCODE, Diagnostic::CommandOpcodeUnknown, header.opcode.into())),
    }
}

fn number(body: ObjectNumber) -> Result<u32, CommandError> {
    must_be_zero(&[body.reserved.get().into()])?;
    Ok(body.number.get())
}

fn multicast(body: MulticastGroup) -> Result<(Qpn, [u8; 16]), CommandError> {
    must_be_zero(&[body.reserved.get().into()])?;
    Ok((Qpn(body.qpn.get()), body.gid))
}

fn set_table(body: SetTable) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.get().into(), body.reserved1.get().into()])?;
    let (kind, most) = match body.kind {
        TABLE_QP => (TableKind::QueuePair, limits::MAX_LOG_QPS),
        TABLE_CQ => (TableKind::CompletionQueue, limits::MAX_LOG_CQS),
        TABLE_SRQ => (TableKind::SharedReceiveQueue, limits::MAX_LOG_SRQS),
        TABLE_KEY => (TableKind::Key, limits::MAX_LOG_KEYS),
        TABLE_RD_ATOMIC => (TableKind::RdAtomic, limits::MAX_LOG_QPS),
        other => return Err(CommandError::range(other.into())),
    };
    if body.log_entries > most {
        return Err(CommandError::range(body.log_entries.into()));
    }
    Ok(Command::SetTable { kind, log_entries: body.log_entries, pages: page_list(&body.pages, body.kind.into())? })
}

fn flush(body: abi::FlushCaches) -> Result<Command, CommandError> {
    let mask = body.mask.get();
    let known = FLUSH_QP | FLUSH_CQ | FLUSH_SRQ | FLUSH_KEY | FLUSH_TRANSLATION | FLUSH_RD_ATOMIC;
    must_be_zero(&[body.reserved.get().into(), (mask & !known).into()])?;
    Ok(Command::FlushCaches(Flush {
        queue_pairs: mask & FLUSH_QP != 0,
        completion_queues: mask & FLUSH_CQ != 0,
        shared_receive_queues: mask & FLUSH_SRQ != 0,
        keys: mask & FLUSH_KEY != 0,
        translations: mask & FLUSH_TRANSLATION != 0,
        rd_atomic: mask & FLUSH_RD_ATOMIC != 0,
    }))
}

fn set_gid(body: abi::SetGid) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.into(), body.reserved1.get().into()])?;
    let vlan = body.vlan_id.get();
    if body.valid > 1 || (vlan != NO_VLAN && vlan > 4094) {
        return Err(CommandError::range(body.index.get().into()));
    }
    let entry = GidEntry { gid: body.gid, mac: body.mac, vlan_id: (vlan != NO_VLAN).then_some(vlan) };
    Ok(Command::SetGid { index: body.index.get(), entry: (body.valid == 1).then_some(entry) })
}

fn query_counters(body: abi::QueryCounters) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.into(), body.reserved1.get().into()])?;
    let group = match body.group {
        COUNTERS_PORT => CounterGroup::Port,
        COUNTERS_CROSSINGS => CounterGroup::Crossings,
        other => return Err(CommandError::range(other.into())),
    };
    Ok(Command::QueryCounters { group, first: body.first.get() })
}

fn create_eq(body: abi::CreateEq) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.into(), body.reserved1.get()])?;
    let vector = body.vector.get();
    Ok(Command::CreateEq(NewEq {
        eqn: Eqn(body.eqn.get()),
        vector: (vector != NO_VECTOR).then_some(vector),
        log_entries: body.log_entries,
        pages: page_list(&body.pages, body.eqn.get())?,
    }))
}

fn create_cq(body: abi::CreateCq) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.into(), body.reserved1.get().into(), body.reserved2.get()])?;
    if !body.consumer_record.get().is_multiple_of(8) {
        return Err(CommandError::range(body.cqn.get()));
    }
    let eqn = body.eqn.get();
    Ok(Command::CreateCq(NewCq {
        cqn: Cqn(body.cqn.get()),
        eqn: (eqn != limits::NO_OBJECT).then_some(Eqn(eqn)),
        doorbell_page: body.doorbell_page.get(),
        log_entries: body.log_entries,
        pages: page_list(&body.pages, body.cqn.get())?,
        consumer_record: body.consumer_record.get(),
    }))
}

fn create_qp(body: abi::CreateQp) -> Result<Command, CommandError> {
    must_be_zero(&[
        body.reserved0.into(),
        body.reserved1.get().into(),
        (body.flags & !(QP_SIGNAL_ALL | QP_SRQ | QP_PRIVILEGED | QP_SELECTIVE)).into(),
    ])?;
    let qpn = body.qpn.get();
    let unsupported = CommandError::new(CommandStatus::BAD_PARAMETER, Diagnostic::QpTypeUnsupported, qpn);
    let service = Service::from_code(body.qp_type).ok_or(unsupported)?;
    let selective = body.flags & QP_SELECTIVE != 0;
    must_be_zero(&[(selective && !service.is_reliable()).into()])?;
    let srqn = (body.flags & QP_SRQ != 0).then_some(Srqn(body.srqn.get()));
    let rq_pages = if service.has_receive_queue() { receive_pages(&body)? } else { no_receives(&body)? };
    let sq_pages = if service.has_send_queue() { page_list(&body.sq_pages, qpn)? } else { no_sends(&body)? };
    let queue = |has: bool, cqn: u32| Cqn(if has { cqn } else { limits::NO_OBJECT });
    if body.log_rq_stride > limits::MAX_LOG_RQ_STRIDE {
        return Err(CommandError::range(qpn));
    }
    Ok(Command::CreateQp(NewQp {
        qpn: Qpn(qpn),
        service,
        signal_all: body.flags & QP_SIGNAL_ALL != 0,
        privileged: body.flags & QP_PRIVILEGED != 0,
        selective,
        srqn,
        xrc_domain: (service == Service::XrcTarget).then_some(XrcDomain(body.pdn.get())),
        log_sq_slots: body.log_sq_slots,
        log_rq_entries: body.log_rq_entries,
        rq_stride_bytes: 16 << body.log_rq_stride,
        pdn: Pdn(body.pdn.get()),
        send_cqn: queue(service.has_send_queue(), body.send_cqn.get()),
        receive_cqn: queue(service.has_receive_queue(), body.receive_cqn.get()),
        doorbell_page: body.doorbell_page.get(),
        sq_pages,
        rq_pages,
    }))
}

fn modify_cq(body: abi::ModifyCq) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved.get()])?;
    let moderation = Moderation { count: body.count.get(), period_us: body.period_us.get() };
    Ok(Command::ModifyCq { cqn: Cqn(body.cqn.get()), moderation })
}

fn resize_cq(body: abi::ResizeCq) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.into(), body.reserved1.get().into(), body.reserved2.get()])?;
    let cqn = body.cqn.get();
    Ok(Command::ResizeCq { cqn: Cqn(cqn), log_entries: body.log_entries, pages: page_list(&body.pages, cqn)? })
}

/// The receive ring, or none beside a shared receive queue.
fn receive_pages(body: &abi::CreateQp) -> Result<PageList, CommandError> {
    if body.flags & QP_SRQ == 0 {
        must_be_zero(&[body.srqn.get().into()])?;
        return page_list(&body.rq_pages, body.qpn.get());
    }
    must_be_zero(&[body.log_rq_entries.into(), body.log_rq_stride.into()])?;
    if body.rq_pages.as_bytes().iter().any(|byte| *byte != 0) { Err(reserved()) } else { Ok(PageList::default()) }
}

/// A queue pair without receives names none.
fn no_receives(body: &abi::CreateQp) -> Result<PageList, CommandError> {
    must_be_zero(&[(body.flags & QP_SRQ).into(), body.srqn.get().into(), body.receive_cqn.get().into()])?;
    must_be_zero(&[body.log_rq_entries.into(), body.log_rq_stride.into()])?;
    if body.rq_pages.as_bytes().iter().any(|byte| *byte != 0) { Err(reserved()) } else { Ok(PageList::default()) }
}

/// Nor one without sends; it has no doorbell, either.
fn no_sends(body: &abi::CreateQp) -> Result<PageList, CommandError> {
    must_be_zero(&[(body.flags & QP_SIGNAL_ALL).into(), body.send_cqn.get().into(), body.doorbell_page.get().into()])?;
    must_be_zero(&[body.log_sq_slots.into()])?;
    if body.sq_pages.as_bytes().iter().any(|byte| *byte != 0) { Err(reserved()) } else { Ok(PageList::default()) }
}

fn create_srq(body: abi::CreateSrq) -> Result<Command, CommandError> {
    must_be_zero(&[
        (body.flags & !(SRQ_PRIVILEGED | SRQ_XRC)).into(),
        body.reserved0.into(),
        body.reserved1.get().into(),
        body.reserved2.get().into(),
    ])?;
    let xrc = Xrc { domain: XrcDomain(body.xrc_domain.get()), cqn: Cqn(body.cqn.get()) };
    let is_xrc = body.flags & SRQ_XRC != 0;
    if !is_xrc {
        must_be_zero(&[xrc.domain.0.into(), xrc.cqn.0.into()])?;
    }
    let srqn = body.srqn.get();
    if body.log_stride > limits::MAX_LOG_RQ_STRIDE {
        return Err(CommandError::range(srqn));
    }
    Ok(Command::CreateSrq(NewSrq {
        srqn: Srqn(srqn),
        privileged: body.flags & SRQ_PRIVILEGED != 0,
        log_slots: body.log_slots,
        stride_bytes: 16 << body.log_stride,
        pdn: Pdn(body.pdn.get()),
        doorbell_page: body.doorbell_page.get(),
        limit: body.limit.get(),
        xrc: is_xrc.then_some(xrc),
        wqe_pages: page_list(&body.wqe_pages, srqn)?,
        index_pages: page_list(&body.index_pages, srqn)?,
    }))
}

fn modify_srq(body: abi::ModifySrq) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved.get().into()])?;
    Ok(Command::ModifySrq { srqn: Srqn(body.srqn.get()), limit: body.limit.get() })
}

fn modify_qp(body: QpAttributes) -> Result<Command, CommandError> {
    let av = body.av;
    must_be_zero(&[
        body.reserved0.into(),
        body.reserved1.get().into(),
        av.reserved0.into(),
        av.reserved1.get().into(),
    ])?;
    must_be_zero(&body.reserved2.map(u64::from))?;
    let mask = body.mask.get();
    let given = |bit: u32, code: u8| if mask & bit != 0 { state(code).map(Some) } else { Ok(None) };
    Ok(Command::ModifyQp(QpChange {
        qpn: Qpn(body.qpn.get()),
        mask,
        state: given(ATTR_STATE, body.state)?,
        current_state: given(ATTR_CUR_STATE, body.current_state)?,
        path_mtu: body.path_mtu,
        port: body.port,
        access: body.access.get(),
        pkey_index: body.pkey_index.get(),
        max_rd_atomic: body.max_rd_atomic,
        max_dest_rd_atomic: body.max_dest_rd_atomic,
        min_rnr_timer: body.min_rnr_timer,
        timeout: body.timeout,
        retry_cnt: body.retry_cnt,
        rnr_retry: body.rnr_retry,
        rq_psn: body.rq_psn.get(),
        sq_psn: body.sq_psn.get(),
        dest_qpn: body.dest_qpn.get(),
        qkey: body.qkey.get(),
        av: address_vector(&av),
        sqd_notify: body.sqd_notify != 0,
    }))
}

pub(super) fn address_vector(av: &abi::AddressVector) -> AddressVector {
    AddressVector {
        dest_gid: av.dest_gid,
        dest_mac: av.dest_mac,
        sgid_index: av.sgid_index.get(),
        flow_label: av.flow_label.get(),
        traffic_class: av.traffic_class,
        hop_limit: av.hop_limit,
        service_level: av.service_level,
    }
}

fn register_key(body: abi::RegisterKey) -> Result<Command, CommandError> {
    must_be_zero(&[body.changes.get().into()])?;
    key_fields(&body).map(Command::RegisterKey)
}

fn reregister_key(body: abi::RegisterKey) -> Result<Command, CommandError> {
    let changes = body.changes.get();
    if changes == 0 || changes & !(REREGISTER_TRANSLATION | REREGISTER_PD | REREGISTER_ACCESS) != 0 {
        return Err(CommandError::range(body.key.get()));
    }
    let translation = changes & REREGISTER_TRANSLATION != 0;
    // Without a new translation the list is not looked at.
    let pages = PageListFields { page_shift: 12, ..PageListFields::zeroed() };
    let body = if translation { body } else { abi::RegisterKey { pages, ..body } };
    let changes =
        KeyChanges { translation, pd: changes & REREGISTER_PD != 0, access: changes & REREGISTER_ACCESS != 0 };
    Ok(Command::ReregisterKey(key_fields(&body)?, changes))
}

fn allocate_key(body: abi::AllocateKey) -> Result<Command, CommandError> {
    must_be_zero(&[body.reserved0.into(), body.reserved1.get().into(), body.reserved2.get()])?;
    let (number, max_pages) = (body.key.get(), body.max_pages.get());
    let window = |window| KeyKind::Window { window, region: 0, queue_pair: 0 };
    let (kind, pages) = match body.kind {
        KEY_FAST_REGION => (KeyKind::FastRegion { max_pages }, 1..=limits::MAX_FAST_REGISTER_PAGES),
        KEY_WINDOW_1 => (window(WindowType::One), 0..=0),
        KEY_WINDOW_2A => (window(WindowType::TwoA), 0..=0),
        KEY_WINDOW_2B => (window(WindowType::TwoB), 0..=0),
        _ => return Err(CommandError::range(number)),
    };
    if !pages.contains(&max_pages) || number & 0xff != 0 {
        return Err(CommandError::range(number));
    }
    Ok(Command::AllocateKey { key: Key(number), pdn: Pdn(body.pdn.get()), kind })
}

fn key_fields(body: &abi::RegisterKey) -> Result<NewKey, CommandError> {
    Ok(NewKey {
        key: Key(body.key.get()),
        pdn: Pdn(body.pdn.get()),
        access: body.access.get(),
        start: body.start.get(),
        length_bytes: body.length_bytes.get(),
        pages: page_list(&body.pages, body.key.get())?,
    })
}

/// Writes a completion slot: header, the answer's body, and the phase in the last word.
pub(super) fn encode(slot: u16, slot_bytes: &[u8], answer: &Result<Answer, CommandError>, phase: bool, out: &mut [u8]) {
    out.fill(0);
    let command = CommandHeader::read_from_prefix(slot_bytes).map_or(CommandHeader::zeroed(), |(header, _)| header);
    let mut header = CompletionHeader::zeroed();
    header.token = command.token;
    header.opcode = command.opcode;
    header.slot = slot.into();
    if let Err(error) = answer {
        header.status = error.status.0;
        header.diagnostic = error.diagnostic.number().into();
    }
    out[..HEADER].copy_from_slice(header.as_bytes());
    match answer {
        Ok(Answer::Device(device)) => put(out, device_limits(device).as_bytes()),
        Ok(Answer::QueuePair { attributes, sq_consumer, rq_consumer }) => {
            put(out, attributes_of(attributes).as_bytes());
            // The queue's indices stand where the attributes' reserved tail is.
            let mut queue = QueueState::zeroed();
            queue.sq_consumer = (*sq_consumer).into();
            queue.rq_consumer = (*rq_consumer).into();
            let at = HEADER + size_of::<QpAttributes>();
            out[at..at + size_of::<QueueState>()].copy_from_slice(queue.as_bytes());
        }
        Ok(Answer::FirstIndex(first_index)) => {
            put(out, CqPosition { first_index: (*first_index).into(), ..CqPosition::zeroed() }.as_bytes());
        }
        Ok(Answer::SharedReceiveQueue { limit, available, consumer }) => {
            let mut state = SrqState::zeroed();
            (state.limit, state.available, state.consumer) = ((*limit).into(), (*available).into(), (*consumer).into());
            put(out, state.as_bytes());
        }
        Ok(Answer::Counters { total, count, values }) => {
            let mut answer = CounterValues::zeroed();
            (answer.total, answer.count) = ((*total).into(), (*count).into());
            answer.values = values.map(Into::into);
            put(out, answer.as_bytes());
        }
        Ok(Answer::Done) | Err(_) => {}
    }
    let last = out.len() - 4;
    out[last..].copy_from_slice(&(u32::from(phase) * COMMAND_PHASE).to_le_bytes());
}

fn put(out: &mut [u8], body: &[u8]) {
    out[HEADER..HEADER + body.len()].copy_from_slice(body);
}

fn device_limits(device: &Limits) -> DeviceLimits {
    let mut answer = DeviceLimits::zeroed();
    answer.log_qps = limits::MAX_LOG_QPS;
    answer.log_cqs = limits::MAX_LOG_CQS;
    answer.log_keys = limits::MAX_LOG_KEYS;
    answer.log_sq_slots = limits::MAX_LOG_SQ_SLOTS;
    answer.log_rq_entries = limits::MAX_LOG_RQ_ENTRIES;
    answer.log_cq_entries = limits::MAX_LOG_CQ_ENTRIES;
    answer.log_eq_entries = limits::MAX_LOG_EQ_ENTRIES;
    answer.max_send_sge = limits::MAX_SEND_SGE;
    answer.max_receive_sge = limits::MAX_RECEIVE_SGE;
    answer.ports = 1;
    answer.max_inline_bytes = limits::MAX_INLINE_BYTES.into();
    answer.max_eqs = (limits::MAX_EQS as u16).into();
    answer.gids = limits::MAX_GIDS.into();
    answer.pkeys = 1.into();
    answer.vectors = device.vectors.into();
    answer.qp_context_bytes = limits::QP_CONTEXT_BYTES.into();
    answer.cq_context_bytes = limits::CQ_CONTEXT_BYTES.into();
    answer.key_context_bytes = limits::KEY_CONTEXT_BYTES.into();
    answer.local_dma_key = LOCAL_DMA_KEY.into();
    answer.max_fast_register_pages = limits::MAX_FAST_REGISTER_PAGES.into();
    answer.srq_context_bytes = limits::SRQ_CONTEXT_BYTES.into();
    answer.log_srqs = limits::MAX_LOG_SRQS;
    answer.log_srq_slots = limits::MAX_LOG_SRQ_SLOTS;
    answer.srq_cache_entries = device.srq_cache_entries.into();
    answer.rd_atomic_context_bytes = limits::RD_ATOMIC_CONTEXT_BYTES.into();
    answer.max_rd_atomic = limits::MAX_RD_ATOMIC;
    answer.max_group_qps = limits::MAX_GROUP_QPS;
    answer.max_multicast_groups = limits::MAX_MULTICAST_GROUPS.into();
    answer.max_message_bytes = limits::MAX_MESSAGE_BYTES.into();
    answer.doorbell_pages = device.doorbell_pages.into();
    answer.qp_cache_entries = device.qp_cache_entries.into();
    answer.cq_cache_entries = device.cq_cache_entries.into();
    answer.key_cache_entries = device.key_cache_entries.into();
    answer.rd_atomic_cache_entries = device.rd_atomic_cache_entries.into();
    answer
}

fn attributes_of(change: &QpChange) -> QpAttributes {
    let mut answer = QpAttributes::zeroed();
    answer.qpn = change.qpn.0.into();
    answer.mask = change.mask.into();
    answer.state = change.state.map_or(0, QpState::code);
    answer.current_state = answer.state;
    answer.path_mtu = change.path_mtu;
    answer.port = change.port;
    answer.access = change.access.into();
    answer.pkey_index = change.pkey_index.into();
    answer.max_rd_atomic = change.max_rd_atomic;
    answer.max_dest_rd_atomic = change.max_dest_rd_atomic;
    answer.min_rnr_timer = change.min_rnr_timer;
    answer.timeout = change.timeout;
    answer.retry_cnt = change.retry_cnt;
    answer.rnr_retry = change.rnr_retry;
    answer.rq_psn = change.rq_psn.into();
    answer.sq_psn = change.sq_psn.into();
    answer.dest_qpn = change.dest_qpn.into();
    answer.qkey = change.qkey.into();
    answer.av.dest_gid = change.av.dest_gid;
    answer.av.dest_mac = change.av.dest_mac;
    answer.av.sgid_index = change.av.sgid_index.into();
    answer.av.flow_label = change.av.flow_label.into();
    answer.av.traffic_class = change.av.traffic_class;
    answer.av.hop_limit = change.av.hop_limit;
    answer.av.service_level = change.av.service_level;
    answer
}
