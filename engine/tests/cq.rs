//! Completion queues that are full, and armed ones; event queues that are full.

mod rig;

use rig::*;
use rnic_abi::doorbell;
use rnic_abi::{Diagnostic, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;

fn fabric_of(log_cq: u8) -> Fabric {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    for host in [&mut fabric.a, &mut fabric.b] {
        host.log_cq = log_cq;
        host.bring_up();
    }
    fabric.connect(&Attributes::mtu(1));
    fabric
}

fn write() -> Request {
    Request::new(WorkOpcode::WRITE, 8)
}

fn send(fabric: &mut Fabric, count: usize) {
    for _ in 0..count {
        fabric.a.send(&write());
    }
    fabric.run();
}

#[test]
fn a_queue_that_is_polled_is_asked_once_a_round_and_never_overrun() {
    let mut fabric = fabric_of(2);
    for index in 0..40u16 {
        send(&mut fabric, 1);
        assert_eq!(fabric.a.completions(), [(0x11, index, 4, 0)]);
    }
    assert_eq!(fabric.a.count(Class::RecordFetch), 9, "each time that four more look unpolled");
    assert_eq!(fabric.a.count(Class::CqeWrite), 40);
}

#[test]
fn a_full_queue_is_asked_once_and_then_overrun() {
    for held in [false, true] {
        let mut fabric = fabric_of(2);
        fabric.connect_another(1, &Attributes::mtu(1));
        send(&mut fabric, 4);
        let full = fabric.a.port.slice(CQ, 4 * 64).to_vec();
        if held {
            fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::RecordFetch);
        }
        fabric.a.port.log.clear();
        send(&mut fabric, 3);
        fabric.a.settle();
        fabric.run();
        assert_eq!(fabric.a.count(Class::RecordFetch), 1);
        assert_eq!(fabric.a.port.slice(CQ, 4 * 64), full, "nothing is overwritten");
        assert_eq!(fabric.a.port.slice(CQ + 4 * 64, 64), [0; 64], "nor written behind the ring");
        let number = Diagnostic::CqOverrun.number();
        let mut events = fabric.a.events();
        assert_eq!(events.remove(0), (EventType::CQ_ERR, 3, number));
        events.sort_by_key(|event| event.1);
        assert_eq!(events, [(EventType::QP_FATAL, 0x11, number), (EventType::QP_FATAL, 0x12, number)]);
        assert_eq!(fabric.a.diagnostics(), ["CqOverrun"]);
        assert_eq!(fabric.a.engine.counters().cqe_lost, 3);
        for qpn in [0x11, 0x12] {
            assert_eq!(fabric.a.engine.queue_pair_state(qpn), Some(QpState::Err));
        }
        assert_eq!(fabric.b.state(), QpState::Rts);
        // Polling does not revive it.
        fabric.a.completions();
        send(&mut fabric, 1);
        assert_eq!((fabric.a.completions(), fabric.a.events()), (vec![], vec![]));
    }
}

#[test]
fn a_record_that_an_arm_made_needless_is_not_used_later() {
    let mut fabric = fabric_of(2);
    send(&mut fabric, 4);
    assert!((0..2).all(|_| fabric.a.poll().is_some()));
    fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::RecordFetch);
    send(&mut fabric, 1);
    assert_eq!(fabric.a.port.held.len(), 1, "the queue looks full, and its record is on its way");
    // The arm says as much as the record will.
    fabric.a.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(3, 2, 1, false));
    fabric.a.settle();
    fabric.a.port.hold = Box::new(|_, _| false);
    assert_eq!(fabric.a.completions().len(), 3);
    for _ in 0..3 {
        send(&mut fabric, 1);
        assert_eq!(fabric.a.completions().len(), 1, "an old record would make the queue overrun");
    }
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
}

#[test]
fn a_record_that_says_nonsense_says_nothing() {
    let mut fabric = fabric_of(2);
    send(&mut fabric, 4);
    for _ in 0..4 {
        fabric.a.poll();
    }
    fabric.a.port.put(RECORD, &u32::MAX.to_le_bytes());
    send(&mut fabric, 1);
    assert_eq!(fabric.a.diagnostics(), ["CqOverrun"]);
}

#[test]
fn a_record_or_a_ring_that_does_not_answer_fails_the_queue() {
    for class in [Class::RecordFetch, Class::CqeWrite] {
        let mut fabric = fabric_of(2);
        send(&mut fabric, if class == Class::RecordFetch { 4 } else { 0 });
        fabric.a.port.fail = Box::new(move |origin| origin.class == class);
        send(&mut fabric, 1);
        let number = Diagnostic::CqRingFault.number();
        assert_eq!(fabric.a.events(), [(EventType::CQ_ERR, 3, number), (EventType::QP_FATAL, 0x11, number)]);
        assert_eq!(fabric.a.diagnostics(), ["CqRingFault"]);
    }
}

