//! Which items of the checklist the simulation exercises, and where the others are shown instead.

use crate::coverage::{Coverage, ITEMS};
use crate::operations::{FAULTS, LOCAL_FAULTS, OPERATIONS};
use crate::unreliable;

/// Hits below which a set of runs has not exercised an item.
pub const ENOUGH: u64 = 10;

const UNIT: &str = "shown by a test of its own: no valid program and no damaged wire leads there";
const ADVICE: &str = "advice: nothing that a run could show";
const COUNTED: &str = "counted with another item: what a lost response leads to is 46 and 112";
const OTHERS: &str = "shown by tests of its own: no program draws such a key, right or mark";

/// Items that a set of runs need not exercise, and why.
const ELSEWHERE: &[(&str, &[usize])] =
    &[(UNIT, &[7, 12, 21, 22, 52, 98]), (COUNTED, &[51]), (OTHERS, &[8, 38, 83, 113]), (ADVICE, &[66])];

/// Why a set of runs need not exercise this item; `None` when it must.
pub fn excuse(item: usize) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(_, items)| items.contains(&item)).map(|(reason, _)| *reason)
}

/// Items that must have been exercised and were not, with their hits.
pub fn missing(coverage: &Coverage) -> Vec<(usize, u64)> {
    let items = (1..=ITEMS).filter(|item| excuse(*item).is_none());
    items.map(|item| (item, coverage.hits(item))).filter(|(_, hits)| *hits < ENOUGH).collect()
}

/// What happens on the way, beside operations and faults.
const HAPPENINGS: &[&str] = &[
    "PSN wraps",
    "adapter resets",
    "cache flushes",
    "copies of multicast packets",
    "consumer records read",
    "context fetches",
    "corrupted frames",
    "datagrams with another Q_Key",
    "duplicated frames",
    "frames beyond the queue",
    "function level resets",
    "groups joined",
    "groups left",
    "held reads",
    "key fetches",
    "keys invalidated under traffic",
    "keys taken away under traffic",
    "keys that were closed",
    "limits of a shared queue",
    "lost frames",
    "messages beyond the credits",
    "messages of extended connections",
    "messages through a view",
    "multicast datagrams",
    "messages too long for their receive",
    "packets behind a gap",
    "packets sent again",
    "queue pairs destroyed",
    "receives of a shared queue",
    "refused reads",
    "reordered frames",
    "resets of a connection",
    "resets of unreliable queue pairs",
    "send queues drained",
    "shared queues that broke",
    "steps that are refused",
    "translation fetches",
    "UC messages torn",
    "UC send that fails",
];

/// Operations, faults and happenings that a set of runs has had too seldom.
pub fn missing_names(coverage: &Coverage) -> Vec<(&'static str, u64)> {
    let operations = OPERATIONS.iter().map(|operation| operation.name).chain(unreliable::OPERATIONS);
    let faults = FAULTS.iter().chain(LOCAL_FAULTS).map(|fault| fault.name);
    let names = operations.chain(faults).chain(HAPPENINGS.iter().copied());
    names.map(|name| (name, coverage.times(name))).filter(|(_, times)| *times < ENOUGH).collect()
}

/// The report of a set of runs: items, impairments and operations with their counts.
pub fn report(coverage: &Coverage) -> String {
    let mut text = String::from("checklist items exercised:\n");
    for row in (1..=ITEMS).collect::<Vec<_>>().chunks(8) {
        let cells = row.iter().map(|item| match excuse(*item) {
            Some(_) if coverage.hits(*item) == 0 => format!("{item:>4} {:>10}", "-"),
            _ => format!("{item:>4} {:>10}", coverage.hits(*item)),
        });
        text += &(cells.collect::<Vec<_>>().join(" ") + "\n");
    }
    text += "impairments, operations and faults:\n";
    for (name, times) in coverage.named() {
        text += &format!("  {name:<32} {times:>12}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_excuse_names_items_that_exist_and_each_once() {
        let mut all: Vec<usize> = ELSEWHERE.iter().flat_map(|(_, items)| items.iter().copied()).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.iter().all(|item| (1..=ITEMS).contains(item)));
        assert_eq!(missing(&Coverage::default()).len(), ITEMS - all.len());
        let mut seen = Coverage::default();
        let named = missing_names(&seen);
        named.iter().for_each(|(name, _)| seen.note(name, ENOUGH));
        assert!(missing_names(&seen).is_empty() && named.len() > HAPPENINGS.len() + OPERATIONS.len());
    }
}
