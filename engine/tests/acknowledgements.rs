//! Acknowledgements: receivers that are not ready, ghosts, counts, what is asked for and what is merged.

mod rig;

use rig::*;
use rnic_abi::WorkOpcode;
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_wire::Opcode;

const NAK: u8 = 0x60;
const ACK: u8 = 0x1f;

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

#[test]
fn a_receiver_that_is_not_ready_is_tried_again_after_its_time() {
    let mut fabric = fabric();
    fabric.a.send(&Request::new(WorkOpcode::SEND, 300));
    fabric.run();
    // Timer code 12 is 0.64 ms; the second packet was out of sequence because of the first, and is not refused.
    assert_eq!(fabric.answers('b'), [(1000, 0x20 | 12)]);
    assert_eq!(fabric.sent_by('b')[0].msn, 0);
    assert_eq!(fabric.b.engine.counters().send_rnr_err, 1);
    assert_eq!(fabric.a.engine.counters().rcvd_rnr_err, 1);
    assert_eq!(fabric.b.port.log, [], "decided on indices");
    fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x1000, 0x100);
    fabric.advance_to(1 + 640_000 - 1);
    assert_eq!(fabric.psns('a'), [1000, 1001]);
    fabric.advance_to(1 + 640_000);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1000, 1001]);
    assert_eq!(fabric.b.completions(), [(0x12, 0, 0x80, 0)]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 1, 0)]);
    assert_eq!(fabric.a.engine.counters().local_ack_timeout_err, 0, "the retry timer does not run meanwhile");
}

#[test]
fn a_write_with_immediate_finds_no_receive_at_its_last_packet_only() {
    let mut fabric = fabric();
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 256 * 3));
    fabric.run();
    assert_eq!(fabric.answers('b'), [(1002, 0x20 | 12)]);
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 512), &pattern(0x1_0000, 5)[..512], "what came before is placed");
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [1000, 1001, 1002, 1002]);
    assert_eq!(fabric.b.completions(), [(0x12, 0, 0x81, 0)]);
}

#[test]
fn rnr_retries_end_unless_they_are_infinite() {
    let mut fabric = Fabric::with(config(), &Attributes { rnr_retry: 2, ..Attributes::mtu(1) });
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    fabric.run_timers(10);
    assert_eq!(fabric.psns('a'), [1000, 1000, 1000]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 1, 13)]);
    assert_eq!(fabric.a.state(), QpState::Err);
    assert_eq!(fabric.a.diagnostics(), ["RnrRetryExceeded"]);
    assert_eq!(fabric.b.state(), QpState::Rts, "the responder has done nothing wrong");

    let mut fabric = Fabric::with(config(), &Attributes { rnr_retry: 7, ..Attributes::mtu(1) });
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    fabric.run_timers(100);
    assert_eq!(fabric.psns('a').len(), 101);
    fabric.b.post_receive(VIRTUAL, 8, 0x100);
    fabric.run_timers(1);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 1, 0)]);
}

#[test]
fn every_rnr_timer_code_waits_its_time() {
    let ms = [
        655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92, 2.56, 3.84,
        5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
    ];
    for (code, ms) in ms.into_iter().enumerate() {
        let attributes = Attributes { min_rnr_timer: code as u8, ..Attributes::mtu(1) };
        let mut fabric = Fabric::with(config(), &attributes);
        fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
        fabric.run();
        let wait_ns = (ms * 1e6_f64).round() as u64;
        fabric.advance_to(wait_ns);
        assert_eq!(fabric.psns('a').len(), 1, "code {code}");
        fabric.advance_to(1 + wait_ns);
        assert_eq!(fabric.psns('a').len(), 2, "code {code}");
    }
}

#[test]
fn acknowledgements_of_what_is_not_outstanding_are_ghosts() {
    let mut fabric = fabric();
    fabric.a.send(&write_of(8));
    let _kept = fabric.a.transmit().unwrap();
    for psn in [999, 1001, 1000 + (1 << 22), 0] {
        let ghost = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, psn, &[]).aeth(ACK, 1);
        fabric.a.receive(ghost.frame());
    }
    for syndrome in [NAK, 0x61, 0x62, 0x63, 0x20] {
        let ghost = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1001, &[]).aeth(syndrome, 1);
        fabric.a.receive(ghost.frame());
    }
    assert_eq!(fabric.a.engine.counters().ghost_acks, 9);
    assert_eq!((fabric.a.completions(), fabric.a.state()), (vec![], QpState::Rts));
    // Reserved classes and unknown refusals of what is outstanding say nothing either.
    for syndrome in [0x40, 0x5f, 0x64, 0x7f, 0x80, 0xff] {
        let odd = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1000, &[]).aeth(syndrome, 0);
        fabric.a.receive(odd.frame());
    }
    assert_eq!((fabric.a.completions(), fabric.a.state()), (vec![], QpState::Rts));
    let ack = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1000, &[]).aeth(ACK, 1);
    fabric.a.receive(ack.frame());
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
}