/// A CQ context that leaves its cache while the consumer record is on its way.
#[test]
fn a_record_is_not_lost_with_the_context() {
    let mut fabric = Fabric::unconnected(EngineConfig { cq_cache_entries: 1, ..EngineConfig::default() });
    fabric.a.log_cq = 2;
    fabric.a.bring_up();
    fabric.b.bring_up();
    fabric.a.create_cq(4, CQ + PAGE, RECORD + 8);
    fabric.connect(&Attributes::mtu(1));
    send(&mut fabric, 4);
    assert_eq!(fabric.a.completions().len(), 4);
    fabric.a.port.hold = Box::new(|_, _| true);
    fabric.a.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(4, 0, 1, false));
    fabric.a.send(&write());
    for step in 0..200 {
        fabric.run();
        if fabric.a.port.held.is_empty() {
            break;
        }
        if step % 3 == 0 {
            fabric.a.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(4, 0, step as u8, false));
        }
        fabric.a.release(0);
    }
    assert_eq!(fabric.a.completions(), [(0x11, 4, 4, 0)]);
    assert_eq!(fabric.a.state(), QpState::Rts);
}

/// One host that receives; its driver arms and looks at events.
struct Armed {
    fabric: Fabric,
    sequence: u8,
}

impl Armed {
    fn new() -> Self {
        let mut fabric = fabric_of(6);
        for _ in 0..20 {
            fabric.b.post_receive(VIRTUAL, 64, 0x100);
        }
        Self { fabric, sequence: 0 }
    }

    fn arm(&mut self, solicited_only: bool) {
        self.sequence = (self.sequence + 1) & 3;
        self.arm_again(solicited_only);
    }

    fn arm_again(&mut self, solicited_only: bool) {
        let value = doorbell::cq_arm(3, self.fabric.b.cq_consumer, self.sequence, solicited_only);
        self.fabric.b.ring(doorbell::DB_CQ_ARM, value);
    }

    fn message(&mut self, solicited: bool) {
        let mut request = Request::new(WorkOpcode::SEND, 8);
        request.flags |= if solicited { rnic_abi::work_request::WQE_SOLICITED } else { 0 };
        self.fabric.a.send(&request);
        self.fabric.run();
    }

    /// Events since the last call: how many.
    fn events(&mut self) -> usize {
        let events = self.fabric.b.events();
        assert!(events.iter().all(|event| (event.0, event.1) == (EventType::COMPLETION, 3)), "{events:?}");
        events.len()
    }

    fn poll_all(&mut self) {
        self.fabric.b.completions();
    }
}

#[test]
fn an_arm_is_for_one_event() {
    let mut armed = Armed::new();
    armed.message(false);
    assert_eq!(armed.events(), 0, "not armed");
    armed.poll_all();
    armed.arm(false);
    assert_eq!(armed.events(), 0, "everything was polled");
    armed.message(false);
    armed.message(false);
    assert_eq!(armed.events(), 1);
    armed.poll_all();
    armed.arm(false);
    armed.message(false);
    assert_eq!(armed.events(), 1);
}

#[test]
fn an_arm_that_has_not_seen_everything_fires_at_once() {
    let mut armed = Armed::new();
    armed.message(false);
    armed.arm(false);
    assert_eq!(armed.events(), 1);
    armed.message(true);
    assert_eq!(armed.events(), 0);
    // For solicited ones: the unseen one that is solicited counts, the others do not.
    armed.arm(true);
    assert_eq!(armed.events(), 1);
    armed.poll_all();
    armed.message(false);
    armed.arm(true);
    assert_eq!(armed.events(), 0);
    armed.message(true);
    assert_eq!(armed.events(), 1);
}

#[test]
fn solicited_arms_fire_for_solicited_and_failed_completions_only() {
    let mut armed = Armed::new();
    armed.arm(true);
    armed.message(false);
    assert_eq!(armed.events(), 0);
    armed.message(true);
    assert_eq!(armed.events(), 1);
    armed.poll_all();
    armed.arm(true);
    // A completed send is never solicited.
    armed.fabric.b.send(&Request { flags: 3, ..write() });
    armed.fabric.run();
    assert_eq!(armed.events(), 0);
    let qp_error = armed.fabric.b.attributes(0x12, rnic_abi::command::QP_STATE_ERR, 0);
    armed.fabric.b.modify(&qp_error);
    assert_eq!(armed.events(), 1, "a flushed receive is a failed completion");
}

