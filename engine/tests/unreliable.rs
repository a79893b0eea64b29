//! Unreliable connections: messages of many packets, what is lost with a packet, and failures that stay on the send
//! queue.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_wire::{Opcode, Transport};
use zerocopy::IntoBytes;

/// Queue pairs of the unreliable connection.
const A: u32 = 0x13;
const B: u32 = 0x14;
const REMOTE: u64 = VIRTUAL + 0x8_0000;
/// Where it stands in memory.
const TARGET: u64 = BUFFER + 0x8_0000;

fn fabric() -> Fabric {
    with(EngineConfig::default())
}

fn with(config: EngineConfig) -> Fabric {
    let mut fabric = Fabric::new(config, 1);
    let attributes = Attributes::mtu(1);
    fabric.a.create_unreliable(A, (IP_B, B), &attributes);
    fabric.b.create_unreliable(B, (IP_A, A), &attributes);
    fabric.a.port.put(BUFFER, &pattern(0x2000, 9));
    fabric.clear_logs();
    fabric
}

fn request(opcode: WorkOpcode, length: u32) -> Request {
    Request { qpn: Some(A), ..Request::new(opcode, length) }
}

fn state(host: &Host, qpn: u32) -> QpState {
    host.engine.queue_pair_state(qpn).unwrap()
}

#[test]
fn every_message_arrives_whole_and_nothing_comes_back() {
    for length in [0, 1, 255, 256, 257, 1500, 0x1001] {
        for opcode in [WorkOpcode::SEND, WorkOpcode::SEND_IMM, WorkOpcode::WRITE, WorkOpcode::WRITE_IMM] {
            let mut fabric = fabric();
            fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
            fabric.a.send(&request(opcode, length));
            fabric.run();
            let name = format!("{opcode:?} of {length}");
            assert!(fabric.sent_by('b').is_empty(), "{name}");
            assert_eq!(fabric.wire.len(), (length as usize).div_ceil(256).max(1), "{name}");
            for (at, packet) in fabric.sent_by('a').iter().enumerate() {
                assert_eq!(packet.opcode.description().unwrap().transport, Transport::Uc, "{name}");
                assert_eq!((packet.psn, packet.ack_req, packet.dest_qp), (PSN + at as u32, false, B), "{name}");
            }
            assert_eq!(fabric.a.completions(), [(A, 0, opcode.0, 0)], "{name}");
            let (received, with_immediate) = match opcode {
                WorkOpcode::WRITE => (None, false),
                WorkOpcode::WRITE_IMM => (Some(0x81), true),
                other => (Some(0x80), other == WorkOpcode::SEND_IMM),
            };
            let cqe = fabric.b.poll();
            let seen = cqe.map(|cqe| (cqe.opcode, cqe.status, cqe.byte_len.get(), cqe.src_qpn.get()));
            assert_eq!(seen, received.map(|opcode| (opcode, 0, length, A)), "{name}");
            let immediate = cqe.filter(|_| with_immediate).map(|cqe| cqe.immediate.get());
            assert_eq!(immediate, with_immediate.then_some(0x2a), "{name}");
            let expected = pattern(0x2000, 9);
            assert_eq!(fabric.b.port.slice(TARGET, length as usize), &expected[..length as usize], "{name}");
            assert!(fabric.b.port.slice(TARGET + u64::from(length), 8).iter().all(|byte| *byte == 0), "{name}");
            assert_eq!(fabric.a.engine.poll_timeout(), None, "{name}: no timer runs");
        }
    }
}

