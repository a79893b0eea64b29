//! The error state, draining, reset and the reuse of numbers.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::{EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_wire::Opcode;

fn fabric() -> Fabric {
    Fabric::new(EngineConfig::default(), 1)
}

fn write() -> Request {
    Request::new(WorkOpcode::WRITE, 8)
}

fn to_state(host: &mut Host, state: u8) {
    let change = host.attributes(host.qpn, state, 0);
    host.modify(&change);
}

#[test]
fn everything_posted_completes_flushed_in_order() {
    let mut fabric = fabric();
    fabric.drop = Box::new(|_, _| true);
    for _ in 0..3 {
        fabric.a.send(&Request { flags: 0, ..write() });
        fabric.a.post_receive(VIRTUAL, 64, 0x100);
    }
    fabric.run();
    assert_eq!(fabric.a.completions(), []);
    to_state(&mut fabric.a, QP_STATE_ERR);
    let sends = (0..3).map(|index| (0x11, index, 4, 5));
    let receives = (0..3).map(|index| (0x11, index, 0x80, 5));
    assert_eq!(fabric.a.completions(), sends.chain(receives).collect::<Vec<_>>(), "unsignaled ones as well");
    assert_eq!(fabric.a.events(), [], "the driver asked for it");
    let sent = fabric.psns('a').len();
    fabric.run_timers(20);
    assert_eq!(fabric.psns('a').len(), sent, "nothing is sent again");
}

#[test]
fn what_is_posted_in_the_error_state_completes_flushed_as_well() {
    let mut fabric = fabric();
    to_state(&mut fabric.a, QP_STATE_ERR);
    for index in 0..70u16 {
        fabric.a.send(&write());
        fabric.a.post_receive(VIRTUAL, 64, 0x100);
        assert_eq!(fabric.a.completions(), [(0x11, index, 4, 5), (0x11, index, 0x80, 5)]);
    }
    fabric.run();
    assert_eq!(fabric.wire, []);
}

#[test]
fn what_was_rung_and_not_read_is_read_to_be_flushed() {
    let mut fabric = fabric();
    fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::WqeFetch);
    for _ in 0..40 {
        fabric.a.post(&write());
    }
    fabric.a.ring_send();
    fabric.a.port.hold = Box::new(|_, _| false);
    let change = fabric.a.attributes(0x11, QP_STATE_ERR, 0);
    fabric.a.start_command(rnic_abi::CommandOpcode::MODIFY_QP, zerocopy::IntoBytes::as_bytes(&change));
    assert_eq!(fabric.a.completions(), []);
    fabric.a.settle();
    assert_eq!(fabric.a.completions(), (0..40).map(|index| (0x11, index, 4, 5)).collect::<Vec<_>>());
}

/// A ring of 32,768 requests is flushed in steps: one of them alone must not hold the device for long.
#[test]
fn a_long_queue_is_flushed_step_by_step() {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.a.log_cq = 16;
    fabric.a.bring_up();
    let mut qp = fabric.a.new_qp(0x12);
    (qp.log_rq_entries, qp.rq_pages) = (15, pages(port::BASE + 0x60_0000, 0));
    fabric.a.must(rnic_abi::CommandOpcode::CREATE_QP, zerocopy::IntoBytes::as_bytes(&qp));
    fabric.a.modify(&fabric.a.init_attributes(0x12));
    let value = rnic_abi::doorbell::queue_doorbell(0x12, 1 << 15);
    fabric.a.ring(rnic_abi::doorbell::DB_RECEIVE, value);
    // The completion ring takes the place of the buffer: 65,536 entries of 64 bytes.
    let change = fabric.a.attributes(0x12, QP_STATE_ERR, 0);
    fabric.a.port.log.clear();
    fabric.a.modify(&change);
    let mut steps = 1;
    loop {
        let written = fabric.a.count(Class::CqeWrite);
        assert!(written <= 256, "{written} in one step");
        let Some(due) = fabric.a.engine.poll_timeout() else { break };
        fabric.a.port.log.clear();
        fabric.a.advance_to(due);
        steps += 1;
    }
    assert_eq!(steps, 32_768 / 256 + 1);
    assert_eq!(fabric.a.completions().len(), 32_768);
}

