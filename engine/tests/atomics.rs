//! Atomics: read, modify and write at the responder, once, whatever is lost, late or done at the same time.

mod rig;

use rig::port::Transfer;
use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, EventType, WorkOpcode, work_request};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::{Class, DmaFault};
use rnic_wire::Opcode;
use zerocopy::IntoBytes;

const CMP_SWAP: u8 = 0x0a;
const FETCH_ADD: u8 = 0x0b;
const REMOTE: u64 = VIRTUAL + 0x8_0000;
const WORD: u64 = BUFFER + 0x8_0000;

fn fabric() -> Fabric {
    Fabric::new(EngineConfig::default(), 1)
}

fn add(value: u64) -> Request {
    Request { operands: (value, 0), ..Request::new(WorkOpcode::FETCH_ADD, 8) }
}

fn swap(compare: u64, swap: u64) -> Request {
    Request { operands: (swap, compare), ..Request::new(WorkOpcode::CMP_SWAP, 8) }
}

fn word(host: &Host, at: u64) -> u64 {
    u64::from_le_bytes(host.port.slice(at, 8).try_into().unwrap())
}

fn lose(fabric: &mut Fabric, lost: impl Fn(char, usize) -> bool + 'static) {
    fabric.drop = Box::new(lost);
}

#[test]
fn an_atomic_is_two_crossings_at_the_responder_and_brings_what_was_there() {
    let mut fabric = fabric();
    fabric.b.port.put(WORD, &0x1122_3344_5566_7788u64.to_le_bytes());
    fabric.a.send(&add(0x10));
    fabric.run();
    assert_eq!(word(&fabric.b, WORD), 0x1122_3344_5566_7798);
    assert_eq!(word(&fabric.a, BUFFER), 0x1122_3344_5566_7788, "in the host's byte order");
    assert_eq!(fabric.a.completions(), [(0x11, 0, FETCH_ADD, 0)]);
    assert_eq!(fabric.b.operation_classes(), ["atomic_read", "atomic_write"]);
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "payload_write", "cqe_write"]);
    let wire: Vec<_> = fabric.wire.iter().map(|packet| (packet.from, packet.opcode, packet.psn)).collect();
    assert_eq!(wire, [('a', Opcode::RC_FETCH_ADD, 1000), ('b', Opcode::RC_ATOMIC_ACKNOWLEDGE, 1000)]);
    assert_eq!((fabric.wire[1].original, fabric.wire[1].msn), (0x1122_3344_5566_7788, 1));
    assert_eq!(fabric.b.engine.counters().rx_atomic_requests, 1);
}

#[test]
fn a_comparison_that_holds_swaps_and_one_that_does_not_leaves_the_word() {
    let mut fabric = fabric();
    fabric.b.port.put(WORD, &7u64.to_le_bytes());
    fabric.a.send(&swap(7, u64::MAX));
    fabric.run();
    assert_eq!((word(&fabric.a, BUFFER), word(&fabric.b, WORD)), (7, u64::MAX));
    fabric.a.send(&swap(7, 9));
    fabric.run();
    assert_eq!((word(&fabric.a, BUFFER), word(&fabric.b, WORD)), (u64::MAX, u64::MAX));
    fabric.a.send(&add(2));
    fabric.run();
    assert_eq!((word(&fabric.a, BUFFER), word(&fabric.b, WORD)), (u64::MAX, 1), "an addition wraps");
    assert_eq!(fabric.a.completions().len(), 3);
}

#[test]
fn the_old_word_may_go_to_several_elements() {
    let mut fabric = fabric();
    fabric.b.port.put(WORD, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut request = add(1);
    request.elements = vec![(VIRTUAL + 100, 3, 0x100), (0, 0, 0), (VIRTUAL, 5, 0x100)];
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(fabric.a.port.slice(BUFFER + 100, 4), [1, 2, 3, 0]);
    assert_eq!(fabric.a.port.slice(BUFFER, 6), [4, 5, 6, 7, 8, 0]);
}

/// Lost on its way, or its response: executed once, and the response says what the first execution found.
#[test]
fn a_lost_atomic_or_response_is_executed_once() {
    for (request, lost) in [(add(5), 'a'), (add(5), 'b'), (swap(40, 45), 'a'), (swap(40, 45), 'b')] {
        let mut fabric = fabric();
        fabric.b.port.put(WORD, &40u64.to_le_bytes());
        lose(&mut fabric, move |from, number| from == lost && number == usize::from(lost == 'b'));
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.completions(), []);
        fabric.run_timers(1);
        assert_eq!((word(&fabric.a, BUFFER), word(&fabric.b, WORD)), (40, 45), "{lost}");
        assert_eq!(fabric.a.completions().iter().map(|c| c.3).collect::<Vec<_>>(), [0]);
        assert_eq!((fabric.b.count(Class::AtomicRead), fabric.b.count(Class::AtomicWrite)), (1, 1));
        assert_eq!(fabric.b.engine.counters().duplicate_request, u64::from(lost == 'b'));
        assert!(fabric.sent_by('b').iter().all(|packet| packet.msn == 1), "counted once");
    }
}

