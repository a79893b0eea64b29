//! What the demo says, and where: the capture, the report, the bring-up, its progress; and what stays with `--keep`.

use crate::bench::judges::scapy_verify;
use crate::bench::processes::{is_alive, qemus_of};
use crate::bench::program::{self, PATH, model, report};
use crate::bench::serving::Serving;
use crate::bench::transaction::{Pair, over_socket};
use crate::bench::{laboratory, rows};
use crate::tally;
use rnic_ci::child::Child;
use rnic_ci::deadline::Deadline;
use rnic_shim::transaction::TransactionSpec;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Nobody can be told, and the exit number tells all the same.
pub fn a_standard_error_that_cannot_be_written_changes_no_exit_number() {
    for (arguments, exit) in [
        ("demo --hosts model", 0),
        ("demo --hosts model --expect-one-more", 1),
        ("demo --hosts model --fault drop:9", 2),
        ("demo --hosts model --capture /nonexistent/folder/file", 3),
        ("demo --hosts model --time-limit 0", 4),
        ("demo --hosts model --time-limit 18446744073709551615", 2),
        ("demo --hosts model --json --capture -", 3),
        ("explain-error 9999", 2),
        ("serve --config /nonexistent", 2),
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = std::process::Command::new(PATH);
        let status = command.args(arguments.split(' ')).stdout(std::process::Stdio::null()).stderr(full).status();
        assert_eq!(status.expect("a run").code(), Some(exit), "{arguments}");
    }
}

