//! What the test command leaves out with guests: more programs, on both kernels, and all steps on the newer one.
//!
//! In: lines that the end-to-end suite prints. Out: the table in docs/guests.md, which nobody else writes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The kernels of guests; the first is the one that ordinary runs have.
pub const SERIES: [&str; 2] = ["6.12", "7.3"];
/// Whose table it is in the document.
const NAME: &str = "matrix";

/// What one program, or one step, came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub title: String,
    pub result: String,
    pub seconds: String,
}

/// What the suite printed of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub release: String,
    pub perftest: String,
    pub rows: Vec<Row>,
    /// Steps of the suite that ran as a whole.
    pub steps: Vec<Row>,
    pub passed: bool,
}

impl Outcome {
    /// One line of the suite.
    pub fn take(&mut self, line: &str) {
        // The first line of a step stands behind its name.
        let line = line.find("table\t").map_or(line, |at| &line[at..]);
        let words: Vec<&str> = line.split('\t').collect();
        let own = str::to_owned;
        match words.as_slice() {
            ["table", "kernel", release, perftest] => {
                (self.release, self.perftest) = (own(release), own(perftest));
            }
            ["table", "row", title, result, seconds] => {
                self.rows.push(Row { title: own(title), result: own(result), seconds: own(seconds) });
            }
            _ => self.steps.extend(step(line)),
        }
    }
}

/// A line `    12.34 s  guests::some_step`, with FAILED behind it or nothing.
fn step(line: &str) -> Option<Row> {
    let (seconds, name) = line.trim_start().split_once(" s  guests::")?;
    let value: f64 = seconds.parse().ok()?;
    let (name, result) = name.strip_suffix("  FAILED").map_or((name, "ok"), |name| (name, "FAILED"));
    (!name.contains("is_provided")).then(|| Row {
        title: title(name),
        result: result.into(),
        seconds: format!("{value:.1}"),
    })
}

/// A step's name as the tables have it.
pub(crate) fn title(name: &str) -> String {
    name.trim_start_matches("guests::").replace('_', " ")
}

/// The steps that ordinary runs leave out, one run of the suite each, so that others who want the laboratory get a turn.
const STEPS: [&str; 4] = ["perftest_in_all_sizes", "perftest_with_other_queues", "connections_by_address", "qperf"];

/// Runs the suite for one kernel: the programs that ordinary runs leave out, those whose step has one of these words in
/// its name; and on a kernel that ordinary runs leave out everything else.
pub fn run(series: &str, words: &[String]) -> Result<Outcome, String> {
    let mut outcome = Outcome { passed: true, ..Outcome::default() };
    let chosen = |step: &&str| words.is_empty() || words.iter().any(|word| step.contains(word.as_str()));
    for step in STEPS.iter().filter(|step| chosen(step)) {
        outcome.passed &= suite(series, &["--ignored", "--nocapture", step], &mut outcome)?;
    }
    // Its steps' times are not those of programs.
    outcome.steps.clear();
    if series != SERIES[0] && words.is_empty() {
        outcome.passed &=
            suite(series, &["guests::", "--skip", "it_is_many_times", "--skip", "a_changed_module"], &mut outcome)?;
    }
    Ok(outcome)
}

/// The end-to-end suite, but for what is asked of it.
pub(crate) fn cargo_test() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--quiet", "-p", "rnic", "--test", "e2e", "--"]);
    command
}

/// Runs steps of the suite in guests with one kernel; whether all of them passed.
pub(crate) fn suite(series: &str, words: &[&str], outcome: &mut Outcome) -> Result<bool, String> {
    let mut command = cargo_test();
    command.args(words).env("RNIC_GUEST_KERNEL", series).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cargo does not start: {error}"))?;
    let output = child.stdout.take().ok_or("no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading what the suite printed: {error}"))?;
        println!("{line}");
        outcome.take(&line);
    }
    Ok(child.wait().map_err(|error| error.to_string())?.success())
}

/// The document with its table written anew.
pub fn rewritten(document: &str, about: &str, outcomes: &[Outcome]) -> Result<String, String> {
    between_marks(document, NAME, &table(about, outcomes))
}

