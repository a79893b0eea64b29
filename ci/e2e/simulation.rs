//! The simulation's part of the suite: seeds that have found something, a fixed set that must exercise the checklist,
//! and seeds that nobody has run before.

use crate::tally;
use rnic_simulation::checklist;
use rnic_simulation::suite::{Summary, known_cases, run_cases};
use std::time::{SystemTime, UNIX_EPOCH};

const OPERATIONS: u64 = 2000;
/// Seeds of this second, which nobody has run: a failure names its seed, and is replayed with it.
const FRESH: u64 = 12;
/// These runs reach every item ten times.
const FIXED: std::ops::RangeInclusive<u64> = 1..=220;

fn check(summary: &Summary, what: &str) {
    if let Some(violation) = summary.violations.first() {
        violation.latest.iter().for_each(|entry| println!("{entry}"));
        let replay = format!("rnic-ci sim --seed {} --operations {OPERATIONS}", violation.seed);
        panic!("{what}: {violation}\nreplay with: {replay}");
    }
    println!("{what}: sim seeds {}, operations {}, frames {}", summary.seeds, summary.operations, summary.frames);
    tally::sim_seeds(summary.seeds);
}

pub fn known_and_fixed_seeds_keep_every_rule_and_exercise_every_item() {
    let known = run_cases(&known_cases(), 2, false, &|_| {});
    check(&known, "known seeds");
    let cases: Vec<_> = FIXED.map(|seed| (seed, OPERATIONS)).collect();
    let fixed = run_cases(&cases, 2, false, &|_| {});
    check(&fixed, "fixed seeds");
    print!("{}", checklist::report(&fixed.coverage));
    let missing = checklist::missing(&fixed.coverage);
    assert!(missing.is_empty(), "items with fewer than {} hits: {missing:?}", checklist::ENOUGH);
    let seldom = checklist::missing_names(&fixed.coverage);
    assert!(seldom.is_empty(), "had fewer than {} times: {seldom:?}", checklist::ENOUGH);
}

pub fn fresh_seeds_keep_every_rule() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let first = now.as_secs() << 16;
    let cases: Vec<_> = (first..first + FRESH).map(|seed| (seed, OPERATIONS)).collect();
    check(&run_cases(&cases, 2, false, &|_| {}), "fresh seeds");
}