#[test]
fn a_message_count_that_disagrees_is_diagnosed_and_the_psn_decides() {
    for (msn, named) in [(0, 1), (1, 0), (2, 1), (0x80_0000, 1)] {
        let mut fabric = fabric();
        fabric.a.send(&write_of(8));
        let _kept = fabric.a.transmit().unwrap();
        let ack = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1000, &[]).aeth(ACK, msn);
        fabric.a.receive(ack.frame());
        assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)], "msn {msn}");
        assert_eq!(fabric.a.diagnostics(), vec!["MsnDisagrees"; named], "msn {msn}");
        assert_eq!(fabric.a.engine.counters().msn_mismatch, named as u64, "msn {msn}");
    }
}

#[test]
fn acknowledgements_that_wait_become_one() {
    let mut fabric = fabric();
    for _ in 0..10 {
        fabric.a.send(&write_of(8));
    }
    fabric.run();
    assert_eq!(fabric.answers('b'), [(1009, ACK)]);
    assert_eq!(fabric.sent_by('b')[0].msn, 10);
    assert_eq!(fabric.a.completions().len(), 10);
}

#[test]
fn a_refusal_that_waits_is_not_replaced_by_an_acknowledgement_of_less() {
    let mut fabric = fabric();
    fabric.a.send(&write_of(8));
    fabric.run();
    fabric.wire.clear();
    // A gap, then a duplicate, before the responder has had room to answer.
    let gap = Forged::new(&fabric.b, IP_A, Opcode::RC_WRITE_ONLY, 1003, &[1; 8]).reth(VIRTUAL, 0x100, 8);
    let duplicate = Forged::new(&fabric.b, IP_A, Opcode::RC_WRITE_ONLY, 1000, &[1; 8]).reth(VIRTUAL, 0x100, 8);
    fabric.b.receive(gap.frame());
    fabric.b.receive(duplicate.frame());
    let answer = fabric.b.transmit().map(|mut frame| {
        frame.seal();
        Carried::new('b', frame.bytes(), false)
    });
    assert_eq!(answer.map(|answer| (answer.psn, answer.syndrome)), Some((1001, NAK)));
    assert!(fabric.b.transmit().is_none());
}

#[test]
fn a_long_message_asks_for_acknowledgements_on_its_way_and_stays_in_its_window() {
    let mut fabric = Fabric::new(EngineConfig { window_packets: 64, ..config() }, 1);
    fabric.a.send(&write_of(256 * 200));
    let mut outstanding = 0;
    while let Some(mut frame) = fabric.a.transmit() {
        frame.seal();
        fabric.wire.push(Carried::new('a', frame.bytes(), false));
        outstanding += 1;
        fabric.b.receive(frame);
    }
    assert_eq!(outstanding, 64);
    assert_eq!(fabric.wire.iter().filter(|packet| packet.ack_req).count(), 2);
    fabric.run();
    assert_eq!(fabric.sent_by('a').len(), 200);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
}

#[test]
fn solicited_messages_say_so_in_their_last_packet() {
    let solicited = rnic_abi::work_request::WQE_SOLICITED | rnic_abi::work_request::WQE_SIGNALED;
    let expected = [
        (WorkOpcode::SEND, vec![false, true]),
        (WorkOpcode::SEND_IMM, vec![false, true]),
        (WorkOpcode::WRITE, vec![false, false]),
        (WorkOpcode::WRITE_IMM, vec![false, true]),
    ];
    for (opcode, bits) in expected {
        let mut fabric = fabric();
        fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x1000, 0x100);
        fabric.a.send(&Request { flags: solicited, ..Request::new(opcode, 300) });
        fabric.run();
        let seen: Vec<_> = fabric.sent_by('a').iter().map(|packet| packet.solicited).collect();
        assert_eq!(seen, bits, "{opcode:?}");
        let flags = fabric.b.poll().map(|cqe| cqe.flags.get() & rnic_abi::completion::CQE_SOLICITED != 0);
        assert_eq!(flags, (opcode != WorkOpcode::WRITE).then_some(true), "{opcode:?}");
    }
}
