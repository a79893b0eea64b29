//! The demo as its users run it: totals, wire bytes, faults, exit numbers; over model hosts and in real guests.

use crate::bench::laboratory;
use crate::bench::program::{self, demo, model, report};
use crate::bench::rows::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

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
        ("--unshared --length 100000 --mtu 256", [394, 393]),
        ("--length 8388608 --seed 9", [2051, 2050]),
        ("--op read", [4, 1]),
        ("--op read --length 10000 --mtu 1024", [13, 10]),
        ("--op read --length 0 --unsignaled", [2, 0]),
        ("--op read --unshared --length 100000 --mtu 256", [394, 391]),
        ("--op read --length 8388608 --seed 9", [2051, 2048]),
        ("--op read --cold", [8, 5]),
        ("--op cmp_swap --cold", [8, 6]),
        ("--op fetch_add --unshared", [4, 2]),
        ("--transport uc", [4, 3]),
        ("--transport uc --length 10000 --mtu 1024", [13, 12]),
        ("--transport uc --op write --unshared", [4, 1]),
        ("--transport ud --op send_imm", [4, 3]),
        ("--transport ud --op send --length 0 --armed", [3, 4]),
        ("--transport ud --op send --cold", [8, 7]),
        ("--transport ud --op send --length 192 --inline --doorbell wqe", [3, 3]),
    ] {
        let report = model(arguments);
        assert_eq!(totals(&report), expected, "{arguments}");
        assert_right(&report);
    }
    assert_eq!(classes(&model(""), 0), ["doorbell", "wqe_fetch", "payload_read", "cqe_write"]);
    assert_eq!(classes(&model("--op read"), 0), ["doorbell", "wqe_fetch", "payload_write", "cqe_write"]);
    assert_eq!(classes(&model("--armed"), 1), ["payload_write", "recv_wqe_fetch", "cqe_write", "event"]);
}

/// Every operation with every doorbell, inline or not: the published table per verb and mode.
pub fn the_table_of_operations_and_modes() {
    for (op, responder) in [
        ("write", &["payload_write"][..]),
        ("write_imm", &["payload_write", "recv_wqe_fetch", "cqe_write"]),
        ("send", &["cqe_write", "payload_write", "recv_wqe_fetch"]),
        ("send_imm", &["cqe_write", "payload_write", "recv_wqe_fetch"]),
        ("send_inv", &["cqe_write", "payload_write", "recv_wqe_fetch"]),
    ] {
        for doorbell in ["8", "64", "wqe"] {
            for inline in ["", "--inline"] {
                let arguments = format!("--op {op} --doorbell {doorbell} {inline} --length 16");
                let report = model(&arguments);
                assert_right(&report);
                // Sixteen bytes and their headers fit into one slot, which the carrying doorbell spares the device.
                let mut requester = vec!["doorbell"];
                requester.extend((doorbell != "wqe").then_some("wqe_fetch"));
                requester.extend(inline.is_empty().then_some("payload_read"));
                requester.push("cqe_write");
                assert_eq!(classes(&report, 0), requester, "{arguments}");
                let (mut found, mut expected) = (classes(&report, 1), responder.to_vec());
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{arguments}");
                let bell = &rows(&report, 0)[0];
                assert_eq!(bell["bytes"], if doorbell == "8" { 8 } else { 64 }, "{arguments}");
            }
        }
    }
}

