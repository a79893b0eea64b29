//! Mutants: builds in which one rule of the engine is broken, each of which some test has to catch.
//!
//! `planted("name")` in engine and wire marks where a rule can be broken; with `--cfg mutants` the environment says which
//! one is. In: the table, a number a rule. Out: the test that catches it, or a survivor.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The table: number, name, items of the checklist, the test that caught it last.
pub const TABLE: &str = include_str!("mutants.txt");
/// A mutant that hangs a test is caught by this.
const LIMIT: Duration = Duration::from_secs(120);
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
}

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
    judges.sort_by_key(|judge| (judge.name == "simulation", judge.name.ends_with("lib"), judge.name.clone()));
    if judges.is_empty() { Err("cargo built no test".into()) } else { Ok(judges) }
}

fn judge(message: &Value) -> Option<Judge> {
    let program = PathBuf::from(message["executable"].as_str()?);
    let package = message["package_id"].as_str()?;
    let (target, kind) = (message["target"]["name"].as_str()?, message["target"]["kind"][0].as_str()?);
    let is_test = message["profile"]["test"].as_bool()?;
    if package.contains("simulation") {
        // So few seeds do not reach every item ten times, so coverage is no judge here.
        let arguments = ["sim", "--seeds", "30", "--operations", "2000"].map(String::from).to_vec();
        return (kind == "bin" && !is_test).then(|| Judge { name: "simulation".into(), program, arguments });
    }
    let skipped = SKIPPED.iter().flat_map(|word| ["--skip".to_owned(), (*word).to_owned()]);
    let name = if kind == "lib" { format!("{target} lib") } else { target.to_owned() };
    let runs = is_test && !SKIPPED.iter().any(|word| target.contains(word));
    runs.then(|| Judge { name, program, arguments: skipped.collect() })
}

impl Judge {
    /// The first test that fails, `None` when all pass.
    fn catches(&self, name: &str, workspace: &Path) -> Result<Option<String>, String> {
        let failed = |error: std::io::Error| format!("running {}: {error}", self.program.display());
        let output = tempfile::NamedTempFile::new().map_err(failed)?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
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
            if start.elapsed() > LIMIT {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Ok(Some(format!("{}: does not end", self.name)));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if status.success() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(output.path()).map_err(failed)?;
        let failing = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let seed = text.lines().find(|line| line.starts_with("seed ") && line.contains("after"));
        let seed = seed.and_then(|line| line.split(" at ").next());
        let what = failing.or(seed).unwrap_or("ends badly");
        Ok(Some(format!("{}: {what}", self.name)))
    }
}

/// Runs the mutants with these numbers, or all; gives those that nobody caught, and who caught the others.
pub fn run(workspace: &Path, target: &Path, numbers: &[u32]) -> Result<BTreeMap<u32, Option<String>>, String> {
    let judges = build(workspace, target)?;
    for judge in &judges {
        if let Some(what) = judge.catches("", workspace)? {
            return Err(format!("with no rule broken, {what} fails"));
        }
    }
    let mut results = BTreeMap::new();
    for mutant in read(TABLE)?.iter().filter(|mutant| numbers.is_empty() || numbers.contains(&mutant.number)) {
        let mut caught = None;
        for judge in &judges {
            caught = judge.catches(&mutant.name, workspace)?;
            if caught.is_some() {
                break;
            }
        }
        let verdict = caught.as_deref().unwrap_or("SURVIVES");
        println!("{:>3} | {} | {verdict}", mutant.number, mutant.name);
        results.insert(mutant.number, caught);
    }
    Ok(results)
}

/// The table with what has been found now.
pub fn rewritten(table: &str, results: &BTreeMap<u32, Option<String>>) -> Result<String, String> {
    let heading = table.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    let mut text: String = heading.collect();
    for mut mutant in read(table)? {
        if let Some(Some(caught)) = results.get(&mutant.number) {
            mutant.caught_by.clone_from(caught);
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
        assert_eq!(rewritten(TABLE, &BTreeMap::new()).as_deref(), Ok(TABLE));
        assert!(read("1 | name | x | test").unwrap_err().contains("no item"));
        let found = BTreeMap::from([(1, Some("a test".to_owned()))]);
        assert!(rewritten(TABLE, &found).expect("a table").contains("1 | "));
    }
}
