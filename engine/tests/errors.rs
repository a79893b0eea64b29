//! What is refused: each rule with its status, diagnostic, counter, refusal on the wire, event and states.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, Diagnostic, EventType, WorkOpcode};
use rnic_engine::context::queue_pair::QpState;
use rnic_engine::{Counters, EngineConfig};
use rnic_pcie::Class;
use rnic_wire::Opcode;
use zerocopy::IntoBytes;

const NO_WRITE: u32 = 0x200;
const FOREIGN: u32 = 0x300;
const MISSING: u32 = 0x400;
const REMOTE: u64 = VIRTUAL + 0x8_0000;

/// Both sides have a region without write rights and one of another protection domain.
fn fabric() -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    for host in [&mut fabric.a, &mut fabric.b] {
        host.register(NO_WRITE, VIRTUAL, 0x1000, BUFFER, 0, 0);
        let mut foreign = host.region(FOREIGN, VIRTUAL, 0x1000, BUFFER, 0, all_rights());
        foreign.pdn = (PDN + 1).into();
        host.must(CommandOpcode::REGISTER_KEY, foreign.as_bytes());
    }
    fabric.clear_logs();
    fabric
}

fn number(diagnostic: Diagnostic) -> u32 {
    diagnostic.number()
}

type Count = fn(&Counters) -> u64;

#[test]
fn a_local_key_that_does_not_allow_the_gather_fails_its_request_and_sends_nothing() {
    let end = VIRTUAL + BUFFER_BYTES;
    let cases: [(u64, u32, u32, Diagnostic, Count); 7] = [
        (VIRTUAL, 8, MISSING, Diagnostic::LKeyInvalid, |c| c.lkey_invalid),
        (VIRTUAL, 8, 0x101, Diagnostic::LKeyInvalid, |c| c.lkey_invalid),
        (VIRTUAL - 1, 8, 0x100, Diagnostic::LKeyRange, |c| c.lkey_range),
        (end - 7, 8, 0x100, Diagnostic::LKeyRange, |c| c.lkey_range),
        (u64::MAX - 3, 8, 0x100, Diagnostic::LKeyRange, |c| c.lkey_range),
        (0, 8, 0x100, Diagnostic::LKeyRange, |c| c.lkey_range),
        (VIRTUAL, 8, FOREIGN, Diagnostic::LKeyPd, |c| c.lkey_pd),
    ];
    for opcode in [WorkOpcode::SEND, WorkOpcode::SEND_IMM, WorkOpcode::WRITE, WorkOpcode::WRITE_IMM] {
        for (address, length, key, diagnostic, counter) in cases {
            let mut fabric = fabric();
            let what = format!("{opcode:?} {diagnostic:?}");
            // A good element before the bad one, and a rkey that is bad as well: the local check comes first.
            let mut request = Request::new(opcode, 0);
            request.elements = vec![(VIRTUAL, 600, 0x100), (address, length, key)];
            request.remote = (REMOTE, MISSING);
            fabric.a.post(&request);
            fabric.a.send(&Request::new(opcode, 8));
            fabric.run();
            assert_eq!(fabric.wire, [], "{what}: not even the part that is good");
            assert_eq!(fabric.a.count(Class::PayloadRead), 0, "{what}");
            let cqe = fabric.a.poll().expect("a completion");
            assert_eq!((cqe.status, cqe.vendor_err.get()), (4, number(diagnostic)), "{what}");
            assert_eq!(fabric.a.completions().iter().map(|cqe| cqe.3).collect::<Vec<_>>(), [5], "{what}");
            assert_eq!(fabric.a.diagnostics(), [diagnostic.rule().name], "{what}");
            assert_eq!(counter(fabric.a.engine.counters()), 1, "{what}");
            assert_eq!(fabric.a.events(), [(EventType::QP_FATAL, 0x11, number(diagnostic))], "{what}");
            assert_eq!((fabric.a.state(), fabric.b.state()), (QpState::Err, QpState::Rts), "{what}");
        }
    }
}

