//! `rnic-ci`: the simulation, the mutants and the matrix of guests by hand.

use clap::{Args, CommandFactory, Parser, Subcommand};
use rnic_simulation::checklist;
use rnic_simulation::debug_kernel;
use rnic_simulation::log::Log;
use rnic_simulation::matrix;
use rnic_simulation::mutants;
use rnic_simulation::plan::Plan;
use rnic_simulation::run::{Outcome, run};
use rnic_simulation::suite::{Summary, known_cases, run_cases};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Parser)]
#[command(name = "rnic-ci", about = "The simulation, the mutants and the matrix of guests of rnic, by hand")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulates whole fabrics in virtual time and judges every frame, completion and byte
    Sim(Sim),
    /// Breaks the engine's rules one by one and says which test notices
    Mutants(Mutants),
    /// Runs with guests what the test command leaves out, and writes the table of docs/guests.md
    ///
    /// More programs between two guests, on both kernels, and all steps `guests::` of the end-to-end suite on the newer
    /// one: about fifteen minutes. Only a whole run is written.
    Matrix(Matrix),
    /// Runs the steps with guests on a kernel that looks for faults, and writes the summary of docs/guests.md
    ///
    /// The kernel is built the first time, with KASAN, lockdep, kmemleak, DMA API debugging and UBSAN. The module built for it has
    /// to satisfy checkpatch. Faults are planted first, and have to be found. About twenty minutes, and as many to build the
    /// kernel. Only a run of all steps is written, after each of them.
    DebugKernel(DebugKernel),
}

#[derive(Args)]
struct DebugKernel {
    /// Words of the names of steps; all without
    words: Vec<String>,
}

#[derive(Args)]
struct Matrix {
    /// Words of the names of steps: perftest, connections, qperf; all without
    words: Vec<String>,
    /// One kernel alone: 6.12 or 7.3
    #[arg(long, value_parser = matrix::SERIES)]
    kernel: Option<String>,
}

#[derive(Args)]
struct Mutants {
    /// Numbers of the table in ci/simulation/mutants.txt; all without
    numbers: Vec<u32>,
    /// Enter who caught them into the table
    #[arg(long)]
    write: bool,
    /// Where the build goes, which has flags of its own
    #[arg(long, default_value = "target/mutants")]
    target: PathBuf,
    /// Mutants at a time
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    threads: u64,
}

#[derive(Args)]
struct Sim {
    /// Replay this seed alone, exactly
    #[arg(long)]
    seed: Option<u64>,
    /// Operations of each run
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    operations: u64,
    /// Run the seeds 1 to this one, after those that are known to have found something
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// Run so many seeds that nobody has run before, instead
    #[arg(long, value_parser = at_least_one, conflicts_with = "seed")]
    fresh: Option<u64>,
    /// Write the log of events of a single seed to this file
    #[arg(long)]
    log: Option<PathBuf>,
    /// Fabrics at a time
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    threads: u64,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
    /// Fail when an item of the checklist, an operation, a fault or an impairment was exercised too seldom
    #[arg(long)]
    require_coverage: bool,
}

/// A number of things without which nothing is run, and nothing shown.
fn at_least_one(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("with 0 nothing is run: it must be 1 or more".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("it is no number of them: {error}")),
    }
}

/// More at a time would only wait for one another.
fn threads(wanted: u64) -> usize {
    usize::try_from(wanted).unwrap_or(usize::MAX).min(1024)
}

fn main() -> ExitCode {
    let done = match Options::parse().command {
        Command::Sim(options) => match options.seed {
            Some(seed) => one(seed, &options),
            None if options.log.is_some() => Options::command()
                .error(
                    clap::error::ErrorKind::MissingRequiredArgument,
                    "--log is the log of one seed: give it with --seed",
                )
                .exit(),
            None => many(&options),
        },
        Command::Mutants(options) => break_rules(&options),
        Command::Matrix(options) => run_matrix(&options),
        Command::DebugKernel(options) => run_debug_kernel(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "rnic-ci: {error}");
            ExitCode::from(3)
        }
    }
}

fn one(seed: u64, options: &Sim) -> Result<bool, String> {
    let plan = Plan::new(seed, options.operations);
    println!("{plan:#?}");
    let sink: Option<Box<dyn Write>> = match &options.log {
        Some(path) => {
            let file = File::create(path).map_err(|error| format!("creating {}: {error}", path.display()))?;
            Some(Box::new(BufWriter::new(file)))
        }
        None => None,
    };
    match run(plan, Log::new(sink)) {
        Ok(outcome) => {
            print_outcome(&outcome);
            print!("{}", checklist::report(&outcome.coverage));
            Ok(true)
        }
        Err(violation) => {
            violation.latest.iter().for_each(|entry| println!("{entry}"));
            println!("{violation}");
            Ok(false)
        }
    }
}

