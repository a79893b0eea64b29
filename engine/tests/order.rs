//! Nothing overtakes what it tells of, nothing waits that need not, and nothing comes after an answer that ends it.

mod rig;

use rig::port::Transfer;
use rig::*;
use rnic_abi::command::*;
use rnic_abi::registers::REG_CONTROL;
use rnic_abi::{CommandOpcode, WorkOpcode, doorbell};
use rnic_engine::{Block, EngineConfig};
use rnic_pcie::Class;
use zerocopy::IntoBytes;

fn fabric() -> Fabric {
    Fabric::new(EngineConfig::default(), 1)
}

fn hold(host: &mut Host, class: Class) {
    host.port.hold = Box::new(move |origin, _| origin.class == class);
}

fn hold_none(host: &mut Host) {
    host.port.hold = Box::new(|_, _| false);
}

fn classes(host: &Host) -> Vec<Class> {
    host.port.log.iter().map(Transfer::class).collect()
}

fn arm(host: &mut Host) {
    host.ring(doorbell::DB_EQ_UPDATE, doorbell::eq_update(0, 0, true));
    host.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(3, 0, 1, false));
}

/// Whichever read is late: payload before completion before event, and the message behind its entry.
#[test]
fn payload_completion_event_and_message_come_in_this_order_whatever_is_late() {
    let late = [Class::ContextFetch, Class::KeyFetch, Class::TranslationFetch, Class::RecvWqeFetch, Class::RecordFetch];
    for opcode in [WorkOpcode::SEND, WorkOpcode::WRITE_IMM] {
        for class in late {
            let mut fabric = fabric();
            fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x1000, 0x100);
            arm(&mut fabric.b);
            fabric.b.flush_caches();
            fabric.b.port.log.clear();
            hold(&mut fabric.b, class);
            fabric.a.send(&Request::new(opcode, 700));
            for _ in 0..100 {
                fabric.run();
                if fabric.b.port.held.is_empty() {
                    break;
                }
                fabric.b.release(0);
            }
            let written: Vec<_> = classes(&fabric.b)
                .into_iter()
                .filter(|class| matches!(class, Class::PayloadWrite | Class::CqeWrite | Class::Event))
                .collect();
            let payload = Class::PayloadWrite;
            assert_eq!(written, [payload, payload, payload, Class::CqeWrite, Class::Event], "{opcode:?} {class:?}");
            assert!(fabric.b.port.log.iter().any(|t| matches!(t, Transfer::Event { bytes: 16, vector: Some(0), .. })));
        }
    }
}

/// The ring of events is a list that is not in the cache: events wait for its line, behind the completion.
#[test]
fn an_event_waits_for_its_ring_and_keeps_its_place() {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.a.bring_up();
    fabric.b.bring_up();
    let mut eq = CreateEq::zeroed();
    (eq.eqn, eq.log_entries, eq.pages) = (1.into(), 4, pages(LISTS + 0x3_0000, 1));
    fabric.b.port.put(LISTS + 0x3_0000, &(EQ + PAGE).to_le_bytes());
    fabric.b.must(CommandOpcode::CREATE_EQ, eq.as_bytes());
    let mut cq = CreateCq::zeroed();
    (cq.cqn, cq.eqn, cq.log_entries, cq.pages) = (4.into(), 1.into(), 6, pages(CQ + PAGE, 0));
    cq.consumer_record = RECORD.into();
    fabric.b.must(CommandOpcode::CREATE_CQ, cq.as_bytes());
    fabric.b.destroy_qp(0x12);
    let mut qp = fabric.b.new_qp(0x12);
    qp.receive_cqn = 4.into();
    fabric.b.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    fabric.connect(&Attributes::mtu(1));
    fabric.b.ring(doorbell::DB_EQ_UPDATE, doorbell::eq_update(1, 0, true));
    fabric.b.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(4, 0, 1, false));
    fabric.b.post_receive(VIRTUAL, 64, 0x100);
    fabric.b.flush_caches();
    fabric.b.port.log.clear();
    fabric.b.port.hold = Box::new(|_, ranges| ranges[0].iova.0 == LISTS + 0x3_0000);
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.count(Class::CqeWrite), 1);
    assert_eq!(fabric.b.count(Class::Event), 0);
    fabric.b.settle();
    assert_eq!(fabric.b.count(Class::Event), 1);
    assert_eq!(fabric.b.port.slice(EQ + PAGE, 1), [0], "a completion event");
    assert_eq!(fabric.b.port.slice(EQ + PAGE + 12, 1), [1], "with its phase");
}