#[test]
fn a_receive_buffer_that_cannot_be_written_ends_both_sides() {
    let cases: [(u64, u32, Diagnostic, Count); 4] = [
        (REMOTE, MISSING, Diagnostic::LKeyInvalid, |c| c.lkey_invalid),
        (VIRTUAL + BUFFER_BYTES - 8, 0x100, Diagnostic::LKeyRange, |c| c.lkey_range),
        (VIRTUAL, NO_WRITE, Diagnostic::LKeyRight, |c| c.lkey_right),
        (VIRTUAL, FOREIGN, Diagnostic::LKeyPd, |c| c.lkey_pd),
    ];
    for (address, key, diagnostic, counter) in cases {
        let mut fabric = fabric();
        let before = fabric.b.port.memory.clone();
        fabric.b.post_receive(address, 64, key);
        fabric.b.post_receive(REMOTE, 64, 0x100);
        fabric.a.send(&Request::new(WorkOpcode::SEND, 16));
        fabric.run();
        assert_eq!(fabric.answers('b'), [(PSN, 0x63)], "{diagnostic:?}");
        let cqe = fabric.b.poll().expect("a completion");
        assert_eq!((cqe.status, cqe.vendor_err.get(), cqe.wqe_index.get()), (4, number(diagnostic), 0));
        assert_eq!(fabric.b.completions(), [(0x12, 1, 0x80, 5)], "the other receive is flushed");
        assert_eq!(fabric.b.diagnostics(), [diagnostic.rule().name]);
        assert_eq!(counter(fabric.b.engine.counters()), 1);
        assert_eq!(fabric.b.engine.counters().resp_local_operation_errors, 1);
        assert_eq!(fabric.b.events(), [(EventType::QP_FATAL, 0x12, number(diagnostic))]);
        let data = (BUFFER - port::BASE) as usize..;
        assert!(fabric.b.port.memory[data.clone()] == before[data], "nothing is placed");
        assert_eq!(fabric.a.completions(), [(0x11, 0, 1, 11)]);
        assert_eq!(fabric.a.diagnostics(), ["RemoteOperationalError"]);
        assert_eq!((fabric.a.state(), fabric.b.state()), (QpState::Err, QpState::Err));
    }
}

#[test]
fn a_remote_key_that_does_not_allow_the_write_ends_both_sides() {
    let cases: [(u64, u32, Diagnostic, Count); 6] = [
        (REMOTE, MISSING, Diagnostic::RKeyInvalid, |c| c.rkey_invalid),
        (REMOTE, 0x1ff, Diagnostic::RKeyInvalid, |c| c.rkey_invalid),
        (VIRTUAL - 1, 0x100, Diagnostic::RKeyRange, |c| c.rkey_range),
        (VIRTUAL + BUFFER_BYTES - 599, 0x100, Diagnostic::RKeyRange, |c| c.rkey_range),
        (VIRTUAL, NO_WRITE, Diagnostic::RKeyRight, |c| c.rkey_right),
        (VIRTUAL, FOREIGN, Diagnostic::RKeyPd, |c| c.rkey_pd),
    ];
    for opcode in [WorkOpcode::WRITE, WorkOpcode::WRITE_IMM] {
        for (address, key, diagnostic, counter) in cases {
            let mut fabric = fabric();
            fabric.b.post_receive(REMOTE, 64, 0x100);
            fabric.b.port.log.clear();
            let mut request = Request::new(opcode, 600);
            request.remote = (address, key);
            fabric.a.send(&request);
            fabric.run();
            assert_eq!(fabric.answers('b'), [(PSN, 0x62)], "{diagnostic:?}: at the first packet, for the whole range");
            assert_eq!(fabric.b.count(Class::PayloadWrite), 0);
            assert_eq!(fabric.b.completions(), [(0x12, 0, 0x80, 5)], "the posted receive is flushed");
            assert_eq!(fabric.b.diagnostics(), [diagnostic.rule().name]);
            assert_eq!(counter(fabric.b.engine.counters()), 1);
            assert_eq!(fabric.b.engine.counters().resp_remote_access_errors, 1);
            assert_eq!(fabric.b.events(), [(EventType::QP_ACCESS_ERR, 0x12, number(diagnostic))]);
            let cqe = fabric.a.poll().expect("a completion");
            assert_eq!((cqe.status, cqe.vendor_err.get()), (10, number(Diagnostic::RemoteAccessError)));
            assert_eq!(fabric.a.diagnostics(), ["RemoteAccessError"]);
            assert_eq!((fabric.a.state(), fabric.b.state()), (QpState::Err, QpState::Err));
        }
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_there_and_here() {
    for (posted, length, packets) in [(15, 16, 1), (300, 700, 2), (0, 1, 1)] {
        let mut fabric = fabric();
        fabric.b.post_receive(REMOTE, posted, 0x100);
        fabric.a.send(&Request::new(WorkOpcode::SEND, length));
        fabric.run();
        assert_eq!(fabric.answers('b'), [(PSN + packets - 1, 0x61)]);
        let cqe = fabric.b.poll().expect("a completion");
        assert_eq!((cqe.status, cqe.vendor_err.get()), (1, number(Diagnostic::ReceiveTooSmall)));
        assert_eq!(fabric.b.events(), [(EventType::QP_REQ_ERR, 0x12, number(Diagnostic::ReceiveTooSmall))]);
        assert_eq!(fabric.b.diagnostics(), ["ReceiveTooSmall"]);
        assert_eq!(fabric.a.completions(), [(0x11, 0, 1, 9)]);
        assert_eq!(fabric.a.diagnostics(), ["RemoteInvalidRequest"]);
        assert_eq!((fabric.a.state(), fabric.b.state()), (QpState::Err, QpState::Err));
        assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000 + u64::from(posted), 64), [0; 64]);
    }
}