pub fn an_answer_that_cannot_be_written_is_a_failure() {
    for arguments in ["--help", "--version", "serve --help", "list", "explain-error 101"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = std::process::Command::new(PATH);
        let ended = command.args(arguments.split(' ')).stdout(full).stderr(std::process::Stdio::piped()).output();
        let ended = ended.expect("a run");
        assert_eq!(ended.status.code(), Some(3), "{arguments}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("No space left"), "{arguments}");
    }
}

/// A run with its standard output in a pipe, and its standard error in a file.
struct Run {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Run {
    fn start(arguments: &str) -> Run {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let child = program::start_command(program::command(arguments), log.reopen().expect("a handle").into());
        Run { child, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log.path()).expect("the log")
    }

    fn printed(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.child.take_standard_output().expect("a pipe").read_to_end(&mut bytes).expect("what it printed");
        bytes
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait(&Deadline::new("rnic ends", LIMIT)).expect("it ends")
    }

    fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    #[track_caller]
    fn await_words(&mut self, words: &str) {
        let start = Instant::now();
        while !(self.said().contains(words) && self.said().ends_with('\n')) {
            assert!(start.elapsed() < LIMIT && self.child.ended().is_none(), "no {words:?}: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).expect("a process"), signal).expect("the signal is sent");
}

/// The opcodes that scapy reads in what came out of a pipe.
#[track_caller]
fn judged(bytes: &[u8]) -> Vec<Value> {
    let file = tempfile::Builder::new().suffix(".pcapng").tempfile().expect("a file");
    fs::write(file.path(), bytes).expect("written");
    let packets = scapy_verify(&laboratory::tools(), file.path());
    tally::packets_judged(packets.len());
    packets.iter().map(|packet| packet["opcode_name"].clone()).collect()
}

const STORY: [&str; 2] = ["RC_WRITE_ONLY_IMM", "RC_ACKNOWLEDGE"];

pub fn a_capture_in_a_pipe_leaves_the_report_to_standard_error() {
    let mut text = Run::start("demo --hosts model --capture -");
    assert_eq!(judged(&text.printed()), STORY);
    assert!(text.wait().success());
    assert!(text.said().starts_with("RDMA_WRITE_WITH_IMM of 4096 bytes"), "{}", text.said());
    let mut json = Run::start("demo --hosts model --capture - --json");
    assert_eq!(judged(&json.printed()), STORY);
    assert!(json.wait().success());
    let object: Value = serde_json::from_str(&json.said()).expect("one object and nothing else");
    assert_eq!((&object["schema"], rows::totals(&object)), (&"rnic.demo/1".into(), [4, 3]));
    // A reader that goes away is told, and is no success.
    let mut closed = Run::start("demo --hosts model --capture -");
    drop(closed.child.take_standard_output());
    assert_eq!(closed.wait().code(), Some(3), "{}", closed.said());
    assert!(closed.said().contains("capture to - is incomplete"), "{}", closed.said());
}

/// A server's standard output carries the capture while it runs; what it has to say is on standard error.
pub fn a_server_captures_into_a_pipe_and_tells_its_sockets_elsewhere() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut serving = Serving::start_logged("A B --capture -", log.path());
    let mut pipe = serving.child().take_standard_output().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    });
    let backings = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
    Pair::bring_up(backings, &TransactionSpec { timeout: 18, ..TransactionSpec::default() }).run();
    send(serving.id(), Signal::TERM);
    assert!(serving.wait().success());
    assert_eq!(judged(&reader.join().expect("the reader").expect("a capture")), STORY);
    let said = fs::read_to_string(log.path()).expect("the log");
    assert!(said.contains("A.sock") && said.contains("B.sock"), "{said}");
}

/// `--verbose`: pages and keys of both regions, and the attributes at each transition, which fit together.
pub fn the_bring_up_is_told_with_pages_keys_and_attributes() {
    let plain = model("");
    assert!((0..2).all(|host| plain["hosts"][host]["bring_up"].is_null()), "only when it is asked for");
    let report = report("--hosts model --verbose --length 10000 --mtu 1024", 0);
    let side = |host: usize| &report["hosts"][host]["bring_up"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("a number: {value}"));
    let attributes = |host: usize| -> Vec<(&str, &Value)> {
        let transitions = side(host)["transitions"].as_array().expect("transitions").iter();
        transitions.map(|step| (step["to"].as_str().expect("a state"), &step["given"])).collect()
    };
    for (host, peer) in [(0, 1), (1, 0)] {
        let pages: Vec<u64> = side(host)["pages"].as_array().expect("pages").iter().map(number).collect();
        assert!(pages.iter().all(|page| page % 4096 == 0), "{pages:x?}");
        assert_eq!(pages.iter().collect::<BTreeSet<_>>().len(), pages.len(), "each is another page");
        let own = &side(host)["own"];
        assert!(pages.len() as u64 * 4096 >= number(&own["length_bytes"]) && number(&own["length_bytes"]) >= 10_000);
        assert_eq!(side(host)["key"], own["rkey"]);
        assert_eq!(side(host)["peer"], side(peer)["own"], "what one host tells is what the other one has heard");
        let [(init, to_init), (rtr, to_rtr), (rts, to_rts)] = attributes(host)[..] else { panic!("three transitions") };
        assert_eq!([init, rtr, rts], ["Init", "Rtr", "Rts"]);
        assert_eq!(to_init["port"], 1);
        assert!(to_init["access"].is_u64() && to_init["pkey_index"] == 0, "{to_init}");
        assert_eq!(to_rtr["dest_qpn"], side(peer)["own"]["qpn"]);
        assert_eq!(to_rtr["path_mtu"], 3, "the code of 1024");
        assert_eq!(
            to_rtr["rq_psn"],
            attributes(peer)[2].1["sq_psn"],
            "one side expects what the other one begins with"
        );
        for name in ["timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"] {
            assert!(to_rts[name].is_u64(), "{name}: {to_rts}");
        }
        assert!(to_rtr["min_rnr_timer"].is_u64() && to_rtr["max_dest_rd_atomic"].is_u64(), "{to_rtr}");
    }
    let text = program::demo("--hosts model --verbose").standard_output;
    let own = &model("--verbose")["hosts"][0]["bring_up"];
    for words in [
        "Bring-up of host A",
        "Bring-up of host B",
        &format!("key {:#x}", number(&own["key"])),
        &format!("{} of 4096 bytes", own["pages"].as_array().map_or(0, Vec::len)),
        "to INIT",
        "to RTR",
        "to RTS",
        "dest_qpn 18",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Progress is for a person: on a terminal, and nowhere else.
pub fn progress_is_told_on_a_terminal_alone() {
    const SCRIPT: &str = r#"
import os, pty, subprocess, sys
master, slave = pty.openpty()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave)
os.close(slave)
report = child.stdout.read()
assert child.wait() == 0 and report, report
seen = b""
try:
    while piece := os.read(master, 4096):
        seen += piece
except OSError:
    pass
sys.stdout.write(seen.decode())
"#;
    let python = laboratory::tools().python().clone();
    let on_terminal = python.run(&["-c", SCRIPT, PATH, "demo", "--hosts", "model"], LIMIT).expect("python runs");
    assert!(on_terminal.status.success(), "{}", on_terminal.standard_error);
    assert!(on_terminal.standard_output.contains("bringing both sides up"), "{}", on_terminal.standard_output);
    let elsewhere = program::demo("--hosts model");
    assert!(elsewhere.status.success());
    assert_eq!(elsewhere.standard_error, "");
    let as_json = python.run(&["-c", SCRIPT, PATH, "demo", "--hosts", "model", "--json"], LIMIT).expect("python runs");
    assert_eq!((as_json.status.success(), as_json.standard_output.as_str()), (true, ""), "{}", as_json.standard_error);
}

/// Guests and their logs stay until Ctrl-C, and are told; the logs stay after it.
pub fn what_is_kept_stays_until_an_interrupt() {
    laboratory::lab();
    let mut run = Run::start("demo --keep");
    run.await_words("the hosts stay until Ctrl-C; QEMU processes: ");
    let said = run.said();
    let named = said.split("QEMU processes: ").nth(1).expect("processes");
    let named: BTreeSet<u32> = named.split_whitespace().map(|id| id.parse().expect("a process")).collect();
    assert_eq!(named, qemus_of(run.child.id()).into_iter().collect());
    assert!(named.len() == 2 && named.iter().all(|machine| is_alive(*machine)), "{named:?}");
    tally::guests_booted(2);
    let logs = said.lines().find_map(|line| line.strip_prefix("logs: ")).map(PathBuf::from).expect("the logs");
    run.signal(Signal::INT);
    assert!(run.wait().success(), "{}", run.said());
    let printed = String::from_utf8(run.printed()).expect("text");
    assert!(printed.contains("crossings: 4 and 3"), "the report came before: {printed}");
    assert!(named.iter().all(|machine| !is_alive(*machine)), "{named:?} are gone");
    for name in ["A.serial", "A.stderr", "B.serial", "B.stderr"] {
        assert!(logs.join(name).is_file(), "{name} in {}", logs.display());
    }
    fs::remove_dir_all(&logs).expect("removed");
}