/// The document with a text in place of what stands between the marks of the command with this name.
pub(crate) fn between_marks(document: &str, name: &str, text: &str) -> Result<String, String> {
    let [begin, end] = ["begin", "end"].map(|edge| format!("<!-- written by rnic-ci {name}: {edge} -->"));
    let lacks = || format!("the document has no lines {begin} and {end}");
    let (before, rest) = document.split_once(&begin).ok_or_else(lacks)?;
    let (_, after) = rest.split_once(&end).ok_or_else(lacks)?;
    Ok(format!("{before}{begin}\n\n{text}\n{end}{after}"))
}

fn table(about: &str, outcomes: &[Outcome]) -> String {
    let mut text = format!("{about}\n\n| program |");
    for outcome in outcomes {
        text += &format!(" Linux {} | s |", outcome.release);
    }
    text += &format!("\n|---|{}\n", "---|---|".repeat(outcomes.len()));
    let mut titles: Vec<&str> = Vec::new();
    for row in outcomes.iter().flat_map(|outcome| &outcome.rows) {
        if !titles.contains(&row.title.as_str()) {
            titles.push(&row.title);
        }
    }
    for title in titles {
        let cells = outcomes.iter().map(|outcome| cell(outcome.rows.iter().find(|row| row.title == title)));
        text += &format!("| `{title}` |{}\n", cells.collect::<String>());
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.steps.is_empty()) {
        text += &format!("\n| step `guests::` on Linux {} | | s |\n|---|---|---|\n", outcome.release);
        outcome.steps.iter().for_each(|row| text += &format!("| {} |{}\n", row.title, cell(Some(row))));
    }
    text
}

pub(crate) fn cell(row: Option<&Row>) -> String {
    row.map_or(" not run | |".into(), |row| format!(" {} | {} |", row.result, row.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(title: &str, result: &str, seconds: &str) -> Row {
        Row { title: title.into(), result: result.into(), seconds: seconds.into() }
    }

    #[test]
    fn the_suites_lines_become_rows() {
        let mut outcome = Outcome::default();
        for line in [
            "step matrix::x ... table\tkernel\t6.12.117\t25.01",
            "table\trow\tib_send_bw -a\tok\t1.2",
            "table\trow\trping -c\texit 1 and 0\t3.0",
            "something else",
            "    12.34 s  guests::a_step_that_passed",
            "     1.26 s  guests::another  FAILED",
            "     1.00 s  guests::the_rdma_image_is_provided",
        ] {
            outcome.take(line);
        }
        assert_eq!((outcome.release.as_str(), outcome.perftest.as_str()), ("6.12.117", "25.01"));
        assert_eq!(outcome.rows, [row("ib_send_bw -a", "ok", "1.2"), row("rping -c", "exit 1 and 0", "3.0")]);
        assert_eq!(outcome.steps, [row("a step that passed", "ok", "12.3"), row("another", "FAILED", "1.3")]);
    }

    #[test]
    fn the_table_stands_between_its_marks() {
        let one = Outcome { release: "6.12.1".into(), rows: vec![row("a", "ok", "1.0")], ..Outcome::default() };
        let other = Outcome {
            release: "7.3.4".into(),
            rows: vec![row("b", "ok", "2.0")],
            steps: vec![row("s", "FAILED", "3.0")],
            ..Outcome::default()
        };
        let mark = |edge: &str| format!("<!-- written by rnic-ci matrix: {edge} -->");
        let document = format!("before\n{}\nold\n{}\nafter\n", mark("begin"), mark("end"));
        let text = rewritten(&document, "about", &[one, other]).expect("written");
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n") && !text.contains("old"));
        for line in [
            "| program | Linux 6.12.1 | s | Linux 7.3.4 | s |",
            "| `a` | ok | 1.0 | not run | |",
            "| `b` | not run | | ok | 2.0 |",
            "| s | FAILED | 3.0 |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(rewritten("no marks", "", &[]).is_err());
    }
}
