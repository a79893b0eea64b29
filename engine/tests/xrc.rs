//! Extended reliable connections: one connection, and each request names the shared receive queue that it is for.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::completion::{CQE_SRQ, CQE_WITH_INV};
use rnic_abi::doorbell::{DB_RECEIVE, DB_SEND, DB_SRQ, queue_doorbell};
use rnic_abi::work_request::{WQE_FENCE, WQE_SIGNALED};
use rnic_abi::{CommandOpcode, EventType, PageListFields, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_wire::Opcode;
use zerocopy::IntoBytes;

const BASE: u64 = port::BASE;
const SRQ_TABLE: u64 = BASE + 0x9_1000;
const DOMAIN: u32 = 0x77;
const OTHER_PD: u32 = 8;
/// The initiator at a, the target at b.
const INITIATOR: u32 = 0x13;
const TARGET: u32 = 0x14;
/// Two queues of the domain, with a completion queue and a protection domain each, and one of another domain.
const FIRST: u32 = 5;
const SECOND: u32 = 6;
const FOREIGN: u32 = 7;
const SECOND_CQ: u32 = 4;
const SECOND_CQ_RING: u64 = BASE + 0x7_8000;
/// A key of the second queue's protection domain.
const SECOND_KEY: u32 = 0x200;
const REMOTE: u64 = VIRTUAL + 0x8_0000;

const fn ring_of(srqn: u32) -> (u64, u64) {
    let at = BASE + 0x9_2000 + (srqn - FIRST) as u64 * 0x2000;
    (at, at + 0x1000)
}

/// Where the slots of a queue receive.
const fn place(srqn: u32, slot: u16) -> u64 {
    0x9_0000 + (srqn - FIRST) as u64 * 0x1_0000 + slot as u64 * 0x400
}

fn new_srq(srqn: u32) -> CreateSrq {
    let mut srq = CreateSrq::zeroed();
    (srq.srqn, srq.log_slots, srq.flags) = (srqn.into(), 5, SRQ_XRC);
    (srq.pdn, srq.cqn) = if srqn == SECOND { (OTHER_PD.into(), SECOND_CQ.into()) } else { (PDN.into(), 3.into()) };
    srq.xrc_domain = if srqn == FOREIGN { DOMAIN + 1 } else { DOMAIN }.into();
    let (slots, indices) = ring_of(srqn);
    (srq.wqe_pages, srq.index_pages) = (pages(slots, 0), pages(indices, 0));
    srq
}

fn initiator(host: &Host) -> CreateQp {
    let qp = CreateQp { qp_type: QP_TYPE_XRC_INI, receive_cqn: 0.into(), log_rq_entries: 0, ..host.new_qp(INITIATOR) };
    CreateQp { rq_pages: PageListFields::zeroed(), ..qp }
}

fn target() -> CreateQp {
    CreateQp { qpn: TARGET.into(), qp_type: QP_TYPE_XRC_TGT, pdn: DOMAIN.into(), ..CreateQp::zeroed() }
}

fn connect(fabric: &mut Fabric) {
    let with = Attributes::mtu(1);
    let mut rtr = fabric.a.rtr_attributes(INITIATOR, (IP_B, TARGET), &with);
    rtr.mask = (ATTR_STATE | ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN).into();
    let steps = [fabric.a.init_attributes(INITIATOR), rtr, fabric.a.rts_attributes(INITIATOR, &with)];
    steps.iter().for_each(|step| fabric.a.modify(step));
    let rtr = fabric.b.rtr_attributes(TARGET, (IP_A, INITIATOR), &with);
    let mut rts = fabric.b.rts_attributes(TARGET, &with);
    rts.mask = (ATTR_STATE | ATTR_TIMEOUT | ATTR_SQ_PSN).into();
    [fabric.b.init_attributes(TARGET), rtr, rts].iter().for_each(|step| fabric.b.modify(step));
    fabric.clear_logs();
}

fn fabric_with(config: EngineConfig) -> Fabric {
    let mut fabric = Fabric::new(config, 1);
    let b = &mut fabric.b;
    let mut table = SetTable::zeroed();
    (table.kind, table.log_entries, table.pages) = (TABLE_SRQ, 4, pages(SRQ_TABLE, 0));
    b.must(CommandOpcode::SET_TABLE, table.as_bytes());
    b.create_cq(SECOND_CQ, SECOND_CQ_RING, RECORD + 0x100);
    for srqn in [FIRST, SECOND, FOREIGN] {
        b.must(CommandOpcode::CREATE_SRQ, new_srq(srqn).as_bytes());
    }
    let region = b.region(SECOND_KEY, REMOTE, 0x1_0000, BUFFER + 0x8_0000, 1, all_rights() | ACCESS_INVALIDATE);
    let region = RegisterKey { pdn: OTHER_PD.into(), ..region };
    b.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
    b.must(CommandOpcode::CREATE_QP, target().as_bytes());
    let qp = initiator(&fabric.a);
    fabric.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    fabric.a.port.put(BUFFER, &pattern(4000, 3));
    connect(&mut fabric);
    fabric
}

fn fabric() -> Fabric {
    fabric_with(EngineConfig::default())
}

/// Posts slots of a queue; the receive buffers of the second queue need its own key.
fn post(host: &mut Host, srqn: u32, first: u16, slots: &[u16]) {
    let (ring, indices) = ring_of(srqn);
    let (key, from) = if srqn == SECOND { (SECOND_KEY + 0x100, VIRTUAL) } else { (0x100, VIRTUAL) };
    if srqn == SECOND && first == 0 {
        let region = host.region(key, VIRTUAL, BUFFER_BYTES, BUFFER, 1, all_rights());
        host.must(CommandOpcode::REGISTER_KEY, RegisterKey { pdn: OTHER_PD.into(), ..region }.as_bytes());
    }
    for (at, slot) in slots.iter().enumerate() {
        let element = data_segment(from + place(srqn, *slot), 0x400, key);
        host.port.put(ring + u64::from(*slot) * 16, element.as_bytes());
        host.port.put(indices + (u64::from(first) + at as u64) * 2, &slot.to_le_bytes());
    }
    host.ring(DB_SRQ, queue_doorbell(srqn, first + slots.len() as u16));
}

fn request(opcode: WorkOpcode, srqn: u32, length: u32) -> Request {
    Request { qpn: Some(INITIATOR), srqn: Some(srqn), ..Request::new(opcode, length) }
}

/// An entry of the second completion queue: queue pair, flags, queue, slot, status, length.
fn second_cqe(host: &Host, index: u64) -> (u32, u32, u32, u16, u8, u32) {
    use zerocopy::FromBytes;
    let cqe = rnic_abi::Cqe::read_from_bytes(host.port.slice(SECOND_CQ_RING + index * 64, 64)).unwrap();
    let flags: u32 = cqe.flags.get().into();
    (cqe.qpn.get(), flags, cqe.srqn.get(), cqe.wqe_index.get(), cqe.status, cqe.byte_len.get())
}

fn target_state(fabric: &Fabric) -> QpState {
    fabric.b.engine.queue_pair_state(TARGET).unwrap()
}

#[test]
fn each_message_goes_to_the_queue_that_it_names() {
    let mut fabric = fabric();
    post(&mut fabric.b, FIRST, 0, &[7, 3]);
    post(&mut fabric.b, SECOND, 0, &[9]);
    for (srqn, length) in [(FIRST, 64), (SECOND, 700), (FIRST, 700)] {
        fabric.a.send(&request(WorkOpcode::SEND_IMM, srqn, length));
    }
    fabric.run();
    let done: Vec<_> = std::iter::from_fn(|| fabric.b.poll()).collect();
    let seen =
        |cqe: &rnic_abi::Cqe| (cqe.qpn.get(), cqe.srqn.get(), cqe.wqe_index.get(), cqe.status, cqe.byte_len.get());
    assert_eq!(done.iter().map(seen).collect::<Vec<_>>(), [(TARGET, FIRST, 7, 0, 64), (TARGET, FIRST, 3, 0, 700)]);
    assert!(done.iter().all(|cqe| cqe.flags.get() & CQE_SRQ != 0));
    let (qpn, flags, srqn, slot, status, length) = second_cqe(&fabric.b, 0);
    assert_eq!((qpn, srqn, slot, status, length), (TARGET, SECOND, 9, 0, 700));
    assert_ne!(flags & u32::from(CQE_SRQ), 0);
    for (srqn, slot, length) in [(FIRST, 7, 64), (SECOND, 9, 700), (FIRST, 3, 700)] {
        assert_eq!(fabric.b.port.slice(BUFFER + place(srqn, slot), length), &pattern(4000, 3)[..length]);
    }
    let sent: Vec<_> = fabric.sent_by('a').iter().map(|packet| (packet.opcode, packet.dest_qp, packet.srqn)).collect();
    assert_eq!(sent[0], (Opcode::XRC_SEND_ONLY_IMM, TARGET, FIRST));
    let of_the_second = [Opcode::XRC_SEND_FIRST, Opcode::XRC_SEND_MIDDLE, Opcode::XRC_SEND_LAST_IMM];
    assert_eq!(sent[1..4], of_the_second.map(|opcode| (opcode, TARGET, SECOND)), "the queue is in every packet");
    assert!(fabric.sent_by('b').iter().all(|packet| packet.opcode == Opcode::XRC_ACKNOWLEDGE));
    assert_eq!(fabric.a.completions(), [(INITIATOR, 0, 2, 0), (INITIATOR, 1, 2, 0), (INITIATOR, 2, 2, 0)]);
}

#[test]
fn every_operation_of_the_service_works_and_keys_are_of_the_named_queues_domain() {
    let mut fabric = fabric();
    post(&mut fabric.b, SECOND, 0, &[1, 2]);
    let remote = (REMOTE, SECOND_KEY);
    let to_second = |opcode, length| Request { remote, ..request(opcode, SECOND, length) };
    fabric.a.send(&to_second(WorkOpcode::WRITE, 900));
    fabric.a.send(&to_second(WorkOpcode::WRITE_IMM, 600));
    // Behind the word that the atomics change: they do not wait for the READ's answer.
    let remote_of_read = (REMOTE + 8, SECOND_KEY);
    let elements = vec![(VIRTUAL + 0x2000, 700, 0x100)];
    fabric.a.send(&Request { elements, remote: remote_of_read, ..to_second(WorkOpcode::READ, 0) });
    let word = vec![(VIRTUAL + 0x3000, 8, 0x100)];
    fabric.a.send(&Request { elements: word.clone(), operands: (5, 0), ..to_second(WorkOpcode::FETCH_ADD, 0) });
    let first_word = u64::from_le_bytes(pattern(4000, 3)[..8].try_into().unwrap());
    let operands = (0x55, first_word.wrapping_add(5));
    fabric.a.send(&Request { elements: word, operands, ..to_second(WorkOpcode::CMP_SWAP, 0) });
    // The key goes when everything before it has been answered.
    let flags = WQE_SIGNALED | WQE_FENCE;
    fabric.a.send(&Request { immediate: SECOND_KEY, flags, ..request(WorkOpcode::SEND_INV, SECOND, 8) });
    fabric.run();
    let statuses: Vec<_> = fabric.a.completions().iter().map(|done| done.3).collect();
    assert_eq!(statuses, [0; 6]);
    assert_eq!(fabric.a.port.slice(BUFFER + 0x2000, 700), &pattern(4000, 3)[8..708], "the READ");
    assert_eq!(fabric.a.port.slice(BUFFER + 0x3000, 8), first_word.wrapping_add(5).to_le_bytes(), "the CMP_SWAP's");
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 8), 0x55u64.to_le_bytes());
    let (_, flags, _, slot, status, _) = second_cqe(&fabric.b, 1);
    assert_eq!((slot, status), (2, 0));
    assert_ne!(flags & u32::from(CQE_WITH_INV), 0);
    let opcodes = |from| fabric.sent_by(from).iter().map(|packet| packet.opcode).collect::<Vec<_>>();
    assert!(opcodes('a').contains(&Opcode::XRC_SEND_ONLY_INVALIDATE));
    assert!(opcodes('b').contains(&Opcode::XRC_READ_RESPONSE_FIRST));
    assert!(opcodes('b').contains(&Opcode::XRC_ATOMIC_ACKNOWLEDGE));
    // The same key is of no use through the other queue, whose protection domain is another.
    let region = fabric.b.region(SECOND_KEY + 0x200, REMOTE, 0x1000, BUFFER + 0x8_0000, 1, all_rights());
    let region = RegisterKey { pdn: OTHER_PD.into(), ..region };
    fabric.b.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
    let remote = (REMOTE, SECOND_KEY + 0x200);
    fabric.a.send(&Request { remote, ..request(WorkOpcode::WRITE, FIRST, 8) });
    fabric.run();
    assert_eq!(fabric.a.completions(), [(INITIATOR, 8, 4, 10)], "REM_ACCESS_ERR");
    assert_eq!(fabric.b.diagnostics(), ["RKeyPd"]);
}

