//! A seed is a run: the same events in the same order, in another process as well.

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(arguments: &[&str]) -> std::process::Output {
    let output = Command::new(env!("CARGO_BIN_EXE_rnic-ci")).arg("sim").args(arguments).output();
    output.expect("rnic-ci runs")
}

fn log_of(seed: &str, folder: &Path, name: &str) -> Vec<u8> {
    let path: PathBuf = folder.join(name);
    let text = path.to_str().expect("a path in UTF-8");
    let output = run(&["--seed", seed, "--operations", "400", "--log", text]);
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stdout));
    std::fs::read(&path).expect("the log is there")
}

#[test]
fn one_seed_in_two_processes_gives_equal_logs_and_another_seed_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut logs = Vec::new();
    for seed in ["5", "21", "38"] {
        let (first, second) = (log_of(seed, folder.path(), "first"), log_of(seed, folder.path(), "second"));
        assert!(first.len() > 10_000, "seed {seed} has a log");
        assert!(first == second, "seed {seed} differs from itself");
        logs.push(first);
    }
    assert!(logs[0] != logs[1] && logs[1] != logs[2]);
}

#[test]
fn wrong_arguments_are_refused_with_the_reason() {
    let output = run(&["--seed", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--seed"));
    for option in ["--operations", "--threads", "--fresh"] {
        let output = run(&[option, "0"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(option) && said.contains("with 0 nothing is run"), "{said}");
    }
    let output = run(&["--seed", "1", "--operations", "10", "--log", "/nowhere/log"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/log"));
}
