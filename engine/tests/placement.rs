//! ATOMIC_WRITE and FLUSH: done once, in order, answered by a READ response that holds nothing.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::work_request::{FLUSH_GLOBAL, FLUSH_PERSISTENT, FLUSH_REGION};
use rnic_abi::{EventType, WorkOpcode, work_request};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::{Class, DmaFault};
use rnic_wire::Opcode;

const FLUSH: u8 = 0x09;
const ATOMIC_WRITE: u8 = 0x0c;
const REMOTE: u64 = VIRTUAL + 0x8_0000;
const WORD: u64 = BUFFER + 0x8_0000;
const VALUE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn fabric() -> Fabric {
    Fabric::new(EngineConfig::default(), 1)
}

fn atomic_write() -> Request {
    Request { inline: Some(VALUE.to_vec()), ..Request::new(WorkOpcode::ATOMIC_WRITE, 0) }
}

fn flush(length: u32, placement: u32) -> Request {
    Request { elements: vec![], flush: (length, placement), ..Request::new(WorkOpcode::FLUSH, 0) }
}

fn both() -> [(Request, u8); 2] {
    [(atomic_write(), ATOMIC_WRITE), (flush(64, FLUSH_GLOBAL), FLUSH)]
}

fn statuses(host: &mut Host) -> Vec<u8> {
    host.completions().iter().map(|completion| completion.3).collect()
}

#[test]
fn an_atomic_write_is_one_crossing_at_the_responder_and_has_an_empty_answer() {
    let mut fabric = fabric();
    fabric.a.send(&atomic_write());
    fabric.run();
    assert_eq!(fabric.b.port.slice(WORD, 9), [1, 2, 3, 4, 5, 6, 7, 8, 0]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, ATOMIC_WRITE, 0)]);
    assert_eq!(fabric.b.operation_classes(), ["atomic_write"]);
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "cqe_write"]);
    let wire: Vec<_> = fabric.wire.iter().map(|packet| (packet.from, packet.opcode, packet.psn)).collect();
    assert_eq!(wire, [('a', Opcode::RC_ATOMIC_WRITE, 1000), ('b', Opcode::RC_READ_RESPONSE_ONLY, 1000)]);
    assert_eq!(fabric.wire[1].msn, 1);
    assert_eq!(fabric.b.engine.counters().rx_atomic_writes, 1);
}

#[test]
fn its_bytes_may_come_from_elements() {
    let mut fabric = fabric();
    fabric.a.port.put(BUFFER, &VALUE);
    let elements = vec![(VIRTUAL, 3, 0x100), (VIRTUAL + 3, 5, 0x100)];
    fabric.a.send(&Request { elements, ..Request::new(WorkOpcode::ATOMIC_WRITE, 0) });
    fabric.run();
    assert_eq!(fabric.b.port.slice(WORD, 8), VALUE);
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "payload_read", "cqe_write"]);
    assert_eq!(statuses(&mut fabric.a), [0]);
}

/// The read comes behind the writes, and the answer behind the read.
#[test]
fn a_flush_reads_back_behind_what_was_written_before() {
    for placement in [FLUSH_GLOBAL, FLUSH_PERSISTENT, FLUSH_GLOBAL | FLUSH_PERSISTENT] {
        let mut fabric = fabric();
        fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::FlushRead);
        fabric.a.post(&Request::new(WorkOpcode::WRITE, 64));
        fabric.a.send(&flush(64, placement));
        fabric.run();
        assert_eq!(fabric.b.operation_classes(), ["payload_write", "flush_read"]);
        assert!(fabric.sent_by('b').iter().all(|packet| packet.is_ack()), "the FLUSH is not answered yet");
        fabric.b.settle();
        fabric.run();
        let completed: Vec<_> = fabric.a.completions().iter().map(|done| (done.2, done.3)).collect();
        assert_eq!(completed, [(WorkOpcode::WRITE.0, 0), (FLUSH, 0)]);
        let asked = fabric.sent_by('a').last().map(|packet| packet.opcode);
        let answered = fabric.sent_by('b').last().map(|packet| packet.opcode);
        assert_eq!((asked, answered), (Some(Opcode::RC_FLUSH), Some(Opcode::RC_READ_RESPONSE_ONLY)));
        assert_eq!(fabric.b.engine.counters().rx_flushes, 1);
    }
}

#[test]
fn a_flush_of_a_region_needs_no_address_and_one_of_nothing_no_key() {
    let mut fabric = fabric();
    fabric.a.post(&Request { remote: (0, 0x100), ..flush(0, FLUSH_GLOBAL | FLUSH_REGION) });
    fabric.a.send(&Request { remote: (0, 0x900), ..flush(0, FLUSH_GLOBAL) });
    fabric.run();
    assert_eq!(statuses(&mut fabric.a), [0, 0]);
    assert_eq!(fabric.b.operation_classes(), ["flush_read"]);
}

