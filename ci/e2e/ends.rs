//! How runs end: nothing stays behind, whoever ends them.

use crate::bench::processes::{is_alive, qemus_of};
use crate::bench::{laboratory, program};
use rnic_ci::deadline::Deadline;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// SIGKILL, SIGINT and SIGTERM of a demo in its middle leave no QEMU, and no folder beyond the next run.
pub fn a_killed_demo_leaves_no_machine() {
    laboratory::lab();
    for (signal, arguments) in [
        (Signal::KILL, "demo --cold-boot"),
        (Signal::KILL, "demo"),
        (Signal::INT, "demo --cold-boot"),
        (Signal::TERM, "demo"),
    ] {
        let mut demo = program::start(arguments);
        let id = demo.id();
        let start = Instant::now();
        let mut machines = Vec::new();
        while machines.len() < 2 {
            assert!(start.elapsed() < LIMIT && demo.ended().is_none(), "{arguments} starts two machines");
            machines = qemus_of(id);
            std::thread::sleep(Duration::from_millis(5));
        }
        let process = Pid::from_raw(id as i32).expect("a process id");
        kill_process(process, signal).expect("the signal is sent");
        let killed = Instant::now();
        let status = demo.wait(&Deadline::new("the demo ends", LIMIT));
        let status = status.unwrap_or_else(|error| panic!("{signal:?} of {arguments}: {error}"));
        // It asked for no signal, so the signal itself is its end: what a shell shows as 128 and the number.
        assert_eq!(status.signal(), Some(signal.as_raw()), "{signal:?} of {arguments}: {status}");
        while machines.iter().any(|machine| is_alive(*machine)) {
            assert!(killed.elapsed() < LIMIT, "{signal:?} of {arguments} leaves {machines:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("{signal:?} of {arguments}: {status}, all gone after {:?}", killed.elapsed());
    }
    // A killed run cannot remove its folders: the next one does.
    assert!(!own_folders().is_empty(), "SIGKILL leaves folders, or there is nothing to see here");
    program::model("");
    assert_eq!(own_folders(), Vec::<PathBuf>::new());
}

/// What runs of this step have in the folder for temporary files.
fn own_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("the folder for temporary files").flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rnic-"));
    ours.map(|entry| entry.path()).collect()
}