#[test]
fn a_flush_waits_with_its_completion_queue_and_goes_on() {
    let mut fabric = fabric();
    fabric.drop = Box::new(|_, _| true);
    for _ in 0..60 {
        fabric.a.post(&write());
        fabric.a.post_receive(VIRTUAL, 64, 0x100);
    }
    fabric.a.ring_send();
    fabric.run();
    // 64 entries hold the sends and four receives: then the consumer record has to be read.
    fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::RecordFetch);
    let change = fabric.a.attributes(0x11, QP_STATE_ERR, 0);
    fabric.a.start_command(rnic_abi::CommandOpcode::MODIFY_QP, zerocopy::IntoBytes::as_bytes(&change));
    assert_eq!(fabric.a.port.held.len(), 1);
    assert_eq!(fabric.a.completions().len(), 64);
    fabric.a.settle();
    fabric.run_timers(3);
    let rest = fabric.a.completions();
    assert_eq!(rest, (4..60).map(|index| (0x11, index, 0x80, 5)).collect::<Vec<_>>());
    assert_eq!(fabric.a.count(Class::RecordFetch), 1);
}

#[test]
fn a_drain_finishes_what_has_begun_and_tells() {
    let mut fabric = fabric();
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 256 * 3));
    fabric.a.send(&write());
    let mut first = fabric.a.transmit().expect("the message begins");
    let mut sqd = fabric.a.attributes(0x11, QP_STATE_SQD, ATTR_EN_SQD_ASYNC_NOTIFY);
    sqd.sqd_notify = 1;
    fabric.a.modify(&sqd);
    assert_eq!(fabric.a.events(), [], "the first message is not finished");
    first.seal();
    fabric.b.receive(first);
    fabric.run();
    assert_eq!(fabric.psns('a'), [1001, 1002], "the first message is, the second has not begun");
    assert_eq!(fabric.a.events(), [(EventType::SQ_DRAINED, 0x11, 0)]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    // The receiving half goes on, and what is posted meanwhile waits.
    fabric.a.send(&write());
    fabric.b.send(&write());
    fabric.run();
    assert_eq!((fabric.b.completions(), fabric.a.completions()), (vec![(0x12, 0, 4, 0)], vec![]));
    to_state(&mut fabric.a, QP_STATE_RTS);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 1, 4, 0), (0x11, 2, 4, 0)]);
    assert_eq!(fabric.a.events(), []);
}

#[test]
fn a_drain_tells_at_once_when_nothing_is_outstanding_and_nothing_begins_behind_it() {
    let mut fabric = fabric();
    fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
    fabric.a.send(&write());
    assert!(fabric.a.transmit().is_none(), "its payload is being read");
    let mut sqd = fabric.a.attributes(0x11, QP_STATE_SQD, ATTR_EN_SQD_ASYNC_NOTIFY);
    sqd.sqd_notify = 1;
    fabric.a.start_command(rnic_abi::CommandOpcode::MODIFY_QP, zerocopy::IntoBytes::as_bytes(&sqd));
    assert_eq!(fabric.a.events(), [(EventType::SQ_DRAINED, 0x11, 0)]);
    fabric.a.port.hold = Box::new(|_, _| false);
    fabric.a.settle();
    fabric.run();
    assert_eq!(fabric.wire, []);
    to_state(&mut fabric.a, QP_STATE_RTS);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
}

