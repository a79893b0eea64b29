//! The end-to-end suite: `cargo test --test e2e [-- WORDS]`.
//!
//! In: the program `rnic`, the crates of the device, and a laboratory of QEMU, guests and judges. Out: one line a step,
//! a table of times, and what was really done: `guests booted N, packets judged outside N, rxe peers N, sim seeds N`,
//! which fails below the floors of `floors.txt`. Each step runs in a process of its own, so that a step that hangs or dies takes its guests with it
//! and nothing else. One runs after the other, with at most two guests; none is ever skipped, but those of the matrix, which
//! `rnic-ci matrix` runs by asking for what is `--ignored`.
//!
//! [`plan`] lists the steps, [`runner`] runs them; the modules at the end are themes, made of what is in [`bench`].

mod arguments;
mod floors;
mod plan;
mod runner;
mod step_process;
mod tally;

mod bench;

mod attach;
mod caches;
mod commands;
mod configuration;
mod counters;
mod demo;
mod diagnostics;
mod doorbells;
mod ends;
mod ethernet;
mod guest_memory;
mod guests;
mod idle;
mod kill;
mod link;
mod machines;
mod measuring;
mod output;
mod outside;
mod pci;
mod rxe_peer;
mod second_driver;
mod serve;
mod sharing;
mod simulation;
mod thousand;
mod verbs;
mod watch;
mod workbench;

use arguments::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Err(sentence) => {
            rnic_ci::tell(format_args!("e2e: {sentence}"));
            ExitCode::from(2)
        }
        Ok(Arguments::List { terse, selection }) => {
            let chosen: Vec<_> = plan::of(&selection).into_iter().filter(|step| selection.takes(step.name)).collect();
            chosen.iter().for_each(|step| println!("{}: test", step.name));
            if !terse {
                println!("\n{} tests, 0 benchmarks", chosen.len());
            }
            ExitCode::SUCCESS
        }
        Ok(Arguments::Step { name, tally }) => {
            let steps = [plan::steps(), plan::matrix()].concat();
            step_process::run_here(&steps, &name, &tally)
        }
        Ok(Arguments::Run(selection)) => runner::run(&plan::of(&selection), &selection),
    }
}