/// Whichever packets of the first message are lost, it is gone, and the second arrives, in the receive of the first.
#[test]
fn a_lost_packet_costs_its_message_and_no_other() {
    for lost in 1..16u32 {
        for opcode in [WorkOpcode::SEND, WorkOpcode::WRITE_IMM] {
            let mut fabric = fabric();
            fabric.drop = Box::new(move |_, number| number < 4 && lost >> number & 1 != 0);
            fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
            fabric.b.post_receive_of(B, REMOTE + 0x4000, 0x2000, 0x100);
            fabric.a.send(&request(opcode, 1000));
            fabric.a.send(&Request { immediate: 0x77, ..request(WorkOpcode::SEND_IMM, 600) });
            fabric.run();
            assert_eq!(fabric.a.completions().len(), 2, "{lost:04b}: the sender knows nothing");
            let cqe = fabric.b.poll().unwrap_or_else(|| panic!("{lost:04b}: the second message"));
            assert_eq!((cqe.status, cqe.wqe_index.get(), cqe.byte_len.get(), cqe.immediate.get()), (0, 0, 600, 0x77));
            assert_eq!(fabric.b.poll(), None, "{lost:04b}");
            assert_eq!(fabric.b.port.slice(TARGET, 600), &pattern(0x2000, 9)[..600]);
            assert!(fabric.sent_by('b').is_empty(), "{lost:04b}: no NAK");
            assert_eq!((state(&fabric.b, B), fabric.b.diagnostics()), (QpState::Rts, vec![]), "{lost:04b}");
            if lost & 8 == 0 || lost & 7 != 7 {
                assert!(fabric.b.engine.counters().rx_dropped_sequence > 0, "{lost:04b}");
            }
        }
    }
}

/// What a receiver refuses costs the message: no NAK, no state, no receive.
#[test]
fn what_the_receiver_refuses_is_dropped_with_its_message() {
    type Refused = (&'static str, fn(&mut Fabric) -> Request, fn(&rnic_engine::Counters) -> u64);
    let cases: [Refused; 6] = [
        ("no receive", |_| request(WorkOpcode::SEND, 600), |counters| counters.rx_dropped_no_receive),
        (
            "no receive for an immediate",
            |_| request(WorkOpcode::WRITE_IMM, 600),
            |counters| counters.rx_dropped_no_receive,
        ),
        (
            "too long",
            |fabric| {
                fabric.b.post_receive_of(B, REMOTE, 300, 0x100);
                request(WorkOpcode::SEND, 600)
            },
            |counters| counters.rx_dropped_too_long,
        ),
        (
            "rkey",
            |_| Request { remote: (REMOTE, 0x900), ..request(WorkOpcode::WRITE, 600) },
            |counters| counters.rx_dropped_refused,
        ),
        (
            "range",
            |_| Request { remote: (VIRTUAL + BUFFER_BYTES - 599, 0x100), ..request(WorkOpcode::WRITE, 600) },
            |counters| counters.rx_dropped_refused,
        ),
        (
            "right",
            |fabric| {
                let change = fabric.b.attributes(B, QP_STATE_RTS, ATTR_ACCESS_FLAGS);
                fabric.b.modify(&change);
                request(WorkOpcode::WRITE, 600)
            },
            |counters| counters.rx_dropped_refused,
        ),
    ];
    for (name, refuse, counter) in cases {
        let mut fabric = fabric();
        let request = refuse(&mut fabric);
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(counter(fabric.b.engine.counters()), 1, "{name}: one message");
        assert_eq!(fabric.a.completions(), [(A, 0, request.opcode.0, 0)], "{name}");
        assert_eq!((fabric.b.poll(), fabric.sent_by('b').len()), (None, 0), "{name}");
        assert_eq!((state(&fabric.b, B), fabric.b.events(), fabric.b.diagnostics()), (QpState::Rts, vec![], vec![]));
        // The next message is taken, with the receive that the refused one did not use up.
        fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x100);
        if name == "too long" {
            fabric.a.send(&self::request(WorkOpcode::SEND, 300));
        } else {
            fabric.a.send(&self::request(WorkOpcode::SEND, 700));
        }
        fabric.run();
        assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0)], "{name}");
    }
}

