//! rdma-core's own tests, in Python, on both ends of queue pairs of one adapter.
//!
//! The list beside this file names every test that has to pass. The others are skipped by themselves, for what the device
//! or the machine has not; docs/guests.md says what that is. What fails, in the list or not, fails the step.

use super::pair::{self, Guests};
use super::{endings, options, patience, shell};
use crate::bench::fabric::Fabric;
use rnic_ci::{Lab, StandardError};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one run takes on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(540);
/// `tests.test_mr.MRTest.test_mr_rereg_pd`, one a line.
const PASSING: &str = include_str!("pyverbs.txt");

pub fn lab() -> Lab {
    Lab::prepare_pyverbs(&options(), &mut StandardError).expect("the image with rdma-core's tests")
}

/// Two guests share the modules, each with adapters of its own: Python is slow where instructions are emulated.
const FIRST_HALF: &str = "test_atomic|test_flow|test_mr|test_odp|test_parent_domain";

pub fn rdma_cores_own_tests_pass() {
    let lab = lab();
    let halves = [format!("grep -xE '{FIRST_HALF}'"), format!("grep -vxE '{FIRST_HALF}'")];
    let printed: Vec<String> = std::thread::scope(|scope| {
        let runs = halves.each_ref().map(|half| scope.spawn(|| run(&lab, half)));
        runs.into_iter().map(|run| run.join().expect("half of the tests")).collect()
    });
    let outcomes: BTreeMap<&str, &str> = printed.iter().flat_map(|output| outcomes(output)).collect();
    let count = |word: &str| outcomes.values().filter(|outcome| **outcome == word).count();
    println!("{} ok, {} skipped, {} in all", count("ok"), count("skipped"), outcomes.len());
    printed
        .iter()
        .flat_map(|output| output.lines())
        .filter(|line| line.contains("skipped '"))
        .for_each(|line| println!("{line}"));
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| !["ok", "skipped"].contains(outcome)).collect();
    assert_eq!(failed, [], "{}", printed.concat());
    let missing: Vec<&str> = PASSING.lines().filter(|name| outcomes.get(name).copied() != Some("ok")).collect();
    assert_eq!(missing, [""; 0], "these did not pass:\n{}", printed.concat());
}

/// The provider built for the rdma-core of the release after this one, with a program of that: its library finds it by the number
/// of its private interface, and knows no other.
pub fn the_provider_for_the_newer_rdma_core_works() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let place = format!("/{}", rnic_ci::rdma::NEWER);
    let program = format!("env LD_LIBRARY_PATH={place} {place}/ibv_rc_pingpong -d rnic0 -g 1 -n 100 -c");
    guests.succeed(&program);
    let loaded = format!("LD_DEBUG=files {program} 10.0.0.1 2>&1 | grep -c 'calling init: .*/librnic-rdmav65.so'");
    guests.serve(&program);
    assert_eq!(shell(&mut guests.client, &loaded), "1");
    guests.end();
}

/// Runs the modules that a filter of their names lets through, and gives what was printed.
fn run(lab: &Lab, filter: &str) -> String {
    let fabric = Fabric::new();
    let mut guest = pair::start(lab, "A", 1, fabric.functions("A"));
    // Python's semaphores live there.
    shell(&mut guest, "mkdir -p /dev/shm && mount -t tmpfs none /dev/shm");
    // An exit number tells nothing: the interpreter may fall at its very end, when all has been said.
    let run = format!(
        "cd /usr/lib/pyverbs-tests && modules=$(ls | sed -n 's/^\\(test_.*\\)[.]py$/\\1/p' | {filter} | sed 's/^/tests./') && \
         python3 -W ignore run_tests.py --dev rnic0 --port 1 --gid 1 -v $modules 2>&1"
    );
    let (_, output) = guest.shell(&run, LIMIT * patience()).expect("the tests' end");
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(output.contains("\nRan "), "the tests did not come to their end:\n{output}");
    endings::check(&fabric, &mut guest);
    output
}

/// What became of each test, by its name: `ok`, `skipped`, `FAIL`, `ERROR`, or nothing. A line with the name may be
/// followed by one with a sentence, and by warnings, before the outcome comes.
fn outcomes(output: &str) -> BTreeMap<&str, &str> {
    let mut outcomes = BTreeMap::new();
    let mut name = None;
    for line in output.lines() {
        if line.starts_with("======") {
            break;
        }
        let named = line.strip_prefix("test_").and_then(|rest| rest.split_once(" (")?.1.split_once(')'));
        let rest = match named {
            Some((test, rest)) => {
                name = Some(test);
                outcomes.insert(test, "");
                rest
            }
            None => line,
        };
        let told = rest.rsplit_once(" ... ").map_or(rest, |(_, told)| told);
        let outcome = ["ok", "FAIL", "ERROR", "skipped"].into_iter().find(|word| match *word {
            "skipped" => told.starts_with("skipped '"),
            word => told == word,
        });
        if let (Some(test), Some(outcome)) = (name, outcome) {
            outcomes.insert(test, outcome);
            name = None;
        }
    }
    outcomes
}
