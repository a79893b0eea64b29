//! Runs the chosen steps one after the other and says what became of them.

use crate::arguments::Selection;
use crate::floors;
use crate::plan::{self, Step};
use crate::step_process::{Outcome, run_apart};
use crate::tally::Tally;
use rnic_ci::cache::Cache;
use rnic_ci::{Options, Progress, StandardError};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub fn run(steps: &[Step], selection: &Selection) -> ExitCode {
    let mut chosen: Vec<Step> = steps.iter().filter(|step| selection.takes(step.name)).copied().collect();
    if !chosen.is_empty() {
        let provision = plan::provision(&chosen);
        chosen.splice(0..0, provision);
    }
    println!("\nplan: {} steps", chosen.len());
    chosen.iter().for_each(|step| println!("    {}", step.name));
    if chosen.is_empty() {
        return ExitCode::SUCCESS;
    }
    let _lock = match lock() {
        Ok(lock) => lock,
        Err(sentence) => {
            rnic_ci::tell(format_args!("e2e: {sentence}"));
            return ExitCode::FAILURE;
        }
    };
    let start = Instant::now();
    let outcomes: Vec<(&Step, Outcome)> = chosen.iter().map(|step| (step, run_one(step, selection))).collect();
    close(&outcomes, start.elapsed(), selection.is_whole())
}

/// One run at a time: two would have four guests on two processors, and each other's time limits.
fn lock() -> Result<File, String> {
    let cache = Cache::open(&Options::from_environment()).map_err(|error| error.to_string())?;
    let path = cache.folder().join("e2e.lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(|error| format!("{}: {error}", path.display()))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        StandardError.step(&format!("waiting for another run that holds {}", path.display()));
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(lock)
}

fn run_one(step: &Step, selection: &Selection) -> Outcome {
    print!("step {} ... ", step.name);
    let _ = std::io::stdout().flush();
    let outcome = run_apart(step, selection.no_capture);
    println!("{} {:.2} s", if outcome.failure.is_none() { "ok" } else { "FAILED" }, outcome.elapsed.as_secs_f64());
    if let Some(failure) = &outcome.failure {
        failure.lines().for_each(|line| println!("    | {line}"));
    }
    outcome
}

/// The table of times, what failed, and what was done.
fn close(outcomes: &[(&Step, Outcome)], elapsed: Duration, whole: bool) -> ExitCode {
    let mut tally = Tally::default();
    println!("\nwhere the time went");
    for (step, outcome) in outcomes {
        tally.add(outcome.tally);
        let mark = if outcome.failure.is_none() { "" } else { "  FAILED" };
        println!("{:9.2} s  {}{mark}", outcome.elapsed.as_secs_f64(), step.name);
    }
    println!("{:9.2} s  in all", elapsed.as_secs_f64());
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.failure.is_some()).count();
    let shortfalls = if whole { floors::shortfalls(&tally) } else { Ok(Vec::new()) };
    let shortfalls = shortfalls.unwrap_or_else(|sentence| vec![sentence]);
    shortfalls.iter().for_each(|sentence| println!("too little was done: {sentence}"));
    let passed = failed == 0 && shortfalls.is_empty();
    let result = if passed { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {} passed; {failed} failed", outcomes.len() - failed);
    println!("{tally}");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
