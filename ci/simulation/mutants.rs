//! Mutants: builds in which one rule of the engine is broken, each of which some test has to catch.
//!
//! `planted("name")` in engine and wire marks where a rule can be broken; with `--cfg mutants` the environment says which
//! one is. In: the table, a number a rule. Out: the test that catches it, or a survivor. The test that caught a mutant last
//! is asked first and alone, so that a whole run takes minutes; only where it passes are all the others asked.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The table: number, name, items of the checklist, the test that caught it last.
pub const TABLE: &str = include_str!("mutants.txt");
/// A mutant that hangs a judge is caught by a limit: so many times what the judge takes with no rule broken, and a little.
const PATIENCE: u32 = 10;
const LEAST_LIMIT: Duration = Duration::from_secs(30);
/// In the table, in place of who caught it.
const SURVIVES: &str = "SURVIVES";
/// In place of a test's name: the judge as a whole was beyond its limit.
const ENDLESS: &str = "does not end";
/// The same of a judge that ended without naming a test.
const BADLY: &str = "ends badly";
/// Searches by chance take long and are not needed here.
const SKIPPED: [&str; 4] = ["hostile", "propert", "any_bytes", "architecture"];

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub number: u32,
    pub name: String,
    pub items: Vec<usize>,
    pub caught_by: String,
}

/// Reads the table; what cannot be read is named.
pub fn read(table: &str) -> Result<Vec<Mutant>, String> {
    let lines = table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let wrong = |what: &str| format!("{what} in the table of mutants: {line}");
            let fields: Vec<&str> = line.split('|').map(str::trim).collect();
            let [number, name, items, caught_by] = fields[..] else { return Err(wrong("not four fields")) };
            let items = items.split(',').map(|item| item.trim().parse()).collect::<Result<_, _>>();
            Ok(Mutant {
                number: number.parse().map_err(|_| wrong("no number"))?,
                name: name.into(),
                items: items.map_err(|_| wrong("no item"))?,
                caught_by: caught_by.into(),
            })
        })
        .collect()
}

/// What runs a mutant: a test binary, or the simulation.
#[derive(Debug)]
struct Judge {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    limit: Duration,
}

const SIMULATION: &str = "simulation";
/// Operations of a simulated seed: few, so that many seeds can be had.
const OPERATIONS: [&str; 2] = ["--operations", "2000"];

/// Builds engine, wire and simulation with breakable rules, in a target folder of their own.
fn build(workspace: &Path, target: &Path) -> Result<Vec<Judge>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace).env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "--cfg mutants");
    cargo.args([
        "test",
        "--no-run",
        "--message-format=json",
        "-p",
        "rnic-engine",
        "-p",
        "rnic-wire",
        "-p",
        "rnic-simulation",
    ]);
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|error| format!("starting cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("building the mutants: cargo ended with {}", output.status));
    }
    let mut judges = Vec::new();
    for message in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(message) else { continue };
        judges.extend(judge(&message));
    }
    // The quick ones first, and the simulation last.
    judges.sort_by_key(|judge| (judge.name == SIMULATION, judge.name.ends_with("lib"), judge.name.clone()));
    if judges.is_empty() { Err("cargo built no test".into()) } else { Ok(judges) }
}

fn judge(message: &Value) -> Option<Judge> {
    let program = PathBuf::from(message["executable"].as_str()?);
    let package = message["package_id"].as_str()?;
    let (target, kind) = (message["target"]["name"].as_str()?, message["target"]["kind"][0].as_str()?);
    let is_test = message["profile"]["test"].as_bool()?;
    if package.contains("simulation") {
        // So few seeds do not reach every item ten times, so coverage is no judge here.
        let arguments = ["sim", "--seeds", "30"].into_iter().chain(OPERATIONS).map(String::from).collect();
        let limit = Duration::MAX;
        return (kind == "bin" && !is_test).then(|| Judge { name: SIMULATION.into(), program, arguments, limit });
    }
    let skipped = SKIPPED.iter().flat_map(|word| ["--skip".to_owned(), (*word).to_owned()]);
    let name = if kind == "lib" { format!("{target} lib") } else { target.to_owned() };
    let runs = is_test && !SKIPPED.iter().any(|word| target.contains(word));
    runs.then(|| Judge { name, program, arguments: skipped.collect(), limit: Duration::MAX })
}

impl Judge {
    /// What is left of the judge when it looks at one test, or one seed, alone: none where that is no name of such.
    fn alone(&self, what: &str) -> Option<Vec<String>> {
        let words = match what {
            ENDLESS | BADLY => return None,
            _ if self.name == SIMULATION => {
                let seed = what.strip_prefix("seed ")?.split(' ').next()?;
                ["sim", "--seed", seed].into_iter().chain(OPERATIONS).collect()
            }
            _ => vec![what, "--exact"],
        };
        Some(words.into_iter().map(String::from).collect())
    }

    /// With no rule broken everything passes; how long that takes gives the limit.
    fn prove(&mut self, workspace: &Path) -> Result<(), String> {
        let start = Instant::now();
        match self.catches("", &self.arguments, workspace)? {
            Some(what) => Err(format!("with no rule broken, {what} fails")),
            None => {
                self.limit = start.elapsed() * PATIENCE + LEAST_LIMIT;
                Ok(())
            }
        }
    }