#[test]
fn a_duplicate_of_a_forgotten_atomic_is_dropped() {
    let mut fabric = Fabric::with(EngineConfig::default(), &Attributes { max_dest_rd_atomic: 2, ..Attributes::mtu(1) });
    fabric.a.send(&add(1));
    let mut frame = fabric.a.transmit().unwrap();
    frame.seal();
    let first = frame.bytes().to_vec();
    fabric.b.receive(frame);
    fabric.run();
    fabric.b.receive_bytes(&first);
    assert!(fabric.b.transmit().is_some(), "it is remembered");
    for _ in 0..2 {
        fabric.a.send(&add(1));
    }
    fabric.run();
    fabric.b.receive_bytes(&first);
    assert!(fabric.b.transmit().is_none());
    assert_eq!((word(&fabric.b, WORD), fabric.b.state()), (3, QpState::Rts));
    assert_eq!(fabric.b.engine.counters().duplicate_unanswered, 1);
}

/// Two queue pairs, one word, reads that are late in any order: no addition is lost, and no two find the same.
#[test]
fn atomics_of_several_queue_pairs_take_turns_while_reads_are_under_way() {
    let mut fabric = fabric();
    fabric.connect_another(1, &Attributes::mtu(1));
    fabric.connect_another(2, &Attributes::mtu(1));
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::AtomicRead);
    for round in 0..4u64 {
        for (further, at) in [0x11, 0x12, 0x13].into_iter().zip(0u64..) {
            let mut request = add(1);
            request.qpn = Some(further);
            request.elements = vec![(VIRTUAL + (round * 3 + at) * 8, 8, 0x100)];
            fabric.a.send(&request);
        }
    }
    fabric.run();
    assert_eq!(fabric.b.port.held.len(), 1, "one holds the word");
    while let Some(newest) = fabric.b.port.held.len().checked_sub(1) {
        fabric.b.release(newest);
        fabric.run();
    }
    assert_eq!(word(&fabric.b, WORD), 12);
    let mut found: Vec<_> = (0..12).map(|at| word(&fabric.a, BUFFER + at * 8)).collect();
    found.sort_unstable();
    assert_eq!(found, (0..12).collect::<Vec<_>>());
    assert_eq!(fabric.a.completions().len(), 12);
}

#[test]
fn atomics_on_other_words_do_not_wait_and_neither_does_anything_else() {
    let mut fabric = fabric();
    fabric.connect_another(1, &Attributes::mtu(1));
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::AtomicRead);
    fabric.a.send(&add(1));
    let mut other = add(1);
    (other.qpn, other.remote) = (Some(0x12), (REMOTE + 8, 0x100));
    fabric.a.send(&other);
    fabric.run();
    assert_eq!(fabric.b.port.held.len(), 2);
    fabric.b.settle();
    fabric.run();
    assert_eq!(fabric.a.completions().len(), 2);
}

/// The same memory under two keys is the same word.
#[test]
fn a_word_is_known_by_its_place_in_memory_not_by_its_name() {
    let mut fabric = fabric();
    fabric.b.register(0x200, 0x1000, 0x1000, WORD, 0, all_rights());
    fabric.connect_another(1, &Attributes::mtu(1));
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::AtomicRead);
    fabric.a.send(&add(1));
    let mut other = add(1);
    (other.qpn, other.remote) = (Some(0x12), (0x1000, 0x200));
    fabric.a.send(&other);
    fabric.run();
    assert_eq!(fabric.b.port.held.len(), 1);
    for _ in 0..2 {
        fabric.b.release(0);
        fabric.run();
    }
    assert_eq!(word(&fabric.b, WORD), 2);
}

