//! The stream of diagnostics: each broken rule, once, with its object.

use rnic_abi::Diagnostic;
use std::collections::VecDeque;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosticRecord {
    pub time_ns: u64,
    pub diagnostic: Diagnostic,
    /// QPN, CQN, key, slot or offset, by rule.
    pub object: u32,
    /// The value that broke it, by rule.
    pub value: u64,
}

/// Records kept until somebody reads them; older ones go.
const KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    records: VecDeque<DiagnosticRecord>,
    pub last: Option<(Diagnostic, u32)>,
    pub lost: u64,
}

impl Diagnostics {
    pub fn push(&mut self, record: DiagnosticRecord) {
        self.last = Some((record.diagnostic, record.object));
        if self.records.len() == KEPT {
            self.records.pop_front();
            self.lost += 1;
        }
        self.records.push_back(record);
    }

    pub fn pop(&mut self) -> Option<DiagnosticRecord> {
        self.records.pop_front()
    }
}
