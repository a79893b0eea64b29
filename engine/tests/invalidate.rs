//! Keys that go out of use: by the peer's SEND with invalidate, and by a work request of this side.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::completion::CQE_WITH_INV;
use rnic_abi::{CommandOpcode, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_wire::Opcode;
use zerocopy::IntoBytes;

const LOCAL_INV: u8 = 0x10;
const REMOTE: u64 = VIRTUAL + 0x8_0000;
const KEY: u32 = 0x542;

/// Both sides have a key that may be invalidated.
fn fabric() -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    for host in [&mut fabric.a, &mut fabric.b] {
        host.register(KEY, REMOTE, 0x1000, BUFFER + 0x8_0000, 1, all_rights() | ACCESS_INVALIDATE);
    }
    fabric.clear_logs();
    fabric
}

fn send_inv(length: u32, key: u32) -> Request {
    Request { immediate: key, ..Request::new(WorkOpcode::SEND_INV, length) }
}

fn local_inv(key: u32) -> Request {
    Request { immediate: key, elements: vec![], ..Request::new(WorkOpcode::LOCAL_INV, 0) }
}

fn write_to(key: u32) -> Request {
    Request { remote: (REMOTE, key), ..Request::new(WorkOpcode::WRITE, 8) }
}

#[test]
fn a_send_with_invalidate_delivers_takes_the_key_away_and_says_so() {
    for length in [8, 700] {
        let mut fabric = fabric();
        fabric.a.port.put(BUFFER, &pattern(1000, 3));
        fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
        fabric.a.send(&write_to(KEY));
        fabric.a.send(&send_inv(length, KEY));
        fabric.run();
        let last = fabric.sent_by('a').last().unwrap().opcode;
        let expected = if length == 8 { Opcode::RC_SEND_ONLY_INVALIDATE } else { Opcode::RC_SEND_LAST_INVALIDATE };
        assert_eq!(last, expected);
        let cqe = fabric.b.poll().unwrap();
        assert_eq!((cqe.status, cqe.opcode, cqe.byte_len.get()), (0, 0x80, length));
        assert_eq!((cqe.flags.get() & CQE_WITH_INV, cqe.immediate.get()), (CQE_WITH_INV, KEY));
        assert_eq!(fabric.b.port.slice(BUFFER + 0x9_0000, length as usize), &pattern(1000, 3)[..length as usize]);
        assert_eq!(fabric.a.completions().len(), 2, "the WRITE before it was allowed");
        assert_eq!(fabric.b.engine.counters().invalidated_keys, 1);
        fabric.a.send(&write_to(KEY));
        fabric.run();
        assert_eq!(fabric.a.completions(), [(0x11, 2, 4, 10)]);
        assert_eq!(fabric.b.diagnostics(), ["RKeyInvalid"]);
        // Its index is free when it is deregistered, like any other.
        fabric.b.deregister(KEY);
        fabric.b.register(KEY + 1, REMOTE, 0x1000, BUFFER, 0, all_rights());
    }
}

/// The buffer may be named by the very key that goes: the message is delivered first.
#[test]
fn the_receive_buffer_may_belong_to_the_key_that_goes() {
    let mut fabric = fabric();
    fabric.a.port.put(BUFFER, &[7; 8]);
    fabric.b.post_receive(REMOTE, 0x100, KEY);
    fabric.a.send(&send_inv(8, KEY));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x12, 0, 0x80, 0)]);
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 9), [7, 7, 7, 7, 7, 7, 7, 7, 0]);
}

/// The message arrives and the receiver fails; the sender is told nothing and runs out of retries.
#[test]
fn a_key_that_cannot_be_invalidated_fails_the_receiver_and_is_not_refused_on_the_wire() {
    for key in [0x900, KEY + 1, 0x100, 0x300] {
        let mut fabric = fabric();
        let mut foreign = fabric.b.region(0x300, REMOTE, 0x1000, BUFFER, 0, all_rights() | ACCESS_INVALIDATE);
        foreign.pdn = (PDN + 1).into();
        fabric.b.must(CommandOpcode::REGISTER_KEY, foreign.as_bytes());
        fabric.clear_logs();
        fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
        fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
        fabric.a.send(&send_inv(8, key));
        fabric.run();
        assert_eq!(fabric.b.completions(), [(0x12, 0, 0x80, 2), (0x12, 1, 0x80, 5)], "{key:#x}");
        assert_eq!(fabric.b.diagnostics(), ["InvalidateRefused"], "{key:#x}");
        assert_eq!(fabric.b.events().last().map(|event| event.0), Some(EventType::QP_ACCESS_ERR));
        assert_eq!((fabric.answers('b').len(), fabric.b.state()), (0, QpState::Err));
        assert_eq!(fabric.b.engine.counters().invalidated_keys, 0);
        fabric.run_timers(5);
        assert_eq!(fabric.a.completions(), [(0x11, 0, 3, 12)], "{key:#x}");
    }
}