/// A first packet inside an open message drops it and begins its own.
#[test]
fn a_new_message_ends_the_open_one() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x100);
    let mut forge = |opcode, psn, bytes: &[u8]| {
        let mut packet = Forged::new(&fabric.b, IP_A, opcode, psn, bytes);
        packet.headers.bth.dest_qp = B;
        fabric.b.receive(packet.frame());
    };
    forge(Opcode::UC_SEND_FIRST, PSN, &[1; 256]);
    forge(Opcode::UC_SEND_FIRST, PSN + 1, &[2; 256]);
    forge(Opcode::UC_SEND_MIDDLE, PSN + 2, &[3; 256]);
    forge(Opcode::UC_WRITE_LAST, PSN + 3, &[4; 4]);
    forge(Opcode::UC_SEND_LAST, PSN + 4, &[4; 4]);
    forge(Opcode::UC_SEND_ONLY, PSN + 9, &[5; 12]);
    let cqe = fabric.b.poll().unwrap();
    assert_eq!((cqe.byte_len.get(), cqe.wqe_index.get(), fabric.b.poll()), (12, 0, None));
    assert_eq!(fabric.b.port.slice(TARGET, 13), [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 2]);
    assert_eq!(state(&fabric.b, B), QpState::Rts);
    assert_eq!(fabric.b.events(), []);
}

/// The failing send has its status, those behind it are flushed; receiving goes on; RTS brings it back.
#[test]
fn a_failed_send_stops_the_send_queue_alone() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
    fabric.a.post_receive_of(A, REMOTE, 0x2000, 0x100);
    fabric.a.post(&request(WorkOpcode::WRITE, 8));
    fabric.a.post(&Request { elements: vec![(VIRTUAL, 8, 0x900)], flags: 0, ..request(WorkOpcode::SEND, 8) });
    fabric.a.post(&Request { flags: 0, ..request(WorkOpcode::SEND, 8) });
    fabric.a.ring_send_of(A);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(A, 0, 4, 0), (A, 1, 1, 4), (A, 2, 1, 5)]);
    assert_eq!((state(&fabric.a, A), fabric.a.diagnostics()), (QpState::Sqe, vec!["LKeyInvalid"]));
    assert_eq!(fabric.a.events(), [], "the completion tells of it");
    fabric.a.send(&request(WorkOpcode::SEND, 8));
    assert_eq!(fabric.a.completions(), [(A, 3, 1, 5)], "posted in SQE");
    // The other direction does not notice.
    fabric.b.send(&Request { qpn: Some(B), ..Request::new(WorkOpcode::SEND, 100) });
    fabric.run();
    assert_eq!(fabric.a.completions(), [(A, 0, 0x80, 0)]);
    fabric.a.modify(&fabric.a.attributes(A, QP_STATE_RTS, 0));
    fabric.a.send(&request(WorkOpcode::SEND, 1000));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(A, 4, 1, 0)]);
    assert!(fabric.b.completions().contains(&(B, 0, 0x80, 0)));
    assert_eq!(state(&fabric.a, A), QpState::Rts);
}

/// A message that fails on its way has sent a part; the receiver drops it and takes the next one.
#[test]
fn a_message_that_fails_on_its_way_is_dropped_by_the_receiver() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
    fabric.a.send(&request(WorkOpcode::SEND, 1000));
    assert!(fabric.a.transmit().is_some_and(|mut frame| {
        frame.seal();
        fabric.b.receive(frame);
        true
    }));
    fabric.a.port.fail = Box::new(|origin| origin.class == Class::PayloadRead);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(A, 0, 1, 4)]);
    assert_eq!(state(&fabric.a, A), QpState::Sqe);
    fabric.a.port.fail = Box::new(|_| false);
    fabric.a.modify(&fabric.a.attributes(A, QP_STATE_RTS, 0));
    fabric.a.send(&request(WorkOpcode::SEND, 300));
    fabric.run();
    let cqe = fabric.b.poll().unwrap();
    assert_eq!((cqe.byte_len.get(), cqe.wqe_index.get(), fabric.b.poll()), (300, 0, None));
}