type Forge = (&'static str, Vec<(Opcode, usize, u32)>);

/// Requests that no packet before them makes right, and messages that break inside.
#[test]
fn packets_that_do_not_fit_their_message_are_invalid_requests() {
    use Opcode as O;
    let cases: Vec<Forge> = vec![
        ("middle without first", vec![(O::RC_SEND_MIDDLE, 256, 0)]),
        ("last without first", vec![(O::RC_SEND_LAST, 8, 0)]),
        ("write middle without first", vec![(O::RC_WRITE_MIDDLE, 256, 0)]),
        ("first in a message", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_SEND_FIRST, 256, 0)]),
        ("only in a message", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_SEND_ONLY, 8, 0)]),
        ("write in a send", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_WRITE_MIDDLE, 256, 0)]),
        ("send in a write", vec![(O::RC_WRITE_FIRST, 256, 600), (O::RC_SEND_LAST, 8, 0)]),
        ("a first that is not full", vec![(O::RC_SEND_FIRST, 252, 0)]),
        ("a first that is too full", vec![(O::RC_SEND_FIRST, 260, 0)]),
        ("a middle that is not full", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_SEND_MIDDLE, 8, 0)]),
        ("an only that is too full", vec![(O::RC_SEND_ONLY, 257, 0)]),
        ("an empty last", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_SEND_LAST, 0, 0)]),
        ("a last that is too full", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_SEND_LAST, 260, 0)]),
        ("fewer bytes than the RETH says", vec![(O::RC_WRITE_ONLY, 8, 9)]),
        ("more bytes than the RETH says", vec![(O::RC_WRITE_ONLY, 8, 7)]),
        ("a first beyond the RETH", vec![(O::RC_WRITE_FIRST, 256, 255)]),
        ("a short write", vec![(O::RC_WRITE_FIRST, 256, 600), (O::RC_WRITE_LAST, 8, 0)]),
        ("a long write", vec![(O::RC_WRITE_FIRST, 256, 260), (O::RC_WRITE_LAST, 8, 0)]),
        ("a RETH above 2^31", vec![(O::RC_WRITE_FIRST, 256, (1 << 31) + 1)]),
        ("a READ in a send", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_READ_REQUEST, 0, 8)]),
        ("a READ above 2^31", vec![(O::RC_READ_REQUEST, 0, (1 << 31) + 1)]),
        ("an ATOMIC_WRITE in a send", vec![(O::RC_SEND_FIRST, 256, 0), (O::RC_ATOMIC_WRITE, 8, 8)]),
    ];
    for (what, packets) in cases {
        let mut fabric = fabric();
        for _ in 0..3 {
            fabric.b.post_receive(REMOTE, 0x1000, 0x100);
        }
        let bad = PSN + packets.len() as u32 - 1;
        for (at, (opcode, length, total)) in packets.into_iter().enumerate() {
            let packet = Forged::new(&fabric.b, IP_A, opcode, PSN + at as u32, &vec![1; length]);
            fabric.b.receive(packet.reth(REMOTE, 0x100, total).frame());
        }
        let mut answer = fabric.b.transmit().expect("a refusal");
        answer.seal();
        let answer = Carried::new('b', answer.bytes(), false);
        assert_eq!((answer.psn, answer.syndrome), (bad, 0x61), "{what}");
        assert_eq!(fabric.b.diagnostics(), ["InvalidRequest"], "{what}");
        assert_eq!(fabric.b.engine.counters().resp_local_invalid_request, 1, "{what}");
        let event = (EventType::QP_REQ_ERR, 0x12, number(Diagnostic::InvalidRequest));
        assert_eq!(fabric.b.events(), [event], "{what}");
        assert_eq!(fabric.b.state(), QpState::Err, "{what}");
        let flushed: Vec<_> = (0..3).map(|index| (0x12, index, 0x80, 5)).collect();
        assert_eq!(fabric.b.completions(), flushed, "{what}: every receive, the one in use included");
    }
}

#[test]
fn a_queue_pair_without_the_right_refuses_the_operation_not_the_access() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let mut change = fabric.b.attributes(0x12, QP_STATE_RTS, ATTR_ACCESS_FLAGS);
    change.access = ACCESS_REMOTE_READ.into();
    fabric.b.modify(&change);
    // Even a write of nothing is an operation.
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 0));
    fabric.run();
    assert_eq!(fabric.answers('b'), [(PSN, 0x61)]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 9)]);
}

