//! Reliable delivery: loss, going back, refusals of sequence, receivers that are not ready, acknowledgements.

mod rig;

use rig::*;
use rnic_abi::{EventType, WorkOpcode, command::QP_STATE_RTS};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::{Cause, Class};
use rnic_wire::Opcode;

const NAK: u8 = 0x60;
const ACK: u8 = 0x1f;
/// The retry timer of `Attributes::mtu`: 4.096 us << 14.
const TIMEOUT_NS: u64 = 4096 << 14;

fn config() -> EngineConfig {
    EngineConfig::default()
}

/// Four packets of 256 bytes.
fn write_of(length: u32) -> Request {
    Request::new(WorkOpcode::WRITE, length)
}

fn fabric() -> Fabric {
    let mut fabric = Fabric::new(config(), 1);
    fabric.a.port.put(BUFFER, &pattern(0x1_0000, 5));
    fabric
}

fn lose(fabric: &mut Fabric, lost: impl Fn(char, usize) -> bool + 'static) {
    fabric.drop = Box::new(lost);
}

fn delivered(fabric: &mut Fabric, length: usize) {
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, length), &pattern(0x1_0000, 5)[..length]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    assert_eq!(fabric.a.state(), QpState::Rts);
}

#[test]
fn a_lost_packet_is_refused_once_and_everything_from_it_on_is_sent_again() {
    let mut fabric = fabric();
    lose(&mut fabric, |_, number| number == 1);
    fabric.a.send(&write_of(256 * 6));
    fabric.run();
    let again = [1000, 1001, 1002, 1003, 1004, 1005, 1001, 1002, 1003, 1004, 1005];
    assert_eq!(fabric.psns('a'), again);
    assert_eq!(fabric.answers('b'), [(1001, NAK), (1005, ACK)], "one refusal for four packets out of sequence");
    assert_eq!(fabric.b.engine.counters().out_of_seq_request, 4);
    assert_eq!(fabric.b.engine.counters().send_seq_err, 1);
    assert_eq!(fabric.a.engine.counters().rcvd_seq_err, 1);
    assert_eq!(fabric.a.engine.counters().retransmitted_pkts, 5);
    assert_eq!(fabric.b.engine.counters().duplicate_request, 0);
    delivered(&mut fabric, 256 * 6);
}

/// One refusal a gap, not one a connection: what arrives in order ends it.
#[test]
fn a_second_gap_is_refused_as_the_first_was() {
    let mut fabric = fabric();
    // PSN 1001 of the first time, and 1002 of the second: the refusal is the packet between.
    lose(&mut fabric, |from, number| from == 'a' && (number == 1 || number == 8));
    fabric.a.send(&write_of(256 * 6));
    fabric.run();
    assert_eq!(fabric.answers('b'), [(1001, NAK), (1002, NAK), (1005, ACK)]);
    delivered(&mut fabric, 256 * 6);
}

#[test]
fn what_is_sent_again_is_read_again_and_says_so() {
    let mut fabric = fabric();
    fabric.a.send(&write_of(256 * 3));
    // The source changes after the loss: the resend carries what is there then.
    for _ in 0..3 {
        let mut frame = fabric.a.transmit().unwrap();
        frame.seal();
        if fabric.a.count(Class::PayloadRead) != 2 {
            fabric.b.receive(frame);
        }
    }
    fabric.a.port.put(BUFFER + 256, &pattern(256, 77));
    fabric.run();
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000 + 256, 256), pattern(256, 77));
    let attempts: Vec<_> = fabric
        .a
        .port
        .log
        .iter()
        .filter_map(|transfer| match transfer {
            port::Transfer::Read { origin, .. } if origin.class == Class::PayloadRead => match origin.cause {
                Cause::Send { attempt, .. } => Some(attempt),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [0, 0, 0, 1, 1]);
    let opcodes: Vec<_> = fabric.sent_by('a').iter().map(|packet| packet.opcode).collect();
    assert_eq!(opcodes, [Opcode::RC_WRITE_MIDDLE, Opcode::RC_WRITE_LAST], "the message goes on where it was");
}

#[test]
fn a_lost_first_packet_and_a_lost_last_packet_are_recovered() {
    let mut fabric = fabric();
    lose(&mut fabric, |_, number| number == 0);
    fabric.a.send(&write_of(256 * 2));
    fabric.run();
    assert_eq!(fabric.answers('b'), [(1000, NAK), (1001, ACK)]);
    delivered(&mut fabric, 512);

    let mut fabric = self::fabric();
    lose(&mut fabric, |_, number| number == 1);
    fabric.a.send(&write_of(256 * 2));
    fabric.run();
    assert_eq!(fabric.answers('b'), [], "nobody knows of it but the timer");
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1000, 1001], "from the oldest that is not acknowledged");
    assert_eq!(fabric.b.engine.counters().duplicate_request, 1);
    delivered(&mut fabric, 512);
}