#[test]
fn an_arm_for_more_upgrades_and_an_arm_for_less_does_not_downgrade() {
    let mut armed = Armed::new();
    armed.arm(true);
    armed.arm_again(false);
    armed.message(false);
    assert_eq!(armed.events(), 1);
    armed.poll_all();
    armed.arm(false);
    armed.arm_again(true);
    armed.message(false);
    assert_eq!(armed.events(), 1);
}

#[test]
fn stale_and_wrong_arms_are_named_and_ignored() {
    let mut armed = Armed::new();
    armed.arm(false);
    armed.message(false);
    assert_eq!(armed.events(), 1);
    armed.poll_all();
    // The sequence has fired already.
    armed.arm_again(false);
    assert_eq!(armed.fabric.b.diagnostics(), ["ArmStale"]);
    armed.message(false);
    assert_eq!(armed.events(), 0);
    let ahead = doorbell::cq_arm(3, armed.fabric.b.cq_consumer + 5, armed.sequence + 1, false);
    armed.fabric.b.ring(doorbell::DB_CQ_ARM, ahead);
    assert_eq!(armed.fabric.b.diagnostics(), ["ArmConsumerAhead"]);
    armed.message(false);
    assert_eq!(armed.events(), 0);
    armed.arm(false);
    assert_eq!(armed.events(), 1, "the next one in sequence counts, and finds unpolled entries");
}

#[test]
fn an_arm_waits_for_the_context_of_its_queue() {
    let mut armed = Armed::new();
    armed.fabric.b.flush_caches();
    armed.fabric.b.port.hold = Box::new(|_, ranges| ranges[0].iova.0 == CQ_TABLE + 3 * 64);
    armed.arm(false);
    armed.message(false);
    assert_eq!((armed.events(), armed.fabric.b.port.held.len()), (0, 1));
    armed.fabric.b.settle();
    assert_eq!(armed.events(), 1);
    assert_eq!(armed.fabric.b.completions().len(), 1);
}

#[test]
fn an_event_queue_raises_its_vector_once_an_update() {
    let mut armed = Armed::new();
    let vectors = |armed: &Armed| {
        let raised = |t: &&port::Transfer| matches!(t, port::Transfer::Event { vector: Some(0), .. });
        armed.fabric.b.port.log.iter().filter(raised).count()
    };
    for round in 0..3 {
        armed.fabric.b.port.log.clear();
        armed.fabric.b.ring(doorbell::DB_EQ_UPDATE, doorbell::eq_update(0, armed.fabric.b.eq_consumer, true));
        armed.poll_all();
        armed.arm(false);
        armed.message(false);
        assert_eq!((armed.events(), vectors(&armed)), (1, 1), "round {round}");
        armed.poll_all();
        armed.arm(false);
        armed.message(false);
        assert_eq!((armed.events(), vectors(&armed)), (1, 1), "round {round}: not again before an update");
    }
    // An update that has not seen the newest entry raises the vector at once.
    armed.fabric.b.port.log.clear();
    armed.fabric.b.ring(doorbell::DB_EQ_UPDATE, doorbell::eq_update(0, armed.fabric.b.eq_consumer - 1, true));
    assert_eq!(vectors(&armed), 1);
}

#[test]
fn a_full_event_queue_loses_events_and_says_so_and_goes_on() {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.b.log_eq = 1;
    fabric.a.bring_up();
    fabric.b.bring_up();
    fabric.connect(&Attributes::mtu(1));
    for index in 0..4u8 {
        fabric.b.post_receive(VIRTUAL, 64, 0x100);
        fabric.b.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(3, fabric.b.cq_consumer, (1 + index) & 3, false));
        fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
        fabric.run();
        fabric.b.completions();
    }
    assert_eq!(fabric.b.diagnostics(), ["EqOverrun", "EqOverrun"]);
    assert_eq!(fabric.b.engine.counters().eqe_lost, 2);
    assert_eq!(fabric.b.events().len(), 2);
    fabric.b.ring(doorbell::DB_EQ_UPDATE, doorbell::eq_update(0, fabric.b.eq_consumer, false));
    fabric.b.post_receive(VIRTUAL, 64, 0x100);
    fabric.b.ring(doorbell::DB_CQ_ARM, doorbell::cq_arm(3, fabric.b.cq_consumer, 1, false));
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.events(), [(EventType::COMPLETION, 3, 4)]);
}
