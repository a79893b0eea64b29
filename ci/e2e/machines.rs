//! Unmodified QEMU: a transaction with no guest kernel, the guest's memory seen from outside, and sudden death.

use rnic_ci::deadline::Deadline;
use rnic_ci::guest::{Guest, GuestSpec};
use rnic_ci::qemu::{RunFolder, Running};
use rnic_ci::{Lab, Options, StandardError};
use rnic_device::adapter::AdapterHandle;
use rnic_device::server::{Server, adapter_options};
use rnic_shim::backings::qtest::{Qtest, QtestOptions};
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::transaction::{CANARY, Role, Side, TransactionSpec, payload};
use rnic_shim::verbs::MrLayout;
use rnic_switch::SwitchConfig;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn lab() -> Lab {
    Lab::prepare(&Options::from_environment(), &mut StandardError).expect("QEMU and the guest's image")
}

fn server(folder: &Path) -> Server {
    let adapters = vec![adapter_options("A", folder), adapter_options("B", folder)];
    Server::start(adapters, SwitchConfig::default()).expect("two adapters on a switch")
}

/// A QEMU under qtest with an adapter, and the driver that reaches it. Shared memory, or every DMA by message.
fn qtest(lab: &Lab, folder: &Arc<RunFolder>, name: &str, socket: &Path, shared: bool) -> (Running, Qtest) {
    let path = folder.socket_path(&format!("qtest-{name}"));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket for qtest");
    let device = json!({"driver": "vfio-user-pci", "bus": "rp0", "rombar": 0, "x-msg-timeout": 60000,
        "socket": {"type": "unix", "path": socket}});
    let memory = "memory-backend-memfd,id=m0,size=256M,share=on";
    let plain = "memory-backend-ram,id=m0,size=256M";
    let qtest = format!("unix:{}", path.display());
    let words = [
        "-accel",
        "qtest",
        "-display",
        "none",
        "-nodefaults",
        "-qtest-log",
        "none",
        "-qtest",
        &qtest,
        "-machine",
        "q35,memory-backend=m0",
        "-m",
        "256M",
        "-object",
        if shared { memory } else { plain },
        "-device",
        "pcie-root-port,id=rp0,chassis=1,slot=1",
        "-device",
        &device.to_string(),
    ];
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let running = lab.qemu().start(name, folder, &words).expect("a machine");
    let (stream, _) = listener.accept().expect("QEMU connects to qtest");
    let driver = Qtest::open(stream, QtestOptions::default()).expect("the device behind the root port");
    (running, driver)
}

/// Both sides up to RTS.
fn connect(a: &mut Side, b: &mut Side) {
    let (own, peer) = (a.bring_up().expect("A's bring-up"), b.bring_up().expect("B's bring-up"));
    b.connect(own).expect("B connects");
    a.connect(peer).expect("A connects");
}

/// Crossings that operations have caused so far, by the function's trace.
fn operation_crossings(adapter: &AdapterHandle) -> Vec<&'static str> {
    let crossings = adapter.call(|adapter| {
        let mut crossings = Vec::new();
        adapter.function.link.read_trace(1, 1 << 16, &mut crossings);
        crossings
    });
    let crossings = crossings.expect("the adapter answers");
    let own = crossings.iter().filter(|crossing| {
        use rnic_pcie::Cause;
        matches!(crossing.origin.cause, Cause::Send { .. } | Cause::Receive { .. } | Cause::Packet { .. })
    });
    own.map(|crossing| crossing.origin.class.name()).collect()
}