#[test]
fn a_duplicate_invalidates_nothing_again() {
    let mut fabric = fabric();
    fabric.drop = Box::new(|from, number| from == 'b' && number < 2);
    fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
    fabric.a.send(&send_inv(8, KEY));
    fabric.run();
    // The index is used anew before the sender hears of it: the duplicate must not touch the new key.
    fabric.b.deregister(KEY);
    fabric.b.register(KEY, REMOTE, 0x1000, BUFFER, 0, all_rights() | ACCESS_INVALIDATE);
    fabric.run_timers(1);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 3, 0)]);
    assert_eq!(fabric.b.engine.counters().invalidated_keys, 1);
    fabric.a.send(&write_to(KEY));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 1, 4, 0)]);
}

#[test]
fn a_local_invalidate_comes_after_what_was_asked_for_before_it_and_before_what_comes_later() {
    let mut fabric = fabric();
    let from_key = Request { elements: vec![(REMOTE, 600, KEY)], ..Request::new(WorkOpcode::WRITE, 0) };
    fabric.a.post(&from_key);
    fabric.a.post(&local_inv(KEY));
    fabric.a.send(&from_key);
    for _ in 0..3 {
        let frame = fabric.a.transmit().unwrap();
        fabric.b.receive(frame);
    }
    assert!(fabric.a.transmit().is_none(), "it waits for the acknowledgement");
    assert_eq!(fabric.a.engine.counters().invalidated_keys, 0);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0), (0x11, 1, LOCAL_INV, 0), (0x11, 2, 4, 4)]);
    assert_eq!(fabric.a.diagnostics(), ["LKeyInvalid"]);
    assert_eq!(fabric.sent_by('a').len(), 0, "a local request is no packet");
}

#[test]
fn a_local_invalidate_of_a_wrong_key_fails() {
    for key in [0x900, KEY + 1, 0x100] {
        let mut fabric = self::fabric();
        fabric.a.send(&local_inv(key));
        fabric.run();
        assert_eq!(fabric.a.completions(), [(0x11, 0, LOCAL_INV, 2)], "{key:#x}");
        assert_eq!(fabric.a.diagnostics(), ["InvalidateRefused"]);
        assert_eq!(fabric.wire, []);
    }
    let mut fabric = self::fabric();
    fabric.a.send(&local_inv(KEY));
    fabric.a.send(&local_inv(KEY));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, LOCAL_INV, 0), (0x11, 1, LOCAL_INV, 2)], "a key goes once");
    let mut fabric = self::fabric();
    fabric.a.send(&Request { elements: vec![(REMOTE, 8, KEY)], ..local_inv(KEY) });
    fabric.run();
    assert_eq!(fabric.a.diagnostics(), ["WqeLength"]);
}

/// Reads that the key allowed are under way on behalf of another queue pair: whoever tells of its end waits for them.
#[test]
fn completions_that_tell_of_an_invalid_key_wait_for_reads_that_it_allowed() {
    for by_peer in [false, true] {
        let mut fabric = fabric();
        fabric.connect_another(1, &Attributes::mtu(1));
        fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
        // The key's region is read for the peer.
        let mut read = Request { remote: (REMOTE, KEY), ..Request::new(WorkOpcode::READ, 300) };
        read.qpn = Some(0x12);
        fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
        fabric.a.send(&read);
        fabric.run();
        assert_eq!(fabric.b.port.held.len(), 1);
        if by_peer {
            fabric.a.send(&send_inv(8, KEY));
        } else {
            fabric.b.send(&local_inv(KEY));
        }
        fabric.run();
        assert_eq!(fabric.b.completions(), [], "by peer: {by_peer}");
        fabric.b.port.hold = Box::new(|_, _| false);
        fabric.b.settle();
        fabric.run();
        let told: Vec<_> = fabric.b.completions().iter().map(|c| (c.2, c.3)).collect();
        assert_eq!(told, [if by_peer { (0x80, 0) } else { (LOCAL_INV, 0) }]);
        // The rest of the READ has lost its key.
        let ended = fabric.a.completions().into_iter().filter(|c| c.0 == 0x12).map(|c| c.3).collect::<Vec<_>>();
        assert_eq!(ended, [10]);
    }
}

