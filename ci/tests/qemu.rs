//! A real QEMU: found or fetched, driven by qtest, controlled, and gone when we are gone.

mod laboratory;

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use laboratory::{options, progress, provided};
use rnic_ci::cache::Cache;
use rnic_ci::debian::Debian;
use rnic_ci::qemu::{OLDEST, Qemu, RunFolder};
use rnic_ci::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};

fn qemu() -> Result<Qemu> {
    let options = options();
    let cache = Cache::open(&options)?;
    let _lock = cache.lock(&mut progress())?;
    Qemu::provide(&options, &mut Debian::new(&cache, &options), &mut progress())
}

fn arguments(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[test]
fn qtest_reads_the_host_bridge_and_events_arrive() {
    let Some(qemu) = provided(qemu()) else { return };
    assert!(qemu.version() >= OLDEST);
    let run_folder = Arc::new(RunFolder::create(&options()).expect("a run folder"));
    let mut machine =
        qemu.start_qtest("bridge", &run_folder, &arguments(&["-M", "q35", "-m", "64M"])).expect("a machine");
    // The q35 host bridge is 8086:29c0.
    assert_eq!(machine.read_config(0, 0, 0, 0).expect("read"), 0x29c0_8086);
    machine.write(0x1000, 8, 0x1122_3344_5566_7788).expect("write");
    assert_eq!(machine.read(0x1004, 4).expect("read"), 0x1122_3344);
    machine.qmp().execute("stop", serde_json::json!({})).expect("stopped");
    machine.qmp().wait_event("STOP", Duration::from_secs(5)).expect("the event");
    let refused = machine.command("no-such-command");
    assert!(matches!(refused, Err(Error::GuestAnswer { .. })), "{refused:?}");
    run_folder.drop_logs(); // That failure was meant to be.
}

#[test]
fn a_refused_command_line_is_told_in_qemus_words() {
    let Some(qemu) = provided(qemu()) else { return };
    let run_folder = Arc::new(RunFolder::create(&options()).expect("a run folder"));
    let refused = qemu.start("refused", &run_folder, &arguments(&["-device", "no-such-device"])).map(|_| ());
    assert!(
        matches!(&refused, Err(Error::GuestEnded { detail, .. }) if detail.contains("no-such-device")),
        "{refused:?}"
    );
    let logs = run_folder.logs().to_path_buf();
    drop(run_folder);
    assert!(logs.join("refused.stderr").is_file(), "the log is kept after a failure");
    std::fs::remove_dir_all(logs).expect("removed");
}

/// Not a test of its own: the process that [`nothing_survives_a_kill`] kills. It starts a QEMU from a thread that ends,
/// says its process id and waits.
#[test]
fn victim_process() {
    if std::env::var_os("RNIC_TEST_VICTIM").is_none() {
        return;
    }
    let start = || {
        let run_folder = Arc::new(RunFolder::create(&options()).expect("a run folder"));
        qemu()
            .expect("a QEMU")
            .start("victim", &run_folder, &arguments(&["-M", "none", "-display", "none"]))
            .expect("started")
    };
    let running = std::thread::spawn(start).join().expect("the thread");
    println!("qemu={}.", running.process_id());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_survives_a_kill() {
    if provided(qemu()).is_none() {
        return;
    }
    // A killed process cannot remove its run folder, so it makes it in one that we remove.
    let folder = tempfile::tempdir().expect("a temporary folder");
    for signal in [Signal::KILL, Signal::INT] {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "victim_process", "--nocapture"])
            .env("RNIC_TEST_VICTIM", "1")
            .env("TMPDIR", folder.path());
        let mut victim = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut output = victim.stdout.take().expect("piped");
        let mut text = String::new();
        while !text.contains("qemu=") || !text.ends_with('.') {
            let mut byte = [0u8; 1];
            assert_eq!(output.read(&mut byte).expect("its output"), 1, "the victim ended: {text}");
            text.push(char::from(byte[0]));
        }
        let id: u32 = text.rsplit("qemu=").next().expect("an id").trim_end_matches('.').parse().expect("a number");
        let alive = || std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        assert!(alive(), "QEMU {id} does not run");
        kill_process(Pid::from_child(&victim), signal).expect("the signal is sent");
        victim.wait().expect("reaped");
        let begin = Instant::now();
        while alive() {
            assert!(begin.elapsed() < Duration::from_secs(5), "QEMU {id} survived its parent's {signal:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
