//! Shared receive queues: several queue pairs take receives that were posted once.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::completion::CQE_SRQ;
use rnic_abi::doorbell::{DB_RECEIVE, DB_SRQ, queue_doorbell};
use rnic_abi::{CommandOpcode, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use zerocopy::{FromBytes, IntoBytes};

const SRQ_TABLE: u64 = BASE + 0x9_1000;
const SLOTS: u64 = BASE + 0x9_2000;
const INDICES: u64 = BASE + 0x9_3000;
const BASE: u64 = port::BASE;
const SRQN: u32 = 5;
/// Where slot `n` receives.
const PLACE: u64 = VIRTUAL + 0x9_0000;
const ROOM: u32 = 0x400;

/// What a driver of a shared receive queue keeps.
#[derive(Default)]
struct Shared {
    producer: u16,
}

impl Shared {
    /// Posts slots, one doorbell for all of them.
    fn post(&mut self, host: &mut Host, slots: &[u16]) {
        for slot in slots {
            let element = data_segment(PLACE + u64::from(*slot) * u64::from(ROOM), ROOM, 0x100);
            host.port.put(SLOTS + u64::from(*slot) * 16, element.as_bytes());
            host.port.put(INDICES + u64::from(self.producer & 31) * 2, &slot.to_le_bytes());
            self.producer = self.producer.wrapping_add(1);
        }
        host.ring(DB_SRQ, queue_doorbell(SRQN, self.producer));
    }
}

fn new_srq() -> CreateSrq {
    let mut srq = CreateSrq::zeroed();
    (srq.srqn, srq.log_slots, srq.pdn) = (SRQN.into(), 5, PDN.into());
    (srq.wqe_pages, srq.index_pages) = (pages(SLOTS, 0), pages(INDICES, 0));
    srq
}

fn shared_qp(host: &Host, qpn: u32) -> CreateQp {
    let mut qp = host.new_qp(qpn);
    (qp.flags, qp.srqn, qp.log_rq_entries) = (QP_SRQ, SRQN.into(), 0);
    qp.rq_pages = rnic_abi::PageListFields::zeroed();
    qp
}

fn set_srq_table(host: &mut Host) {
    let mut table = SetTable::zeroed();
    (table.kind, table.log_entries, table.pages) = (TABLE_SRQ, 4, pages(SRQ_TABLE, 0));
    host.must(CommandOpcode::SET_TABLE, table.as_bytes());
}

/// Side b has a shared receive queue; further queue pairs 0x13, 0x14 of b use it, whose peers are 0x12 and 0x13 of a.
fn fabric_with(config: EngineConfig, srq: &CreateSrq) -> Fabric {
    let mut fabric = Fabric::new(config, 1);
    set_srq_table(&mut fabric.b);
    fabric.b.must(CommandOpcode::CREATE_SRQ, srq.as_bytes());
    for further in 1..=2 {
        let (a, b) = (fabric.a.qpn + further, fabric.b.qpn + further);
        fabric.a.create_qp(a);
        let qp = shared_qp(&fabric.b, b);
        fabric.b.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        fabric.a.connect(a, (IP_B, b), &Attributes::mtu(1));
        fabric.b.connect(b, (IP_A, a), &Attributes::mtu(1));
    }
    fabric.clear_logs();
    fabric
}

fn fabric() -> Fabric {
    fabric_with(EngineConfig::default(), &new_srq())
}

fn send(qpn: u32, length: u32, from: u64) -> Request {
    Request { qpn: Some(qpn), elements: vec![(VIRTUAL + from, length, 0x100)], ..Request::new(WorkOpcode::SEND, 0) }
}

/// What slot `n` has received.
fn received(host: &Host, slot: u16, length: usize) -> &[u8] {
    host.port.slice(BUFFER + 0x9_0000 + u64::from(slot) * u64::from(ROOM), length)
}

fn query(host: &mut Host) -> SrqState {
    let answer = host.must(CommandOpcode::QUERY_SRQ, Host::object(SRQN).as_bytes());
    SrqState::read_from_prefix(&answer).unwrap().0
}

#[test]
fn receives_are_taken_in_the_order_of_the_index_ring_whoever_needs_them() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    fabric.a.port.put(BUFFER, &pattern(1000, 3));
    shared.post(&mut fabric.b, &[7, 3, 9]);
    for (qpn, from) in [(0x12, 0), (0x13, 100), (0x12, 200)] {
        fabric.a.send(&send(qpn, 64, from));
        fabric.run();
    }
    let mut got = Vec::new();
    while let Some(cqe) = fabric.b.poll() {
        assert_eq!((cqe.flags.get() & CQE_SRQ, cqe.srqn.get(), cqe.byte_len.get()), (CQE_SRQ, SRQN, 64));
        got.push((cqe.qpn.get(), cqe.wqe_index.get(), cqe.opcode, cqe.status));
    }
    assert_eq!(got, [(0x13, 7, 0x80, 0), (0x14, 3, 0x80, 0), (0x13, 9, 0x80, 0)]);
    for (slot, from) in [(7, 0), (3, 100), (9, 200)] {
        assert_eq!(received(&fabric.b, slot, 64), &pattern(1000, 3)[from..from + 64]);
    }
    assert_eq!(fabric.b.count(Class::RecvWqeFetch), 1 + 3, "one line of the index ring, and each WQE");
    let state = query(&mut fabric.b);
    assert_eq!((state.available.get(), state.consumer.get()), (0, 3));
}