pub fn the_whole_transaction_under_qtest() {
    let (lab, folder) = (lab(), tempfile::tempdir().expect("a folder"));
    let run_folder = lab.run_folder();
    for shared in [true, false] {
        for armed in [false, true] {
            let server = server(folder.path());
            let [adapter_a, adapter_b] = ["A", "B"].map(|name| server.adapter(name).expect("an adapter"));
            let (_qemu_a, driver_a) = qtest(&lab, run_folder, "A", adapter_a.socket(), shared);
            let (_qemu_b, driver_b) = qtest(&lab, run_folder, "B", adapter_b.socket(), shared);
            let spec = TransactionSpec { layout: MrLayout::List, timeout: 18, ..TransactionSpec::default() };
            let spec_b = TransactionSpec { armed, ..spec.clone() };
            let mut a = Side::open(Box::new(driver_a), spec, Role::Requester).expect("A opens");
            let mut b = Side::open(Box::new(driver_b), spec_b, Role::Responder).expect("B opens");
            connect(&mut a, &mut b);
            b.arm().expect("B arms");
            for adapter in [adapter_a, adapter_b] {
                adapter.call(|adapter| adapter.function.link.trace_mut().watch(1 << 16)).expect("the adapter answers");
            }
            a.post().expect("A posts");
            a.wait().expect("A completes");
            b.wait().expect("B completes");
            let what = format!("shared {shared}, armed {armed}");
            assert_eq!(
                operation_crossings(adapter_a),
                ["doorbell", "wqe_fetch", "payload_read", "cqe_write"],
                "{what}"
            );
            let mut expected = vec!["payload_write", "recv_wqe_fetch", "cqe_write"];
            expected.extend(armed.then_some("event"));
            assert_eq!(operation_crossings(adapter_b), expected, "{what}");
            for side in [&mut a, &mut b] {
                let verdict = side.verify().expect("verification");
                assert!(verdict.is_good(), "{what}: {:?}", verdict.faults);
            }
        }
    }
}

fn order(guest: &Guest, order: Value) -> Value {
    let deadline = Deadline::new(format!("the guest obeys {order}"), LIMIT);
    guest.exchange().send(format!("{order}\n").as_bytes(), &deadline).expect("sent");
    let line = guest.exchange().receive_line(1 << 20, &deadline).expect("an answer");
    let answer: Value = serde_json::from_str(&line).expect("a JSON line");
    answer.get("ok").unwrap_or_else(|| panic!("{order}: {line}")).clone()
}

pub fn qmp_finds_the_payload_in_guest_b_and_canaries_around_it() {
    let (lab, folder) = (lab(), tempfile::tempdir().expect("a folder"));
    let server = server(folder.path());
    let program = Path::new(env!("CARGO_BIN_EXE_rnic"));
    let [a, mut b] = ["A", "B"].map(|name| {
        let socket = server.adapter(name).expect("an adapter").socket().clone();
        let mut guest = lab.guest(&GuestSpec::new(name, &socket)).expect("a guest");
        let path = guest.send_payload(program).expect("the program is sent");
        guest.run(&format!("{path} guest-agent")).expect("the program runs");
        crate::tally::guests_booted(1);
        guest
    });
    let spec = json!({"layout": "list", "timeout": 18, "seed": 77});
    let opened_a = order(&a, json!({"order": "open", "spec": spec, "role": "requester"}));
    let opened_b = order(&b, json!({"order": "open", "spec": spec, "role": "responder"}));
    order(&b, json!({"order": "connect", "peer": opened_a["endpoint"]}));
    order(&a, json!({"order": "connect", "peer": opened_b["endpoint"]}));
    order(&a, json!({"order": "post"}));
    order(&a, json!({"order": "wait"}));
    order(&b, json!({"order": "wait"}));
    let report = order(&b, json!({"order": "report"}));
    let page = report["pages"][0].as_u64().expect("the page of the target, as the device addresses it");
    let saved = folder.path().join("memory");
    b.qmp().save_memory(page - 4096, 3 * 4096, &saved).expect("pmemsave");
    let memory = std::fs::read(&saved).expect("the saved memory");
    assert_eq!(memory.len(), 3 * 4096);
    assert!(memory[4096..8192] == payload(77, 4096)[..], "the payload stands at its target");
    assert!(memory[..4096].iter().chain(&memory[8192..]).all(|byte| *byte == CANARY), "and nothing around it");
}