/// A queue that is destroyed or of another domain, and one that has no receive.
#[test]
fn a_request_for_a_queue_that_is_not_there_is_refused_and_one_without_receives_waits() {
    for (srqn, rule) in [(FOREIGN, "XrcDomain"), (9, "XrcTarget"), (0xff_ffff, "XrcTarget")] {
        for opcode in [WorkOpcode::SEND, WorkOpcode::WRITE, WorkOpcode::READ] {
            let mut fabric = fabric();
            fabric.a.send(&request(opcode, srqn, 8));
            fabric.run();
            assert_eq!(fabric.a.completions().last().map(|done| done.3), Some(9), "REM_INV_REQ_ERR");
            assert_eq!(fabric.b.diagnostics(), [rule]);
            assert_eq!(target_state(&fabric), QpState::Err);
            assert_eq!(fabric.b.event().map(|event| (event.0, event.1)), Some((EventType::QP_REQ_ERR, TARGET)));
            assert_eq!(fabric.b.event(), None, "a target says nothing of a last receive");
        }
    }
    let mut fabric = fabric();
    fabric.a.send(&request(WorkOpcode::SEND, FIRST, 8));
    fabric.run();
    let answers = fabric.answers('b');
    assert_eq!(answers, [(PSN, 0x20 | 12)], "RNR");
    post(&mut fabric.b, FIRST, 0, &[4]);
    fabric.run_timers(4);
    assert_eq!(fabric.b.completions(), [(TARGET, 4, 0x80, 0)]);
    assert_eq!(fabric.a.completions(), [(INITIATOR, 0, 1, 0)]);
}