fn break_rules(options: &Mutants) -> Result<bool, String> {
    let workspace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let target = std::path::absolute(&options.target).map_err(|error| error.to_string())?;
    let known = mutants::read(mutants::TABLE)?;
    if let Some(unknown) = options.numbers.iter().find(|number| known.iter().all(|mutant| mutant.number != **number)) {
        return Err(format!("there is no mutant {unknown}: the table has 1 to {}", known.len()));
    }
    let results = mutants::run(workspace, &target, &options.numbers, threads(options.threads))?;
    if options.write {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/mutants.txt"));
        let table = mutants::rewritten(mutants::TABLE, &results)?;
        std::fs::write(path, table).map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    let survivors = mutants::survivors(&results);
    println!("mutants {}, caught {}, survivors {survivors:?}", results.len(), results.len() - survivors.len());
    Ok(survivors.is_empty())
}

fn run_matrix(options: &Matrix) -> Result<bool, String> {
    let commit = commit_and_date()?;
    let chosen =
        matrix::SERIES.iter().filter(|series| options.kernel.as_deref().is_none_or(|kernel| kernel == **series));
    let outcomes: Vec<_> = chosen.map(|series| matrix::run(series, &options.words)).collect::<Result<_, _>>()?;
    for row in outcomes.iter().flat_map(|outcome| outcome.rows.iter().chain(&outcome.steps)) {
        println!("{:>8} s  {}: {}", row.seconds, row.title, row.result);
    }
    if options.words.is_empty() && options.kernel.is_none() {
        let perftest = outcomes.first().map_or("", |outcome| outcome.perftest.as_str());
        let about = format!("{commit}; perftest {perftest}, rdma-core 56.1.");
        rewrite_guests(|document| matrix::rewritten(document, &about, &outcomes))?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.passed))
}

fn run_debug_kernel(options: &DebugKernel) -> Result<bool, String> {
    let commit = commit_and_date()?;
    // After each step: whoever is interrupted has what there was until then.
    let outcome = debug_kernel::run(&options.words, |steps, outcome| match options.words.as_slice() {
        [] => rewrite_guests(|document| debug_kernel::rewritten(document, &commit, steps, outcome)),
        _ => Ok(()),
    })?;
    Ok(outcome.passed)
}

/// Writes docs/guests.md anew.
fn rewrite_guests(rewritten: impl Fn(&str) -> Result<String, String>) -> Result<(), String> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guests.md"));
    let told = |action: &str, error: std::io::Error| format!("{action} {}: {error}", path.display());
    let document = std::fs::read_to_string(path).map_err(|error| told("reading", error))?;
    std::fs::write(path, rewritten(&document)?).map_err(|error| told("writing", error))
}

/// Of what a table tells: what there is when its steps begin.
fn commit_and_date() -> Result<String, String> {
    let say = |program: &str, words: &[&str]| -> Result<String, String> {
        let output = std::process::Command::new(program).args(words).output();
        let output = output.map_err(|error| format!("{program} does not start: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = say("git", &["rev-parse", "--short", "HEAD"])?;
    let changed = !say("git", &["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let changed = if changed { " with changes" } else { "" };
    let date = say("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?;
    Ok(format!("Commit {commit}{changed}, {date}"))
}

fn print_outcome(outcome: &Outcome) {
    let Outcome { seed, operations, frames, entries, digest, virtual_ns, .. } = outcome;
    let milliseconds = virtual_ns / 1_000_000;
    println!(
        "seed {seed}: {operations} operations, {frames} frames, {entries} events, {milliseconds} ms, log {digest:016x}"
    );
}

fn many(options: &Sim) -> Result<bool, String> {
    let mut cases = known_cases();
    match options.fresh {
        Some(count) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
            let first = now.as_secs() << 16;
            cases = (first..first + count).map(|seed| (seed, options.operations)).collect();
        }
        None => cases.extend((1..=options.seeds).map(|seed| (seed, options.operations))),
    }
    let start = Instant::now();
    let Summary { seeds, operations, frames, coverage, violations } =
        run_cases(&cases, threads(options.threads), options.keep_going, &print_outcome);
    print!("{}", checklist::report(&coverage));
    let (missing, seldom) = (checklist::missing(&coverage), checklist::missing_names(&coverage));
    if options.require_coverage {
        missing.iter().for_each(|(item, hits)| println!("item {item} was exercised {hits} times only"));
        seldom.iter().for_each(|(name, times)| println!("{name}: {times} times only"));
    }
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("sim seeds {seeds}, operations {operations}, frames {frames}, {:.1} s", start.elapsed().as_secs_f64());
    let covered = missing.is_empty() && seldom.is_empty();
    Ok(violations.is_empty() && (covered || !options.require_coverage))
}