#[test]
fn each_wrong_atomic_is_refused_with_its_own_rule() {
    let end = VIRTUAL + BUFFER_BYTES;
    let cases: [(u64, u32, u8, EventType, &str); 6] = [
        // Alignment comes before the key.
        (REMOTE + 4, 0x900, 9, EventType::QP_REQ_ERR, "AtomicAlignment"),
        (REMOTE, 0x900, 10, EventType::QP_ACCESS_ERR, "RKeyInvalid"),
        (REMOTE, 0x200, 10, EventType::QP_ACCESS_ERR, "RKeyRight"),
        (REMOTE, 0x300, 10, EventType::QP_ACCESS_ERR, "RKeyPd"),
        (end, 0x100, 10, EventType::QP_ACCESS_ERR, "RKeyRange"),
        (VIRTUAL - 8, 0x100, 10, EventType::QP_ACCESS_ERR, "RKeyRange"),
    ];
    for request in [add(1), swap(0, 1)] {
        for (address, key, status, event, rule) in cases {
            let mut fabric = fabric();
            fabric.b.register(0x200, REMOTE, 0x1000, BUFFER, 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE);
            let mut foreign = fabric.b.region(0x300, REMOTE, 0x1000, BUFFER, 0, all_rights());
            foreign.pdn = (PDN + 1).into();
            fabric.b.must(CommandOpcode::REGISTER_KEY, foreign.as_bytes());
            fabric.clear_logs();
            let mut request = request.clone();
            (request.remote, request.elements) = ((address, key), vec![(0, 8, 0x00de_ad00)]);
            fabric.a.send(&request);
            fabric.run();
            assert_eq!(fabric.a.completions().iter().map(|c| c.3).collect::<Vec<_>>(), [status], "{rule}");
            assert_eq!(fabric.b.diagnostics(), [rule]);
            assert_eq!(fabric.b.events().last().map(|told| told.0), Some(event), "{rule}");
            assert_eq!((fabric.b.count(Class::AtomicRead), fabric.b.state()), (0, QpState::Err), "{rule}");
        }
    }
}

#[test]
fn a_work_request_that_is_no_atomic_fails_before_it_leaves() {
    let mut inline = add(1);
    inline.inline = Some(vec![0; 8]);
    let mut compares = add(1);
    compares.operands.1 = 3;
    let cases = [
        (Request { elements: vec![(VIRTUAL, 4, 0x100)], ..add(1) }, 1, "AtomicLength"),
        (Request { elements: vec![(VIRTUAL, 16, 0x100)], ..swap(1, 2) }, 1, "AtomicLength"),
        (Request { elements: vec![], ..swap(1, 2) }, 1, "AtomicLength"),
        (inline, 2, "WqeInlineRead"),
        (compares, 2, "WqeReserved"),
        (Request { inline: Some(vec![1]), ..Request::new(WorkOpcode::READ, 0) }, 2, "WqeInlineRead"),
    ];
    for (request, status, rule) in cases {
        let mut fabric = fabric();
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.completions().iter().map(|c| c.3).collect::<Vec<_>>(), [status], "{rule}");
        assert_eq!(fabric.a.diagnostics(), [rule]);
        assert_eq!(fabric.wire, []);
    }
}

#[test]
fn what_an_atomic_brings_needs_a_place_and_the_word_has_changed_all_the_same() {
    let mut fabric = fabric();
    let mut request = add(1);
    request.elements = vec![(VIRTUAL, 8, 0x900)];
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, FETCH_ADD, 4)]);
    assert_eq!(fabric.a.diagnostics(), ["LKeyInvalid"]);
    assert_eq!((word(&fabric.b, WORD), fabric.b.state()), (1, QpState::Rts));
}

#[test]
fn a_word_that_cannot_be_read_or_written_is_a_remote_operational_error_and_frees_the_word() {
    for (class, late) in [(Class::AtomicRead, false), (Class::AtomicRead, true), (Class::AtomicWrite, false)] {
        let mut fabric = fabric();
        fabric.connect_another(1, &Attributes::mtu(1));
        if late {
            fabric.b.port.hold = Box::new(move |origin, _| origin.class == class);
        } else {
            fabric.b.port.fail = Box::new(move |origin| origin.class == class);
        }
        fabric.a.send(&add(1));
        fabric.run();
        let mut other = add(1);
        other.qpn = Some(0x12);
        if late {
            fabric.a.send(&other);
            fabric.run();
            fabric.b.fail(0, DmaFault::Poisoned);
        }
        fabric.run();
        assert_eq!(fabric.a.completions()[0], (0x11, 0, FETCH_ADD, 11), "{class:?} late {late}");
        assert_eq!(fabric.b.diagnostics(), ["PayloadFault"]);
        assert_eq!(word(&fabric.b, WORD), 0);
        fabric.b.port.fail = Box::new(|_| false);
        fabric.b.port.hold = Box::new(|_, _| false);
        if !late {
            fabric.a.send(&other);
        }
        fabric.b.settle();
        fabric.run();
        assert_eq!(word(&fabric.b, WORD), 1, "the other queue pair goes on");
    }
}