/// Bytes of the payload are there when the completion is written, not only in the order of submission.
#[test]
fn the_replay_entry_and_the_timer_exist_in_the_step_that_hands_the_frame_over() {
    for late in [false, true] {
        let mut fabric = fabric();
        if late {
            hold(&mut fabric.a, Class::PayloadRead);
        }
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        fabric.a.engine.watch_blocks(true);
        assert_eq!(fabric.a.engine.poll_timeout(), None);
        if late {
            assert!(fabric.a.transmit().is_none());
            assert_eq!(fabric.a.engine.poll_timeout(), None, "no timer for a packet that has not left");
            fabric.a.settle();
        }
        let now = fabric.a.now_ns;
        assert!(fabric.a.transmit().is_some());
        assert_eq!(fabric.a.engine.poll_timeout(), Some(now + (4096 << 14)));
        let blocks: Vec<_> = fabric.a.engine.block_touches().iter().map(|touch| touch.block).collect();
        let last = &blocks[blocks.len() - 3..];
        assert_eq!(last, [Block::TxPacketBuild, Block::ReplayBuffer, Block::RetryTimer]);
        // And so an acknowledgement in the next step finds them.
        let ack = Forged::new(&fabric.a, IP_B, rnic_wire::Opcode::RC_ACKNOWLEDGE, PSN, &[]).aeth(0x1f, 1);
        fabric.a.receive(ack.frame());
        assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    }
}

#[test]
fn placement_does_not_wait_for_the_receive_request_nor_it_for_placement() {
    let mut fabric = fabric();
    for _ in 0..3 {
        fabric.b.post_receive(VIRTUAL, 0, 0x100);
    }
    fabric.b.port.log.clear();
    hold(&mut fabric.b, Class::RecvWqeFetch);
    for _ in 0..3 {
        fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 8));
    }
    fabric.run();
    let payload = Class::PayloadWrite;
    assert_eq!(classes(&fabric.b), [payload, Class::RecvWqeFetch, payload, payload]);
    assert_eq!(fabric.a.completions().len(), 3, "all are acknowledged");
    fabric.b.settle();
    let completions = fabric.b.completions();
    assert_eq!(completions, [(0x12, 0, 0x81, 0), (0x12, 1, 0x81, 0), (0x12, 2, 0x81, 0)]);
}

#[test]
fn one_queue_pair_waits_and_the_others_go_on() {
    let mut fabric = fabric();
    fabric.connect_another(1, &Attributes::mtu(1));
    fabric.b.register(0x200, VIRTUAL, 0x1000, BUFFER, 1, all_rights());
    fabric.b.flush_caches();
    let mut slow = Request::new(WorkOpcode::WRITE, 8);
    slow.remote = (VIRTUAL, 0x200);
    fabric.a.send(&slow);
    fabric.b.port.hold = Box::new(|_, ranges| ranges[0].iova.0 == KEY_TABLE + 2 * 64);
    fabric.run();
    for _ in 0..5 {
        fabric.a.send(&Request { qpn: Some(0x12), ..Request::new(WorkOpcode::WRITE, 8) });
    }
    fabric.run();
    assert_eq!(fabric.a.completions(), (0..5).map(|index| (0x12, index, 4, 0)).collect::<Vec<_>>());
    fabric.b.settle();
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
}

fn start(host: &mut Host, opcode: CommandOpcode, number: u32) {
    host.start_command(opcode, Host::object(number).as_bytes());
}

#[test]
fn an_invalidated_key_waits_for_the_reads_that_it_allowed() {
    let mut fabric = fabric();
    hold(&mut fabric.a, Class::PayloadRead);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    assert!(fabric.a.transmit().is_none());
    start(&mut fabric.a, CommandOpcode::DEREGISTER_KEY, 0x100);
    assert!(!fabric.a.is_answered());
    // Nobody uses it any more from now on.
    fabric.b.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x12, 0, 4, 10)]);
    fabric.a.settle();
    assert!(fabric.a.is_answered());
    fabric.a.port.log.clear();
    fabric.run();
    assert_eq!(fabric.a.count(Class::PayloadRead), 0);
}