#[test]
fn a_lost_acknowledgement_is_given_again_and_nothing_is_done_twice() {
    let mut fabric = fabric();
    lose(&mut fabric, |from, number| from == 'b' && number < 3);
    fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x1000, 0x100);
    fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
    fabric.a.send(&Request::new(WorkOpcode::SEND_IMM, 300));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x12, 0, 0x80, 0)]);
    assert_eq!(fabric.a.completions(), []);
    fabric.b.port.put(BUFFER + 0x8_0000, &[0x77; 300]);
    fabric.b.port.log.clear();
    fabric.run_timers(1);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 2, 0)]);
    assert_eq!(fabric.b.completions(), [], "no second completion");
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 300), [0x77; 300], "no second placement");
    assert_eq!(fabric.b.port.log, [], "a duplicate crosses nothing");
    assert_eq!(fabric.answers('b'), [(1001, ACK), (1001, ACK)], "expected PSN less one, coalesced");
    assert_eq!(fabric.b.engine.counters().duplicate_request, 2);
    assert!(fabric.sent_by('b').iter().all(|packet| packet.msn == 1), "duplicates are not counted");
}

#[test]
fn the_retry_timer_is_exact_and_restarts_with_progress() {
    let mut fabric = fabric();
    lose(&mut fabric, |from, number| from == 'a' && number == 3);
    fabric.a.send(&write_of(256 * 2));
    fabric.run();
    assert_eq!(fabric.a.completions().len(), 1);
    fabric.advance_to(50_000);
    fabric.a.send(&write_of(8));
    fabric.run();
    let due = 50_000 + TIMEOUT_NS;
    fabric.advance_to(due - 1);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1002]);
    fabric.advance_to(due);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1002, 1002]);
    assert_eq!(fabric.a.engine.counters().local_ack_timeout_err, 1);
    assert_eq!(fabric.a.completions().len(), 1);
    // Nothing is outstanding: however much time passes, nothing is sent.
    fabric.advance_to(due * 100);
    assert_eq!(fabric.psns('a').len(), 4);
    assert_eq!(fabric.a.engine.counters().local_ack_timeout_err, 1);
    assert_eq!(fabric.a.engine.poll_timeout(), None);
}

#[test]
fn retries_end_after_retry_cnt_and_progress_restores_them() {
    let mut fabric = fabric();
    lose(&mut fabric, |from, _| from == 'a');
    fabric.a.send(&write_of(8));
    fabric.a.send(&write_of(8));
    fabric.b.post_receive(VIRTUAL, 8, 0x100);
    fabric.run();
    fabric.run_timers(10);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1000, 1001, 1000, 1001, 1000, 1001], "once and three times again");
    assert_eq!(fabric.a.now_ns, 1 + 4 * TIMEOUT_NS);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 12), (0x11, 1, 4, 5)]);
    assert_eq!(fabric.a.state(), QpState::Err);
    let number = rnic_abi::Diagnostic::RetryExceeded.number();
    assert_eq!(fabric.a.events(), [(EventType::QP_FATAL, 0x11, number)]);
    assert_eq!(fabric.a.diagnostics(), ["RetryExceeded"]);
    assert_eq!(fabric.a.engine.counters().retry_exceeded_err, 1);

    // Two timeouts for each of many packets are no end, as long as each gets through at last.
    let mut fabric = self::fabric();
    let mut sent = 0;
    fabric.drop = Box::new(move |from, _| {
        sent += u32::from(from == 'a');
        from == 'a' && sent % 3 != 0
    });
    for _ in 0..8 {
        fabric.a.send(&write_of(8));
        fabric.run();
        fabric.run_timers(2);
    }
    assert_eq!(fabric.a.completions().len(), 8);
    assert_eq!(fabric.a.engine.counters().local_ack_timeout_err, 16);
}

#[test]
fn without_a_timeout_nothing_is_ever_sent_again() {
    let mut fabric = Fabric::with(config(), &Attributes { timeout: 0, ..Attributes::mtu(1) });
    lose(&mut fabric, |from, _| from == 'a');
    fabric.a.send(&write_of(8));
    fabric.run();
    assert_eq!(fabric.a.engine.poll_timeout(), None);
    fabric.advance_to(1 << 60);
    assert_eq!(fabric.psns('a'), [1000]);
}

#[test]
fn sequence_refusals_count_against_the_retries() {
    let mut fabric = Fabric::with(config(), &Attributes { retry_cnt: 2, ..Attributes::mtu(1) });
    fabric.a.send(&write_of(8));
    for left in (0..3).rev() {
        assert!(fabric.a.transmit().is_some());
        let nak = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1000, &[]).aeth(NAK, 0);
        fabric.a.receive(nak.frame());
        assert_eq!(fabric.a.state(), if left > 0 { QpState::Rts } else { QpState::Err });
    }
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 12)]);
    assert_eq!(fabric.a.engine.counters().rcvd_seq_err, 3);
    assert_eq!(fabric.a.diagnostics(), ["RetryExceeded"]);
}