    /// The first test that fails, `None` when all pass.
    fn catches(&self, name: &str, arguments: &[String], workspace: &Path) -> Result<Option<String>, String> {
        let failed = |error: std::io::Error| format!("running {}: {error}", self.program.display());
        let output = tempfile::NamedTempFile::new().map_err(failed)?;
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env("RNIC_MUTANT", name)
            .current_dir(workspace.join("engine"))
            .stdout(output.reopen().map_err(failed)?)
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if start.elapsed() > self.limit {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Ok(Some(format!("{}: {ENDLESS}", self.name)));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if status.success() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(output.path()).map_err(failed)?;
        let failing = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let seed = text.lines().find(|line| line.starts_with("seed ") && line.contains("after"));
        let seed = seed.and_then(|line| line.split(" after ").next());
        Ok(Some(format!("{}: {}", self.name, failing.or(seed).unwrap_or(BADLY))))
    }
}

/// Who notices the broken rule, asking first who noticed it last.
fn catcher(mutant: &Mutant, judges: &[Judge], workspace: &Path) -> Result<Option<String>, String> {
    if let Some((judge, what)) = mutant.caught_by.split_once(": ")
        && let Some(judge) = judges.iter().find(|found| found.name == judge)
        && let Some(arguments) = judge.alone(what)
        && let Some(caught) = judge.catches(&mutant.name, &arguments, workspace)?
    {
        return Ok(Some(caught));
    }
    for judge in judges {
        let caught = judge.catches(&mutant.name, &judge.arguments, workspace)?;
        if caught.is_some() {
            return Ok(caught);
        }
    }
    Ok(None)
}

/// Who caught each mutant, `None` for a survivor.
pub type Results = BTreeMap<u32, Option<String>>;

/// Runs the mutants with these numbers, or all, `threads` at a time.
pub fn run(workspace: &Path, target: &Path, numbers: &[u32], threads: usize) -> Result<Results, String> {
    let mut judges = build(workspace, target)?;
    judges.iter_mut().try_for_each(|judge| judge.prove(workspace))?;
    let mutants: Vec<Mutant> =
        read(TABLE)?.into_iter().filter(|mutant| numbers.is_empty() || numbers.contains(&mutant.number)).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Results::new());
    let worker = || -> Result<(), String> {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let caught = catcher(mutant, &judges, workspace)?;
            println!("{:>3} | {} | {}", mutant.number, mutant.name, caught.as_deref().unwrap_or(SURVIVES));
            results.lock().unwrap_or_else(PoisonError::into_inner).insert(mutant.number, caught);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    })?;
    Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The numbers that nobody caught.
pub fn survivors(results: &Results) -> Vec<u32> {
    results.iter().filter(|(_, caught)| caught.is_none()).map(|(number, _)| *number).collect()
}

/// The table with what has been found now.
pub fn rewritten(table: &str, results: &Results) -> Result<String, String> {
    let heading = table.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    let mut text: String = heading.collect();
    for mut mutant in read(table)? {
        if let Some(caught) = results.get(&mutant.number) {
            mutant.caught_by = caught.clone().unwrap_or_else(|| SURVIVES.into());
        }
        let items: Vec<String> = mutant.items.iter().map(usize::to_string).collect();
        text += &format!("{} | {} | {} | {}\n", mutant.number, mutant.name, items.join(", "), mutant.caught_by);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true if ["tests", "hostile", "checks", "switch", "corpus"].iter().any(|name| path.ends_with(name)) => {}
                true => sources(&path, into),
                false => into.extend(path.extension().is_some_and(|kind| kind == "rs").then_some(path)),
            }
        }
    }

    #[test]
    fn the_table_names_every_breakable_rule_and_no_other() {
        let mut files = Vec::new();
        sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine")), &mut files);
        let mut places: Vec<String> = files
            .iter()
            .flat_map(|path| {
                let text = std::fs::read_to_string(path).expect("a source file");
                let names = text.split("planted(\"").skip(1).filter_map(|rest| rest.split('"').next());
                names.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        places.sort();
        places.dedup();
        let table = read(TABLE).expect("a table");
        let mut names: Vec<String> = table.iter().map(|mutant| mutant.name.clone()).collect();
        names.sort();
        assert_eq!(names, places);
        let numbers: Vec<u32> = table.iter().map(|mutant| mutant.number).collect();
        assert_eq!(numbers, (1..=table.len() as u32).collect::<Vec<_>>());
        assert!(table.iter().all(|mutant| mutant.items.iter().all(|item| *item <= crate::coverage::ITEMS)));
    }

    #[test]
    fn a_table_is_written_as_it_was_read() {
        assert_eq!(rewritten(TABLE, &Results::new()).as_deref(), Ok(TABLE));
        assert!(read("1 | name | x | test").unwrap_err().contains("no item"));
        let found = Results::from([(1, Some("story: a_test".to_owned())), (2, None)]);
        let written = rewritten(TABLE, &found).expect("a table");
        let read_again = read(&written).expect("a table");
        assert_eq!((read_again[0].caught_by.as_str(), read_again[1].caught_by.as_str()), ("story: a_test", SURVIVES));
        assert_eq!(survivors(&found), [2]);
    }
}