#[test]
fn messages_of_several_packets_keep_their_receive_while_others_take_theirs() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    fabric.a.port.put(BUFFER, &pattern(2000, 5));
    shared.post(&mut fabric.b, &[4, 2]);
    fabric.a.post(&send(0x12, 900, 0));
    fabric.a.post(&send(0x13, 900, 1000));
    fabric.a.ring_send_of(0x12);
    fabric.a.ring_send_of(0x13);
    fabric.run();
    let firsts: Vec<_> = fabric.sent_by('a').iter().take(3).map(|packet| packet.dest_qp).collect();
    assert_eq!(firsts, [0x13, 0x14, 0x13], "the packets are mixed");
    let mut done = fabric.b.completions();
    done.sort_unstable();
    assert_eq!(done, [(0x13, 4, 0x80, 0), (0x14, 2, 0x80, 0)]);
    assert_eq!(received(&fabric.b, 4, 900), &pattern(2000, 5)[..900]);
    assert_eq!(received(&fabric.b, 2, 900), &pattern(2000, 5)[1000..1900]);
}

#[test]
fn an_empty_queue_is_a_receiver_that_is_not_ready() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    fabric.a.send(&send(0x12, 64, 0));
    fabric.run();
    assert_eq!(fabric.answers('b'), [(PSN, 0x20 | 12)]);
    assert_eq!(fabric.b.count(Class::RecvWqeFetch), 0, "decided on indices");
    shared.post(&mut fabric.b, &[1]);
    fabric.run_timers(4);
    assert_eq!(fabric.b.completions(), [(0x13, 1, 0x80, 0)]);
    assert_eq!(fabric.a.completions(), [(0x12, 0, 1, 0)]);
}

#[test]
fn a_write_with_immediate_takes_one_with_its_last_packet() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    shared.post(&mut fabric.b, &[6]);
    let write = Request { qpn: Some(0x12), ..Request::new(WorkOpcode::WRITE_IMM, 600) };
    fabric.a.send(&write);
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x13, 6, 0x81, 0)]);
    assert_eq!(fabric.a.completions(), [(0x12, 0, 5, 0)]);
    fabric.a.send(&write);
    fabric.run();
    assert_eq!(fabric.answers('b').last(), Some(&(PSN + 5, 0x20 | 12)), "the second finds none, at its last packet");
}

#[test]
fn the_limit_tells_once_when_fewer_are_posted() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    let arm = |host: &mut Host, limit: u16| {
        let body = ModifySrq { srqn: SRQN.into(), limit: limit.into(), reserved: 0.into() };
        host.must(CommandOpcode::MODIFY_SRQ, body.as_bytes());
    };
    shared.post(&mut fabric.b, &[0, 1, 2, 3]);
    arm(&mut fabric.b, 2);
    let reached = (EventType::SRQ_LIMIT_REACHED, SRQN, 0);
    for (left, told) in [(3, 0), (2, 0), (1, 1), (0, 0)] {
        fabric.a.send(&send(0x12, 8, 0));
        fabric.run();
        assert_eq!(query(&mut fabric.b).available.get(), left);
        let events = fabric.b.events();
        assert_eq!(events.iter().filter(|event| **event == reached).count(), told, "with {left} left: {events:?}");
    }
    assert_eq!(query(&mut fabric.b).limit.get(), 0, "disarmed by its event");
    arm(&mut fabric.b, 1);
    assert_eq!(fabric.b.events(), [reached], "too few already");
    shared.post(&mut fabric.b, &[8]);
    arm(&mut fabric.b, 1);
    assert_eq!((fabric.b.events(), query(&mut fabric.b).limit.get()), (vec![], 1));
}