/// A completion waits for reads, behind it that of a WRITE for its receive, and a SEND for both: the end of the reads sets
/// all of them going.
#[test]
fn messages_behind_a_completion_that_waits_for_reads_go_on_with_it() {
    let mut fabric = fabric();
    fabric.connect_another(1, &Attributes::mtu(1));
    for receive in 0..3 {
        fabric.b.post_receive(VIRTUAL + 0x9_0000 + 0x1000 * receive, 0x1000, 0x100);
    }
    let mut read = Request { remote: (REMOTE, KEY), ..Request::new(WorkOpcode::READ, 300) };
    read.qpn = Some(0x12);
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
    fabric.a.send(&read);
    fabric.run();
    fabric.a.send(&send_inv(8, KEY));
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 8));
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [], "the first one waits");
    fabric.b.port.hold = Box::new(|_, _| false);
    fabric.b.settle();
    fabric.run();
    let told: Vec<_> = fabric.b.completions().iter().map(|c| (c.2, c.3)).collect();
    assert_eq!(told, [(0x80, 0), (0x81, 0), (0x80, 0)]);
}

/// A LOCAL_INV has its key in hand and waits for its queue pair's context; meanwhile the key has left the small cache, and
/// a packet has asked for it. What that brings in the end is the key of before.
#[test]
fn a_key_that_was_asked_for_before_it_became_invalid_does_not_come_back() {
    let config = EngineConfig { key_cache_entries: 1, qp_cache_entries: 1, ..EngineConfig::default() };
    let mut fabric = Fabric::new(config, 1);
    fabric.b.register(KEY, REMOTE, 0x1000, BUFFER + 0x8_0000, 1, all_rights() | ACCESS_INVALIDATE);
    fabric.connect_another(1, &Attributes::mtu(1));
    let deliver = |fabric: &mut Fabric, key: u32| {
        fabric.a.send(&Request { qpn: Some(0x12), ..write_to(key) });
        while let Some(mut frame) = fabric.a.transmit() {
            frame.seal();
            fabric.b.receive(frame);
        }
    };
    deliver(&mut fabric, 0x100);
    fabric.run();
    fabric.b.port.hold = Box::new(|origin, _| matches!(origin.class, Class::KeyFetch | Class::ContextFetch));
    // Its queue pair's context, and the key.
    fabric.b.send(&local_inv(KEY));
    fabric.run();
    fabric.b.release(0);
    fabric.run();
    fabric.b.release(0);
    // A packet to the other queue pair: its context, and another key, take their places.
    deliver(&mut fabric, 0x100);
    fabric.b.release(0);
    fabric.b.release(0);
    // The next one asks for the key, and the work request for its context: that comes first.
    fabric.a.port.put(BUFFER, &pattern(64, 77));
    deliver(&mut fabric, KEY);
    fabric.run();
    assert_eq!((fabric.b.port.held.len(), fabric.b.completions().len()), (2, 0));
    fabric.b.release(1);
    fabric.run();
    assert_eq!(fabric.b.completions().iter().map(|c| (c.2, c.3)).collect::<Vec<_>>(), [(LOCAL_INV, 0)]);
    fabric.b.port.hold = Box::new(|_, _| false);
    fabric.b.settle();
    fabric.run();
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 8), [0; 8], "nothing is written through it");
    assert_eq!(fabric.a.completions().last().map(|c| c.3), Some(10));
}

#[test]
fn a_flushed_key_stays_invalid_in_host_memory() {
    let mut fabric = fabric();
    fabric.b.send(&local_inv(KEY));
    fabric.run();
    fabric.b.flush_caches();
    fabric.a.send(&write_to(KEY));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 10)]);
}
