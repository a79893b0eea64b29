//! What the kernel says about processes.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Of a second: the unit that Linux shows to programs on every machine.
const TICKS: u64 = 100;

/// Processor time of all threads of a process, as far as the kernel counts it.
pub fn processor_time(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("a running process");
    // The name may hold spaces; what follows its bracket does not. utime and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_micros(ticks * 1_000_000 / TICKS)
}

/// It runs: neither gone nor waiting to be reaped.
pub fn is_alive(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// QEMUs that this process has started.
pub fn qemus_of(parent: u32) -> Vec<u32> {
    let is_child = |folder: &Path| {
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
            && String::from_utf8_lossy(&command).contains("qemu")
    };
    let entries = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    entries
        .filter(|path| is_child(path))
        .filter_map(|path| path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()))
        .collect()
}

/// Descriptors, mappings and resident memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    /// Of guest memory.
    pub file_mappings: usize,
    pub resident_kib: u64,
}

pub fn own_holdings() -> Holdings {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc");
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok());
    Holdings {
        descriptors: fs::read_dir("/proc/self/fd").expect("/proc").count(),
        file_mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
        resident_kib: resident.expect("VmRSS"),
    }
}
