//! A bounded record of the latest crossings, kept only while somebody watches.
//!
//! Sequence numbers advance whether or not anybody does, so a reader names its place by them and learns how many
//! crossings it has missed.

use crate::Crossing;
use std::collections::VecDeque;

/// The most crossings that a trace can be asked to keep.
pub const MAX_CAPACITY: usize = 1 << 18;

/// The latest crossings, in the order of their sequence numbers and without gaps.
#[derive(Debug, Default)]
pub struct Trace {
    ring: VecDeque<Crossing>,
    /// 0 while nobody watches.
    capacity: usize,
}

/// What a reader gets: crossings from its place on, and what it missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Crossings between the place asked for and the first one given.
    pub lost: u64,
    /// Where to read on.
    pub next_sequence: u64,
}

impl Trace {
    /// Starts recording, or changes how many crossings are kept (1 to [`MAX_CAPACITY`]).
    pub fn watch(&mut self, capacity: usize) {
        self.capacity = capacity.clamp(1, MAX_CAPACITY);
        while self.ring.len() > self.capacity {
            self.ring.pop_front();
        }
        self.ring.reserve(self.capacity - self.ring.len());
    }

    /// Stops recording and forgets what was recorded.
    pub fn unwatch(&mut self) {
        *self = Self::default();
    }

    pub fn is_watched(&self) -> bool {
        self.capacity > 0
    }

    #[inline]
    pub(crate) fn record(&mut self, crossing: &Crossing) {
        if self.capacity == 0 {
            return;
        }
        if self.ring.len() >= self.capacity {
            self.ring.pop_front();
        }
        self.ring.push_back(*crossing);
    }

    /// Corrects a crossing that is still here.
    pub(crate) fn amend(&mut self, sequence: u64, correct: impl FnOnce(&mut Crossing)) {
        let first = self.ring.front().map_or(u64::MAX, |crossing| crossing.sequence);
        let index = sequence.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        if let Some(crossing) = index.and_then(|index| self.ring.get_mut(index)) {
            correct(crossing);
        }
    }

    /// Appends up to `limit` crossings from `sequence` on to `into`. `last_sequence` is the latest that was given
    /// out (see `Link::last_sequence`): what it shows beyond the ring was not recorded, and is lost.
    pub fn read(&self, sequence: u64, last_sequence: u64, limit: usize, into: &mut Vec<Crossing>) -> Reading {
        let end = last_sequence.saturating_add(1);
        let sequence = sequence.clamp(1, end);
        let Some(first) = self.ring.front().map(|crossing| crossing.sequence) else {
            return Reading { lost: end - sequence, next_sequence: end };
        };
        let from = sequence.max(first);
        let skip = (from - first) as usize;
        let before = into.len();
        into.extend(self.ring.iter().skip(skip).take(limit));
        Reading { lost: from - sequence, next_sequence: from + (into.len() - before) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Class, Origin, Tlps, WireBytes};

    fn crossing(sequence: u64) -> Crossing {
        Crossing {
            sequence,
            time_ns: sequence * 10,
            origin: Origin::new(Class::CqeWrite, Cause::Maintenance),
            bytes: 64,
            ranges: 1,
            tlps: Tlps::default(),
            wire_bytes: WireBytes::default(),
            observed: None,
            fault: None,
        }
    }

    fn read(trace: &Trace, sequence: u64, last: u64, limit: usize) -> (Vec<u64>, Reading) {
        let mut crossings = Vec::new();
        let reading = trace.read(sequence, last, limit, &mut crossings);
        (crossings.iter().map(|crossing| crossing.sequence).collect(), reading)
    }

    #[test]
    fn nothing_is_kept_while_nobody_watches() {
        let mut trace = Trace::default();
        trace.record(&crossing(1));
        assert_eq!(read(&trace, 1, 1, 10), (vec![], Reading { lost: 1, next_sequence: 2 }));
    }

    #[test]
    fn a_reader_goes_on_from_its_place_and_learns_its_loss() {
        let mut trace = Trace::default();
        trace.watch(3);
        (5..=9).for_each(|sequence| trace.record(&crossing(sequence)));
        assert_eq!(read(&trace, 0, 9, 2), (vec![7, 8], Reading { lost: 6, next_sequence: 9 }));
        assert_eq!(read(&trace, 9, 9, 2), (vec![9], Reading { lost: 0, next_sequence: 10 }));
        assert_eq!(read(&trace, 10, 9, 2), (vec![], Reading { lost: 0, next_sequence: 10 }));
        assert_eq!(read(&trace, u64::MAX, 9, 2), (vec![], Reading { lost: 0, next_sequence: 10 }));
    }

    #[test]
    fn amending_finds_what_is_still_there() {
        let mut trace = Trace::default();
        trace.watch(2);
        (1..=3).for_each(|sequence| trace.record(&crossing(sequence)));
        trace.amend(1, |crossing| crossing.bytes = 1);
        trace.amend(3, |crossing| crossing.bytes = 3);
        trace.amend(4, |crossing| crossing.bytes = 4);
        assert_eq!(trace.ring.iter().map(|crossing| crossing.bytes).collect::<Vec<_>>(), [64, 3]);
    }

    #[test]
    fn stopping_forgets() {
        let mut trace = Trace::default();
        trace.watch(usize::MAX);
        trace.record(&crossing(1));
        trace.unwatch();
        assert!(!trace.is_watched());
        assert_eq!(read(&trace, 1, 1, 1).0, Vec::<u64>::new());
    }
}