#[test]
fn a_failed_queue_pair_flushes_what_it_has_in_hand_and_leaves_the_rest() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    shared.post(&mut fabric.b, &[4, 2]);
    // The rest of the message is lost.
    fabric.drop = Box::new(|from, number| from == 'a' && number > 0);
    fabric.a.send(&send(0x12, 900, 0));
    fabric.run();
    fabric.drop = Box::new(|_, _| false);
    assert_eq!(fabric.b.completions(), []);
    let mut error = QpAttributes::zeroed();
    (error.qpn, error.mask, error.state) = (0x13.into(), ATTR_STATE.into(), QP_STATE_ERR);
    fabric.b.must(CommandOpcode::MODIFY_QP, error.as_bytes());
    assert_eq!(fabric.b.completions(), [(0x13, 4, 0x80, 5)]);
    let last = (EventType::QP_LAST_WQE_REACHED, 0x13, 0);
    assert_eq!(fabric.b.events().iter().filter(|event| **event == last).count(), 1);
    fabric.a.send(&send(0x13, 8, 0));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x14, 2, 0x80, 0)], "what is posted is the others'");
}

#[test]
fn a_receive_of_a_queue_pair_that_is_gone_is_the_next_one() {
    let mut fabric = fabric();
    let mut shared = Shared::default();
    shared.post(&mut fabric.b, &[4, 2]);
    fabric.drop = Box::new(|from, number| from == 'a' && number > 0);
    fabric.a.send(&send(0x12, 900, 0));
    fabric.run();
    fabric.drop = Box::new(|_, _| false);
    assert_eq!(query(&mut fabric.b).available.get(), 1);
    fabric.b.destroy_qp(0x13);
    assert_eq!(query(&mut fabric.b).available.get(), 2);
    fabric.a.send(&send(0x13, 8, 0));
    fabric.a.send(&send(0x13, 8, 0));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x14, 4, 0x80, 0), (0x14, 2, 0x80, 0)]);
}

#[test]
fn an_index_ring_that_is_wrong_or_gone_ends_the_queue() {
    for (name, slot, gone) in [("SrqIndex", 32, false), ("SrqFetchFault", 1, true)] {
        let mut fabric = fabric();
        let mut shared = Shared::default();
        shared.post(&mut fabric.b, &[1]);
        fabric.b.port.put(INDICES, &u16::to_le_bytes(slot));
        fabric.b.port.fail = Box::new(move |origin| gone && origin.class == Class::RecvWqeFetch);
        fabric.a.send(&send(0x12, 8, 0));
        fabric.run();
        let events = fabric.b.events();
        let kinds: Vec<_> = events.iter().map(|event| (event.0, event.1)).collect();
        assert_eq!(kinds[..2], [(EventType::SRQ_ERR, SRQN), (EventType::QP_LAST_WQE_REACHED, 0x13)], "{name}");
        assert_eq!(kinds[2], (EventType::QP_FATAL, 0x13));
        assert_eq!(fabric.b.diagnostics()[0], name);
        assert_eq!(fabric.a.completions(), [(0x12, 0, 1, 11)], "{name}: remote operational error");
        assert_eq!(fabric.b.engine.queue_pair_state(0x14), Some(QpState::Rts), "the other one has not needed any");
    }
}

#[test]
fn elements_are_checked_in_the_domain_of_the_shared_queue() {
    for (pdn, status) in [(PDN, 0), (PDN + 1, 4)] {
        let mut srq = new_srq();
        srq.pdn = pdn.into();
        let mut fabric = fabric_with(EngineConfig::default(), &srq);
        Shared::default().post(&mut fabric.b, &[1]);
        fabric.a.send(&send(0x12, 8, 0));
        fabric.run();
        assert_eq!(fabric.b.completions(), [(0x13, 1, 0x80, status)]);
    }
}