/// Lost on its way, or its answer: done once, and told twice.
#[test]
fn what_is_lost_is_done_once() {
    for (request, opcode) in both() {
        for lost in ['a', 'b'] {
            let mut fabric = fabric();
            fabric.drop = Box::new(move |from, number| from == lost && number == usize::from(lost == 'b'));
            fabric.a.send(&request);
            fabric.run();
            assert_eq!(fabric.a.completions(), []);
            // What another one has written since stays.
            let written_since = if lost == 'b' { [9; 8] } else { VALUE };
            fabric.b.port.put(WORD, &[9; 8]);
            fabric.run_timers(1);
            assert_eq!(fabric.a.completions(), [(0x11, 0, opcode, 0)]);
            if opcode == ATOMIC_WRITE {
                assert_eq!(fabric.b.port.slice(WORD, 8), written_since, "{lost}");
            }
            let crossings = fabric.b.count(Class::AtomicWrite) + fabric.b.count(Class::FlushRead);
            assert_eq!((crossings, fabric.b.engine.counters().duplicate_request), (1, u64::from(lost == 'b')));
            assert!(fabric.sent_by('b').iter().all(|packet| packet.msn == 1), "counted once");
        }
    }
}

#[test]
fn an_atomic_write_waits_for_the_atomic_that_has_the_word() {
    let mut fabric = fabric();
    fabric.connect_another(1, &Attributes::mtu(1));
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::AtomicRead);
    fabric.a.send(&Request { operands: (1, 0), ..Request::new(WorkOpcode::FETCH_ADD, 8) });
    fabric.run();
    fabric.a.send(&Request { qpn: Some(0x12), ..atomic_write() });
    fabric.run();
    assert_eq!(fabric.b.port.slice(WORD, 8), [0; 8]);
    fabric.b.settle();
    fabric.run();
    assert_eq!(fabric.b.port.slice(WORD, 8), VALUE, "the addition came first");
    assert_eq!(statuses(&mut fabric.a), [0, 0]);
}

#[test]
fn they_wait_within_the_agreed_number_and_fences_wait_for_them() {
    for (request, _) in both() {
        let mut fabric = Fabric::with(EngineConfig::default(), &Attributes { max_rd_atomic: 1, ..Attributes::mtu(1) });
        fabric.drop = Box::new(|from, number| from == 'b' && number == 1);
        fabric.a.post(&request);
        fabric.a.post(&Request {
            flags: work_request::WQE_SIGNALED | work_request::WQE_FENCE,
            ..Request::new(WorkOpcode::WRITE, 8)
        });
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.psns('a'), [1000], "the first is not answered");
        fabric.run_timers(1);
        assert_eq!(statuses(&mut fabric.a), [0, 0, 0]);
    }
}

