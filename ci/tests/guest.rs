//! Real guests: restored and booted, with an adapter plugged in, a program sent, run and talked to.

#![allow(clippy::disallowed_macros, reason = "the test harness shows what a failed test has said")]

#[path = "laboratory/adapter.rs"]
mod adapter;
mod laboratory;

use std::time::{Duration, Instant};

use laboratory::{options, progress, provided};
use rnic_ci::deadline::Deadline;
use rnic_ci::guest::{AdapterFunction, Guest, GuestMemory, GuestSpec};
use rnic_ci::{Error, Lab};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(20);

/// A laboratory of the test's own: its logs go when the test has passed.
fn lab() -> Option<Lab> {
    provided(Lab::prepare(&options(), &mut progress()))
}

fn text(guest: &mut Guest, command: &str) -> String {
    let (status, printed) = guest.shell(command, LIMIT).expect(command);
    let printed = String::from_utf8(printed).expect("text");
    assert_eq!(status, 0, "{command}: {printed}");
    printed.trim().to_owned()
}

/// A statically linked program: the image's own busybox.
fn program(lab: &Lab) -> std::path::PathBuf {
    lab.image().busybox.clone()
}

/// Waits until the guest's PCI bus has the adapter, and returns the address of its BAR.
fn adapter_bar(guest: &mut Guest) -> u64 {
    let command = "for i in $(seq 500); do f=/sys/bus/pci/devices/0000:01:00.0; [ -e $f/resource ] && break; sleep 0.01; done; cat $f/vendor $f/device; echo 1 > $f/enable; head -n 1 $f/resource";
    let printed = text(guest, command);
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(words[..2], ["0x1234", "0x12b7"], "{printed}");
    u64::from_str_radix(words[2].trim_start_matches("0x"), 16).expect("an address")
}

/// What every guest with an adapter has to pass: registers read and written, and seen by the adapter.
fn check_adapter(guest: &mut Guest, seen: &std::sync::Mutex<adapter::Seen>) {
    let bar = adapter_bar(guest);
    assert_ne!(bar, 0);
    assert_eq!(text(guest, &format!("devmem {bar:#x} 32")), format!("{:#010X}", adapter::FIRST_REGISTER));
    text(guest, &format!("devmem {:#x} 64 0x1122334455667788", bar + 0x10));
    // The write is posted, so a read follows it.
    text(guest, &format!("devmem {bar:#x} 32"));
    let writes = seen.lock().expect("not poisoned").bar_writes.clone();
    assert_eq!(writes, [(0x10, 0x1122_3344_5566_7788_u64.to_le_bytes().to_vec())]);
}

#[test]
fn a_restored_guest_runs_a_program_with_the_adapter_in_two_seconds() {
    let Some(lab) = lab() else { return };
    let socket = lab.run_folder().socket_path("adapter");
    let seen = adapter::serve(&socket);
    let mut spec = GuestSpec::new("restored", &socket);
    spec.trace = true;
    let begin = Instant::now();
    let mut guest = lab.guest(&spec).expect("a guest");
    let plugged = begin.elapsed();
    let path = guest.send_payload(&program(&lab)).expect("sent");
    let sent = begin.elapsed();
    guest.run(&format!("{path} cat")).expect("started");
    let mut answer = [0u8; 5];
    let deadline = Deadline::new("the program answers", LIMIT);
    guest.exchange().send(b"hello", &deadline).expect("sent");
    guest.exchange().receive(&mut answer, &deadline).expect("answered");
    let answered = begin.elapsed();
    assert_eq!(&answer, b"hello");
    eprintln!("restored and plugged after {plugged:?}, payload sent after {sent:?}, answered after {answered:?}");

    let late = guest.wait_exit(Duration::from_millis(100));
    assert!(matches!(&late, Err(Error::Timeout { step, .. }) if step.contains("program's end")), "{late:?}");
    guest.kill();

    // The adapter of the second guest is looked at more closely; the first one's program still holds the exchange.
    drop(seen);
    let socket = lab.run_folder().socket_path("adapter");
    let seen = adapter::serve(&socket);
    let mut guest = lab.guest(&GuestSpec { trace: true, ..GuestSpec::new("watched", &socket) }).expect("a guest");
    check_adapter(&mut guest, &seen);
    let counts = seen.lock().expect("not poisoned").clone();
    assert!(counts.maps_with_descriptor > 0 && counts.maps_without_descriptor == 0, "{counts:?}");
    let records = guest.trace().expect("traced").records().expect("read");
    let writes: Vec<_> = records.iter().filter(|record| record.event == "vfio_region_write").collect();
    assert_eq!(writes.len(), 1, "{records:?}");
    assert!(writes[0].detail.contains("0x1122334455667788"), "{writes:?}");
    let sent = records.iter().filter(|record| record.event == "vfio_user_send_write").count();
    let received = records.iter().filter(|record| record.event == "vfio_user_recv_hdr");
    assert!(sent > 0 && received.filter(|record| record.number("cmd").is_some()).count() > 0);
    guest.power_off(LIMIT).expect("off");
    // The time limit that passed was meant to.
    lab.run_folder().drop_logs();
}