/// Destroys an object while each kind of read on its behalf is in flight.
#[test]
fn no_transfer_of_a_queue_pair_comes_after_its_end() {
    for class in [Class::WqeFetch, Class::PayloadRead, Class::ContextFetch, Class::RecvWqeFetch, Class::KeyFetch] {
        for reset in [false, true] {
            let mut fabric = fabric();
            fabric.a.post_receive(VIRTUAL + 0x8_0000, 64, 0x100);
            fabric.a.flush_caches();
            hold(&mut fabric.a, class);
            fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
            fabric.b.send(&Request::new(WorkOpcode::SEND, 8));
            fabric.run();
            assert!(!fabric.a.port.held.is_empty(), "{class:?}");
            fabric.a.completions();
            let change = fabric.a.attributes(0x11, QP_STATE_RESET, 0);
            match reset {
                true => fabric.a.start_command(CommandOpcode::MODIFY_QP, change.as_bytes()),
                false => start(&mut fabric.a, CommandOpcode::DESTROY_QP, 0x11),
            }
            hold_none(&mut fabric.a);
            // A key's fill is on nobody's behalf.
            assert_eq!(fabric.a.is_answered(), class == Class::KeyFetch, "{class:?}");
            fabric.a.settle();
            assert!(fabric.a.is_answered());
            fabric.a.port.log.clear();
            fabric.run();
            fabric.run_timers(3);
            let of_it = |class: &Class| {
                matches!(class, Class::WqeFetch | Class::PayloadRead | Class::PayloadWrite | Class::RecvWqeFetch)
            };
            assert!(!classes(&fabric.a).iter().any(of_it), "{class:?}: {:?}", classes(&fabric.a));
            assert_eq!(fabric.a.completions(), [], "{class:?}");
        }
    }
}

/// A's last completion waits for a read: of its queue's context, or of the consumer record.
fn completion_that_waits(class: Class) -> Fabric {
    let mut fabric = fabric();
    for _ in 0..64 {
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        fabric.run();
    }
    fabric.a.flush_caches();
    let at = if class == Class::RecordFetch { RECORD } else { CQ_TABLE + 3 * 64 };
    fabric.a.port.hold = Box::new(move |_, ranges| ranges[0].iova.0 == at);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.a.port.held.len(), 1, "{class:?}");
    fabric
}

#[test]
fn no_transfer_of_a_completion_queue_comes_after_its_end() {
    for class in [Class::ContextFetch, Class::RecordFetch] {
        let mut fabric = completion_that_waits(class);
        start(&mut fabric.a, CommandOpcode::DESTROY_QP, 0x11);
        assert!(!fabric.a.is_answered(), "{class:?}: its last completion would come later");
        start(&mut fabric.a, CommandOpcode::DESTROY_CQ, 3);
        hold_none(&mut fabric.a);
        fabric.a.settle();
        assert!(fabric.a.is_answered(), "{class:?}");
        fabric.a.port.log.clear();
        fabric.run();
        assert_eq!(fabric.a.count(Class::CqeWrite), 0);
    }
}

/// The number may belong to another one then: what its completion would be taken for.
#[test]
fn no_completion_of_a_queue_pair_comes_after_it_is_reset() {
    for class in [Class::ContextFetch, Class::RecordFetch] {
        let mut fabric = completion_that_waits(class);
        let reset = fabric.a.attributes(0x11, QP_STATE_RESET, 0);
        fabric.a.start_command(CommandOpcode::MODIFY_QP, reset.as_bytes());
        assert!(!fabric.a.is_answered(), "{class:?}");
        hold_none(&mut fabric.a);
        fabric.a.settle();
        assert!(fabric.a.is_answered(), "{class:?}");
        fabric.a.port.log.clear();
        fabric.run();
        fabric.run_timers(5);
        assert_eq!(fabric.a.count(Class::CqeWrite), 0, "{class:?}");
    }
}

#[test]
fn a_reset_discards_everything_and_late_answers_find_nobody() {
    for class in Class::ALL.iter().copied().filter(|class| class.direction() == rnic_pcie::Direction::DeviceRead) {
        let mut fabric = fabric();
        fabric.a.post_receive(VIRTUAL, 64, 0x100);
        fabric.a.flush_caches();
        hold(&mut fabric.a, class);
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        fabric.b.send(&Request::new(WorkOpcode::SEND, 8));
        start(&mut fabric.a, CommandOpcode::QUERY_QP, 0x11);
        fabric.run();
        fabric.a.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
        assert!(!fabric.a.engine.is_enabled());
        fabric.a.port.log.clear();
        while !fabric.a.port.held.is_empty() {
            fabric.a.release(0);
        }
        fabric.run();
        fabric.run_timers(3);
        assert_eq!(fabric.a.port.log, [], "{class:?}: dirty contexts are not written either");
        assert_eq!(fabric.a.engine.object_counts(), [0; 5]);
    }
}
