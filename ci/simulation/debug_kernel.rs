//! The steps with guests on a kernel that looks for faults.
//!
//! In: lines that the end-to-end suite prints. Out: the summary in docs/guests.md, which nobody else writes.

use crate::matrix::{Outcome, between_marks, cargo_test, cell, suite, title};

const SERIES: &str = "6.12-debug";
/// Whether the kernel finds what it has to find; ordinary runs leave it out.
const PLANTED: &str = "guests::planted_faults_are_found";
/// Whose summary it is in the document.
const NAME: &str = "debug-kernel";
/// Steps that compare times, or take their module from elsewhere, say nothing about faults.
const LEFT_OUT: [&str; 2] = ["it_is_many_times", "a_changed_module"];

/// What is planted has to be found; then everything that ordinary runs do with guests, or the steps with one of these words in
/// their names. One run of the suite each, so that others who want the laboratory get a turn; `so_far` is told after each, with
/// the names of all steps.
pub fn run(
    words: &[String],
    mut so_far: impl FnMut(&[String], &Outcome) -> Result<(), String>,
) -> Result<Outcome, String> {
    let steps = [vec![PLANTED.to_owned()], steps()?].concat();
    let mut outcome = Outcome { passed: true, ..Outcome::default() };
    let is_chosen = |step: &&String| words.is_empty() || words.iter().any(|word| step.contains(word.as_str()));
    for step in steps.iter().filter(is_chosen) {
        let which: &[&str] = if step == PLANTED { &["--ignored"] } else { &[] };
        outcome.passed &= suite(SERIES, &[which, &[step, "--exact", "--nocapture"]].concat(), &mut outcome)?;
        so_far(&steps, &outcome)?;
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

/// The document with its summary written anew: of all steps, those that have not run as well.
pub fn rewritten(document: &str, about: &str, steps: &[String], outcome: &Outcome) -> Result<String, String> {
    let mut text = format!("{about}; Linux {}.\n\n| step `guests::` | | s |\n|---|---|---|\n", outcome.release);
    for step in steps {
        let title = title(step);
        let row = outcome.steps.iter().find(|row| row.title == title);
        text += &format!("| {title} |{}\n", cell(row));
    }
    between_marks(document, NAME, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Row;

    #[test]
    fn the_summary_has_a_row_for_each_step() {
        let row = Row { title: "a step".into(), result: "ok".into(), seconds: "2.0".into() };
        let outcome = Outcome { release: "6.12.1".into(), steps: vec![row], ..Outcome::default() };
        let mark = |edge: &str| format!("<!-- written by rnic-ci debug-kernel: {edge} -->");
        let document = format!("before\n{}\nold\n{}\nafter\n", mark("begin"), mark("end"));
        let steps = ["guests::a_step", "guests::another"].map(str::to_owned);
        let text = rewritten(&document, "about", &steps, &outcome).expect("written");
        assert!(text.contains("\nabout; Linux 6.12.1.\n") && !text.contains("old"), "{text}");
        assert!(text.contains("\n| a step | ok | 2.0 |\n| another | not run | |\n"), "{text}");
        assert!(rewritten("no marks", "", &steps, &outcome).is_err());
    }
}