/// A receive that cannot be used is this side's own fault.
#[test]
fn a_bad_receive_ends_the_queue_pair() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x900);
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
    fabric.a.send(&request(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 4), (B, 1, 0x80, 5)]);
    assert_eq!((state(&fabric.b, B), fabric.sent_by('b').len()), (QpState::Err, 0));
    assert_eq!(fabric.b.events(), [(EventType::QP_FATAL, B, 420)]);
}

#[test]
fn only_the_operations_of_the_transport_are_taken() {
    for opcode in [WorkOpcode::READ, WorkOpcode::FETCH_ADD, WorkOpcode::CMP_SWAP, WorkOpcode::SEND_INV] {
        let mut fabric = fabric();
        fabric.a.send(&request(opcode, 8));
        fabric.run();
        let cqe = fabric.a.poll().unwrap();
        assert_eq!((cqe.status, cqe.vendor_err.get(), cqe.wqe_index.get()), (2, 401, 0), "{opcode:?}");
        assert_eq!((fabric.wire.len(), state(&fabric.a, A)), (0, QpState::Sqe), "{opcode:?}");
    }
}

/// Drained: what has begun ends, what has not waits.
#[test]
fn a_drained_queue_pair_says_so_and_goes_on() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
    fabric.a.send(&request(WorkOpcode::SEND, 1000));
    let mut first = fabric.a.transmit().unwrap();
    first.seal();
    fabric.b.receive(first);
    let mut drain = fabric.a.attributes(A, QP_STATE_SQD, ATTR_EN_SQD_ASYNC_NOTIFY);
    drain.sqd_notify = 1;
    fabric.a.modify(&drain);
    fabric.a.send(&request(WorkOpcode::SEND, 8));
    assert_eq!(fabric.a.events(), []);
    fabric.run();
    assert_eq!(fabric.a.events(), [(EventType::SQ_DRAINED, A, 0)]);
    assert_eq!((fabric.a.completions(), fabric.wire.len()), (vec![(A, 0, 1, 0)], 3));
    fabric.a.modify(&fabric.a.attributes(A, QP_STATE_RTS, 0));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(A, 1, 1, 0)]);
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0)]);
}

/// Contexts of a few entries and reads that come late change nothing of what arrives.
#[test]
fn late_memory_and_small_caches_change_nothing() {
    let config = EngineConfig {
        qp_cache_entries: 1,
        key_cache_entries: 1,
        translation_cache_lines: 1,
        ..EngineConfig::default()
    };
    let mut fabric = with(config);
    for host in [&mut fabric.a, &mut fabric.b] {
        host.flush_caches();
        host.port.hold = Box::new(|_, _| true);
    }
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
    fabric.b.post_receive_of(B, REMOTE + 0x2000, 0x2000, 0x100);
    fabric.a.send(&request(WorkOpcode::SEND, 1000));
    fabric.a.send(&request(WorkOpcode::WRITE_IMM, 600));
    for _ in 0..32 {
        fabric.a.settle();
        fabric.run();
        fabric.b.settle();
    }
    assert_eq!(fabric.a.completions(), [(A, 0, 1, 0), (A, 1, 5, 0)]);
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0), (B, 1, 0x81, 0)]);
}

#[test]
fn the_first_packet_in_rtr_is_an_event() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.create_unreliable(A, (IP_B, B), &Attributes::mtu(1));
    fabric.b.create_qp_of(B, QP_TYPE_UC);
    let mut rtr = fabric.b.rtr_attributes(B, (IP_A, A), &Attributes::mtu(1));
    rtr.mask = (ATTR_STATE | ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN).into();
    fabric.b.modify(&fabric.b.init_attributes(B));
    fabric.b.modify(&rtr);
    fabric.b.post_receive_of(B, REMOTE, 0x2000, 0x100);
    fabric.a.send(&request(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.events(), [(EventType::COMM_EST, B, 0)]);
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0)]);
    fabric.b.must(CommandOpcode::DESTROY_QP, Host::object(B).as_bytes());
}
