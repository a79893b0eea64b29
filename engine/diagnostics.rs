//! The stream of diagnostics: each broken rule, once, with its object.

use rnic_abi::Diagnostic;
use std::collections::VecDeque;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosticRecord {
    /// Position in the adapter's own order of diagnostics, from 1.
    pub sequence: u64,
    pub time_ns: u64,
    pub diagnostic: Diagnostic,
    /// QPN, CQN, key, slot or offset, by rule.
    pub object: u32,
    /// The value that broke it, by rule.
    pub value: u64,
}

/// Records kept until somebody takes them; older ones go.
const KEPT: usize = 1024;

/// What a reader gets beside the records: how many it missed, and where to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosticReading {
    pub lost: u64,
    pub next_sequence: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    records: VecDeque<DiagnosticRecord>,
    pub last: Option<(Diagnostic, u32)>,
    last_sequence: u64,
}

impl Diagnostics {
    pub fn push(&mut self, time_ns: u64, diagnostic: Diagnostic, object: u32, value: u64, keeps_last: bool) {
        #[cfg(test)]
        crate::hostile::reached(diagnostic.rule().name);
        if !keeps_last || self.last.is_none() {
            self.last = Some((diagnostic, object));
        }
        self.last_sequence += 1;
        if self.records.len() == KEPT {
            self.records.pop_front();
        }
        let sequence = self.last_sequence;
        self.records.push_back(DiagnosticRecord { sequence, time_ns, diagnostic, object, value });
    }

    pub fn pop(&mut self) -> Option<DiagnosticRecord> {
        self.records.pop_front()
    }

    /// Appends up to `limit` records from `sequence` on to `into`, and leaves them where they are.
    pub fn read(&self, sequence: u64, limit: usize, into: &mut Vec<DiagnosticRecord>) -> DiagnosticReading {
        let end = self.last_sequence + 1;
        let sequence = sequence.clamp(1, end);
        let first = self.records.front().map_or(end, |record| record.sequence);
        let from = sequence.max(first);
        let before = into.len();
        into.extend(self.records.iter().skip((from - first) as usize).take(limit));
        DiagnosticReading { lost: from - sequence, next_sequence: from + (into.len() - before) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_go_on_from_their_place_and_learn_their_loss() {
        let mut diagnostics = Diagnostics::default();
        let read = |diagnostics: &Diagnostics, sequence, limit| {
            let mut records = Vec::new();
            let reading = diagnostics.read(sequence, limit, &mut records);
            (records.iter().map(|record| record.sequence).collect::<Vec<_>>(), reading.lost, reading.next_sequence)
        };
        assert_eq!(read(&diagnostics, 0, 10), (vec![], 0, 1));
        for value in 0..KEPT as u64 + 3 {
            diagnostics.push(value, Diagnostic::ArmStale, 1, value, false);
        }
        assert_eq!(read(&diagnostics, 1, 2), (vec![4, 5], 3, 6));
        let end = KEPT as u64 + 4;
        assert_eq!(read(&diagnostics, end - 1, 2), (vec![end - 1], 0, end));
        assert_eq!(read(&diagnostics, u64::MAX, 2), (vec![], 0, end));
        assert_eq!(diagnostics.pop().map(|record| record.sequence), Some(4));
    }
}
