//! The commands around a run: what a number means, what the cache holds, what a machine lacks.

use crate::bench::program::{command, run};
use rnic_ci::cache::Cache;
use rnic_ci::child::Output;
use rnic_ci::{Options, Silent};
use serde_json::Value;
use std::path::Path;

fn rnic(arguments: &str) -> Output {
    run(command(arguments))
}

#[track_caller]
fn assert_exit(output: &Output, code: i32, words: &[&str]) {
    let said = format!("{}{}", output.standard_output, output.standard_error);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
}

pub fn a_number_is_explained_and_an_unknown_one_leads_to_the_nearest() {
    for wanted in ["430", "0x1ae", "RKeyInvalid", "rkeyinvalid"] {
        assert_exit(&rnic(&format!("explain-error {wanted}")), 0, &["430 RKeyInvalid", "stale", "Memory regions"]);
    }
    let row: Value = serde_json::from_str(&rnic("explain-error 205 --json").standard_output).expect("JSON");
    assert_eq!((&row["number"], &row["name"]), (&205.into(), &"DoorbellState".into()));
    let all = rnic("explain-error");
    assert_eq!(all.standard_output.lines().count(), rnic_abi::diagnostic::RULES.len());
    assert_exit(&rnic("explain-error 434"), 2, &["434", "433 RKeyPd"]);
    assert_exit(&rnic("explain-error RKeyInvald"), 2, &["did you mean RKeyInvalid?"]);
    assert_exit(&rnic("explain-error -- -5"), 2, &["-5"]);
}

fn with_cache(arguments: &str, cache: &Path) -> Output {
    let mut command = command(arguments);
    command.env("RNIC_CACHE", cache);
    run(command)
}

/// In a cache of its own, with what builds and killed processes leave.
pub fn the_cache_is_listed_and_cleaned_and_locks_are_respected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c");
    let cache = Cache::open(&Options { cache_folder: Some(path.clone()), ..Options::default() }).expect("a cache");
    for (name, bytes) in
        [("debs", 30_000), ("trees/qemu-1", 20_000), ("images/.building-x", 9_000), ("images/a", 8_000)]
    {
        let folder = cache.sub_folder(name).expect("made");
        std::fs::write(folder.join("file"), vec![1; bytes]).expect("written");
    }
    let list: Value = serde_json::from_str(&with_cache("cache list --json", &path).standard_output).expect("JSON");
    let verdict = |name: &str| {
        let rows = list["entries"].as_array().expect("entries");
        rows.iter().find(|row| row["name"] == name).expect("an entry")["clean"].as_str().expect("a word").to_owned()
    };
    assert_eq!(
        ["debs", "trees/qemu-1", "images/.building-x", "images/a"].map(verdict),
        ["remove", "remove", "remove", "keep"]
    );
    assert!(list["bytes"].as_u64().expect("bytes") >= 67_000);

    assert_exit(&with_cache("cache clean --dry-run", &path), 0, &["would be removed", "debs", "kept", "images/a"]);
    assert!(path.join("debs").exists());

    // Whoever is adding to the cache is waited for.
    let lock = cache.lock(&mut Silent).expect("the lock");
    let other = std::thread::spawn({
        let path = path.clone();
        move || with_cache("cache clean", &path)
    });
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(!other.is_finished() && path.join("debs").exists(), "the lock is not respected");
    drop(lock);
    assert_exit(&other.join().expect("it ends"), 0, &["removed", "waiting for another process"]);
    let left = |name: &str| path.join(name).exists();
    assert_eq!(["debs", "trees/qemu-1", "images/.building-x", "images/a"].map(left), [false, false, false, true]);

    // What runs from the cache is not taken away under it.
    let program = cache.sub_folder("images/a").expect("there").join("sleep");
    std::fs::copy("/bin/sleep", &program).expect("copied");
    let mut sleep = std::process::Command::new(&program).arg("60").spawn().expect("it runs");
    let refused = with_cache("cache clean --all", &path);
    sleep.kill().and_then(|()| sleep.wait()).expect("ended");
    assert_exit(&refused, 3, &["in use"]);
    assert_exit(&with_cache("cache clean --all", &path), 0, &["everything"]);
    assert!(!left("images/a"));
    assert_exit(&with_cache("cache list", Path::new("/proc/version")), 3, &["/proc/version"]);
}

pub fn the_doctor_finds_this_machine_fit_and_says_what_stops_another() {
    let fit = rnic("doctor --json");
    assert_exit(&fit, 0, &[]);
    let report: Value = serde_json::from_str(&fit.standard_output).expect("JSON");
    assert_eq!((&report["schema"], &report["healthy"]), (&"rnic.doctor/1".into(), &true.into()));
    let findings = report["findings"].as_array().expect("findings");
    for check in [
        "archive",
        "disk",
        "QEMU",
        "QEMU's known bugs",
        "guest image",
        "KVM",
        "cache",
        "memory",
        "open files",
        "XDG_RUNTIME_DIR",
        "temporary folder",
    ] {
        let finding = findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}"));
        assert_eq!(finding["level"] == "ok", finding["cure"].is_null(), "{finding}");
    }
    // The program itself says what it is, not its file name.
    let qemu = findings.iter().find(|finding| finding["check"] == "QEMU" && finding["level"] == "ok").expect("QEMU");
    assert!(qemu["found"].as_str().is_some_and(|found| found.contains("QEMU emulator version")), "{qemu}");

    for (name, value, words) in [
        ("RNIC_QEMU", "/bin/true", &["stops   QEMU", "->", "11.1 or newer"][..]),
        ("RNIC_CACHE", "/proc/version", &["stops   cache", "RNIC_CACHE"]),
        ("TMPDIR", "/nowhere", &["stops   temporary folder", "TMPDIR"]),
    ] {
        let mut command = command("doctor --offline");
        command.env(name, value);
        assert_exit(&run(command), 3, words);
    }
}
