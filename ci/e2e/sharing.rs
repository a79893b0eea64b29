//! Guest memory that the server cannot use as it stands: told once an adapter, with what cures it. And a client that
//! takes the adapter and says nothing.

use crate::bench::fabric::Fabric;
use crate::bench::laboratory;
use crate::bench::program;
use crate::bench::qtest;
use crate::bench::serving::Serving;
use crate::bench::transaction::Pair;
use rnic_ci::guest::{AdapterFunction, GuestMemory, GuestSpec};
use rnic_shim::backings::in_process::ModelHost;
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::transaction::TransactionSpec;
use rnic_shim::verbs::{Device, OpenOptions};
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn lines(log: &Path, words: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).expect("the server's log");
    text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

#[track_caller]
fn await_line(log: &Path, words: &str) -> Vec<String> {
    let start = Instant::now();
    while lines(log, words).is_empty() {
        assert!(start.elapsed() < LIMIT, "no line with {words:?}: {:?}", std::fs::read_to_string(log));
        std::thread::sleep(Duration::from_millis(10));
    }
    lines(log, words)
}

/// QEMU with `share=off` passes a descriptor in which the server sees zeros.
pub fn a_descriptor_that_is_not_shared_is_found_out_and_told_with_its_cure() {
    let lab = laboratory::lab();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let serving = Serving::start_logged("A B", &log);
    let function = AdapterFunction::new(serving.socket("A"));
    let machine = qtest::start(&lab, "A", &function, GuestMemory::PrivateDescriptor);
    // The device reads zeros where the driver has written a command.
    let options = OpenOptions { command_limit: Duration::from_secs(2), ..OpenOptions::default() };
    let refused = Device::open(machine.backing(), options).err().expect("no command can work");
    println!("the driver: {refused}");
    let told = await_line(&log, "share=off");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("adapter A:") && told[0].contains("memory-backend-memfd,id=ram,size=...,share=on"),
        "{told:?}"
    );
}

/// The same where the guest's kernel drives the Ethernet function, and nobody the RNIC.
pub fn the_ethernet_function_finds_it_out_as_well_and_is_reported() {
    let lab = laboratory::lab();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let serving = Serving::start_logged("A", &log);
    let spec = |memory| GuestSpec {
        adapter: vec![AdapterFunction::new(serving.folder().join("A.net.sock"))],
        memory,
        ..GuestSpec::without_adapter("A")
    };
    // The driver lends buffers and gives a command: the device reads an available ring that stays empty.
    let up = "for i in $(seq 500); do set -- /sys/bus/pci/devices/0000:01:00.0/virtio*/net/*; [ -e $1/mtu ] && break; \
              sleep 0.01; done; ip link set ${1##*/} up";
    let mut guest = laboratory::guest(&lab, &spec(GuestMemory::PrivateDescriptor));
    guest.run(up).expect("a command");
    let told = await_line(&log, "share=off");
    assert!(told[0].contains("adapter A, Ethernet:") && told[0].contains("share=on"), "{told:?}");
    drop(guest);
    let mut guest = laboratory::guest(&lab, &spec(GuestMemory::Shared));
    assert_eq!(guest.shell(up, LIMIT).expect("a command").0, 0);
    let ask = |command: &str| -> Value {
        let output =
            program::run(program::command(&format!("{command} --json --folder {}", serving.folder().display())));
        serde_json::from_str(&output.standard_output).unwrap_or_else(|error| panic!("{command}: {error}: {output:?}"))
    };
    let stat = ask("stat");
    let [rdma, ethernet] = &stat["functions"].as_array().expect("functions")[..] else { panic!("two: {stat}") };
    assert_eq!((&rdma["name"], &rdma["total"]["crossings"]), (&"rdma".into(), &0.into()));
    assert!(ethernet["classes"]["net_available_fetch"]["crossings"].as_u64() > Some(0), "{ethernet}");
    assert!(stat["ethernet_counters"]["commands"].as_u64() > Some(0), "{stat}");
    let shown = &ask("show")["ethernet"];
    assert_eq!((&shown["attached"], &shown["running"]), (&true.into(), &true.into()), "{shown}");
    // Buffers for frames are looked at when the first frame comes; commands at once.
    let control = &shown["queues"][2];
    assert!(control["enabled"] == true && control["used_index"].as_u64() > Some(0), "{control}");
    assert_eq!(lines(&log, "share=off").len(), 1, "shared memory is not complained of");
}

/// The same question with memory that is shared, and with memory that has no descriptor at all.
pub fn shared_memory_is_recognised_and_messages_are_told_once_an_adapter() {
    let lab = laboratory::lab();
    let spec = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let fabric = Fabric::new();
    let machines = ["A", "B"].map(|name| qtest::start(&lab, name, &fabric.function(name), GuestMemory::Shared));
    Pair::bring_up(machines.each_ref().map(|machine| machine.backing()), &spec).run();
    for name in ["A", "B"] {
        let verdict = fabric.adapter(name).call(|adapter| adapter.function.memory_is_shared());
        assert_eq!(verdict.expect("an answer"), Some(true), "adapter {name} has asked and knows");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let serving = Serving::start_logged("A B", &log);
    let machines = ["A", "B"]
        .map(|name| qtest::start(&lab, name, &AdapterFunction::new(serving.socket(name)), GuestMemory::Messages));
    Pair::bring_up(machines.each_ref().map(|machine| machine.backing()), &spec).run();
    let told = lines(&log, "share=on");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(["A:", "B:"].iter().all(|name| told.iter().any(|line| line.contains(name))), "{told:?}");
    assert_eq!(lines(&log, "share=off"), Vec::<String>::new());
}

/// A client that says nothing, and one that says half a message, keep nobody else out for ever.
pub fn a_client_that_does_not_negotiate_is_let_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let serving = Serving::start_logged("A B", &log);
    // The clients that found out that it listens are to be gone: a second one is refused.
    std::thread::sleep(Duration::from_secs(1));
    let _silent = UnixStream::connect(serving.socket("A")).expect("a client of A");
    let mut half = UnixStream::connect(serving.socket("B")).expect("a client of B");
    half.write_all(&[0, 0, 1, 0, 40, 0, 0, 0]).expect("half a header");
    let start = Instant::now();
    let backings = ["A", "B"].map(|name| {
        let socket = Socket::connect(&serving.socket(name), ModelHost::default(), MemoryAccess::Shared, LIMIT);
        Box::new(socket.expect("served once the first is gone")) as Box<dyn rnic_shim::backing::Backing>
    });
    println!("served after {:?}", start.elapsed());
    Pair::bring_up(backings, &TransactionSpec { timeout: 18, ..TransactionSpec::default() }).run();
    assert_eq!(await_line(&log, "negotiated no version within 10 s").len(), 2);
}
