//! Marks: places in the stream of crossings that the driver names, by writing a value to its MARK register.
//!
//! Two marks enclose what a driver wants to measure. Each keeps the ledger as it was right before and right after the
//! write itself, so that the writes of the marks are not part of what lies between; how the totals of queues went on since
//! the mark before it; and what the Ethernet function had counted, which the adapter adds: that function stands still
//! while the RNIC's accesses are served.

use rnic_abi::registers::REG_MARK;
use rnic_engine::Counters;
use rnic_pcie::Link;
use rnic_pcie::ledger::Ledger;
use rnic_pcie::queue_totals::{QueueChange, QueueShares};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Marks that are kept; older ones go.
const KEPT: usize = 128;
/// Changes of queues that all marks together keep, about 21 MB; those of older marks go.
const CHANGES_KEPT: usize = 1 << 16;

/// What has been counted up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Of the latest crossing.
    pub sequence: u64,
    pub ledger: Ledger,
    /// Send work requests that ended.
    pub finished_sends: u64,
    /// Messages of peers that were executed.
    pub executed_messages: u64,
}

impl Reading {
    pub fn of(link: &Link, counters: &Counters) -> Self {
        Self {
            sequence: link.last_sequence(),
            ledger: link.ledger().snapshot(),
            finished_sends: counters.finished_sends,
            executed_messages: counters.executed_messages,
        }
    }
}

/// One write to the MARK register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub value: u64,
    pub time_ns: u64,
    pub before: Reading,
    pub after: Reading,
    /// Queues that have changed since the mark before; none where they are not kept.
    pub queues: Option<Arc<[QueueChange]>>,
    /// The Ethernet function's ledger.
    pub ethernet: Option<Ledger>,
}

/// What two marks enclose.
#[derive(Clone, Debug)]
pub struct MarkSpan {
    pub first: Mark,
    pub last: Mark,
    /// Mark by mark, oldest first; none where a part of it is not kept.
    changes: Option<Vec<Arc<[QueueChange]>>>,
}

/// The latest marks, in order.
#[derive(Debug, Default)]
pub struct Marks {
    marks: VecDeque<Mark>,
    lost: u64,
    /// Changes of queues in all of them.
    changes: usize,
}

impl Marks {
    pub fn push(&mut self, mark: Mark) {
        if self.marks.len() == KEPT
            && let Some(oldest) = self.marks.pop_front()
        {
            self.lost += 1;
            self.changes -= oldest.queues.map_or(0, |queues| queues.len());
        }
        self.changes += mark.queues.as_ref().map_or(0, |queues| queues.len());
        self.marks.push_back(mark);
        for mark in &mut self.marks {
            if self.changes <= CHANGES_KEPT {
                break;
            }
            self.changes -= mark.queues.take().map_or(0, |queues| queues.len());
        }
    }

