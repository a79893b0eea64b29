//! One step in a process of its own: what the parent starts, and what runs there.

use crate::plan::{self, Step};
use crate::tally::Tally;
use rnic_ci::child::Child;
use rnic_ci::deadline::Deadline;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How a step went.
pub struct Outcome {
    pub failure: Option<String>,
    pub elapsed: Duration,
    pub tally: Tally,
}

/// The most of a failed step's output that is shown: its end.
const SHOWN_BYTES: usize = 64 << 10;

/// Runs a step in a child and waits for it within its limit. All that it has started goes with it.
pub fn run_apart(step: &Step, no_capture: bool) -> Outcome {
    let start = Instant::now();
    let mut outcome = Outcome { failure: None, elapsed: Duration::ZERO, tally: Tally::default() };
    outcome.failure = try_apart(step, no_capture, &mut outcome.tally).err();
    outcome.elapsed = start.elapsed();
    outcome
}

fn try_apart(step: &Step, no_capture: bool, tally: &mut Tally) -> Result<(), String> {
    let sentence = |error: std::io::Error| format!("the step could not be started: {error}");
    // A step that is killed cannot remove its temporary files, so they all go into a folder of ours.
    let folder = tempfile::Builder::new().prefix("rnic-e2e-").tempdir().map_err(sentence)?;
    let (counted, scratch) = (folder.path().join("tally"), folder.path().join("t"));
    std::fs::create_dir(&scratch).map_err(sentence)?;
    let mut output = tempfile::tempfile().map_err(sentence)?;
    let mut command = Command::new(std::env::current_exe().map_err(sentence)?);
    command.args(["--step", step.name, "--tally"]).arg(&counted).env("TMPDIR", &scratch).stdin(Stdio::null());
    if !no_capture {
        command.stdout(output.try_clone().map_err(sentence)?).stderr(output.try_clone().map_err(sentence)?);
    }
    let mut child = Child::start(command).map_err(|error| error.to_string())?;
    let ended = child.wait(&Deadline::new(format!("step {}", step.name), step.limit));
    drop(child);
    *tally = Tally::read(&counted);
    let printed = || {
        let mut bytes = Vec::new();
        let _ = output.rewind().and_then(|()| output.read_to_end(&mut bytes));
        let from = bytes.len().saturating_sub(SHOWN_BYTES);
        String::from_utf8_lossy(&bytes[from..]).trim_end().to_owned()
    };
    let reason = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(_) => format!("it took longer than {:?}", step.limit),
    };
    // Logs and captures of the guests are in there.
    let kept = folder.keep();
    Err(format!("{}\n({reason}; what it left is in {})", { printed }(), kept.display()))
}

/// The step itself, in the child.
pub fn run_here(steps: &[Step], name: &str, tally: &Path) -> ExitCode {
    let provision = plan::provision(steps);
    let Some(step) = steps.iter().chain(&provision).find(|step| step.name == name) else {
        rnic_ci::tell(format_args!("there is no step {name}"));
        return ExitCode::from(2);
    };
    let passed = std::panic::catch_unwind(step.run).is_ok();
    if let Err(error) = Tally::here().write(tally) {
        rnic_ci::tell(format_args!("{}: {error}", tally.display()));
        return ExitCode::FAILURE;
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
