//! Marks: places in the stream of crossings that the driver names, by writing a value to its MARK register.
//!
//! Two marks enclose what a driver wants to measure. Each keeps the ledger as it was right before and right after the
//! write itself, so that the writes of the marks are not part of what lies between.

use rnic_abi::registers::REG_MARK;
use rnic_engine::Counters;
use rnic_pcie::Link;
use rnic_pcie::ledger::Ledger;
use std::collections::VecDeque;

/// Marks that are kept; older ones go.
const KEPT: usize = 128;

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
}

/// The latest marks, in order.
#[derive(Debug, Default)]
pub struct Marks {
    marks: VecDeque<Mark>,
    lost: u64,
}

impl Marks {
    pub fn push(&mut self, mark: Mark) {
        if self.marks.len() == KEPT {
            self.marks.pop_front();
            self.lost += 1;
        }
        self.marks.push_back(mark);
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// Marks that were left out because newer ones came.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The newest mark `last`, and the newest mark `first` before it.
    pub fn between(&self, first: u64, last: u64) -> Result<(&Mark, &Mark), u64> {
        let at = self.marks.iter().rposition(|mark| mark.value == last).ok_or(last)?;
        let earlier = self.marks.iter().take(at).rev().find(|mark| mark.value == first);
        earlier.map(|earlier| (earlier, &self.marks[at])).ok_or(first)
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
        Mark { value, time_ns: 0, before: reading(sequence - 1), after: reading(sequence) }
    }

    #[test]
    fn the_newest_pair_in_order_is_found_and_what_is_missing_is_named() {
        let mut marks = Marks::default();
        [(1, 10), (2, 20), (1, 30), (2, 40), (1, 50)].into_iter().for_each(|(value, at)| marks.push(mark(value, at)));
        let found = |first, last| marks.between(first, last).map(|(a, b)| (a.after.sequence, b.before.sequence));
        assert_eq!(found(1, 2), Ok((30, 39)));
        assert_eq!(found(2, 1), Ok((40, 49)));
        assert_eq!(found(1, 1), Ok((30, 49)));
        assert_eq!(found(3, 1), Err(3));
        assert_eq!(found(1, 3), Err(3));
    }

    #[test]
    fn marks_are_bounded_and_what_is_lost_is_counted() {
        let mut marks = Marks::default();
        (0..KEPT as u64 + 5).for_each(|value| marks.push(mark(value, value + 1)));
        assert_eq!((marks.iter().count(), marks.lost()), (KEPT, 5));
        assert_eq!(marks.iter().next().map(|mark| mark.value), Some(5));
    }
}
