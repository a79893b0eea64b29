//! Every rule of the interface that this engine enforces, broken once: its number comes out.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::diagnostic::{RULES, Severity};
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;
use rnic_abi::{
    BindSegment, CommandOpcode, ControlSegment, DatagramSegment, Diagnostic, EventType, RegisterSegment, WorkOpcode,
    work_request,
};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_wire::Opcode;
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

type Break = fn(&mut Fabric);

const HOST_RULES: &[(Diagnostic, Break)] = &[
    (Diagnostic::RegisterAccess, |f| f.a.write(0, 0x14, &[1])),
    (Diagnostic::RegisterReadOnly, |f| f.a.write(0, REG_MAGIC.into(), &[0; 4])),
    (Diagnostic::RegisterWhileEnabled, |f| f.a.write(0, REG_COMMAND_RING.into(), &[0; 8])),
    (Diagnostic::CommandRingInvalid, |f| {
        f.a.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
        f.a.write(0, REG_CONTROL.into(), &CONTROL_ENABLE.to_le_bytes());
    }),
    (Diagnostic::CommandDoorbellRange, |f| f.a.write(0, REG_COMMAND_DOORBELL.into(), &0xfff0u32.to_le_bytes())),
    (Diagnostic::DeviceDisabled, |f| {
        f.a.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
        f.a.ring_send();
    }),
    (Diagnostic::CommandFetchFault, |f| {
        f.a.port.fail = Box::new(|origin| origin.class == Class::CommandFetch);
        f.a.start_command(CommandOpcode::QUERY_DEVICE, &[]);
    }),
    (Diagnostic::DeviceFatal, |f| {
        f.a.port.fail = Box::new(|origin| origin.class == Class::CommandCompletion);
        f.a.start_command(CommandOpcode::QUERY_DEVICE, &[]);
        f.a.start_command(CommandOpcode::QUERY_DEVICE, &[]);
    }),
    (Diagnostic::DoorbellAccess, |f| f.a.write(2, DB_SEND.into(), &[0; 4])),
    (Diagnostic::DoorbellReserved, |f| f.a.ring(DB_SEND, 1)),
    (Diagnostic::DoorbellForeignPage, |f| f.a.ring(4096 + DB_SEND, queue_doorbell(0x11, 1))),
    (Diagnostic::DoorbellNoQueue, |f| f.a.ring(DB_SEND, queue_doorbell(0x77, 1))),
    (Diagnostic::DoorbellBeyondRing, |f| f.a.ring(DB_SEND, queue_doorbell(0x11, 65))),
    (Diagnostic::DoorbellState, |f| {
        f.a.create_qp(0x15);
        f.a.ring(DB_SEND, queue_doorbell(0x15, 1));
    }),
    (Diagnostic::DoorbellTornLine, |f| {
        f.a.post(&write());
        f.a.write_as(2, DB_SEND_LINE_0.into(), &queue_doorbell(0x11, 1).to_le_bytes(), true);
    }),
    (Diagnostic::ArmStale, |f| {
        f.a.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
        f.a.ring(DB_CQ_ARM, cq_arm(3, 0, 0, false));
    }),
    (Diagnostic::ArmConsumerAhead, |f| f.a.ring(DB_CQ_ARM, cq_arm(3, 1, 1, false))),
    (Diagnostic::EqUpdateForeign, |f| f.a.ring(4096 + DB_EQ_UPDATE, eq_update(0, 0, true))),
    (Diagnostic::EqConsumerAhead, |f| f.a.ring(DB_EQ_UPDATE, eq_update(0, 1, true))),
    (Diagnostic::VectorUnusable, |f| {
        f.a.port.vectors_usable = false;
        f.a.ring(DB_EQ_UPDATE, eq_update(0, 0, true));
        f.a.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
        send(f, &write());
    }),
];

