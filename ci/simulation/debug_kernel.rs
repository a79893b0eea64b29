//! The steps with guests on a kernel that looks for faults.
//!
//! In: lines that the end-to-end suite prints. Out: the summary in docs/guests.md, which nobody else writes.

use crate::matrix::{Outcome, between_marks, cargo_test, cell, suite};

const SERIES: &str = "6.12-debug";
/// Whose summary it is in the document.
const NAME: &str = "debug-kernel";
/// Steps that compare times, or take their module from elsewhere, say nothing about faults.
const LEFT_OUT: [&str; 2] = ["it_is_many_times", "a_changed_module"];

/// What is planted has to be found; then everything that ordinary runs do with guests, or the steps with one of these words in
/// their names. One run of the suite each, so that others who want the laboratory get a turn.
pub fn run(words: &[String]) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    outcome.passed = suite(SERIES, &["--ignored", "--nocapture", "planted_faults"], &mut outcome)?;
    let is_chosen = |step: &&String| words.is_empty() || words.iter().any(|word| step.contains(word.as_str()));
    for step in steps()?.iter().filter(is_chosen) {
        outcome.passed &= suite(SERIES, &[step, "--exact", "--nocapture"], &mut outcome)?;
    }
    Ok(outcome)
}

/// The suite's steps with guests that have RDMA.
fn steps() -> Result<Vec<String>, String> {
    let mut command = cargo_test();
    let output = command.args(["--list", "guests::"]).output();
    let output = output.map_err(|error| format!("cargo does not start: {error}"))?;
    let names = String::from_utf8_lossy(&output.stdout);
    let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<_> =
        names.filter(|name| !LEFT_OUT.iter().any(|part| name.contains(part))).map(str::to_owned).collect();
    if names.is_empty() { Err("the end-to-end suite names no steps".into()) } else { Ok(names) }
}

/// The document with its summary written anew.
pub fn rewritten(document: &str, about: &str, outcome: &Outcome) -> Result<String, String> {
    let mut text = format!("{about}\n\n| step `guests::` | | s |\n|---|---|---|\n");
    outcome.steps.iter().for_each(|row| text += &format!("| {} |{}\n", row.title, cell(Some(row))));
    between_marks(document, NAME, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Row;

    #[test]
    fn the_summary_has_a_row_for_each_step() {
        let row = Row { title: "a step".into(), result: "ok".into(), seconds: "2.0".into() };
        let outcome = Outcome { steps: vec![row], ..Outcome::default() };
        let mark = |edge: &str| format!("<!-- written by rnic-ci debug-kernel: {edge} -->");
        let document = format!("before\n{}\nold\n{}\nafter\n", mark("begin"), mark("end"));
        let text = rewritten(&document, "about", &outcome).expect("written");
        assert!(text.contains("\nabout\n") && text.contains("\n| a step | ok | 2.0 |\n") && !text.contains("old"));
        assert!(rewritten("no marks", "", &outcome).is_err());
    }
}
