//! Reading the crossings of one operation out of an adapter: its own apart from the housekeeping, and nothing lost.

use super::report::{CrossingRow, DiagnosticRow, HostReport};
use rnic_abi::Diagnostic;
use rnic_device::adapter::{AdapterError, AdapterHandle};
use rnic_engine::DiagnosticRecord;
use rnic_pcie::ledger::Ledger;
use rnic_pcie::{Cause, Crossing};
use std::collections::BTreeMap;

/// Crossings that the trace keeps: a message of 8 MiB at the smallest path MTU makes 32,768 a side.
const KEPT: usize = 1 << 17;

/// A reading of the ledger, and where the trace stood.
pub struct Mark {
    ledger: Ledger,
    sequence: u64,
}

/// Starts the trace and reads the ledger.
pub fn mark(adapter: &AdapterHandle) -> Result<Mark, AdapterError> {
    adapter.call(|adapter| {
        let link = &mut adapter.function.link;
        link.trace_mut().watch(KEPT);
        // Of the bring-up; what is told from here on belongs to the operation.
        while adapter.function.engine.poll_diagnostic().is_some() {}
        let link = &adapter.function.link;
        Mark { ledger: link.ledger().snapshot(), sequence: link.last_sequence() }
    })
}

/// Reads what happened since the mark. `qpn` is the queue pair whose operation it was.
pub fn read(
    adapter: &AdapterHandle,
    mark: Mark,
    role: &'static str,
    qpn: u32,
    kernel: Option<String>,
) -> Result<HostReport, AdapterError> {
    let (crossings, lost, delta, link, told) = adapter.call(move |adapter| {
        let link = &mut adapter.function.link;
        let mut crossings = Vec::new();
        let reading = link.read_trace(mark.sequence + 1, KEPT, &mut crossings);
        let delta = link.ledger().since(&mark.ledger);
        link.trace_mut().unwatch();
        let settings = link.settings();
        let told: Vec<_> = std::iter::from_fn(|| adapter.function.engine.poll_diagnostic()).collect();
        (crossings, reading.lost, delta, settings, told)
    })?;
    let (operation, housekeeping): (Vec<_>, Vec<_>) = crossings.iter().partition(|crossing| belongs(crossing, qpn));
    let rows = |crossings: Vec<&Crossing>| crossings.into_iter().map(CrossingRow::from).collect::<Vec<_>>();
    let ledger_delta: BTreeMap<_, _> = delta
        .classes()
        .filter(|(_, totals)| totals.crossings > 0)
        .map(|(class, totals)| (class.name(), totals.crossings))
        .collect();
    let remainder = remainder(&ledger_delta, &crossings, lost);
    Ok(HostReport {
        name: adapter.name().to_owned(),
        role,
        kernel,
        link: link.into(),
        total: operation.len(),
        crossings: rows(operation),
        housekeeping: rows(housekeeping),
        ledger_delta,
        remainder,
        torn_lines: told.iter().filter(|record| record.diagnostic == Diagnostic::DoorbellTornLine).count() as u16,
        diagnostics: told.iter().map(row_of).collect(),
        aftermath: None,
        bring_up: None,
    })
}

fn row_of(record: &DiagnosticRecord) -> DiagnosticRow {
    let DiagnosticRecord { diagnostic, object, value, .. } = *record;
    let number = diagnostic.number();
    let (name, rule) = rnic_abi::diagnostic::rule(number).map_or(("", ""), |rule| (rule.name, rule.sentence));
    DiagnosticRow { number, name, rule, object, value }
}

/// Whether the operation of this queue pair is the crossing's cause.
fn belongs(crossing: &Crossing, wanted: u32) -> bool {
    match crossing.origin.cause {
        Cause::Send { qpn, .. } | Cause::Packet { qpn, .. } => qpn == wanted,
        Cause::Receive { qpn_or_srqn, .. } => qpn_or_srqn == wanted,
        _ => false,
    }
}

/// What the ledger counted and the lists do not show, class by class.
fn remainder(delta: &BTreeMap<&'static str, u64>, crossings: &[Crossing], lost: u64) -> i64 {
    let mut listed: BTreeMap<&'static str, i64> = BTreeMap::new();
    for crossing in crossings {
        *listed.entry(crossing.origin.class.name()).or_default() += 1;
    }
    let mut remainder = lost as i64;
    for (class, count) in delta {
        remainder += (*count as i64 - listed.remove(class).unwrap_or(0)).abs();
    }
    remainder + listed.values().sum::<i64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_pcie::{Class, Origin, Tlps, WireBytes};

    #[test]
    fn what_no_list_shows_is_a_remainder() {
        let crossing = |class| Crossing {
            sequence: 1,
            time_ns: 0,
            origin: Origin::new(class, Cause::Maintenance),
            bytes: 64,
            ranges: 1,
            tlps: Tlps::default(),
            wire_bytes: WireBytes::default(),
            observed: None,
            fault: None,
        };
        let listed = [crossing(Class::Doorbell), crossing(Class::CqeWrite)];
        let delta = |doorbells, cqes| BTreeMap::from([("doorbell", doorbells), ("cqe_write", cqes)]);
        assert_eq!(remainder(&delta(1, 1), &listed, 0), 0);
        assert_eq!(remainder(&delta(2, 1), &listed, 0), 1, "counted, not listed");
        assert_eq!(remainder(&delta(0, 1), &listed, 0), 1, "listed, not counted");
        assert_eq!(remainder(&BTreeMap::from([("doorbell", 1)]), &listed, 0), 1);
        assert_eq!(remainder(&delta(1, 1), &listed, 3), 3, "lost by the trace");
    }
}
