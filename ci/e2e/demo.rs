//! The demo as its users run it: totals, wire bytes, faults, exit numbers; over model hosts and in real guests.

use rnic_ci::{Lab, Options, StandardError};
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn demo(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic"));
    command.arg("demo").args(arguments.split_whitespace());
    command.output().expect("the program of this workspace starts")
}

/// Runs with `--json`, expects this exit number, and gives the one object of standard output.
fn report(arguments: &str, exit: i32) -> Value {
    let output = demo(&format!("{arguments} --json"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "rnic demo {arguments}\n{out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("rnic demo {arguments}: {error}\n{out}\n{err}"))
}

fn model(arguments: &str) -> Value {
    report(&format!("--hosts model {arguments}"), 0)
}

fn totals(report: &Value) -> [u64; 2] {
    [0, 1].map(|host| report["hosts"][host]["total"].as_u64().expect("a total"))
}

fn classes(report: &Value, host: usize) -> Vec<&str> {
    rows(report, host).iter().map(|row| row["class"].as_str().expect("a class")).collect()
}

fn rows(report: &Value, host: usize) -> &Vec<Value> {
    report["hosts"][host]["crossings"].as_array().expect("crossings")
}

/// Link bytes of a host's operation: from host to device, from device to host.
fn wire_bytes(report: &Value, host: usize) -> (u64, u64) {
    let sum = |way: &str| rows(report, host).iter().map(|row| row["wire_bytes"][way].as_u64().unwrap_or(0)).sum();
    (sum("down"), sum("up"))
}

/// Both lists together are the ledger's difference.
fn assert_whole(report: &Value) {
    for host in report["hosts"].as_array().expect("hosts") {
        let listed = rows_of(host, "crossings") + rows_of(host, "housekeeping");
        let delta = host["ledger_delta"].as_object().expect("a ledger");
        let counted: u64 = delta.values().filter_map(Value::as_u64).sum();
        assert_eq!((host["remainder"].as_i64(), listed), (Some(0), counted), "{host}");
    }
}

fn rows_of(host: &Value, list: &str) -> u64 {
    host[list].as_array().map_or(0, Vec::len) as u64
}

pub fn the_known_totals_over_model_hosts() {
    for (arguments, expected) in [
        ("", [4, 3]),
        ("--armed", [4, 4]),
        ("--unsignaled", [3, 3]),
        ("--length 10000 --mtu 1024", [13, 12]),
        ("--op write", [4, 1]),
        ("--op send", [4, 3]),
        ("--op send_imm --length 0", [3, 2]),
        ("--op write --length 28 --inline --doorbell wqe", [2, 1]),
        ("--doorbell 8", [4, 3]),
        ("--unshared", [4, 3]),
    ] {
        let report = model(arguments);
        assert_eq!(totals(&report), expected, "{arguments}");
        assert_eq!(report["data_verified"], true, "{arguments}");
        assert_eq!(report["imm_verified"], true, "{arguments}");
        assert_whole(&report);
    }
    assert_eq!(classes(&model(""), 0), ["doorbell", "wqe_fetch", "payload_read", "cqe_write"]);
    assert_eq!(classes(&model("--armed"), 1), ["payload_write", "recv_wqe_fetch", "cqe_write", "event"]);
}

/// The published constants' arithmetic: MPS 256, MRRS 512, 64-bit addresses, coarse completions, one element, signaled.
pub fn golden_wire_bytes() {
    let table = [
        (0, (116, 112), (88, 88), 0, (36, 112)),
        (8, (144, 136), (116, 112), 32, (36, 144)),
        (64, (200, 136), (172, 112), 88, (36, 200)),
        (256, (392, 136), (364, 112), 280, (36, 392)),
        (1024, (1220, 160), (1192, 136), 1120, (36, 1232)),
        (4096, (4532, 304), (4504, 280), 4480, (36, 4592)),
    ];
    for (length, doorbell, carried, written, received) in table {
        let plain = model(&format!("--op write --doorbell 8 --length {length}"));
        assert_eq!(wire_bytes(&plain, 0), doorbell, "WRITE by doorbell, {length} bytes");
        assert_eq!(wire_bytes(&plain, 1), (0, written), "WRITE at the responder, {length} bytes");
        let line = model(&format!("--op write --doorbell wqe --length {length}"));
        assert_eq!(wire_bytes(&line, 0), carried, "WRITE carried by its doorbell, {length} bytes");
        let send = model(&format!("--op send --length {length}"));
        assert_eq!(wire_bytes(&send, 1), received, "SEND at the responder, {length} bytes");
    }
    assert_eq!(wire_bytes(&model("--op write --inline --length 28 --doorbell wqe"), 0), (88, 88));
}

pub fn a_line_is_one_write_and_is_seen_as_eight_stores() {
    let report = model("");
    let doorbell = &rows(&report, 0)[0];
    assert_eq!(doorbell["tlps"]["mwr"], 1);
    assert_eq!(doorbell["bytes"], 64);
    assert_eq!((&doorbell["observed"]["messages"], &doorbell["observed"]["bytes"]), (&8.into(), &64.into()));
}

pub fn cold_caches_add_fetches_and_nothing_else() {
    let (warm, cold) = (model(""), model("--cold"));
    for host in [0, 1] {
        let mut added = classes(&cold, host);
        for class in classes(&warm, host) {
            let at = added.iter().position(|other| *other == class).expect("what is warm is cold too");
            added.remove(at);
        }
        added.sort_unstable();
        assert_eq!(added, ["context_fetch", "context_fetch", "key_fetch", "translation_fetch"], "host {host}");
    }
    assert_whole(&cold);
}

pub fn a_refused_key_is_a_nak_and_an_error_and_touches_nothing() {
    for fault in ["bad-rkey", "bounds", "permission"] {
        let report = model(&format!("--fault {fault}"));
        assert_eq!(report["requester_status"], "REM_ACCESS_ERR", "{fault}");
        assert_eq!(report["data_verified"], true, "the target is untouched after {fault}");
        assert!(!classes(&report, 1).contains(&"payload_write"), "{fault}");
        assert_whole(&report);
    }
}

pub fn a_lost_packet_is_read_and_sent_again() {
    for arguments in
        ["--fault drop:1", "--fault drop:3 --length 10000 --mtu 1024", "--fault drop:10 --length 10000 --mtu 1024"]
    {
        let report = model(arguments);
        assert_eq!(report["requester_status"], "SUCCESS", "{arguments}");
        let again = rows(&report, 0).iter().filter(|row| row["attempt"].as_u64().unwrap_or(0) > 0);
        assert!(again.clone().count() > 0 && again.clone().all(|row| row["class"] == "payload_read"), "{arguments}");
        assert_whole(&report);
    }
}

pub fn the_exit_number_says_what_went_wrong() {
    assert_eq!(report("--hosts model --expect-one-more", 1)["matches_story"], false);
    for usage in
        ["--mtu 1000", "--fault nonsense", "--inline --length 300", "--op send --fault bounds", "--fault drop:2"]
    {
        let output = demo(&format!("--hosts model {usage}"));
        assert_eq!(output.status.code(), Some(2), "{usage}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{usage}");
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_rnic"))
        .args(["demo", "--offline"])
        .env("RNIC_CACHE", tempfile::tempdir().expect("a folder").path())
        .env("RNIC_QEMU", "/nonexistent/qemu")
        .output()
        .expect("the program starts");
    assert_eq!(missing.status.code(), Some(3), "{}", String::from_utf8_lossy(&missing.stderr));
    let late = demo("--hosts model --time-limit 0");
    assert_eq!(late.status.code(), Some(4), "{}", String::from_utf8_lossy(&late.stderr));
    let full = demo("--hosts model --capture /nonexistent/folder/file");
    assert_eq!(full.status.code(), Some(3));
}

pub fn model_hosts_take_less_than_two_seconds() {
    let start = Instant::now();
    model("");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// The main job, in two QEMU guests each time.
pub fn the_known_totals_in_guests() {
    Lab::prepare(&Options::from_environment(), &mut StandardError).expect("QEMU and the guest's image");
    for (arguments, expected) in [
        ("", [4, 3]),
        ("--armed", [4, 4]),
        ("--unsignaled", [3, 3]),
        ("--length 10000 --mtu 1024", [13, 12]),
        ("--cold", [8, 7]),
        ("--fault bad-rkey", [4, 1]),
        ("--unshared", [4, 3]),
        ("--cold-boot", [4, 3]),
    ] {
        let start = Instant::now();
        let report = report(arguments, 0);
        let limit = if arguments == "--cold-boot" { 60 } else { 8 };
        assert_eq!(totals(&report), expected, "{arguments}");
        assert_eq!(report["hosts_kind"], "qemu");
        crate::tally::guests_booted(2);
        assert!(report["hosts"][0]["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("6.12")), "{arguments}");
        assert_whole(&report);
        assert!(start.elapsed() < Duration::from_secs(limit), "{arguments} took {:?}", start.elapsed());
    }
}