/// What fetches has no inline form: the same work request by three doorbells.
pub fn the_table_of_operations_that_fetch() {
    for (op, responder) in [
        ("read", &["payload_read"][..]),
        ("cmp_swap", &["atomic_read", "atomic_write"]),
        ("fetch_add", &["atomic_read", "atomic_write"]),
    ] {
        for doorbell in ["8", "64", "wqe"] {
            let arguments = format!("--op {op} --doorbell {doorbell}");
            let report = model(&arguments);
            assert_right(&report);
            let mut requester = vec!["doorbell"];
            requester.extend((doorbell != "wqe").then_some("wqe_fetch"));
            requester.extend(["payload_write", "cqe_write"]);
            assert_eq!(classes(&report, 0), requester, "{arguments}");
            assert_eq!(classes(&report, 1), responder, "{arguments}");
            let bytes = if op == "read" { 4096 } else { 8 };
            assert!(rows(&report, 1).iter().all(|row| row["bytes"] == bytes), "{arguments}");
        }
        for fault in ["bad-rkey", "bounds", "permission"] {
            let report = model(&format!("--op {op} --fault {fault}"));
            assert_eq!(report["requester_status"], "REM_ACCESS_ERR", "{op} {fault}");
            assert_eq!((classes(&report, 1).len(), &report["target_untouched"]), (0, &true.into()), "{op} {fault}");
            assert!(report["data_verified"].is_null() && report["data_sha256"].is_null(), "{op} {fault}");
            assert_whole(&report);
        }
    }
}

/// A lost response: the READ goes on where it was, an atomic is not executed again.
pub fn a_lost_response_is_fetched_again() {
    for arguments in
        ["--fault drop:1", "--fault drop:3 --length 10000 --mtu 1024", "--fault drop:10 --length 10000 --mtu 1024"]
    {
        let report = model(&format!("--op read {arguments}"));
        assert_eq!(report["requester_status"], "SUCCESS", "{arguments}");
        assert_right(&report);
        let again: Vec<_> = rows(&report, 1).iter().filter(|row| attempt(row) > 0).collect();
        assert!(!again.is_empty() && again.iter().all(|row| class(row) == "payload_read"), "{arguments}");
        let placed = classes(&report, 0).iter().filter(|class| **class == "payload_write").count();
        assert_eq!(placed as u64, report["packets"], "no byte is placed twice: {arguments}");
    }
    for op in ["cmp_swap", "fetch_add"] {
        let report = model(&format!("--op {op} --fault drop:1"));
        assert_right(&report);
        assert_eq!(totals(&report), [4, 2], "{op} is executed once");
    }
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
    let carried = model("--op write --inline --length 28 --doorbell wqe");
    assert_eq!(wire_bytes(&carried, 0), (88, 88));
    let link = &carried["hosts"][0]["link"];
    assert_eq!((&link["mps"], &link["mrrs"], &link["rcb"]), (&256.into(), &512.into(), &64.into()));
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
    assert_right(&cold);
    for host in [0, 1] {
        let is_fill = |class: &&str| ["context_fetch", "key_fetch", "translation_fetch"].contains(class);
        let (mut added, rest): (Vec<_>, Vec<_>) = classes(&cold, host).into_iter().partition(is_fill);
        assert_eq!(rest, classes(&warm, host), "what was there without them is there in the same order, host {host}");
        added.sort_unstable();
        assert_eq!(added, ["context_fetch", "context_fetch", "key_fetch", "translation_fetch"], "host {host}");
    }
}

pub fn a_refused_key_is_a_nak_and_an_error_and_touches_nothing() {
    for fault in ["bad-rkey", "bounds", "permission"] {
        for op in ["write", "write_imm"] {
            let report = model(&format!("--fault {fault} --op {op}"));
            assert_eq!(report["requester_status"], "REM_ACCESS_ERR", "{fault}");
            assert_eq!(report["target_untouched"], true, "after {fault}");
            // The NAK as it was on the wire, and what it has left on both sides.
            let nak = &report["nak"];
            assert_eq!((&nak["syndrome"], &nak["psn"], &nak["dest_qp"]), (&0x62.into(), &1000.into(), &0x11.into()));
            let after = |host: usize| &report["hosts"][host]["aftermath"];
            assert_eq!((&after(0)["state"], &after(1)["state"]), (&"Err".into(), &"Err".into()), "{fault}");
            assert_eq!(after(0)["completions"][0]["status"], "REM_ACCESS_ERR");
            let flushed = &after(1)["completions"];
            assert_eq!(flushed.as_array().expect("a list").len(), usize::from(op == "write_imm"), "{fault} {op}");
            assert!(op == "write" || flushed[0]["status"] == "WR_FLUSH_ERR", "{flushed}");
            let told = &report["hosts"][1]["diagnostics"][0]["name"];
            let rule = match fault {
                "bad-rkey" => "RKeyInvalid",
                "bounds" => "RKeyRange",
                _ => "RKeyRight",
            };
            assert_eq!(told, rule, "{fault}");
            assert!(!classes(&report, 1).contains(&"payload_write"), "{fault}");
            assert_whole(&report);
        }
    }
}

