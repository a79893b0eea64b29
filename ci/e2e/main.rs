//! The end-to-end suite: one harness, one step after the other, at most two guests at once.
//!
//! It prints its plan, each step with its result and its time, and in the end what it has really done:
//! `guests booted N, packets judged outside N`. Below the floors of `floors.txt` it fails. Words on the command line
//! choose steps by a part of their names (floors then do not count); `--list` lists them.

mod demo;
mod machines;
mod outside;
mod tally;

use std::fs::File;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Step = (&'static str, fn());

macro_rules! steps {
    ($($module:ident: $($step:ident),*;)*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($step)), $module::$step as fn()),)*)*]
    };
}

/// From cheap to dear.
const STEPS: &[Step] = steps! {
    demo: the_known_totals_over_model_hosts, golden_wire_bytes, a_line_is_one_write_and_is_seen_as_eight_stores,
        cold_caches_add_fetches_and_nothing_else, a_refused_key_is_a_nak_and_an_error_and_touches_nothing,
        a_lost_packet_is_read_and_sent_again, the_exit_number_says_what_went_wrong,
        model_hosts_take_less_than_two_seconds;
    outside: scapy_and_tshark_read_every_packet_of_the_demo_as_we_do,
        a_thousand_packets_of_scapy_parse_and_a_flipped_bit_is_dropped_and_counted;
    machines: the_whole_transaction_under_qtest, a_killed_machine_takes_nothing_with_it_twenty_times;
    demo: the_known_totals_in_guests;
    outside: qemu_counts_the_same_crossings_when_every_dma_is_a_message;
    machines: qmp_finds_the_payload_in_guest_b_and_canaries_around_it, a_guest_sees_a_sane_pcie_device_and_resets_it,
        an_idle_adapter_takes_less_than_a_hundredth_of_a_core, a_killed_demo_leaves_no_machine;
};

/// No step may hang a run.
const STEP_LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let chosen: Vec<Step> = STEPS
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())))
        .copied()
        .collect();
    if words.iter().any(|word| word == "--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let _alone = wait_for_other_runs();
    println!("\nplan: {} steps", chosen.len());
    chosen.iter().for_each(|(name, _)| println!("  {name}"));
    let outcomes: Vec<(&str, bool, Duration)> = chosen.iter().map(run).collect();
    report(&outcomes, filters.is_empty())
}

/// Two runs on one machine would take each other's cores; the second waits.
fn wait_for_other_runs() -> File {
    let path = std::env::temp_dir().join("rnic-e2e.lock");
    let file = File::options().create(true).append(true).open(&path).expect("a lock file in the temporary folder");
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        println!("waiting for another run of the suite ({})", path.display());
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive);
    }
    file
}

fn run((name, step): &Step) -> (&'static str, bool, Duration) {
    println!("\nstep {name}");
    let start = Instant::now();
    let (over, watched) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn({
        let name = *name;
        move || {
            if watched.recv_timeout(STEP_LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                println!("step {name} FAILED: it took longer than {STEP_LIMIT:?}; the run ends here");
                std::process::exit(1);
            }
        }
    });
    let passed = catch_unwind(step).is_ok();
    drop(over);
    let _ = watch.join();
    let taken = start.elapsed();
    println!("step {name} {} in {:.2} s", if passed { "ok" } else { "FAILED" }, taken.as_secs_f64());
    (name, passed, taken)
}

fn report(outcomes: &[(&str, bool, Duration)], whole: bool) -> ExitCode {
    println!("\nwhere the time went:");
    for (name, passed, taken) in outcomes {
        println!("  {:8.2} s  {} {name}", taken.as_secs_f64(), if *passed { "ok    " } else { "FAILED" });
    }
    let failed = outcomes.iter().filter(|(_, passed, _)| !passed).count();
    let short = if whole { tally::below_floors() } else { Vec::new() };
    short.iter().for_each(|sentence| println!("FAILED: {sentence}"));
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    println!("{}", tally::line());
    if failed == 0 && short.is_empty() && !outcomes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