/// Every read of b comes late, and each cache holds one entry.
#[test]
fn late_reads_and_small_caches_change_nothing() {
    let config = EngineConfig {
        qp_cache_entries: 1,
        cq_cache_entries: 1,
        srq_cache_entries: 1,
        key_cache_entries: 1,
        translation_cache_lines: 1,
        ..EngineConfig::default()
    };
    let mut fabric = fabric_with(config, &new_srq());
    let mut shared = Shared::default();
    fabric.b.port.hold = Box::new(|_, _| true);
    fabric.a.port.put(BUFFER, &pattern(4000, 9));
    let slots: Vec<u16> = (0..20).rev().collect();
    shared.post(&mut fabric.b, &slots);
    for number in 0..20u64 {
        fabric.a.send(&send(0x12 + (number & 1) as u32, 150, number * 150));
    }
    for _ in 0..100_000 {
        fabric.run();
        if fabric.b.port.held.is_empty() {
            break;
        }
        let newest = fabric.b.port.held.len() - 1;
        fabric.b.release(newest);
    }
    let done = fabric.b.completions();
    assert_eq!(done.len(), 20, "{done:?}");
    let taken: std::collections::BTreeSet<_> = done.iter().map(|done| done.1).collect();
    assert_eq!(taken.len(), 20, "each slot once");
    assert!(done.iter().all(|done| done.3 == 0));
    fabric.b.port.hold = Box::new(|_, _| false);
    assert_eq!(query(&mut fabric.b).available.get(), 0);
}

#[test]
fn commands_and_doorbells_that_break_a_rule_are_refused() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let host = &mut fabric.b;
    let create = |host: &mut Host, srq: &CreateSrq| host.try_command(CommandOpcode::CREATE_SRQ, srq.as_bytes());
    assert_eq!(create(host, &new_srq()), (6, "TableMissing"));
    set_srq_table(host);
    type Change = fn(&mut CreateSrq);
    let refused: [(Change, (u8, &str)); 7] = [
        (|srq| srq.log_slots = 16, (2, "ParameterRange")),
        (|srq| srq.log_stride = 4, (2, "ParameterRange")),
        (|srq| srq.limit = 33.into(), (2, "ParameterRange")),
        (|srq| srq.srqn = 16.into(), (6, "TableMissing")),
        (|srq| srq.doorbell_page = 5000.into(), (2, "DoorbellPageRange")),
        (|srq| srq.index_pages.root = (INDICES + 2).into(), (2, "PageListInvalid")),
        (|srq| srq.reserved2 = 1.into(), (2, "CommandReserved")),
    ];
    for (change, answer) in refused {
        let mut srq = new_srq();
        change(&mut srq);
        assert_eq!(create(host, &srq), answer);
    }
    let qp = shared_qp(host, 0x13);
    assert_eq!(host.try_command(CommandOpcode::CREATE_QP, qp.as_bytes()), (3, "ObjectMissing"));
    host.must(CommandOpcode::CREATE_SRQ, new_srq().as_bytes());
    assert_eq!(create(host, &new_srq()), (4, "ObjectExists"));
    let own_ring = CreateQp { log_rq_entries: 1, ..qp };
    assert_eq!(host.try_command(CommandOpcode::CREATE_QP, own_ring.as_bytes()), (2, "CommandReserved"));
    let no_flag = CreateQp { srqn: SRQN.into(), ..host.new_qp(0x13) };
    assert_eq!(host.try_command(CommandOpcode::CREATE_QP, no_flag.as_bytes()), (2, "CommandReserved"));
    host.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    let number = Host::object(SRQN);
    assert_eq!(host.try_command(CommandOpcode::DESTROY_SRQ, number.as_bytes()), (5, "ObjectBusy"));
    let too_much = ModifySrq { srqn: SRQN.into(), limit: 33.into(), reserved: 0.into() };
    assert_eq!(host.try_command(CommandOpcode::MODIFY_SRQ, too_much.as_bytes()), (2, "ParameterRange"));
    host.diagnostics();
    host.ring(DB_SRQ, queue_doorbell(SRQN + 1, 1));
    host.ring(DB_SRQ, queue_doorbell(SRQN, 33));
    host.ring(DB_SRQ + 0x1000, queue_doorbell(SRQN, 1));
    host.ring(DB_SRQ, queue_doorbell(SRQN, 1) | 1);
    host.connect(0x13, (IP_A, 0x11), &Attributes::mtu(1));
    host.ring(DB_RECEIVE, queue_doorbell(0x13, 1));
    let expected =
        ["DoorbellNoQueue", "DoorbellBeyondRing", "DoorbellForeignPage", "DoorbellReserved", "DoorbellState"];
    assert_eq!(host.diagnostics(), expected);
    host.destroy_qp(0x13);
    host.must(CommandOpcode::DESTROY_SRQ, number.as_bytes());
    assert_eq!(host.try_command(CommandOpcode::QUERY_SRQ, number.as_bytes()), (3, "ObjectMissing"));
}