#[test]
fn reset_drops_everything_without_a_completion() {
    let mut fabric = fabric();
    fabric.drop = Box::new(|_, _| true);
    fabric.a.send(&write());
    fabric.a.post_receive(VIRTUAL, 64, 0x100);
    fabric.run();
    fabric.a.post(&write());
    fabric.a.ring_send();
    to_state(&mut fabric.a, QP_STATE_RESET);
    fabric.wire.clear();
    fabric.run_timers(10);
    assert_eq!((fabric.a.completions(), fabric.a.events(), fabric.psns('a')), (vec![], vec![], vec![]));
    assert_eq!(fabric.a.engine.poll_timeout(), None);
    // The numbers begin anew: indices of the rings, PSNs, message counts.
    fabric.drop = Box::new(|_, _| false);
    to_state(&mut fabric.b, QP_STATE_RESET);
    fabric.a.indices.clear();
    fabric.connect(&Attributes { psn: 5, ..Attributes::mtu(1) });
    fabric.a.send(&write());
    fabric.run();
    assert_eq!(fabric.psns('a'), [5]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
}

#[test]
fn packets_of_an_earlier_life_do_not_match() {
    let mut fabric = fabric();
    fabric.a.send(&write());
    let mut old_request = fabric.a.transmit().unwrap();
    old_request.seal();
    fabric.b.receive(old_request.clone());
    let mut old_answer = fabric.b.transmit().unwrap();
    old_answer.seal();
    for host in [&mut fabric.a, &mut fabric.b] {
        let qpn = host.qpn;
        host.destroy_qp(qpn);
        host.create_qp(qpn);
    }
    assert_eq!(fabric.a.engine.poll_timeout(), None, "the old timer is gone");
    fabric.b.receive(old_request.clone());
    assert_eq!(fabric.b.engine.counters().rx_dropped_state, 1);
    fabric.connect(&Attributes { psn: 70_000, ..Attributes::mtu(1) });
    fabric.a.send(&write());
    let mut kept = fabric.a.transmit().unwrap();
    fabric.a.receive(old_answer);
    assert_eq!(fabric.a.engine.counters().ghost_acks, 1);
    fabric.b.port.log.clear();
    fabric.b.receive(old_request);
    assert_eq!(fabric.b.port.log, [], "taken for a duplicate, and not executed");
    kept.seal();
    fabric.b.receive(kept);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
}

#[test]
fn nothing_is_left_of_a_destroyed_queue_pair() {
    let mut fabric = fabric();
    fabric.b.post_receive(VIRTUAL, 64, 0x100);
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    let mut request = fabric.a.transmit().unwrap();
    request.seal();
    fabric.b.receive(request.clone());
    assert!(fabric.b.engine.has_output(), "an answer is owed");
    fabric.b.destroy_qp(0x12);
    fabric.a.destroy_qp(0x11);
    for host in [&mut fabric.a, &mut fabric.b] {
        assert!(!host.engine.has_output());
        assert!(host.transmit().is_none());
        assert_eq!(host.engine.poll_timeout(), None);
    }
    fabric.b.receive(request);
    assert_eq!(fabric.b.engine.counters().rx_dropped_no_qp, 1);
    assert_eq!(fabric.b.engine.queue_pair_state(0x12), None);
}

#[test]
fn the_error_state_is_entered_once_and_left_by_reset_only() {
    let mut fabric = fabric();
    let gap = Forged::new(&fabric.a, IP_B, Opcode::RC_SEND_LAST, PSN, &[1; 8]);
    fabric.a.receive(gap.frame());
    fabric.a.receive(gap.frame());
    assert_eq!(fabric.a.events().len(), 1);
    to_state(&mut fabric.a, QP_STATE_ERR);
    assert_eq!((fabric.a.events(), fabric.a.state()), (vec![], QpState::Err));
    let rts = fabric.a.attributes(0x11, QP_STATE_RTS, 0);
    let refused = fabric.a.try_command(rnic_abi::CommandOpcode::MODIFY_QP, zerocopy::IntoBytes::as_bytes(&rts));
    assert_eq!(refused, (rnic_abi::CommandStatus::BAD_STATE.0, "ModifyTransition"));
    to_state(&mut fabric.a, QP_STATE_RESET);
    assert_eq!(fabric.a.state(), QpState::Reset);
}