#[test]
fn what_ends_a_queue_pair_frees_its_word_and_writes_nothing() {
    for command in ["destroy", "reset", "error", "deregister"] {
        let mut fabric = fabric();
        fabric.b.register(0x200, REMOTE, 0x1000, WORD, 0, all_rights());
        fabric.connect_another(1, &Attributes::mtu(1));
        fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::AtomicRead);
        fabric.a.send(&add(1));
        let mut other = add(1);
        (other.qpn, other.remote) = (Some(0x12), (REMOTE, 0x200));
        fabric.a.send(&other);
        fabric.run();
        assert_eq!(fabric.b.port.held.len(), 1);
        let object = Host::object(if command == "deregister" { 0x100 } else { 0x12 });
        match command {
            "destroy" => fabric.b.start_command(CommandOpcode::DESTROY_QP, object.as_bytes()),
            "deregister" => fabric.b.start_command(CommandOpcode::DEREGISTER_KEY, object.as_bytes()),
            _ => {
                let state = if command == "reset" { QP_STATE_RESET } else { QP_STATE_ERR };
                let attributes = fabric.b.attributes(0x12, state, 0);
                fabric.b.start_command(CommandOpcode::MODIFY_QP, attributes.as_bytes());
            }
        }
        fabric.b.port.hold = Box::new(|_, _| false);
        fabric.b.port.log.clear();
        fabric.b.settle();
        assert!(fabric.b.is_answered(), "{command}");
        fabric.run();
        assert_eq!(word(&fabric.b, WORD), 1, "{command}: the other one's, and only that");
        assert_eq!(fabric.b.count(Class::AtomicWrite), 1, "{command}");
        let ended: Vec<_> = fabric.a.completions().into_iter().filter(|completion| completion.0 == 0x12).collect();
        assert_eq!(ended, [(0x12, 0, FETCH_ADD, 0)], "{command}");
    }
}

#[test]
fn an_atomic_waits_behind_a_fence_and_within_the_agreed_number() {
    let mut fabric = Fabric::with(EngineConfig::default(), &Attributes { max_rd_atomic: 1, ..Attributes::mtu(1) });
    fabric.a.post(&add(1));
    fabric.a.post(&swap(1, 10));
    let mut fenced = Request::new(WorkOpcode::WRITE, 8);
    (fenced.flags, fenced.remote) = (fenced.flags | work_request::WQE_FENCE, (REMOTE + 8, 0x100));
    fabric.a.send(&fenced);
    assert_eq!(std::iter::from_fn(|| fabric.a.transmit()).map(|frame| fabric.b.receive(frame)).count(), 1);
    fabric.run();
    assert_eq!(word(&fabric.b, WORD), 10);
    let order: Vec<_> = fabric.a.completions().iter().map(|c| (c.1, c.2, c.3)).collect();
    assert_eq!(order, [(0, FETCH_ADD, 0), (1, CMP_SWAP, 0), (2, 4, 0)]);
}

#[test]
fn a_flushed_table_comes_back_and_a_spoilt_one_ends_its_queue_pair() {
    let mut fabric = fabric();
    fabric.a.send(&add(1));
    let mut frame = fabric.a.transmit().unwrap();
    frame.seal();
    let first = frame.bytes().to_vec();
    fabric.b.receive(frame);
    fabric.run();
    fabric.b.flush_caches();
    fabric.b.port.log.clear();
    fabric.b.receive_bytes(&first);
    assert!(fabric.b.transmit().is_some(), "remembered in host memory");
    let fetches = fabric.b.port.log.iter().filter(|t| matches!(t, Transfer::Read { bytes: 512, .. })).count();
    assert_eq!((fetches, fabric.b.count(Class::ContextFetch)), (1, 2));
    assert_eq!(word(&fabric.b, WORD), 1);
    fabric.b.flush_caches();
    fabric.b.port.put(RD_ATOMIC_TABLE + 0x12 * 512 + 40, &[0xff; 4]);
    fabric.a.send(&add(1));
    fabric.run();
    assert_eq!(fabric.b.diagnostics(), ["ContextInvalid"]);
    assert_eq!(fabric.b.state(), QpState::Err);
    assert_eq!(word(&fabric.b, WORD), 1, "not executed without a place to remember it in");
}
