//! The Python driver that was written from the datasheet alone, against `rnic serve`: it does its one operation, and it
//! breaks rules and is told the right one each time.

use crate::bench::laboratory;
use crate::bench::serving::Serving;
use rnic_abi::Diagnostic;
use rnic_ci::child::Output;
use std::path::PathBuf;
use std::time::Duration;

/// What the driver breaks, in the order of its `--list`: the rule, and the object that LAST_DIAGNOSTIC, the completion
/// or the event names with it.
const BROKEN: &[(&str, Diagnostic, Option<u32>)] = &[
    ("rings_before_registers", Diagnostic::CommandRingInvalid, Some(0)),
    ("no_bus_master", Diagnostic::CommandFetchFault, Some(0)),
    ("read_only_register", Diagnostic::RegisterReadOnly, Some(0x18)),
    ("no_table", Diagnostic::TableMissing, None),
    ("unaligned_ring", Diagnostic::PageListInvalid, None),
    ("remote_without_local", Diagnostic::AccessNeedsLocalWrite, None),
    ("step_left_out", Diagnostic::ModifyTransition, None),
    ("attribute_left_out", Diagnostic::ModifyMissing, None),
    ("doorbell_before_rts", Diagnostic::DoorbellState, Some(0x11)),
    ("foreign_page", Diagnostic::DoorbellForeignPage, Some(0x11)),
    ("beyond_the_ring", Diagnostic::DoorbellBeyondRing, Some(0x11)),
    ("four_byte_store", Diagnostic::DoorbellAccess, Some(0x1000)),
    ("torn_line", Diagnostic::DoorbellTornLine, Some(0x11)),
    ("stale_arm", Diagnostic::ArmStale, Some(3)),
    ("wrong_qpn", Diagnostic::WqeQpn, Some(0x11)),
    ("wrong_slot", Diagnostic::WqeIndex, Some(0x11)),
    ("reserved_bits", Diagnostic::WqeReserved, Some(0x11)),
    ("outside_the_region", Diagnostic::LKeyRange, Some(0x11)),
    ("stale_rkey", Diagnostic::RKeyInvalid, Some(0x12)),
    ("no_receive", Diagnostic::RnrRetryExceeded, Some(0x11)),
    ("vector_without_receiver", Diagnostic::VectorUnusable, Some(0)),
];

struct Driver {
    python: rnic_ci::tools::Tool,
    serving: Serving,
}

impl Driver {
    fn new() -> Driver {
        Driver { python: laboratory::tools().python().clone(), serving: Serving::start("A B") }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/guest-driver-shim/examples/python/write_imm.py");
        let sockets = ["A", "B"].map(|name| self.serving.socket(name));
        let [a, b] = sockets.map(|path| path.to_str().expect("a plain path").to_owned());
        let words = [&[script, "--a", &a, "--b", &b], arguments].concat();
        self.python.run(&words, Duration::from_secs(60)).expect("python runs")
    }
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", output.standard_output, output.standard_error);
}

pub fn written_from_the_datasheet_it_writes_with_immediate() {
    let driver = Driver::new();
    // Twice: the adapters are as new for the second one.
    for _ in 0..2 {
        let output = driver.run(&[]);
        assert_exit(&output, 0);
        assert!(output.standard_output.contains("the write arrived"), "{}", output.standard_output);
    }
}

pub fn it_breaks_rules_and_is_told_the_right_one_each_time() {
    let driver = Driver::new();
    let list = driver.run(&["--list"]);
    assert_exit(&list, 0);
    let names: Vec<_> = list.standard_output.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, BROKEN.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), "every mistake has its row here");
    for (at, (name, diagnostic, object)) in BROKEN.iter().enumerate() {
        let output = driver.run(&["--break", &(at + 1).to_string()]);
        assert_exit(&output, 0);
        let told = output.standard_output.lines().find(|line| line.starts_with("diagnostic ")).expect("a diagnostic");
        let expected = format!("diagnostic {}, told by ", diagnostic.number());
        assert!(told.starts_with(&expected), "{name}: {told}, but the rule is {diagnostic:?}");
        match object {
            Some(object) => assert!(told.ends_with(&format!(", object {object:#x}")), "{name}: {told}"),
            None => assert!(!told.contains("object"), "{name}: {told}"),
        }
    }
    // After all of them the adapters work as before.
    assert_exit(&driver.run(&[]), 0);
}

pub fn it_says_what_is_wrong_with_its_arguments_and_with_a_missing_server() {
    let mut driver = Driver::new();
    assert_exit(&driver.run(&["--break", "0"]), 2);
    assert_exit(&driver.run(&["--break", "x"]), 2);
    driver.serving.child().kill();
    let output = driver.run(&[]);
    assert_exit(&output, 1);
    assert!(output.standard_error.contains("start `rnic serve`"), "{}", output.standard_error);
    let missing = PathBuf::from("/nowhere/A.sock");
    let output = driver.run(&["--a", missing.to_str().expect("plain")]);
    assert_exit(&output, 1);
    assert!(output.standard_error.contains("/nowhere/A.sock"), "{}", output.standard_error);
}
