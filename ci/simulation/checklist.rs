//! Which items of the checklist the simulation exercises, and where the others are shown instead.

use crate::coverage::{Coverage, ITEMS};

/// Hits below which a set of runs has not exercised an item.
pub const ENOUGH: u64 = 10;

const UNIT: &str = "shown by a test of its own: no valid program and no damaged wire leads there";
const OTHER: &str = "memory windows and fast registration are not in the programs yet";
const ADVICE: &str = "advice: nothing that a run could show";

/// Items that a set of runs need not exercise, and why.
const ELSEWHERE: &[(&str, &[usize])] = &[
    (UNIT, &[7, 8, 12, 21, 22, 37, 38, 51, 52, 62, 78, 79, 80, 83, 95, 98, 99, 104, 105, 107, 108]),
    (OTHER, &[85, 86, 87, 88, 89, 90]),
    (ADVICE, &[66, 113]),
];

/// Why a set of runs need not exercise this item; `None` when it must.
pub fn excuse(item: usize) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(_, items)| items.contains(&item)).map(|(reason, _)| *reason)
}

/// Items that must have been exercised and were not, with their hits.
pub fn missing(coverage: &Coverage) -> Vec<(usize, u64)> {
    let items = (1..=ITEMS).filter(|item| excuse(*item).is_none());
    items.map(|item| (item, coverage.hits(item))).filter(|(_, hits)| *hits < ENOUGH).collect()
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
    }
}