/// File descriptors of this process once both adapters have let their last clients go.
fn open_files(server: &Server) -> usize {
    let until = Instant::now() + LIMIT;
    while server.adapters.iter().any(|adapter| left_behind(adapter) != (0, 0, false)) {
        assert!(Instant::now() < until, "a client that has gone is still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Maps, files and clients of an adapter whose client has died.
fn left_behind(adapter: &AdapterHandle) -> (usize, usize, bool) {
    let look = adapter.call(|adapter| {
        let window = adapter.function.link.window();
        (window.map_count(), window.file_count(), adapter.is_attached())
    });
    look.expect("the adapter answers")
}

/// One life and death: a stream to a machine that is killed, the survivor's end, a new machine on the same socket.
fn kill_once(lab: &Lab, server: &Server, round: usize) {
    let [adapter_a, adapter_b] = ["A", "B"].map(|name| server.adapter(name).expect("an adapter"));
    let spec =
        TransactionSpec { timeout: 10, retry_cnt: 3, length_bytes: 1 << 20, path_mtu_bytes: 256, ..Default::default() };
    let model = || {
        let socket = Socket::connect(adapter_a.socket(), Default::default(), MemoryAccess::Shared, LIMIT);
        Box::new(socket.expect("a model host"))
    };
    let mut a = Side::open(model(), spec.clone(), Role::Requester).expect("A opens");
    let (mut qemu, driver) = qtest(lab, lab.run_folder(), &format!("victim{round}"), adapter_b.socket(), true);
    let mut b = Side::open(Box::new(driver), spec, Role::Responder).expect("B opens");
    connect(&mut a, &mut b);
    a.post().expect("A posts a mebibyte");
    qemu.kill();
    a.wait().expect("the survivor's request ends, one way or the other");
    let status = |side: &Side| side.report().completion.as_ref().map(|done| done.status_name.clone());
    if status(&a).as_deref() == Some("SUCCESS") {
        a.post().expect("A posts again");
        let start = Instant::now();
        a.wait().expect("the survivor's request ends");
        assert!(start.elapsed() < Duration::from_secs(1), "within its retry time: {:?}", start.elapsed());
    }
    assert_eq!(status(&a).as_deref(), Some("RETRY_EXC_ERR"), "round {round}");
    let until = Instant::now() + LIMIT;
    while left_behind(adapter_b) != (0, 0, false) {
        assert!(Instant::now() < until, "round {round}: {:?} is left", left_behind(adapter_b));
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((a, b));
    let spec = TransactionSpec { timeout: 17, ..Default::default() };
    let mut a = Side::open(model(), spec.clone(), Role::Requester).expect("A opens anew");
    let (_qemu, driver) = qtest(lab, lab.run_folder(), &format!("heir{round}"), adapter_b.socket(), true);
    let mut b = Side::open(Box::new(driver), spec, Role::Responder).expect("B opens anew");
    connect(&mut a, &mut b);
    a.post().expect("A posts");
    a.wait().expect("A completes");
    b.wait().expect("B completes");
    assert!(b.verify().expect("verification").is_good(), "round {round}: a new machine on the freed socket");
}

pub fn a_killed_machine_takes_nothing_with_it_twenty_times() {
    let (lab, folder) = (lab(), tempfile::tempdir().expect("a folder"));
    let server = server(folder.path());
    kill_once(&lab, &server, 0);
    let before = open_files(&server);
    for round in 1..=20 {
        kill_once(&lab, &server, round);
    }
    let after = open_files(&server);
    assert!(after <= before, "file descriptors: {before} before, {after} after");
}

/// What a Linux guest sees of the device, a function level reset by its hands, and a transaction afterwards.
pub fn a_guest_sees_a_sane_pcie_device_and_resets_it() {
    let (lab, folder) = (lab(), tempfile::tempdir().expect("a folder"));
    let server = server(folder.path());
    let socket = server.adapter("A").expect("an adapter").socket().clone();
    let mut guest = lab.guest(&GuestSpec::new("sane", &socket)).expect("a guest");
    crate::tally::guests_booted(1);
    let mut shell = |command: &str| {
        let (code, output) = guest.shell(command, LIMIT).expect("the guest's shell");
        (code, String::from_utf8_lossy(&output).trim().to_owned())
    };
    let device = "/sys/bus/pci/devices/0000:01:00.0";
    let read = "cat vendor device class current_link_width max_link_width; wc -c < config; wc -l < resource";
    let (code, seen) = shell(&format!("cd {device} && {read}"));
    let seen: Vec<_> = seen.lines().collect();
    assert_eq!((code, &seen[..3]), (0, &["0x1234", "0x12b7", "0x020700"][..]), "{seen:?}");
    assert_eq!(seen[3], seen[4], "the link runs at its width: {seen:?}");
    assert_eq!(seen[5], "4096", "all of configuration space: {seen:?}");
    let (_, bars) = shell(&format!("cat {device}/resource"));
    let size = |bar: usize| {
        let line = bars.lines().nth(bar).unwrap_or_default().to_owned();
        let numbers: Vec<_> =
            line.split_whitespace().map(|word| u64::from_str_radix(&word[2..], 16).unwrap_or(0)).collect();
        numbers[1] - numbers[0] + 1
    };
    assert_eq!((size(0), size(2)), (0x1_0000, 4 << 20), "{bars}");
    let adapter = server.adapter("A").expect("an adapter");
    let resets = || adapter.call(|adapter| adapter.function.resets()).expect("the adapter answers");
    let before = resets();
    let (code, methods) = shell(&format!("cat {device}/reset_method && echo 1 > {device}/reset"));
    assert_eq!(code, 0, "{methods}");
    assert!(methods.contains("flr"), "{methods}");
    assert!(resets() > before, "the reset has arrived");
}

/// An adapter whose guest does nothing costs nothing.
pub fn an_idle_adapter_takes_less_than_a_hundredth_of_a_core() {
    let (lab, folder) = (lab(), tempfile::tempdir().expect("a folder"));
    let server = server(folder.path());
    let socket = server.adapter("A").expect("an adapter").socket().clone();
    let _guest = lab.guest(&GuestSpec::new("idle", &socket)).expect("a guest");
    crate::tally::guests_booted(1);
    std::thread::sleep(Duration::from_millis(500));
    let (start, before) = (Instant::now(), processor_time());
    std::thread::sleep(Duration::from_secs(4));
    let share = (processor_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    assert!(share < 0.01, "{:.2} % of a core", 100.0 * share);
}

/// Of this process, which serves the adapters.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// QEMU processes whose device is on a socket of this demo.
fn machines_of(demo: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let marked = environment.windows(24).any(|word| word.starts_with(b"RNIC_E2E_MARK="));
        let ours = String::from_utf8_lossy(&environment).contains(&format!("RNIC_E2E_MARK={}", std::process::id()));
        marked && ours && *id != demo && String::from_utf8_lossy(&command).contains("virtio-serial-pci")
    })
    .collect()
}

/// Neither SIGKILL nor SIGINT of the demo leaves a machine behind.
pub fn a_killed_demo_leaves_no_machine() {
    lab();
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::INT] {
        let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_rnic"))
            .args(["demo", "--cold-boot"])
            .env("RNIC_E2E_MARK", std::process::id().to_string())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the demo starts");
        let until = Instant::now() + LIMIT;
        while machines_of(demo.id()).len() < 2 {
            assert!(Instant::now() < until, "two machines come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        let id = rustix::process::Pid::from_raw(demo.id() as i32).expect("a process id");
        rustix::process::kill_process(id, signal).expect("the signal is sent");
        let until = Instant::now() + LIMIT;
        while !machines_of(demo.id()).is_empty() {
            assert!(Instant::now() < until, "after {signal:?}: {:?} are left", machines_of(demo.id()));
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = demo.wait();
    }
}