#[test]
fn a_message_keeps_the_queue_that_it_began_with() {
    let mut fabric = fabric();
    post(&mut fabric.b, FIRST, 0, &[4]);
    post(&mut fabric.b, SECOND, 0, &[5]);
    let packet = |fabric: &Fabric, opcode, psn, srqn| {
        let mut forged = Forged::new(&fabric.b, IP_A, opcode, psn, &[psn as u8; 256]).srqn(srqn);
        forged.headers.bth.dest_qp = TARGET;
        forged.frame()
    };
    for (opcode, psn, srqn) in [(Opcode::XRC_SEND_FIRST, PSN, FIRST), (Opcode::XRC_SEND_LAST, PSN + 1, SECOND)] {
        let frame = packet(&fabric, opcode, psn, srqn);
        fabric.b.receive(frame);
    }
    assert_eq!(fabric.b.diagnostics(), ["XrcTarget"]);
    assert_eq!(fabric.b.completions(), [(TARGET, 4, 0x80, 5)], "the receive in hand is flushed to its own queue");
    assert_eq!(fabric.b.count(Class::PayloadWrite), 1);
}

/// Packets for the other half, and of the transport that it extends, have nothing to look for.
#[test]
fn halves_take_what_is_theirs_and_nothing_else() {
    let mut fabric = fabric();
    let dropped = |host: &Host| host.engine.counters().rx_dropped_transport;
    let cases = [
        (TARGET, Opcode::RC_SEND_ONLY),
        (TARGET, Opcode::XRC_ACKNOWLEDGE),
        (TARGET, Opcode::XRC_READ_RESPONSE_ONLY),
        (fabric.b.qpn, Opcode::XRC_SEND_ONLY),
    ];
    for (number, (dest_qp, opcode)) in cases.into_iter().enumerate() {
        let mut forged = Forged::new(&fabric.b, IP_A, opcode, PSN, &[]).srqn(FIRST);
        forged.headers.bth.dest_qp = dest_qp;
        fabric.b.receive(forged.frame());
        assert_eq!(dropped(&fabric.b), number as u64 + 1, "{opcode:?}");
    }
    let mut forged = Forged::new(&fabric.a, IP_B, Opcode::XRC_SEND_ONLY, PSN, &[]).srqn(FIRST);
    forged.headers.bth.dest_qp = INITIATOR;
    fabric.a.receive(forged.frame());
    assert_eq!(dropped(&fabric.a), 1);
}