    /// Adds the Ethernet function's ledger to the marks that do not have it yet.
    #[inline]
    pub fn complete(&mut self, ethernet: &Ledger) {
        for mark in self.marks.iter_mut().rev().take_while(|mark| mark.ethernet.is_none()) {
            mark.ethernet = Some(ethernet.snapshot());
        }
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// Marks that were left out because newer ones came.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// From the newest mark `first` before it to the newest mark `last`; or the value of which there is none.
    pub fn between(&self, first: u64, last: u64) -> Result<MarkSpan, u64> {
        let until = self.marks.iter().rposition(|mark| mark.value == last).ok_or(last)?;
        let from = self.marks.iter().take(until).rposition(|mark| mark.value == first).ok_or(first)?;
        Ok(MarkSpan {
            first: self.marks[from].clone(),
            last: self.marks[until].clone(),
            changes: self.marks.range(from + 1..=until).map(|mark| mark.queues.clone()).collect(),
        })
    }
}

impl MarkSpan {
    /// The totals at both ends of the queues that have changed between; none where a part of it is not kept.
    pub fn queues(&self) -> Option<BTreeMap<u32, (QueueShares, QueueShares)>> {
        let mut queues = BTreeMap::new();
        for change in self.changes.as_ref()?.iter().flat_map(|changes| changes.iter()) {
            queues.entry(change.queue).or_insert((change.from, change.until)).1 = change.until;
        }
        Some(queues)
    }
}

/// The access is to the MARK register, or to a half of it.
pub(super) fn is_mark(offset: u64) -> bool {
    offset & !7 == u64::from(REG_MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(value: u64, sequence: u64) -> Mark {
        let reading =
            |sequence| Reading { sequence, ledger: Ledger::default(), finished_sends: 0, executed_messages: 0 };
        Mark {
            value,
            time_ns: 0,
            before: reading(sequence - 1),
            after: reading(sequence),
            queues: Some([].into()),
            ethernet: None,
        }
    }

    fn shares(crossings: u64) -> QueueShares {
        let mut shares = QueueShares::default();
        shares[0].crossings = crossings;
        shares
    }

    fn changed(value: u64, changes: &[(u32, u64, u64)]) -> Mark {
        let change =
            |(queue, from, until): &_| QueueChange { queue: *queue, from: shares(*from), until: shares(*until) };
        Mark { queues: Some(changes.iter().map(change).collect()), ..mark(value, value) }
    }

    #[test]
    fn the_newest_pair_in_order_is_found_and_what_is_missing_is_named() {
        let mut marks = Marks::default();
        [(1, 10), (2, 20), (1, 30), (2, 40), (1, 50)].into_iter().for_each(|(value, at)| marks.push(mark(value, at)));
        let found =
            |first, last| marks.between(first, last).map(|span| (span.first.after.sequence, span.last.before.sequence));
        assert_eq!(found(1, 2), Ok((30, 39)));
        assert_eq!(found(2, 1), Ok((40, 49)));
        assert_eq!(found(1, 1), Ok((30, 49)));
        assert_eq!(found(3, 1).map(|_| ()), Err(3));
        assert_eq!(found(1, 3).map(|_| ()), Err(3));
    }

    #[test]
    fn queues_are_followed_from_mark_to_mark() {
        let mut marks = Marks::default();
        marks.push(changed(1, &[(5, 0, 7), (6, 0, 1)]));
        marks.push(changed(2, &[(5, 7, 8)]));
        marks.push(changed(3, &[(5, 8, 12), (9, 0, 2)]));
        let between = |first, last| -> Vec<_> {
            let queues = marks.between(first, last).expect("marks").queues().expect("kept");
            queues.iter().map(|(queue, (from, until))| (*queue, from[0].crossings, until[0].crossings)).collect()
        };
        assert_eq!(between(1, 3), [(5, 7, 12), (9, 0, 2)], "what came before the first mark is not in it");
        assert_eq!(between(1, 2), [(5, 7, 8)]);
        assert_eq!(between(2, 3), [(5, 8, 12), (9, 0, 2)]);
    }

    #[test]
    fn changes_of_queues_are_bounded_and_a_span_with_a_hole_says_so() {
        let mut marks = Marks::default();
        let many = |value| {
            let changes: Vec<_> = (0..CHANGES_KEPT as u32 / 2).map(|queue| (queue, value, value + 1)).collect();
            changed(value, &changes)
        };
        (1..=4).for_each(|value| marks.push(many(value)));
        assert_eq!(marks.changes, CHANGES_KEPT);
        assert!(marks.between(1, 4).expect("marks").queues().is_none());
        assert!(marks.between(2, 4).expect("marks").queues().is_some());
        (0..KEPT as u64).for_each(|value| marks.push(mark(value + 10, value + 10)));
        assert_eq!(marks.changes, 0, "with the mark goes what it kept");
    }

    #[test]
    fn the_ethernet_functions_ledger_is_added_once() {
        let mut marks = Marks::default();
        marks.push(mark(1, 1));
        marks.complete(&Ledger::default());
        marks.push(mark(2, 2));
        assert!(marks.iter().map(|mark| mark.ethernet.is_some()).eq([true, false]));
        marks.complete(&Ledger::default());
        assert!(marks.iter().all(|mark| mark.ethernet.is_some()));
    }

    #[test]
    fn marks_are_bounded_and_what_is_lost_is_counted() {
        let mut marks = Marks::default();
        (0..KEPT as u64 + 5).for_each(|value| marks.push(mark(value, value + 1)));
        assert_eq!((marks.iter().count(), marks.lost()), (KEPT, 5));
        assert_eq!(marks.iter().next().map(|mark| mark.value), Some(5));
    }
}