const COMMAND_RULES: &[(Diagnostic, Break)] = &[
    (Diagnostic::CommandOpcodeUnknown, |f| refused(f, CommandOpcode(0xee), &[])),
    (Diagnostic::CommandReserved, |f| refused(f, CommandOpcode::QUERY_QP, &[0x11, 0, 0, 0, 1])),
    (Diagnostic::ParameterRange, |f| refused(f, CommandOpcode::SET_TABLE, &[9])),
    (Diagnostic::ObjectMissing, |f| refused(f, CommandOpcode::DESTROY_CQ, Host::object(9).as_bytes())),
    (Diagnostic::ObjectExists, |f| {
        let qp = f.a.new_qp(0x11);
        refused(f, CommandOpcode::CREATE_QP, qp.as_bytes());
    }),
    (Diagnostic::TableMissing, |f| {
        let mut qp = f.a.new_qp(0x12);
        qp.qpn = 64.into();
        refused(f, CommandOpcode::CREATE_QP, qp.as_bytes());
    }),
    (Diagnostic::TableInUse, |f| {
        let mut table = SetTable::zeroed();
        (table.kind, table.pages) = (TABLE_QP, pages(QP_TABLE, 0));
        refused(f, CommandOpcode::SET_TABLE, table.as_bytes());
    }),
    (Diagnostic::ObjectBusy, |f| refused(f, CommandOpcode::DESTROY_CQ, Host::object(3).as_bytes())),
    (Diagnostic::PageListInvalid, |f| {
        let mut eq = CreateEq::zeroed();
        (eq.eqn, eq.pages) = (1.into(), pages(EQ + 8, 0));
        refused(f, CommandOpcode::CREATE_EQ, eq.as_bytes());
    }),
    (Diagnostic::DoorbellPageRange, |f| {
        let mut qp = f.a.new_qp(0x12);
        qp.doorbell_page = 1024.into();
        refused(f, CommandOpcode::CREATE_QP, qp.as_bytes());
    }),
    (Diagnostic::VectorRange, |f| {
        let mut eq = CreateEq::zeroed();
        (eq.eqn, eq.vector, eq.pages) = (1.into(), 32.into(), pages(EQ, 0));
        refused(f, CommandOpcode::CREATE_EQ, eq.as_bytes());
    }),
    (Diagnostic::QpTypeUnsupported, |f| {
        let mut qp = f.a.new_qp(0x12);
        qp.qp_type = 0xff;
        refused(f, CommandOpcode::CREATE_QP, qp.as_bytes());
    }),
    (Diagnostic::GidExists, |f| {
        let mut entry = SetGid::zeroed();
        (entry.index, entry.valid, entry.vlan_id, entry.gid) = (7.into(), 1, NO_VLAN.into(), gid(IP_A));
        refused(f, CommandOpcode::SET_GID, entry.as_bytes());
    }),
    (Diagnostic::MulticastGid, |f| {
        f.a.create_datagram(0x15, QP_TYPE_UD);
        multicast(f, 0x15, gid(IP_B));
    }),
    (Diagnostic::XrcQueue, |f| {
        shared_queue(&mut f.a, SRQ_XRC);
        let qp = CreateQp { flags: QP_SRQ, ..without_receives(f.a.new_qp(0x15)) };
        refused(f, CommandOpcode::CREATE_QP, qp.as_bytes());
    }),
    (Diagnostic::MulticastQueuePair, |f| multicast(f, 0x11, gid([239, 0, 0, 1]))),
    (Diagnostic::MulticastFull, |f| {
        f.a.create_datagram(0x15, QP_TYPE_UD);
        for group in 0..=255 {
            f.a.attach(0x15, gid([239, 0, 0, group]));
        }
        multicast(f, 0x15, gid([239, 0, 1, 0]));
    }),
    (Diagnostic::ModifyTransition, |f| modify(f, QP_STATE_INIT, 0, |_| {})),
    (Diagnostic::ModifyMissing, |f| {
        f.a.create_qp(0x15);
        modify(f, QP_STATE_INIT, 0, |change| change.qpn = 0x15.into());
    }),
    (Diagnostic::ModifyIllegal, |f| modify(f, QP_STATE_RTS, ATTR_PATH_MTU, |_| {})),
    (Diagnostic::ModifyCurrentState, |f| {
        modify(f, QP_STATE_RTS, ATTR_CUR_STATE, |change| change.current_state = QP_STATE_SQD);
    }),
    (Diagnostic::ModifyValue, |f| {
        modify(f, QP_STATE_RTS, ATTR_ACCESS_FLAGS, |change| change.access = ACCESS_INVALIDATE.into())
    }),
    (Diagnostic::ModifyUnsupported, |f| modify(f, QP_STATE_RTS, ATTR_ALT_PATH, |_| {})),
    (Diagnostic::AccessNeedsLocalWrite, |f| {
        let region = f.a.region(0x200, VIRTUAL, 64, BUFFER, 0, ACCESS_REMOTE_WRITE);
        refused(f, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
    (Diagnostic::RegionWraps, |f| {
        let mut region = f.a.region(0x200, VIRTUAL, 64, BUFFER, 0, 0);
        region.start = (u64::MAX - 8).into();
        refused(f, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
    (Diagnostic::ContextFault, |f| {
        f.a.port.fail = Box::new(|origin| origin.class == Class::ContextWriteback);
        f.a.flush_caches();
    }),
    (Diagnostic::ContextInvalid, |f| {
        f.a.flush_caches();
        f.a.port.put(QP_TABLE + 0x11 * 256, &[0xff; 8]);
        send(f, &write());
    }),
];

const WORK_RULES: &[(Diagnostic, Break)] = &[
    (Diagnostic::WqeFetchFault, |f| {
        f.a.port.fail = Box::new(|origin| origin.class == Class::WqeFetch);
        send(f, &write());
    }),
    (Diagnostic::WqeOpcode, |f| spoil(f, &write(), |control| control.opcode = 0x33)),
    (Diagnostic::WqeReserved, |f| spoil(f, &write(), |control| control.reserved = 1.into())),
    (Diagnostic::WqeQpn, |f| spoil(f, &write(), |control| control.qpn = [9, 0, 0])),
    (Diagnostic::WqeIndex, |f| spoil(f, &write(), |control| control.slot_index = 9.into())),
    (Diagnostic::WqeLength, |f| spoil(f, &write(), |control| control.segments = 0)),
    (Diagnostic::WqeInline, |f| {
        spoil(f, &write(), |control| {
            control.flags |= work_request::WQE_INLINE;
            control.inline_bytes = 225.into();
        });
    }),
    (Diagnostic::WqeInlineRead, |f| send(f, &Request { inline: Some(vec![1]), ..Request::new(WorkOpcode::READ, 0) })),
    (Diagnostic::FlushPlacement, |f| {
        send(f, &Request { elements: Vec::new(), flush: (8, 0), ..Request::new(WorkOpcode::FLUSH, 0) });
    }),
    (Diagnostic::AtomicLength, |f| send(f, &Request::new(WorkOpcode::FETCH_ADD, 4))),
    (Diagnostic::ReadNotEnabled, |f| {
        *f = Fabric::with(EngineConfig::default(), &Attributes { max_rd_atomic: 0, ..Attributes::mtu(1) });
        send(f, &Request::new(WorkOpcode::READ, 8));
    }),
    (Diagnostic::ReadTooLong, |f| send(f, &Request::new(WorkOpcode::READ, 1 << 31))),
    (Diagnostic::MessageTooLong, |f| {
        let mut request = write();
        request.elements = vec![(VIRTUAL, 1 << 31, 0x100), (VIRTUAL, 1, 0x100)];
        send(f, &request);
    }),
    (Diagnostic::ReceiveFetchFault, |f| {
        f.b.port.fail = Box::new(|origin| origin.class == Class::RecvWqeFetch);
        f.b.post_receive(VIRTUAL, 64, 0x100);
        send(f, &Request::new(WorkOpcode::SEND, 8));
    }),
    (Diagnostic::DatagramTooLong, |f| datagram(f, 4097, |_| {})),
    (Diagnostic::DatagramAddress, |f| datagram(f, 8, |to| to.av.sgid_index = 9.into())),
    (Diagnostic::LKeyInvalid, |f| from(f, VIRTUAL, 0x900)),
    (Diagnostic::LKeyRange, |f| from(f, VIRTUAL - 1, 0x100)),
    (Diagnostic::LKeyRight, |f| {
        f.b.register(0x200, VIRTUAL, 64, BUFFER, 0, 0);
        f.b.post_receive(VIRTUAL, 64, 0x200);
        send(f, &Request::new(WorkOpcode::SEND, 8));
    }),
    (Diagnostic::LKeyPd, |f| {
        foreign(&mut f.a);
        from(f, VIRTUAL, 0x200);
    }),
    (Diagnostic::RKeyInvalid, |f| to(f, VIRTUAL, 0x900)),
    (Diagnostic::RKeyRange, |f| to(f, VIRTUAL - 1, 0x100)),
    (Diagnostic::RKeyRight, |f| {
        f.b.register(0x200, VIRTUAL, 64, BUFFER, 0, ACCESS_LOCAL_WRITE);
        to(f, VIRTUAL, 0x200);
    }),
    (Diagnostic::RKeyPd, |f| {
        foreign(&mut f.b);
        to(f, VIRTUAL, 0x200);
    }),
    (Diagnostic::PayloadFault, |f| {
        f.b.port.fail = Box::new(|origin| origin.class == Class::PayloadWrite);
        send(f, &write());
    }),
    (Diagnostic::InvalidateRefused, |f| {
        send(f, &Request { immediate: 0x100, elements: vec![], ..Request::new(WorkOpcode::LOCAL_INV, 0) });
    }),
    (Diagnostic::BindWindow, |f| bind(f, 0x100, |_| {})),
    (Diagnostic::BindRegion, |f| bind(f, 0x300, |bind| bind.lkey = 0x900.into())),
    (Diagnostic::BindRange, |f| bind(f, 0x300, |bind| bind.address = (VIRTUAL - 1).into())),
    (Diagnostic::BindAccess, |f| bind(f, 0x300, |bind| bind.access = ACCESS_LOCAL_WRITE.into())),
    (Diagnostic::RegisterState, |f| register(f, 0x100, QP_PRIVILEGED, |_| {})),
    (Diagnostic::RegisterShape, |f| register(f, 0x400, QP_PRIVILEGED, |fast| fast.access = (1 << 20).into())),
    (Diagnostic::NotPrivileged, |f| register(f, 0x400, 0, |_| {})),
    (Diagnostic::XrcTarget, |f| extended(f, 1, 0)),
    (Diagnostic::XrcDomain, |f| extended(f, 0, 1)),
    (Diagnostic::SrqIndex, |f| shared(f, 64, false)),
    (Diagnostic::SrqFetchFault, |f| shared(f, 0, true)),
    (Diagnostic::TranslationFault, |f| {
        f.a.flush_caches();
        f.a.port.fail = Box::new(|origin| origin.class == Class::TranslationFetch);
        send(f, &write());
    }),
];

const TRANSPORT_RULES: &[(Diagnostic, Break)] = &[
    (Diagnostic::ReceiveTooSmall, |f| {
        f.b.post_receive(VIRTUAL, 7, 0x100);
        send(f, &Request::new(WorkOpcode::SEND, 8));
    }),
    (Diagnostic::InvalidRequest, |f| {
        let packet = Forged::new(&f.a, IP_B, Opcode::RC_SEND_LAST, PSN, &[1; 8]);
        f.a.receive(packet.frame());
    }),
    (Diagnostic::RdAtomicLimit, |f| {
        *f = Fabric::with(EngineConfig::default(), &Attributes { max_dest_rd_atomic: 0, ..Attributes::mtu(1) });
        send(f, &Request::new(WorkOpcode::READ, 8));
    }),
    (Diagnostic::AtomicAlignment, |f| {
        let mut request = Request::new(WorkOpcode::FETCH_ADD, 8);
        request.remote.0 += 4;
        send(f, &request);
    }),
    (Diagnostic::BadResponse, |f| response(f, Opcode::RC_ATOMIC_ACKNOWLEDGE, 0)),
    (Diagnostic::ReadResponseLength, |f| response(f, Opcode::RC_READ_RESPONSE_ONLY, 7)),
    (Diagnostic::RemoteInvalidRequest, |f| nak(f, 0x61)),
    (Diagnostic::RemoteAccessError, |f| nak(f, 0x62)),
    (Diagnostic::RemoteOperationalError, |f| nak(f, 0x63)),
    (Diagnostic::RetryExceeded, |f| {
        f.drop = Box::new(|_, _| true);
        send(f, &write());
    }),
    (Diagnostic::RnrRetryExceeded, |f| send(f, &Request::new(WorkOpcode::SEND, 8))),
    (Diagnostic::CqOverrun, |f| {
        for _ in 0..65 {
            send(f, &write());
        }
    }),
    (Diagnostic::EqOverrun, |f| {
        for _ in 0..65 {
            let mut slot = [0; 128];
            (slot[0], slot[1]) = (CommandOpcode::QUERY_DEVICE.0, COMMAND_NOTIFY);
            f.a.start_slot(&slot);
        }
    }),
    (Diagnostic::CqRingFault, |f| {
        f.a.port.fail = Box::new(|origin| origin.class == Class::CqeWrite);
        send(f, &write());
    }),
    (Diagnostic::MsnDisagrees, |f| {
        f.a.send(&write());
        assert!(f.a.transmit().is_some());
        let ack = Forged::new(&f.a, IP_B, Opcode::RC_ACKNOWLEDGE, PSN, &[]).aeth(0x1f, 7);
        f.a.receive(ack.frame());
    }),
    (Diagnostic::EventRingFault, |f| {
        f.a.port.fail = Box::new(|origin| origin.class == Class::Event);
        f.a.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
        send(f, &write());
    }),
];

fn write() -> Request {
    Request::new(WorkOpcode::WRITE, 8)
}

fn send(fabric: &mut Fabric, request: &Request) {
    fabric.a.send(request);
    fabric.run();
    fabric.run_timers(20);
}

/// A datagram from a queue pair of its own, its address changed.
fn datagram(fabric: &mut Fabric, length: u32, set: fn(&mut DatagramSegment)) {
    fabric.a.create_datagram(0x15, QP_TYPE_UD);
    let mut request = Request::datagram(0x15, IP_B, 0x12, 7, length);
    set(request.datagram.as_mut().unwrap());
    send(fabric, &request);
}

fn multicast(fabric: &mut Fabric, qpn: u32, gid: [u8; 16]) {
    let group = MulticastGroup { qpn: qpn.into(), reserved: 0.into(), gid };
    refused(fabric, CommandOpcode::ATTACH_MULTICAST, group.as_bytes());
}

fn refused(fabric: &mut Fabric, opcode: CommandOpcode, body: &[u8]) {
    let (status, diagnostic, _) = fabric.a.command(opcode, body);
    assert_ne!(status, 0, "{opcode:?}");
    let last = fabric.a.engine.poll_diagnostic().expect("a refusal is diagnosed");
    assert_eq!(last.diagnostic.number(), diagnostic, "the answer and the stream say the same");
    // Once more, for the caller to see.
    fabric.a.command(opcode, body);
}

fn modify(fabric: &mut Fabric, state: u8, mask: u32, set: fn(&mut QpAttributes)) {
    let mut change = fabric.a.attributes(0x11, state, mask);
    set(&mut change);
    refused(fabric, CommandOpcode::MODIFY_QP, change.as_bytes());
}

/// Sends a request whose control segment has been changed.
fn spoil(fabric: &mut Fabric, request: &Request, set: fn(&mut ControlSegment)) {
    let bytes = fabric.a.post(request);
    let (mut control, _) = ControlSegment::read_from_prefix(&bytes).unwrap();
    set(&mut control);
    fabric.a.port.put(SQ, control.as_bytes());
    fabric.a.ring_send();
    fabric.run();
}

fn from(fabric: &mut Fabric, address: u64, key: u32) {
    let mut request = write();
    request.elements = vec![(address, 8, key)];
    send(fabric, &request);
}

fn to(fabric: &mut Fabric, address: u64, key: u32) {
    let mut request = write();
    request.remote = (address, key);
    send(fabric, &request);
}

fn foreign(host: &mut Host) {
    let mut region = host.region(0x200, VIRTUAL, 64, BUFFER, 0, all_rights());
    region.pdn = (PDN + 1).into();
    host.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
}

fn nak(fabric: &mut Fabric, syndrome: u8) {
    fabric.a.send(&write());
    assert!(fabric.a.transmit().is_some());
    let nak = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, PSN, &[]).aeth(syndrome, 0);
    fabric.a.receive(nak.frame());
}

/// A work request without packets, with this segment.
fn local(fabric: &mut Fabric, opcode: WorkOpcode, key: u32, segment: &[u8]) {
    let host = &mut fabric.a;
    let mut control = ControlSegment::zeroed();
    (control.opcode, control.segments, control.immediate) = (opcode.0, 1 + (segment.len() / 16) as u8, key.into());
    control.qpn.copy_from_slice(&host.qpn.to_le_bytes()[..3]);
    host.port.put(SQ, &[control.as_bytes(), segment].concat());
    host.ring(DB_SEND, queue_doorbell(host.qpn, 1));
    fabric.run();
}

fn allocate(fabric: &mut Fabric, key: u32, kind: u8, max_pages: u32) {
    let mut body = AllocateKey::zeroed();
    (body.key, body.pdn, body.kind, body.max_pages) = (key.into(), PDN.into(), kind, max_pages.into());
    fabric.a.must(CommandOpcode::ALLOCATE_KEY, body.as_bytes());
}

fn bind(fabric: &mut Fabric, key: u32, change: fn(&mut BindSegment)) {
    allocate(fabric, 0x300, KEY_WINDOW_2B, 0);
    fabric.a.register(0x500, VIRTUAL, 64, BUFFER, 0, ACCESS_LOCAL_WRITE | ACCESS_MW_BIND);
    let mut segment = BindSegment::zeroed();
    (segment.access, segment.lkey) = (ACCESS_REMOTE_READ.into(), 0x500.into());
    (segment.address, segment.length_bytes) = (VIRTUAL.into(), 8.into());
    change(&mut segment);
    local(fabric, WorkOpcode::BIND_MW, key, segment.as_bytes());
}

fn register(fabric: &mut Fabric, key: u32, flags: u8, change: fn(&mut RegisterSegment)) {
    let qpn = fabric.a.qpn;
    fabric.a.destroy_qp(qpn);
    let qp = CreateQp { flags, ..fabric.a.new_qp(qpn) };
    fabric.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    fabric.a.connect(qpn, (IP_B, fabric.b.qpn), &Attributes::mtu(1));
    allocate(fabric, 0x400, KEY_FAST_REGION, 1);
    let mut segment = RegisterSegment::zeroed();
    (segment.start, segment.length_bytes, segment.pages) = (VIRTUAL.into(), 8.into(), pages(BUFFER, 0));
    change(&mut segment);
    local(fabric, WorkOpcode::REG_MR, key, segment.as_bytes());
}

/// A message to a queue pair of b whose receives are shared, of which the index ring names this slot, or is gone.
fn shared(fabric: &mut Fabric, slot: u16, gone: bool) {
    shared_queue(&mut fabric.b, 0);
    let qpn = fabric.b.qpn;
    fabric.b.destroy_qp(qpn);
    let qp = CreateQp { flags: QP_SRQ, ..without_receives(fabric.b.new_qp(qpn)) };
    fabric.b.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    fabric.b.connect(qpn, (IP_A, fabric.a.qpn), &Attributes::mtu(1));
    fabric.b.port.put(RECORD + 2 * PAGE, &slot.to_le_bytes());
    fabric.b.ring(DB_SRQ, queue_doorbell(0, 1));
    fabric.b.port.fail = Box::new(move |origin| gone && origin.class == Class::RecvWqeFetch);
    send(fabric, &Request::new(WorkOpcode::SEND, 8));
}

/// Shared receive queue 0 and its table; of XRC domain 0 with the flag.
fn shared_queue(host: &mut Host, flags: u8) {
    let mut table = SetTable::zeroed();
    (table.kind, table.pages) = (TABLE_SRQ, pages(RECORD + PAGE, 0));
    host.must(CommandOpcode::SET_TABLE, table.as_bytes());
    let mut srq = CreateSrq::zeroed();
    (srq.log_slots, srq.pdn, srq.flags) = (6, PDN.into(), flags);
    srq.cqn = if flags & SRQ_XRC != 0 { 3 } else { 0 }.into();
    (srq.wqe_pages, srq.index_pages) = (pages(RQ, 0), pages(RECORD + 2 * PAGE, 0));
    host.must(CommandOpcode::CREATE_SRQ, srq.as_bytes());
}

fn without_receives(qp: CreateQp) -> CreateQp {
    CreateQp { log_rq_entries: 0, rq_pages: rnic_abi::PageListFields::zeroed(), ..qp }
}

/// A request for this queue at an XRC target of this domain.
fn extended(fabric: &mut Fabric, srqn: u32, domain: u32) {
    const TARGET: u32 = 0x15;
    shared_queue(&mut fabric.b, SRQ_XRC);
    let target = CreateQp { qpn: TARGET.into(), qp_type: QP_TYPE_XRC_TGT, pdn: domain.into(), ..CreateQp::zeroed() };
    fabric.b.must(CommandOpcode::CREATE_QP, target.as_bytes());
    let rtr = fabric.b.rtr_attributes(TARGET, (IP_A, 0x16), &Attributes::mtu(1));
    [fabric.b.init_attributes(TARGET), rtr].iter().for_each(|step| fabric.b.modify(step));
    let mut request = Forged::new(&fabric.b, IP_A, Opcode::XRC_SEND_ONLY, PSN, &[]).srqn(srqn);
    request.headers.bth.dest_qp = TARGET;
    fabric.b.receive(request.frame());
}

/// Answers a READ of 8 bytes with something else.
fn response(fabric: &mut Fabric, opcode: Opcode, bytes: usize) {
    fabric.a.send(&Request::new(WorkOpcode::READ, 8));
    assert!(fabric.a.transmit().is_some());
    let answer = Forged::new(&fabric.a, IP_B, opcode, PSN, &vec![1; bytes]).aeth(0x1f, 1);
    fabric.a.receive(answer.frame());
}

/// Every diagnostic comes from its rule being broken, first, and nothing else is wrong before that.
#[test]
fn every_rule_that_is_broken_is_named() {
    let mut named = BTreeSet::new();
    for (diagnostic, break_it) in [HOST_RULES, COMMAND_RULES, WORK_RULES, TRANSPORT_RULES].concat() {
        let mut fabric = Fabric::new(EngineConfig::default(), 1);
        break_it(&mut fabric);
        let name = diagnostic.rule().name;
        let seen = [fabric.a.diagnostics(), fabric.b.diagnostics()].concat();
        assert!(seen.contains(&name), "{name}: {seen:?}");
        named.insert(diagnostic);
    }
    // One is never in the stream: it explains completions.
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.modify(&fabric.a.attributes(0x11, QP_STATE_ERR, 0));
    fabric.a.send(&write());
    assert_eq!(fabric.a.poll().map(|cqe| cqe.vendor_err.get()), Some(Diagnostic::Flushed.number()));
    named.insert(Diagnostic::Flushed);

    let known: BTreeSet<u32> = named.iter().map(|diagnostic| diagnostic.number()).collect();
    let missing: Vec<_> = RULES.iter().filter(|rule| !known.contains(&rule.number)).map(|rule| rule.name).collect();
    assert_eq!(missing, [""; 0], "no test breaks these");
}

#[test]
fn the_last_diagnostic_stands_in_its_registers_until_it_is_cleared() {
    let mut host = Host::new(EngineConfig::default(), IP_A, 0x11);
    host.bring_up();
    assert_eq!(read_register(&mut host, REG_LAST_DIAGNOSTIC), 0);
    host.ring(DB_SEND, queue_doorbell(0x77, 1));
    assert_eq!(read_register(&mut host, REG_LAST_DIAGNOSTIC), Diagnostic::DoorbellNoQueue.number());
    assert_eq!(read_register(&mut host, REG_LAST_DIAGNOSTIC_OBJECT), 0x77);
    host.write(0, REG_LAST_DIAGNOSTIC.into(), &[0; 4]);
    assert_eq!(read_register(&mut host, REG_LAST_DIAGNOSTIC), 0);
    assert_eq!(host.engine.counters().diagnostics, 1);
    host.ring(DB_SEND, queue_doorbell(0x77, 1));
    host.engine.forget_last_diagnostic();
    assert_eq!(read_register(&mut host, REG_LAST_DIAGNOSTIC), 0, "the next host does not inherit it");
}

fn read_register(host: &mut Host, register: u32) -> u32 {
    let mut word = [0; 4];
    host.engine.handle_read(host.now_ns, &mut host.port, 0, register.into(), &mut word);
    u32::from_le_bytes(word)
}

/// What `docs/diagnostics.md` says of objects and values.
#[test]
fn the_value_is_what_broke_the_rule() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let host = &mut fabric.a;
    let mut expect = |broken: fn(&mut Host), diagnostic: Diagnostic, object: u32, value: u64| {
        broken(host);
        let record = host.engine.poll_diagnostic().map(|record| (record.diagnostic, record.object, record.value));
        assert_eq!(record, Some((diagnostic, object, value)), "{}", diagnostic.rule().name);
    };
    expect(
        |host| host.write(0, REG_STATUS.into(), &[9, 8, 7, 6]),
        Diagnostic::RegisterReadOnly,
        REG_STATUS,
        0x0607_0809,
    );
    expect(|host| host.write(0, REG_STATUS.into(), &[9, 8]), Diagnostic::RegisterAccess, REG_STATUS, 2);
    expect(|host| host.write(2, DB_SEND.into(), &[1; 4]), Diagnostic::DoorbellAccess, DB_SEND, 4);
    expect(|host| host.ring(DB_SEND, 1 << 63 | 5), Diagnostic::DoorbellReserved, DB_SEND, 1 << 63 | 5);
    expect(|host| host.ring(DB_SEND, queue_doorbell(0x77, 6)), Diagnostic::DoorbellNoQueue, 0x77, 6);
    expect(|host| host.ring(4096 + DB_SEND, queue_doorbell(0x11, 6)), Diagnostic::DoorbellForeignPage, 0x11, 1);
    expect(|host| host.ring(DB_SEND, queue_doorbell(0x11, 0x4000)), Diagnostic::DoorbellBeyondRing, 0x11, 0x4000);
}

#[test]
fn a_torn_line_is_diagnosed_once_and_each_of_its_stores_is_a_doorbell() {
    let mut f = Fabric::new(EngineConfig::default(), 1);
    f.a.post(&write());
    let value = queue_doorbell(0x11, 1).to_le_bytes();
    f.a.write_as(2, DB_SEND_LINE_0.into(), &value, true);
    (1..7).for_each(|word| f.a.write_as(2, u64::from(DB_SEND_LINE_0) + word * 8, &[0; 8], true));
    assert_eq!((f.a.count(Class::Doorbell), f.a.count(Class::RegisterWrite)), (7, 0));
    assert_eq!(f.a.diagnostics(), ["DoorbellTornLine"]);
    // A line without its first store rings nothing, and is diagnosed as well.
    (1..8).for_each(|word| f.a.write_as(2, u64::from(DB_SEND_LINE_1) + word * 8, &[0; 8], true));
    assert_eq!(f.a.diagnostics(), ["DoorbellTornLine"]);
    assert_eq!(f.a.count(Class::WqeFetch), 1);
}

#[test]
fn records_that_nobody_reads_are_bounded_and_the_newest_are_kept() {
    let mut host = Host::new(EngineConfig::default(), IP_A, 0x11);
    host.bring_up();
    for number in 0..5000u32 {
        host.ring(DB_SEND, queue_doorbell(0x100 + number, 1));
    }
    let kept: Vec<_> = std::iter::from_fn(|| host.engine.poll_diagnostic()).collect();
    assert_eq!(kept.len(), 1024);
    assert_eq!(kept.last().map(|record| record.object), Some(0x100 + 4999));
    assert_eq!(host.engine.counters().diagnostics, 5000);
}

/// A strict device stops at what is a warning elsewhere, and at nothing else: its status says so, and nothing goes on.
#[test]
fn a_strict_device_stops_at_warnings() {
    let strict = EngineConfig { strict: true, ..EngineConfig::default() };
    let mut stopped = BTreeSet::new();
    for (diagnostic, break_it) in [HOST_RULES, COMMAND_RULES, WORK_RULES, TRANSPORT_RULES].concat() {
        let mut fabric = Fabric::new(strict.clone(), 1);
        break_it(&mut fabric);
        let rule = diagnostic.rule();
        let is_fatal = |host: &Host| host.engine.inspect().fatal;
        let seen = [fabric.a.diagnostics(), fabric.b.diagnostics()].concat();
        assert!(seen.contains(&rule.name), "{}: {seen:?}", rule.name);
        let fatal = is_fatal(&fabric.a) || is_fatal(&fabric.b);
        match rule.severity() {
            Severity::Warning => {
                assert!(fatal, "{} is a warning", rule.name);
                let last = [&mut fabric.a, &mut fabric.b].map(|host| read_register(host, REG_LAST_DIAGNOSTIC));
                assert!(last.contains(&rule.number), "{}: the registers say {last:?}", rule.name);
                stopped.insert(rule.number);
            }
            // These two are what a device that has stopped says.
            Severity::Error if [302, 106].contains(&rule.number) => assert!(fatal, "{}", rule.name),
            Severity::Error => assert!(!fatal, "{} is an error", rule.name),
        }
    }
    let warnings = RULES.iter().filter(|rule| rule.severity() == Severity::Warning).map(|rule| rule.number);
    assert_eq!(stopped, warnings.collect());
}

/// What the driver sees of it: the status, the event, its requests failed with the number, and a reset that cures.
#[test]
fn a_stopped_device_tells_its_driver_and_comes_back_by_a_reset() {
    let strict = EngineConfig { strict: true, ..EngineConfig::default() };
    let mut fabric = Fabric::new(strict, 1);
    fabric.a.send(&write());
    fabric.a.ring(DB_SEND, queue_doorbell(0x77, 1));
    let number = Diagnostic::DoorbellNoQueue.number();
    let status = |host: &mut Host| read_register(host, REG_STATUS);
    assert_eq!(status(&mut fabric.a) & STATUS_FATAL, STATUS_FATAL);
    let failed = fabric.a.poll().expect("the request fails");
    assert_eq!((failed.vendor_err.get(), fabric.a.engine.queue_pair_state(0x11)), (number, Some(QpState::Err)));
    let event = fabric.a.port.slice(EQ, 16);
    assert_eq!((event[0], event[8..12].to_vec()), (EventType::DEVICE_FATAL.0, number.to_le_bytes().to_vec()));
    fabric.a.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
    assert_eq!(status(&mut fabric.a) & STATUS_FATAL, 0);
}