#[test]
fn a_cold_boot_finds_the_adapter_present() {
    let Some(lab) = lab() else { return };
    let socket = lab.run_folder().socket_path("adapter");
    let seen = adapter::serve(&socket);
    let begin = Instant::now();
    let mut guest = lab.guest(&GuestSpec { cold_boot: true, ..GuestSpec::new("cold", &socket) }).expect("a guest");
    eprintln!("cold boot took {:?}", begin.elapsed());
    check_adapter(&mut guest, &seen);
}

#[test]
fn memory_without_descriptor_makes_the_adapter_ask_by_message() {
    let Some(lab) = lab() else { return };
    for memory in [GuestMemory::Messages, GuestMemory::PrivateDescriptor] {
        let socket = lab.run_folder().socket_path("adapter");
        let seen = adapter::serve(&socket);
        let mut guest = lab.guest(&GuestSpec { memory, ..GuestSpec::new("unshared", &socket) }).expect("a guest");
        check_adapter(&mut guest, &seen);
        let counts = seen.lock().expect("not poisoned").clone();
        let with_descriptor = memory == GuestMemory::PrivateDescriptor;
        assert_eq!(counts.maps_with_descriptor > 0, with_descriptor, "{memory:?}: {counts:?}");
        assert_eq!(counts.maps_without_descriptor > 0, !with_descriptor, "{memory:?}: {counts:?}");
    }
}

#[test]
fn payloads_arrive_whole_and_fast() {
    let Some(lab) = lab() else { return };
    let mut guest = lab.guest(&GuestSpec::without_adapter("payload")).expect("a guest");
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Sizes around the pieces that the two ends move.
    for size in [0usize, 1, 4095, 65_536, 65_537, 4 << 20] {
        let path = folder.path().join("payload.bin");
        let mut state = 1u64;
        let content: Vec<u8> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        std::fs::write(&path, &content).expect("written");
        let begin = Instant::now();
        let guest_path = guest.send_payload(&path).expect("sent");
        eprintln!("{size} bytes took {:?}", begin.elapsed());
        let expected = rnic_ci::cache::file_sha256(&path).expect("hashed");
        assert_eq!(text(&mut guest, &format!("sha256sum <{guest_path}")), format!("{expected}  -"));
    }
    let odd = folder.path().join("a b");
    std::fs::write(&odd, b"").expect("written");
    assert!(matches!(guest.send_payload(&odd), Err(Error::Image { .. })));
}

#[test]
fn the_guest_is_fit_for_a_driver_in_user_space() {
    let Some(lab) = lab() else { return };
    let mut guest = lab.guest(&GuestSpec::without_adapter("fit")).expect("a guest");
    let meminfo = text(&mut guest, "cat /proc/meminfo");
    eprintln!(
        "{}",
        meminfo
            .lines()
            .filter(|line| line.starts_with("Mem") || line.starts_with("Huge"))
            .collect::<Vec<_>>()
            .join("; ")
    );
    let value = |name: &str| -> u64 {
        let line = meminfo.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    };
    assert_eq!(value("HugePages_Free"), 32);
    assert!(value("MemAvailable") > 64 << 10);
    assert_eq!(text(&mut guest, "uname -r"), lab.image().kernel_release);
    assert!(text(&mut guest, "cat /proc/mounts").contains("/dev/hugepages hugetlbfs"));
    assert_eq!(guest.shell("exit 3", LIMIT).expect("run"), (3, Vec::new()));
    let (status, printed) = guest.shell("seq 100000", LIMIT).expect("much output");
    assert_eq!((status, printed.len()), (0, 588_895));
    let dump = lab.run_folder().log_path("fit", "memory");
    guest.qmp().save_memory(0, 1 << 20, &dump).expect("saved");
    assert_eq!(std::fs::metadata(&dump).expect("there").len(), 1 << 20);
}

#[test]
fn what_goes_wrong_is_said() {
    let Some(lab) = lab() else { return };
    let nobody = lab.run_folder().socket_path("nobody");
    let refused = lab.guest(&GuestSpec::new("nobody", &nobody)).map(|_| ());
    assert!(matches!(&refused, Err(Error::Qmp { command, .. }) if command == "device_add"), "{refused:?}");

    let mut guest = lab.guest(&GuestSpec::without_adapter("dying")).expect("a guest");
    guest.run("sleep 1000").expect("started");
    let id = Pid::from_raw(guest.process_id() as i32).expect("a process id");
    kill_process(id, Signal::KILL).expect("the signal is sent");
    let died = guest.wait_exit(LIMIT);
    assert!(matches!(&died, Err(Error::GuestEnded { name, .. }) if name == "dying"), "{died:?}");
    lab.run_folder().drop_logs();
}

#[test]
fn an_adapter_may_have_two_functions() {
    let Some(lab) = lab() else { return };
    for cold_boot in [false, true] {
        let sockets = [0, 1].map(|_| lab.run_folder().socket_path("adapter"));
        let seen = sockets.each_ref().map(|socket| adapter::serve(socket));
        let adapter = sockets.iter().map(AdapterFunction::new).collect();
        let spec = GuestSpec { adapter, cold_boot, ..GuestSpec::without_adapter("functions") };
        let mut guest = lab.guest(&spec).expect("a guest");
        check_adapter(&mut guest, &seen[0]);
        assert_eq!(text(&mut guest, "cat /sys/bus/pci/devices/0000:01:00.1/vendor"), "0x1234");
    }
}
