//! The program `rnic` as its users run it.

use crate::tally;
use rnic_ci::child::{self, Child, Output};
use rnic_ci::deadline::Deadline;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Far above what any demo takes; `rnic` has its own limits below it.
const LIMIT: Duration = Duration::from_secs(200);

pub const PATH: &str = env!("CARGO_BIN_EXE_rnic");

/// A command that runs it.
pub fn command(arguments: &str) -> Command {
    let mut command = Command::new(PATH);
    command.args(arguments.split_whitespace());
    command
}

pub fn run(command: Command) -> Output {
    child::run(command, &Deadline::new("rnic runs", LIMIT)).expect("the program of this workspace runs")
}

/// A running `rnic`, with its output piped.
pub fn start(arguments: &str) -> Child {
    start_command(command(arguments), Stdio::null())
}

pub fn start_command(mut command: Command, standard_error: Stdio) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(standard_error);
    Child::start(command).expect("the program of this workspace starts")
}

pub fn demo(arguments: &str) -> Output {
    run(command(&format!("demo {arguments}")))
}

/// Runs the demo with `--json`, expects this exit number, and gives the one object of standard output.
#[track_caller]
pub fn report(arguments: &str, exit: i32) -> Value {
    let output = demo(&format!("{arguments} --json"));
    assert_eq!(
        output.status.code(),
        Some(exit),
        "rnic demo {arguments}\n{}\n{}",
        output.standard_output,
        output.standard_error
    );
    assert_eq!(output.standard_output.lines().count(), 1, "one object and nothing else: {}", output.standard_output);
    let report: Value = serde_json::from_str(&output.standard_output)
        .unwrap_or_else(|error| panic!("rnic demo {arguments}: {error}\n{}", output.standard_output));
    assert_eq!(report["schema"], "rnic.demo/1");
    if report["hosts_kind"] == "qemu" {
        tally::guests_booted(2);
    }
    report
}

/// Over model hosts, and everything right.
#[track_caller]
pub fn model(arguments: &str) -> Value {
    report(&format!("--hosts model {arguments}"), 0)
}