#[test]
fn sequence_numbers_wrap() {
    let attributes = Attributes { psn: 0xff_fffe, ..Attributes::mtu(1) };
    let mut fabric = Fabric::with(config(), &attributes);
    fabric.a.port.put(BUFFER, &pattern(0x1_0000, 5));
    lose(&mut fabric, |from, number| from == 'a' && number == 2);
    fabric.a.send(&write_of(256 * 5));
    fabric.run();
    assert_eq!(fabric.psns('a'), [0xff_fffe, 0xff_ffff, 0, 1, 2, 0, 1, 2]);
    assert_eq!(fabric.answers('b'), [(0, NAK), (2, ACK)]);
    delivered(&mut fabric, 256 * 5);
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
}

/// An acknowledgement can overtake a resend that has not left yet, or whose payload is being read.
#[test]
fn an_acknowledgement_calls_back_a_resend_that_is_not_needed() {
    for held in [false, true] {
        let mut fabric = fabric();
        fabric.a.send(&write_of(256 * 3));
        let frames: Vec<_> = std::iter::from_fn(|| fabric.a.transmit()).collect();
        assert_eq!(frames.len(), 3);
        let nak = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1000, &[]).aeth(NAK, 0);
        fabric.a.receive(nak.frame());
        if held {
            fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
            assert!(fabric.a.transmit().is_none());
            fabric.a.port.hold = Box::new(|_, _| false);
        }
        let ack = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1001, &[]).aeth(ACK, 0);
        fabric.a.receive(ack.frame());
        fabric.a.settle();
        let mut frame = fabric.a.transmit().expect("the last packet is still to be sent again");
        frame.seal();
        let packet = Carried::new('a', frame.bytes(), false);
        assert_eq!((packet.psn, packet.payload), (1002, pattern(0x1_0000, 5)[512..768].to_vec()));
        assert!(fabric.a.transmit().is_none());
    }
}

/// Properties 110 and 111 on the wire of runs with random losses: where a sender goes on, what a receiver refuses.
#[test]
fn go_back_n_holds_on_every_wire() {
    for seed in 0..200u64 {
        let mut state = seed;
        let mut fabric = Fabric::with(config(), &Attributes { retry_cnt: 7, rnr_retry: 7, ..Attributes::mtu(1) });
        fabric.drop = Box::new(move |_, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33 & 7 == 0
        });
        for number in 0..20u32 {
            fabric.a.send(&write_of(1 + number * 97));
        }
        fabric.run();
        fabric.run_timers(200);
        assert_eq!(fabric.a.completions().len(), 20, "seed {seed}");
        check_sender(&fabric, seed);
        check_receiver(&fabric, seed);
    }
}

fn check_sender(fabric: &Fabric, seed: u64) {
    let (mut next, mut highest, mut refused) = (PSN, PSN, None);
    for packet in &fabric.wire {
        if packet.from == 'b' {
            if packet.syndrome == NAK && !packet.lost {
                refused = Some(packet.psn);
            }
            continue;
        }
        let goes_back = packet.psn < next;
        assert!(packet.psn == next || goes_back, "seed {seed}: {} after {next}", packet.psn);
        if goes_back && let Some(psn) = refused {
            assert!(packet.psn <= psn, "seed {seed}: back to {} instead of {psn}", packet.psn);
        }
        refused = None;
        next = packet.psn + 1;
        highest = highest.max(next);
    }
    assert_eq!(next, highest, "seed {seed}: the last round goes to the end");
}

fn check_receiver(fabric: &Fabric, seed: u64) {
    let (mut expected, mut acknowledged, mut refusing) = (PSN, PSN - 1, false);
    for packet in &fabric.wire {
        if packet.from == 'a' {
            if !packet.lost && packet.psn == expected {
                (expected, refusing) = (expected + 1, false);
            }
        } else if packet.syndrome == NAK {
            assert_eq!(packet.psn, expected, "seed {seed}: a refusal names the first that is missing");
            assert!(!refusing, "seed {seed}: one refusal for one gap");
            refusing = true;
        } else {
            assert!(packet.psn < expected, "seed {seed}: {} acknowledged before it came", packet.psn);
            assert!(packet.psn >= acknowledged, "seed {seed}: acknowledgements go back");
            acknowledged = packet.psn;
        }
    }
    assert_eq!(expected, acknowledged + 1, "seed {seed}: in the end all is acknowledged");
}

#[test]
fn a_gather_of_a_resend_that_fails_ends_its_own_message() {
    let mut fabric = fabric();
    lose(&mut fabric, |from, _| from == 'a');
    fabric.a.register(0x200, VIRTUAL, 0x1000, BUFFER, 0, 0);
    let mut second = write_of(8);
    second.elements = vec![(VIRTUAL, 8, 0x200)];
    fabric.a.send(&write_of(8));
    fabric.a.send(&second);
    fabric.a.send(&write_of(8));
    fabric.run();
    fabric.a.deregister(0x200);
    lose(&mut fabric, |_, _| false);
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1002, 1000], "neither the second message nor the third again");
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0), (0x11, 1, 4, 4), (0x11, 2, 4, 5)]);
    assert_eq!(fabric.a.diagnostics(), ["LKeyInvalid"]);
    assert_eq!(fabric.b.state().code(), QP_STATE_RTS);
}