/// What a person reads of it.
pub fn the_dashed_branch_is_told_in_full() {
    let words = demo("--hosts model --fault bad-rkey").standard_output;
    for sentence in [
        "The dashed branch",
        "RKeyInvalid",
        "NAK, syndrome 0x62 (remote access error), PSN 1000",
        "B queue pair     0x12 is in state ERR",
        "WR_FLUSH_ERR",
        "A queue pair     0x11 is in state ERR",
        "REM_ACCESS_ERR",
        "target memory untouched",
    ] {
        assert!(words.contains(sentence), "no {sentence:?} in\n{words}");
    }
    let words = demo("--hosts model --op write").standard_output;
    assert!(words.contains("data right") && !words.contains("immediate"), "{words}");
}

pub fn a_lost_packet_is_read_and_sent_again() {
    for arguments in
        ["--fault drop:1", "--fault drop:3 --length 10000 --mtu 1024", "--fault drop:10 --length 10000 --mtu 1024"]
    {
        let report = model(arguments);
        assert_eq!(report["requester_status"], "SUCCESS", "{arguments}");
        assert_right(&report);
        let again: Vec<_> = rows(&report, 0).iter().filter(|row| attempt(row) > 0).collect();
        assert!(!again.is_empty() && again.iter().all(|row| class(row) == "payload_read"), "{arguments}");
        let twice = classes(&report, 1).iter().filter(|class| **class == "payload_write").count();
        assert_eq!(twice as u64, report["packets"], "no byte is placed twice: {arguments}");
    }
}

pub fn the_exit_number_says_what_went_wrong() {
    assert_eq!(report("--hosts model --expect-one-more", 1)["matches_story"], false);
    let words = demo("--hosts model --expect-one-more");
    assert!(words.standard_output.contains("NOT as the story tells"), "{}", words.standard_output);
    for usage in [
        "--mtu 1000",
        "--fault nonsense",
        "--inline --length 300",
        "--op send --fault bounds",
        "--fault drop:2",
        "--op fetch_add --length 16",
        "--op read --inline",
        "--op read --armed",
        "--transport ud",
        "--transport ud --op send --length 5000",
        "--transport uc --op read",
        "--transport uc --fault bad-rkey",
    ] {
        assert_refused(&format!("--hosts model {usage}"), 2);
    }
    let one = demo("--hosts model --fault drop:2").standard_error;
    assert!(one.contains("has 1 packet\n"), "{one}");
    assert_refused("--hosts model --capture /nonexistent/folder/file", 3);
    // A limit that has passed before anything was done, and one that passes while the responder waits.
    assert_refused("--hosts model --time-limit 0", 4);
}

#[track_caller]
fn assert_refused(arguments: &str, exit: i32) {
    let output = demo(arguments);
    assert_eq!(output.status.code(), Some(exit), "{arguments}: {}", output.standard_error);
    assert!(output.standard_output.is_empty() && !output.standard_error.is_empty(), "{arguments}");
}

/// QEMUs that will not do, and a cache that holds none: one sentence, and number 3.
pub fn a_missing_or_old_qemu_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = fake_qemu(folder.path(), "10.0.13");
    let missing = folder.path().join("missing");
    for (qemu, word) in [
        (Some(old.as_str()), "10.0.13"),
        (missing.to_str(), "missing"),
        (Some("/bin/false"), "`/bin/false -version` ended with exit status: 1"),
        (None, "offline"),
    ] {
        let mut command = program::command("demo --offline");
        command.env("RNIC_CACHE", folder.path().join("cache")).env_remove("RNIC_QEMU").env("PATH", folder.path());
        if let Some(qemu) = qemu {
            command.env("RNIC_QEMU", qemu);
        }
        let output = program::run(command);
        assert_eq!(output.status.code(), Some(3), "{}", output.standard_error);
        assert!(output.standard_error.contains(word), "{}", output.standard_error);
        assert_eq!(output.standard_error.lines().count(), 1, "{}", output.standard_error);
        assert!(output.standard_output.is_empty());
    }
}

