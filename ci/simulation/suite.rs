//! Sets of runs: seeds over a few threads, their coverage put together, their failures kept.

use crate::coverage::Coverage;
use crate::log::Log;
use crate::plan::Plan;
use crate::run::{Outcome, Violation, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Seeds that have found something, with their number of operations; they run first, for ever.
const KNOWN: &str = include_str!("seeds.txt");

/// What a set of runs amounts to.
#[derive(Debug, Default)]
pub struct Summary {
    pub seeds: u64,
    pub operations: u64,
    pub frames: u64,
    pub coverage: Coverage,
    pub violations: Vec<Box<Violation>>,
}

/// Seed and number of operations.
pub type Case = (u64, u64);

/// The cases that have found something.
pub fn known_cases() -> Vec<Case> {
    let lines = KNOWN.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let numbers = lines.filter(|line| !line.is_empty()).map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        (numbers.next().flatten(), numbers.next().flatten())
    });
    numbers.map(|(seed, operations)| (seed.expect("a seed"), operations.expect("operations"))).collect()
}

/// Runs every case on `threads` threads; after a failure no new one is begun, unless `go_on`.
pub fn run_cases(cases: &[Case], threads: usize, go_on: bool, report: &(dyn Fn(&Outcome) + Sync)) -> Summary {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let summary = Mutex::new(Summary::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let Some((seed, operations)) = cases.get(next.fetch_add(1, Ordering::Relaxed)).copied() else { return };
            let result = run(Plan::new(seed, operations), Log::new(None));
            let mut summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            summary.seeds += 1;
            match result {
                Ok(outcome) => {
                    summary.operations += outcome.operations;
                    summary.frames += outcome.frames;
                    summary.coverage += &outcome.coverage;
                    report(&outcome);
                }
                Err(violation) => {
                    summary.violations.push(violation);
                    stop.store(!go_on, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for handle in handles {
            if let Err(panic) = handle.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
