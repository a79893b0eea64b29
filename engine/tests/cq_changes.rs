//! Completion queues that change under traffic: another ring, and events that are held back.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::doorbell::{DB_CQ_ARM, cq_arm};
use rnic_abi::{CommandOpcode, Cqe, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use zerocopy::{FromBytes, IntoBytes};

const NEW: u64 = CQ + 0x8000;

fn resize(host: &mut Host, log_entries: u8, at: u64) -> Result<u32, (u8, &'static str)> {
    let mut body = ResizeCq::zeroed();
    (body.cqn, body.log_entries, body.pages) = (3.into(), log_entries, pages(at, 0));
    let (status, diagnostic, answer) = host.command(CommandOpcode::RESIZE_CQ, body.as_bytes());
    if status == 0 {
        return Ok(CqPosition::read_from_prefix(&answer).unwrap().0.first_index.get());
    }
    Err((status, rnic_abi::diagnostic::rule(diagnostic).unwrap().name))
}

/// The entry of an index in the ring that begins with `first`, if it has been written.
fn entry(host: &Host, at: u64, log_entries: u8, first: u32, index: u32) -> Option<Cqe> {
    let number = index.wrapping_sub(first);
    let place = at + u64::from(number & ((1 << log_entries) - 1)) * 64;
    let cqe = Cqe::read_from_bytes(host.port.slice(place, 64)).unwrap();
    (cqe.phase.get() & 1 == 1 - (number >> log_entries & 1)).then_some(cqe)
}

fn writes(fabric: &mut Fabric, count: usize) {
    for _ in 0..count {
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        fabric.run();
    }
}

#[test]
fn entries_stand_in_the_old_ring_up_to_the_first_of_the_new_one() {
    for log_entries in [2, 6, 7] {
        let mut fabric = Fabric::new(EngineConfig::default(), 1);
        writes(&mut fabric, 5);
        assert_eq!(fabric.a.completions().len(), 5);
        writes(&mut fabric, 10);
        let first = resize(&mut fabric.a, log_entries, NEW).unwrap();
        assert_eq!(first, 15);
        let rest: Vec<u16> = std::iter::from_fn(|| fabric.a.poll()).map(|cqe| cqe.wqe_index.get()).collect();
        assert_eq!(rest, (5..15).collect::<Vec<u16>>(), "what was not polled is where it was");
        // Three times around, polled as it comes.
        let around = 3 << log_entries;
        for index in first..first + around {
            writes(&mut fabric, 1);
            let cqe = entry(&fabric.a, NEW, log_entries, first, index).expect("in the new ring");
            assert_eq!(u32::from(cqe.wqe_index.get()), index);
            fabric.a.port.put(RECORD, &(index + 1).to_le_bytes());
        }
        assert_eq!(fabric.a.diagnostics(), Vec::<&str>::new());
    }
}

#[test]
fn what_is_left_in_the_old_ring_takes_no_place_in_the_new_one() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    writes(&mut fabric, 20);
    let first = resize(&mut fabric.a, 2, NEW).unwrap();
    writes(&mut fabric, 4);
    assert!((20..24).all(|index| entry(&fabric.a, NEW, 2, first, index).is_some()));
    assert_eq!(fabric.a.diagnostics(), Vec::<&str>::new());
    writes(&mut fabric, 1);
    assert_eq!(fabric.a.diagnostics(), ["CqOverrun"], "four entries, none polled");
    assert_eq!(resize(&mut fabric.a, 6, CQ), Err((5, "ObjectBusy")), "a queue that has failed");
}

#[test]
fn arms_and_contexts_in_host_memory_go_on_over_a_resize() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let mut cq = CreateCq::zeroed();
    (cq.cqn, cq.log_entries, cq.pages, cq.eqn) = (4.into(), 4, pages(CQ + 0x4000, 0), 0.into());
    cq.consumer_record = (RECORD + 64).into();
    fabric.a.must(CommandOpcode::CREATE_CQ, cq.as_bytes());
    writes(&mut fabric, 3);
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 3, 1, false));
    let first = resize(&mut fabric.a, 3, NEW).unwrap();
    assert_eq!(fabric.a.events(), []);
    fabric.a.flush_caches();
    writes(&mut fabric, 1);
    assert_eq!(fabric.a.events(), [(EventType::COMPLETION, 3, 3)]);
    assert!(entry(&fabric.a, NEW, 3, first, 3).is_some());
}

#[test]
fn a_resize_that_is_wrong_changes_nothing() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    assert_eq!(resize(&mut fabric.a, 23, NEW), Err((2, "ParameterRange")));
    assert_eq!(resize(&mut fabric.a, 6, NEW + 8), Err((2, "PageListInvalid")));
    let mut missing = ResizeCq::zeroed();
    (missing.cqn, missing.pages) = (9.into(), pages(NEW, 0));
    assert_eq!(fabric.a.try_command(CommandOpcode::RESIZE_CQ, missing.as_bytes()), (3, "ObjectMissing"));
    writes(&mut fabric, 2);
    assert_eq!(fabric.a.completions().len(), 2, "in the ring that it had");
}

fn moderate(host: &mut Host, count: u16, period_us: u16) {
    let body = ModifyCq { cqn: 3.into(), count: count.into(), period_us: period_us.into(), reserved: 0.into() };
    host.must(CommandOpcode::MODIFY_CQ, body.as_bytes());
}

/// A completion of this queue was told of.
fn told(host: &mut Host) -> usize {
    host.events().iter().filter(|event| event.0 == EventType::COMPLETION).count()
}

#[test]
fn an_event_waits_for_enough_entries_or_long_enough() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    moderate(&mut fabric.a, 3, 50);
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
    writes(&mut fabric, 2);
    assert_eq!((told(&mut fabric.a), fabric.a.completions().len()), (0, 2), "the entries are there");
    writes(&mut fabric, 1);
    assert_eq!(told(&mut fabric.a), 1, "three");
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 3, 2, false));
    writes(&mut fabric, 1);
    let due = fabric.a.now_ns + 50_000;
    assert!(fabric.a.engine.poll_timeout().is_some_and(|next| next <= due));
    fabric.a.advance_to(due - 1);
    assert_eq!(told(&mut fabric.a), 0);
    fabric.a.advance_to(due);
    assert_eq!(told(&mut fabric.a), 1, "one, after its time");
    fabric.a.advance_to(due + 1_000_000);
    assert_eq!(told(&mut fabric.a), 0, "one event an arm");
}

#[test]
fn an_event_that_is_held_back_comes_with_other_values_and_not_for_what_was_polled() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    moderate(&mut fabric.a, 10, 1000);
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
    writes(&mut fabric, 1);
    assert_eq!(told(&mut fabric.a), 0);
    moderate(&mut fabric.a, 0, 0);
    assert_eq!(told(&mut fabric.a), 1);
    moderate(&mut fabric.a, 10, 1000);
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 1, 2, false));
    writes(&mut fabric, 1);
    // The driver has polled it meanwhile and asks for the next one.
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 2, 2, false));
    fabric.a.advance_to(fabric.a.now_ns + 10_000_000);
    assert_eq!(told(&mut fabric.a), 0);
}