/// KVM where it does not work is told, not waited for; where it works, guests run on it.
pub fn kvm_is_proved_before_it_is_used() {
    let start = Instant::now();
    let output = demo("--accel kvm --json");
    let (words, elapsed) = (&output.standard_error, start.elapsed());
    match output.status.code() {
        Some(0) => {
            let report: Value = serde_json::from_str(&output.standard_output).expect("a report");
            assert_eq!(report["accelerator"], "kvm");
        }
        code => {
            assert_eq!(code, Some(3), "{words}");
            assert!(words.contains("KVM does not work here") && words.lines().count() == 1, "{words}");
            assert!(output.standard_output.is_empty());
            assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
        }
    }
}

pub fn the_help_names_what_the_environment_decides() {
    let help = demo("--help").standard_output;
    for name in ["RNIC_QEMU", "RNIC_CACHE", "RNIC_MIRROR", "RNIC_RUN_FOLDER"] {
        assert!(help.contains(name), "no {name} in\n{help}");
    }
}

/// A program that answers as an old QEMU does.
fn fake_qemu(folder: &Path, version: &str) -> String {
    let path = folder.join("old-qemu");
    let text = format!("#!/bin/sh\n[ \"$1\" = -version ] && echo 'QEMU emulator version {version}'\nexit 0\n");
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path.to_str().expect("text").to_owned()
}

pub fn model_hosts_take_less_than_two_seconds() {
    let start = Instant::now();
    model("");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// The main job, in two QEMU guests each time.
pub fn the_known_totals_in_guests() {
    laboratory::is_provided();
    for (arguments, expected) in [
        ("", [4, 3]),
        ("--armed", [4, 4]),
        ("--unsignaled", [3, 3]),
        ("--length 10000 --mtu 1024", [13, 12]),
        ("--cold", [8, 7]),
        ("--fault bad-rkey", [4, 1]),
        ("--unshared", [4, 3]),
        ("--op read --length 10000 --mtu 1024", [13, 10]),
        ("--op cmp_swap", [4, 2]),
        ("--op fetch_add --unshared", [4, 2]),
        ("--transport uc --length 10000 --mtu 1024", [13, 12]),
        ("--transport ud --op send", [4, 3]),
    ] {
        in_guests(arguments, expected, Duration::from_secs(8));
    }
}

/// Lost packets in both directions, between guests.
pub fn what_is_lost_between_guests_is_sent_again() {
    laboratory::is_provided();
    for arguments in [
        "--fault drop:3 --length 10000 --mtu 1024",
        "--op read --fault drop:3 --length 10000 --mtu 1024",
        "--op fetch_add --fault drop:1",
    ] {
        let report = report(arguments, 0);
        assert_eq!((&report["hosts_kind"], &report["requester_status"]), (&"qemu".into(), &"SUCCESS".into()));
        assert_whole(&report);
    }
}

/// The same with the adapters there from the guests' first instruction on.
pub fn the_known_totals_in_guests_booted_cold() {
    in_guests("--cold-boot", [4, 3], Duration::from_secs(60));
}

#[track_caller]
fn in_guests(arguments: &str, expected: [u64; 2], limit: Duration) -> Value {
    let start = Instant::now();
    let report = report(arguments, 0);
    assert!(start.elapsed() < limit, "{arguments} took {:?}", start.elapsed());
    println!("{arguments}: {:?}", start.elapsed());
    assert_eq!(totals(&report), expected, "{arguments}");
    assert_eq!(report["hosts_kind"], "qemu");
    for host in [0, 1] {
        let kernel = report["hosts"][host]["kernel"].as_str().expect("a kernel");
        assert!(kernel.starts_with("6.12"), "{kernel}");
        let link = &report["hosts"][host]["link"];
        assert_eq!((&link["mps"], &link["mrrs"]), (&128.into(), &512.into()), "as Linux under QEMU sets them");
    }
    assert_whole(&report);
    report
}