#[test]
fn a_write_of_nothing_asks_no_key() {
    for opcode in [WorkOpcode::WRITE, WorkOpcode::WRITE_IMM] {
        let mut fabric = fabric();
        fabric.b.post_receive(0, 0, MISSING);
        let mut request = Request::new(opcode, 0);
        request.elements = vec![(1, 0, MISSING)];
        request.remote = (u64::MAX, MISSING);
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.completions(), [(0x11, 0, opcode.0, 0)]);
        assert_eq!(fabric.a.diagnostics(), [""; 0]);
        assert_eq!(fabric.b.diagnostics(), [""; 0]);
    }
}

#[test]
fn work_requests_that_cannot_be_understood_fail_in_their_turn() {
    let mut fabric = fabric();
    let good = fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
    let bad = fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
    fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
    assert_eq!((good.len(), bad.len()), (64, 64));
    fabric.a.port.put(SQ + 64, &[0x7f]);
    fabric.a.ring_send();
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0), (0x11, 1, 0, 2), (0x11, 2, 4, 5)]);
    assert_eq!(fabric.psns('a'), [PSN], "the one before it is carried out, the one behind it is not");
    assert_eq!(fabric.a.diagnostics(), ["WqeOpcode"]);
    assert_eq!(fabric.b.state(), QpState::Rts);
}

#[test]
fn a_failure_waits_until_everything_before_it_is_done() {
    let mut fabric = fabric();
    fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
    let mut bad = Request::new(WorkOpcode::WRITE, 8);
    bad.elements = vec![(VIRTUAL, 8, MISSING)];
    fabric.a.send(&bad);
    let mut lost = fabric.a.transmit().expect("the first one leaves");
    lost.seal();
    assert!(fabric.a.transmit().is_none());
    assert_eq!((fabric.a.completions(), fabric.a.state()), (vec![], QpState::Rts));
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [PSN], "and is sent again although the second has failed");
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0), (0x11, 1, 4, 4)]);
}

/// The source address may lose its entry while queue pairs use it.
#[test]
fn a_queue_pair_whose_address_is_gone_fails_with_its_first_request() {
    let mut fabric = fabric();
    fabric.a.set_gid(false);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 2)]);
    assert_eq!(fabric.a.diagnostics(), ["ModifyValue"]);
    let packet = Forged::new(&fabric.a, IP_B, Opcode::RC_SEND_ONLY, PSN, &[]);
    fabric.a.receive(packet.frame());
    assert!(fabric.a.transmit().is_none());
}

#[test]
fn what_host_memory_does_not_answer_fails_what_needed_it() {
    type Case = (Class, u8, &'static str);
    let requester: [Case; 2] = [(Class::WqeFetch, 2, "WqeFetchFault"), (Class::PayloadRead, 4, "PayloadFault")];
    for held in [false, true] {
        for (class, status, name) in requester {
            let mut fabric = fabric();
            if held {
                fabric.a.port.hold = Box::new(move |origin, _| origin.class == class);
            } else {
                fabric.a.port.fail = Box::new(move |origin| origin.class == class);
            }
            fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
            fabric.run();
            if held {
                fabric.a.fail(0, rnic_pcie::DmaFault::Poisoned);
                fabric.run();
            }
            assert_eq!(fabric.a.completions().iter().map(|cqe| cqe.3).collect::<Vec<_>>(), [status], "{name} {held}");
            assert_eq!(fabric.a.diagnostics()[0], name);
            assert_eq!(fabric.wire, []);
        }
    }
    // A posted write is not answered: the responder goes on and says what it has seen.
    let mut fabric = fabric();
    fabric.b.port.fail = Box::new(|origin| origin.class == Class::PayloadWrite);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    assert_eq!(fabric.b.diagnostics(), ["PayloadFault"]);
    // A receive work request that cannot be read: a SEND needs it, a WRITE with immediate only uses it up.
    for (opcode, here, there) in [(WorkOpcode::SEND, 11, 2), (WorkOpcode::WRITE_IMM, 0, 0)] {
        let mut fabric = self::fabric();
        fabric.b.port.fail = Box::new(|origin| origin.class == Class::RecvWqeFetch);
        fabric.b.post_receive(REMOTE, 64, 0x100);
        fabric.a.send(&Request::new(opcode, 8));
        fabric.run();
        assert_eq!(fabric.a.completions().iter().map(|cqe| cqe.3).collect::<Vec<_>>(), [here], "{opcode:?}");
        assert_eq!(fabric.b.completions().iter().map(|cqe| cqe.3).collect::<Vec<_>>(), [there], "{opcode:?}");
        assert_eq!(fabric.b.diagnostics(), ["ReceiveFetchFault"]);
    }
}