/// Losses, a duplicated READ whose queue is another than the current one's, and a receive that stays in hand.
#[test]
fn what_is_lost_is_sent_again_and_what_comes_twice_is_answered_in_its_own_domain() {
    let mut fabric = fabric();
    post(&mut fabric.b, FIRST, 0, &[4, 6]);
    let mut lost = std::collections::BTreeSet::from([1usize, 4, 6]);
    fabric.drop = Box::new(move |_, number| lost.remove(&number));
    let read = Request { remote: (REMOTE, SECOND_KEY), ..request(WorkOpcode::READ, SECOND, 0) };
    fabric.a.send(&request(WorkOpcode::SEND, FIRST, 700));
    fabric.a.send(&Request { elements: vec![(VIRTUAL + 0x2000, 600, 0x100)], ..read });
    fabric.a.send(&request(WorkOpcode::SEND, FIRST, 300));
    fabric.b.port.put(BUFFER + 0x8_0000, &pattern(600, 9));
    fabric.run();
    fabric.run_timers(12);
    assert_eq!(fabric.a.completions().iter().map(|done| done.3).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(fabric.b.completions(), [(TARGET, 4, 0x80, 0), (TARGET, 6, 0x80, 0)], "each message once");
    assert_eq!(fabric.a.port.slice(BUFFER + 0x2000, 600), pattern(600, 9));
    // The READ once more, after the target has turned to the other queue.
    fabric.drop = Box::new(|_, _| false);
    fabric.clear_logs();
    let mut again =
        Forged::new(&fabric.b, IP_A, Opcode::XRC_READ_REQUEST, PSN + 3, &[]).reth(REMOTE, SECOND_KEY, 600).srqn(SECOND);
    again.headers.bth.dest_qp = TARGET;
    fabric.b.receive(again.frame());
    fabric.run();
    let answered: Vec<_> = fabric.sent_by('b').iter().map(|packet| packet.opcode).collect();
    let expected = [Opcode::XRC_READ_RESPONSE_FIRST, Opcode::XRC_READ_RESPONSE_MIDDLE, Opcode::XRC_READ_RESPONSE_LAST];
    assert_eq!(answered, expected);
}

/// Host memory answers late, and writes with immediate of both queues wait for their receive work requests.
#[test]
fn late_reads_keep_each_message_with_its_own_queue() {
    let config = EngineConfig { qp_cache_entries: 1, srq_cache_entries: 1, key_cache_entries: 1, ..Default::default() };
    let mut fabric = fabric_with(config);
    let slots: Vec<u16> = (0..12).collect();
    post(&mut fabric.b, FIRST, 0, &slots);
    post(&mut fabric.b, SECOND, 0, &slots);
    fabric.b.port.hold = Box::new(|_, _| true);
    for number in 0..12 {
        let (srqn, remote) = if number % 2 == 0 { (FIRST, (REMOTE, 0x100)) } else { (SECOND, (REMOTE, SECOND_KEY)) };
        let opcode = if number % 3 == 0 { WorkOpcode::SEND_IMM } else { WorkOpcode::WRITE_IMM };
        fabric.a.send(&Request { remote, ..request(opcode, srqn, 8) });
    }
    for _ in 0..400 {
        fabric.run();
        fabric.b.settle();
    }
    fabric.run_timers(40);
    assert_eq!(fabric.a.completions().len(), 12);
    let of_first: Vec<_> = fabric.b.completions().iter().map(|done| (done.1, done.3)).collect();
    assert_eq!(of_first, (0..6).map(|slot| (slot, 0)).collect::<Vec<_>>());
    let of_second: Vec<_> = (0..6).map(|index| second_cqe(&fabric.b, index)).map(|cqe| (cqe.2, cqe.3, cqe.4)).collect();
    assert_eq!(of_second, (0..6).map(|slot| (SECOND, slot, 0)).collect::<Vec<_>>());
}

#[test]
fn a_queue_may_be_destroyed_under_traffic_and_is_not_touched_any_more() {
    let mut fabric = fabric();
    post(&mut fabric.b, FIRST, 0, &[4, 6]);
    fabric.a.send(&request(WorkOpcode::SEND, FIRST, 1000));
    let first = fabric.a.transmit().unwrap();
    fabric.b.receive(first);
    let busy = fabric.b.try_command(CommandOpcode::DESTROY_CQ, Host::object(SECOND_CQ).as_bytes());
    assert_eq!(busy, (5, "ObjectBusy"), "a queue completes there");
    for srqn in [FIRST, SECOND] {
        fabric.b.must(CommandOpcode::DESTROY_SRQ, Host::object(srqn).as_bytes());
    }
    fabric.b.must(CommandOpcode::DESTROY_CQ, Host::object(SECOND_CQ).as_bytes());
    // A queue that gets the number afterwards is none of the target's.
    let view = fabric.b.engine.inspect_queue_pairs(TARGET, 1).remove(0);
    assert_eq!((view.srqn, view.receive_cqn), (None, None));
    fabric.clear_logs();
    fabric.run();
    assert_eq!((fabric.b.count(Class::PayloadWrite), fabric.b.count(Class::RecvWqeFetch)), (0, 0));
    assert_eq!(fabric.b.diagnostics(), ["ObjectBusy", "XrcTarget"]);
    assert_eq!(fabric.b.completions(), [], "nobody is left to be told of the receive");
    assert_eq!(fabric.a.completions().last().map(|done| done.3), Some(9));
}

/// Reset and destruction of a target give back what it had in hand.
#[test]
fn a_receive_in_hand_goes_back_when_its_target_is_reset_or_destroyed() {
    for destroyed in [false, true] {
        let mut fabric = fabric();
        post(&mut fabric.b, FIRST, 0, &[4]);
        fabric.a.send(&request(WorkOpcode::SEND, FIRST, 1000));
        let first = fabric.a.transmit().unwrap();
        fabric.b.receive(first);
        if destroyed {
            fabric.b.destroy_qp(TARGET);
            fabric.b.must(CommandOpcode::CREATE_QP, target().as_bytes());
        } else {
            let reset = fabric.b.attributes(TARGET, QP_STATE_RESET, 0);
            fabric.b.modify(&reset);
        }
        let reset = fabric.a.attributes(INITIATOR, QP_STATE_RESET, 0);
        fabric.a.modify(&reset);
        fabric.a.indices.insert(INITIATOR, Indices::default());
        connect(&mut fabric);
        fabric.a.send(&request(WorkOpcode::SEND, FIRST, 16));
        fabric.run();
        assert_eq!(fabric.b.completions(), [(TARGET, 4, 0x80, 0)]);
    }
}

#[test]
fn commands_doorbells_and_work_requests_that_break_a_rule_are_refused() {
    let mut fabric = fabric();
    let create_qp = |host: &mut Host, qp: &CreateQp| host.try_command(CommandOpcode::CREATE_QP, qp.as_bytes());
    let reserved = (2, "CommandReserved");
    let other = |host: &Host| CreateQp { qpn: 0x15.into(), ..initiator(host) };
    let with = |host: &Host, change: fn(&mut CreateQp)| {
        let mut qp = other(host);
        change(&mut qp);
        qp
    };
    let refused: [fn(&mut CreateQp); 4] = [
        |qp| (qp.flags, qp.srqn) = (QP_SRQ, FIRST.into()),
        |qp| qp.receive_cqn = 3.into(),
        |qp| qp.log_rq_entries = 1,
        |qp| qp.rq_pages = pages(RQ, 0),
    ];
    for change in refused {
        let qp = with(&fabric.b, change);
        assert_eq!(create_qp(&mut fabric.b, &qp), reserved);
    }
    let refused: [fn(&mut CreateQp); 5] = [
        |qp| qp.send_cqn = 3.into(),
        |qp| qp.log_sq_slots = 1,
        |qp| qp.sq_pages = pages(SQ, 0),
        |qp| qp.doorbell_page = 1.into(),
        |qp| qp.flags = QP_SIGNAL_ALL,
    ];
    for change in refused {
        let mut qp = CreateQp { qpn: 0x15.into(), ..target() };
        change(&mut qp);
        assert_eq!(create_qp(&mut fabric.b, &qp), reserved);
    }
    let rc = CreateQp { flags: QP_SRQ, srqn: FIRST.into(), ..fabric.b.new_qp(0x15) };
    let rc = CreateQp { log_rq_entries: 0, rq_pages: PageListFields::zeroed(), ..rc };
    assert_eq!(create_qp(&mut fabric.b, &rc), (2, "XrcQueue"));
    let plain = CreateSrq { flags: 0, srqn: 8.into(), ..new_srq(FIRST) };
    assert_eq!(fabric.b.try_command(CommandOpcode::CREATE_SRQ, plain.as_bytes()), reserved);
    let no_cq = CreateSrq { cqn: 50.into(), srqn: 8.into(), ..new_srq(FIRST) };
    assert_eq!(fabric.b.try_command(CommandOpcode::CREATE_SRQ, no_cq.as_bytes()), (3, "ObjectMissing"));
    fabric.b.diagnostics();
    fabric.b.ring(DB_SEND, queue_doorbell(TARGET, 1));
    fabric.b.ring(DB_RECEIVE, queue_doorbell(TARGET, 1));
    assert_eq!(fabric.b.diagnostics(), ["DoorbellState", "DoorbellState"]);
    fabric.a.ring(DB_RECEIVE, queue_doorbell(INITIATOR, 1));
    assert_eq!(fabric.a.diagnostics(), ["DoorbellState"]);
    let cases = [
        (Request { srqn: Some(0x100_0000), ..request(WorkOpcode::SEND, 0, 8) }, "WqeReserved"),
        (request(WorkOpcode::ATOMIC_WRITE, FIRST, 8), "WqeOpcode"),
        (Request { flush: (8, 1), elements: vec![], ..request(WorkOpcode::FLUSH, FIRST, 0) }, "WqeOpcode"),
        (Request { srqn: None, elements: vec![], ..request(WorkOpcode::SEND, 0, 0) }, "WqeLength"),
    ];
    for (request, rule) in cases {
        let mut fabric = self::fabric();
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.diagnostics(), [rule]);
        assert_eq!(fabric.a.completions().first().map(|done| done.3), Some(2), "LOC_QP_OP_ERR");
        assert!(fabric.wire.is_empty());
    }
}

/// What stands behind a segment of the queue's number is as long as a work request allows.
#[test]
fn local_work_needs_no_queue_and_inline_data_reach_their_limit() {
    let mut fabric = fabric();
    let data = pattern(208, 1);
    post(&mut fabric.b, FIRST, 0, &[4]);
    let remote = (REMOTE, 0x100);
    fabric.a.send(&Request { inline: Some(data.clone()), remote, ..request(WorkOpcode::WRITE_IMM, FIRST, 0) });
    let key = 0x340;
    fabric.a.register(key, VIRTUAL, 0x1000, BUFFER, 1, all_rights() | ACCESS_INVALIDATE);
    let local =
        Request { qpn: Some(INITIATOR), immediate: key, elements: vec![], ..Request::new(WorkOpcode::LOCAL_INV, 0) };
    fabric.a.send(&local);
    fabric.run();
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 208), data);
    assert_eq!(fabric.a.completions().iter().map(|done| done.3).collect::<Vec<_>>(), [0, 0]);
}