/// A request with its remote address and key, the status it ends with, the event it makes, and the rule.
type Case = (Request, (u64, u32), u8, EventType, &'static str);

#[test]
fn each_wrong_one_is_refused_with_its_own_rule() {
    let cases: [Case; 9] = [
        // Alignment comes before the key.
        (atomic_write(), (REMOTE + 4, 0x900), 9, EventType::QP_REQ_ERR, "AtomicAlignment"),
        (atomic_write(), (REMOTE, 0x900), 10, EventType::QP_ACCESS_ERR, "RKeyInvalid"),
        (atomic_write(), (REMOTE, 0x200), 10, EventType::QP_ACCESS_ERR, "RKeyRight"),
        (atomic_write(), (VIRTUAL + BUFFER_BYTES, 0x100), 10, EventType::QP_ACCESS_ERR, "RKeyRange"),
        (flush(8, FLUSH_GLOBAL), (REMOTE, 0x900), 10, EventType::QP_ACCESS_ERR, "RKeyInvalid"),
        (flush(0, FLUSH_GLOBAL | FLUSH_REGION), (0, 0x900), 10, EventType::QP_ACCESS_ERR, "RKeyInvalid"),
        (flush(0x1001, FLUSH_GLOBAL), (REMOTE, 0x200), 10, EventType::QP_ACCESS_ERR, "RKeyRange"),
        (flush(8, FLUSH_PERSISTENT), (REMOTE, 0x200), 10, EventType::QP_ACCESS_ERR, "RKeyRight"),
        (flush(8, FLUSH_GLOBAL | FLUSH_PERSISTENT), (REMOTE, 0x200), 10, EventType::QP_ACCESS_ERR, "RKeyRight"),
    ];
    for (request, remote, status, event, rule) in cases {
        let mut fabric = fabric();
        fabric.b.register(0x200, REMOTE, 0x1000, BUFFER, 0, ACCESS_REMOTE_READ | ACCESS_FLUSH_GLOBAL);
        fabric.clear_logs();
        fabric.a.send(&Request { remote, ..request });
        fabric.run();
        assert_eq!(statuses(&mut fabric.a), [status], "{rule}");
        assert_eq!(fabric.b.diagnostics(), [rule]);
        assert_eq!(fabric.b.events().last().map(|told| told.0), Some(event), "{rule}");
        assert_eq!((fabric.b.operation_classes().len(), fabric.b.state()), (0, QpState::Err), "{rule}");
    }
}

/// The queue pair grants rights of its own.
#[test]
fn a_queue_pair_without_the_right_takes_none() {
    for (request, _) in both() {
        let mut fabric = fabric();
        let mut change = fabric.b.attributes(0x12, QP_STATE_RTS, ATTR_ACCESS_FLAGS);
        change.access = ACCESS_REMOTE_READ.into();
        fabric.b.modify(&change);
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(statuses(&mut fabric.a), [9]);
        assert_eq!(fabric.b.diagnostics(), ["InvalidRequest"]);
    }
}

#[test]
fn a_work_request_that_is_neither_fails_before_it_leaves() {
    let inline_flush = Request { inline: Some(vec![]), ..flush(8, FLUSH_GLOBAL) };
    let cases = [
        (Request { inline: Some(vec![1; 7]), ..atomic_write() }, 1, "AtomicLength"),
        (Request { inline: None, elements: vec![(VIRTUAL, 16, 0x100)], ..atomic_write() }, 1, "AtomicLength"),
        (flush(8, 0), 2, "FlushPlacement"),
        (flush(8, 0x100), 2, "WqeReserved"),
        (flush(8, FLUSH_GLOBAL | FLUSH_REGION), 2, "WqeReserved"),
        (inline_flush, 2, "WqeInlineRead"),
        (Request { elements: vec![(VIRTUAL, 8, 0x100)], ..flush(8, FLUSH_GLOBAL) }, 2, "WqeLength"),
    ];
    for (request, status, rule) in cases {
        let mut fabric = fabric();
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.diagnostics(), [rule]);
        assert_eq!(statuses(&mut fabric.a), [status], "{rule}");
        assert_eq!(fabric.wire, []);
    }
}

/// What a peer of another make might send.
#[test]
fn packets_out_of_shape_are_invalid_requests() {
    let malformed = |kind: usize, host: &Host| match kind {
        0 => Forged::new(host, IP_A, Opcode::RC_ATOMIC_WRITE, 1000, &[0; 4]).reth(REMOTE, 0x100, 4),
        1 => Forged::new(host, IP_A, Opcode::RC_ATOMIC_WRITE, 1000, &[0; 8]).reth(REMOTE, 0x100, 16),
        2 => Forged::new(host, IP_A, Opcode::RC_FLUSH, 1000, &[]).reth(REMOTE, 0x100, 8),
        3 => Forged::new(host, IP_A, Opcode::RC_FLUSH, 1000, &[]).reth(REMOTE, 0x100, 8).flush(1, 2),
        4 => Forged::new(host, IP_A, Opcode::RC_FLUSH, 1000, &[]).reth(REMOTE, 0x100, 8).flush(5, 0),
        _ => Forged::new(host, IP_A, Opcode::RC_FLUSH, 1000, &[1; 4]).reth(REMOTE, 0x100, 8).flush(1, 0),
    };
    for kind in 0..6 {
        let mut fabric = fabric();
        let frame = malformed(kind, &fabric.b).frame();
        fabric.b.receive(frame);
        fabric.run();
        assert_eq!(fabric.b.state(), QpState::Err, "{kind}");
        assert_eq!(fabric.b.diagnostics(), ["InvalidRequest"], "{kind}");
        assert!(fabric.b.operation_classes().is_empty(), "{kind}");
    }
}

#[test]
fn memory_that_does_not_answer_is_a_remote_operational_error() {
    for (request, opcode) in both() {
        for late in [false, true] {
            let mut fabric = fabric();
            let of_it = |class| matches!(class, Class::AtomicWrite | Class::FlushRead);
            if late && opcode == FLUSH {
                fabric.b.port.hold = Box::new(move |origin, _| of_it(origin.class));
            } else {
                fabric.b.port.fail = Box::new(move |origin| of_it(origin.class));
            }
            fabric.a.send(&request);
            fabric.run();
            if late && opcode == FLUSH {
                fabric.b.fail(0, DmaFault::Poisoned);
                fabric.run();
            }
            assert_eq!(fabric.a.completions(), [(0x11, 0, opcode, 11)]);
            assert_eq!(fabric.b.diagnostics(), ["PayloadFault"]);
        }
    }
}
