//! Diagnostics as rows: the number, what it means, and where it leads.

use super::Name;
use rnic_engine::DiagnosticRecord;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsReport {
    pub adapter: String,
    pub events: Vec<EventRow>,
    /// Diagnostics between the place asked for and the first one given, which are not kept any more.
    pub lost: u64,
    /// Where to go on.
    pub next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    pub sequence: u64,
    pub time_ns: u64,
    pub number: u32,
    pub name: Name,
    pub severity: Name,
    /// QPN, CQN, EQN, key, slot or offset, by rule.
    pub object: u32,
    /// The value that broke the rule, by rule.
    pub value: u64,
    pub sentence: Name,
    /// Of the datasheet.
    pub section: Name,
    pub usual_cause: Name,
}

impl From<&DiagnosticRecord> for EventRow {
    fn from(record: &DiagnosticRecord) -> Self {
        let rule = record.diagnostic.rule();
        Self {
            sequence: record.sequence,
            time_ns: record.time_ns,
            number: rule.number,
            name: rule.name.into(),
            severity: rule.severity().name().into(),
            object: record.object,
            value: record.value,
            sentence: rule.sentence.into(),
            section: rule.section.into(),
            usual_cause: rule.usual_cause.into(),
        }
    }
}
