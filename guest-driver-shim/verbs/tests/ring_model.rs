//! Ring arithmetic against a plain queue, over every wrap of the 16-bit indices.

use crate::verbs::ring::{Retired, WorkRing};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::collections::VecDeque;

fn body(log_slots: u8, steps: &[(bool, u16)]) -> Result<(), TestCaseError> {
    let mut ring = WorkRing::new(log_slots);
    let mut model: VecDeque<(u16, u16, u64)> = VecDeque::new();
    let mut next = 0u16;
    for (wr_id, (post, amount)) in steps.iter().enumerate() {
        let used: u32 = model.iter().map(|(_, slots, _)| u32::from(*slots)).sum();
        if *post {
            let slots = amount % 4 + 1;
            let expected = (used + u32::from(slots) <= 1 << log_slots).then_some(next);
            prop_assert_eq!(ring.reserve(slots, wr_id as u64), expected);
            if expected.is_some() {
                model.push_back((next, slots, wr_id as u64));
                next = next.wrapping_add(slots);
            }
        } else if !model.is_empty() {
            let which = usize::from(*amount) % model.len();
            let (first, slots, wr_id) = model[which];
            if slots > 1 {
                // The middle of an entry is nobody's first slot.
                prop_assert_eq!(ring.complete(first.wrapping_add(1)), None);
            }
            prop_assert_eq!(ring.complete(first), Some(Retired { wr_id, entries: which as u16 + 1 }));
            model.drain(..=which);
            prop_assert_eq!(ring.complete(first), None);
        } else {
            prop_assert_eq!(ring.complete(*amount), None);
        }
    }
    Ok(())
}

#[test]
fn rings_are_queues() {
    let mut runner = TestRunner::new(Config { cases: 2000, failure_persistence: None, ..Config::default() });
    let steps = proptest::collection::vec((any::<bool>(), any::<u16>()), 0..400);
    runner.run(&(0u8..6, steps), |(log_slots, steps)| body(log_slots, &steps)).unwrap();
}

#[test]
fn the_largest_ring_fills_to_the_last_slot_across_the_wrap() {
    let mut ring = WorkRing::new(15);
    for round in 0..5u64 {
        for wr_id in 0..1 << 15 {
            ring.reserve(1, wr_id).unwrap();
        }
        assert_eq!((ring.free_slots(), ring.reserve(1, 0)), (0, None), "round {round}");
        let newest = ring.producer().wrapping_sub(1);
        let all = Retired { wr_id: (1 << 15) - 1, entries: 1 << 15 };
        assert_eq!(ring.complete(newest), Some(all));
        assert_eq!(ring.free_slots(), 1 << 15);
    }
}
