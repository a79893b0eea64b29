//! End-to-end credits: what acknowledgements promise, and what a requester sends of what is not promised.

mod rig;

use rig::*;
use rnic_abi::WorkOpcode;
use rnic_engine::EngineConfig;
use rnic_wire::Opcode;

const RNR_NAK: u8 = 0x20 | 12;
const ACK: u8 = 0x1f;

/// Both sides know each other: what B has posted after a first SEND has been told.
fn acquainted(left: usize) -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    post(&mut fabric, left + 1);
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.sent_by('b')[0].credits, Some(left as u32));
    fabric.clear_logs();
    let _ = (fabric.a.completions(), fabric.b.completions());
    fabric
}

fn post(fabric: &mut Fabric, receives: usize) {
    for _ in 0..receives {
        fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x1000, 0x100);
    }
}

/// Frames that A has now, on no wire.
fn leaving(fabric: &mut Fabric) -> Vec<Carried> {
    let frames = std::iter::from_fn(|| fabric.a.transmit());
    frames
        .map(|mut frame| {
            frame.seal();
            Carried::new('a', frame.bytes(), false)
        })
        .collect()
}

#[test]
fn acknowledgements_promise_no_more_than_is_posted() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let requests = [
        (WorkOpcode::WRITE, 600, 0, Some(0)),
        (WorkOpcode::WRITE, 8, 1, Some(1)),
        // There is a code for 4, and none for 5.
        (WorkOpcode::WRITE, 8, 4, Some(4)),
        (WorkOpcode::SEND, 8, 0, Some(4)),
        (WorkOpcode::WRITE_IMM, 600, 0, Some(3)),
        (WorkOpcode::READ, 8, 5, Some(8)),
        (WorkOpcode::FETCH_ADD, 8, 0, Some(8)),
    ];
    for (opcode, length, posted, promised) in requests {
        fabric.wire.clear();
        post(&mut fabric, posted);
        fabric.a.send(&Request::new(opcode, length));
        fabric.run();
        let last = fabric.sent_by('b').last().map(|packet| (packet.syndrome, packet.credits));
        assert_eq!(last, Some((ACK, promised)), "{opcode:?} with {posted} more");
    }
}

#[test]
fn what_is_promised_leaves_and_one_message_to_ask_with() {
    let mut fabric = acquainted(2);
    for _ in 0..6 {
        fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    }
    fabric.run();
    assert_eq!(fabric.psns('a'), [1001, 1002, 1003]);
    assert_eq!(fabric.answers('b').last(), Some(&(1003, RNR_NAK)), "the question is answered with the time to wait");
    // In one go with it come receives enough for the rest.
    post(&mut fabric, 4);
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [1001, 1002, 1003, 1003, 1004, 1005, 1006]);
    assert_eq!(fabric.a.completions().len(), 6);
    assert_eq!(fabric.b.completions().len(), 6);
    assert_eq!(fabric.a.engine.counters().rcvd_rnr_err, 1);
}

#[test]
fn a_question_of_many_packets_sends_its_first_and_asks_for_its_answer() {
    let mut fabric = acquainted(0);
    fabric.a.send(&Request::new(WorkOpcode::SEND, 1024));
    let asked: Vec<_> = leaving(&mut fabric).iter().map(|packet| (packet.opcode, packet.psn, packet.ack_req)).collect();
    assert_eq!(asked, [(Opcode::RC_SEND_FIRST, 1001, true)]);
    // It is lost; asked again when the timer ends, and answered, the rest leaves.
    post(&mut fabric, 1);
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [1001, 1002, 1003, 1004]);
    assert_eq!(fabric.answers('b'), [(1001, ACK), (1004, ACK)]);
    assert_eq!(fabric.a.completions().len(), 1);
}

/// A peer may take the receive of a message that is arriving off its count: what has begun on a promise goes on.
#[test]
fn a_message_that_has_not_asked_waits_for_no_answer() {
    let mut fabric = acquainted(2);
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.a.send(&Request::new(WorkOpcode::SEND, 1024));
    let begun: Vec<_> = (0..2).map(|_| fabric.a.transmit().expect("a packet")).collect();
    assert_eq!(begun.len(), 2);
    let none_left = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1001, &[]).aeth(0x00, 2);
    fabric.a.receive(none_left.frame());
    let rest: Vec<_> = leaving(&mut fabric).iter().map(|packet| packet.psn).collect();
    assert_eq!(rest, [1003, 1004, 1005]);
}

#[test]
fn a_write_with_immediate_is_sent_to_its_end_and_the_next_one_waits() {
    let mut fabric = acquainted(0);
    for _ in 0..2 {
        fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 600));
    }
    let left: Vec<_> = leaving(&mut fabric).iter().map(|packet| packet.psn).collect();
    assert_eq!(left, [1001, 1002, 1003]);
}

#[test]
fn what_takes_no_receive_needs_no_promise() {
    let mut fabric = acquainted(0);
    for opcode in [WorkOpcode::WRITE, WorkOpcode::READ, WorkOpcode::FETCH_ADD, WorkOpcode::SEND, WorkOpcode::WRITE] {
        fabric.a.send(&Request::new(opcode, 8));
    }
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    assert_eq!(leaving(&mut fabric).len(), 5, "the second SEND is not promised, and the first is the question");
}

#[test]
fn whoever_promises_nothing_holds_nobody_back() {
    let mut fabric = acquainted(0);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    assert_eq!(leaving(&mut fabric).len(), 1);
    let silent = Forged::new(&fabric.a, IP_B, Opcode::RC_ACKNOWLEDGE, 1001, &[]).aeth(0x1f, 2);
    fabric.a.receive(silent.frame());
    for _ in 0..4 {
        fabric.a.send(&Request::new(WorkOpcode::SEND, 600));
    }
    assert_eq!(leaving(&mut fabric).len(), 12);
}
