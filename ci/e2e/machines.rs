//! Unmodified QEMU under qtest, with no guest kernel: whole transactions, and how QEMU's own doings meet the adapter.

use crate::bench::fabric::{Fabric, by_class, class_names, of_operations};
use crate::bench::qtest::{self, Machine};
use crate::bench::trace_judge::{self, Told};
use crate::bench::transaction::{Pair, over_socket};
use crate::bench::{in_process, laboratory};
use rnic_ci::Lab;
use rnic_ci::guest::GuestMemory;
use rnic_pcie::Class;
use rnic_shim::backings::in_process::ModelHost;
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::transaction::{Operation, TransactionSpec, Transport};
use rnic_shim::verbs::MrLayout;
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn machines(lab: &Lab, fabric: &Fabric, memory: GuestMemory) -> [Machine; 2] {
    ["A", "B"].map(|name| qtest::start(lab, name, &fabric.function(name), memory))
}

/// The one that begins with empty caches.
const COLD: &str = "cold";

/// Transactions that between them make every class of crossing that QEMU can see.
fn specs() -> Vec<(&'static str, TransactionSpec, [usize; 2])> {
    // Under qtest every look at memory is a message, so time runs fast for the retry timer.
    let story = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let long = TransactionSpec { length_bytes: 10_000, path_mtu_bytes: 1024, ..story.clone() };
    let listed = TransactionSpec { layout: MrLayout::List, elements: 3, ..long.clone() };
    let send = TransactionSpec { operation: Operation::SendImm, layout: MrLayout::TwoLevel, ..story.clone() };
    let unreliable = TransactionSpec { transport: Transport::Uc, ..listed.clone() };
    vec![
        ("the story", story.clone(), [4, 3]),
        // Two contexts and a key on each side; a contiguous region needs no translation.
        (COLD, story.clone(), [7, 6]),
        ("armed", TransactionSpec { armed: true, ..story.clone() }, [4, 4]),
        ("unsignaled", TransactionSpec { signaled: false, ..story }, [3, 3]),
        ("ten packets", long, [13, 12]),
        ("ten packets of three elements in listed pages", listed, [13, 12]),
        ("a SEND, armed", TransactionSpec { armed: true, ..send.clone() }, [4, 4]),
        ("ten packets of an unreliable connection", unreliable, [13, 12]),
        ("a datagram, armed", TransactionSpec { armed: true, transport: Transport::Ud, ..send }, [4, 4]),
    ]
}

/// The test body of all machines and guests, over the two backings that need none.
pub fn the_whole_transaction_in_process_and_over_the_socket() {
    for (name, spec, expected) in specs() {
        for in_process in [true, false] {
            let fabric = Arc::new(Fabric::new());
            let backings = ["A", "B"].map(|name| match in_process {
                true => in_process::backing(&fabric, name),
                false => over_socket(&fabric.socket(name)),
            });
            let mut pair = Pair::bring_up(backings, &spec);
            if name == COLD {
                pair.flush_caches();
            }
            let [a, b] = pair.run_watched(&fabric);
            let crossed = [class_names(&a), class_names(&b)];
            assert_eq!([a.len(), b.len()], expected, "{name}, in process {in_process}: {crossed:?}");
            pair.close();
        }
    }
}

pub fn the_whole_transaction_under_qtest() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let machines = machines(&lab, &fabric, GuestMemory::Shared);
    for (name, spec, expected) in specs() {
        let mut pair = Pair::bring_up(machines.each_ref().map(Machine::backing), &spec);
        if name == COLD {
            pair.flush_caches();
        }
        let [a, b] = pair.run_watched(&fabric);
        assert_eq!([a.len(), b.len()], expected, "{name}: {:?} {:?}", class_names(&a), class_names(&b));
        if name == "armed" {
            assert_eq!(class_names(&a), ["doorbell", "wqe_fetch", "payload_read", "cqe_write"]);
            assert_eq!(class_names(&b), ["payload_write", "recv_wqe_fetch", "cqe_write", "event"]);
        }
        pair.close();
    }
}

/// From the first message to the last: every store, load, DMA and vector that QEMU saw is a recorded crossing.
pub fn qemus_trace_tells_the_same_crossings_under_qtest() {
    let lab = laboratory::lab();
    for (name, spec, expected) in specs() {
        let fabric = Fabric::new();
        let watches = ["A", "B"].map(|name| fabric.watch(name));
        let machines = machines(&lab, &fabric, GuestMemory::Messages);
        let mut pair = Pair::bring_up(machines.each_ref().map(Machine::backing), &spec);
        if name == COLD {
            pair.flush_caches();
        }
        pair.run();
        let crossings = watches.map(|watch| watch.crossings());
        let qpns = [spec.requester_qpn, spec.responder_qpn];
        for (side, crossings) in crossings.iter().enumerate() {
            let told: Vec<Told> = crossings.iter().map(Told::from).collect();
            let seen = trace_judge::agree(&machines[side].trace, &told);
            assert!(seen.dma.len() >= expected[side] && seen.stores.len() > 8 && !seen.loads.is_empty(), "{seen:?}");
            assert_eq!(of_operations(crossings, &qpns[side..=side]).len(), expected[side], "{name}, side {side}");
        }
        println!("{name}: {:?}", crossings.map(|crossings| crossings.len()));
    }
}

/// The judge of the trace judges: a crossing more, less, longer or elsewhere is noticed.
pub fn the_judge_of_the_trace_notices_a_wrong_record() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let watch = fabric.watch("B");
    let machines = machines(&lab, &fabric, GuestMemory::Messages);
    let spec = TransactionSpec { armed: true, timeout: 18, ..TransactionSpec::default() };
    Pair::bring_up(machines.each_ref().map(Machine::backing), &spec).run();
    let told: Vec<Told> = watch.crossings().iter().map(Told::from).collect();
    let seen = trace_judge::agree(&machines[1].trace, &told);
    type Change = fn(&mut Vec<Told>);
    let changes: [(&str, Change); 5] = [
        ("one left out", |told| told.truncate(told.len() - 1)),
        ("one twice", |told| told.push(told[told.len() - 1])),
        ("two exchanged", |told| {
            let last = told.len() - 1;
            told.swap(last, last - 1);
        }),
        ("a byte more", |told| told.last_mut().expect("crossings").bytes += 1),
        ("no vector", |told| told.iter_mut().for_each(|crossing| crossing.vector = false)),
    ];
    for (name, change) in changes {
        let mut wrong = told.clone();
        change(&mut wrong);
        assert!(trace_judge::compare(&seen, &wrong).is_err(), "{name}");
    }
}

/// What firmware does before anything else: read the identity, size the BARs, find the capabilities.
pub fn qemu_realizes_the_device_and_sizes_its_bars() {
    const BARS: [(u8, u32, u64); 3] = [(0x10, 0x4, 0x1_0000), (0x18, 0xc, 4 << 20), (0x20, 0x4, 0x1000)];
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let mut machine = qtest::start(&lab, "A", &fabric.function("A"), GuestMemory::Shared);
    let qemu = &mut machine.qemu;
    // The root port's secondary bus.
    qemu.write_config(0, 4, 0, 0x18, 0x01_0100).expect("a bus number");
    let mut read = |offset| qemu.read_config(1, 0, 0, offset).expect("configuration space");
    assert_eq!(read(0), 0x12b7_1234);
    assert_eq!(read(8) >> 8, 0x02_0700, "an InfiniBand or RDMA controller");
    let mut capabilities = Vec::new();
    let mut at = read(0x34) as u8;
    while at != 0 && capabilities.len() < 48 {
        let header = read(at & 0xfc);
        capabilities.push(header as u8);
        at = (header >> 8) as u8;
    }
    for (number, name) in [(0x01, "power management"), (0x10, "PCI Express"), (0x11, "MSI-X")] {
        assert!(capabilities.contains(&number), "{name} in {capabilities:x?}");
    }
    for (register, kind, at_least) in BARS {
        let is_64_bit = kind & 4 != 0;
        qemu.write_config(1, 0, 0, register, u32::MAX).expect("all ones");
        let low = qemu.read_config(1, 0, 0, register).expect("the size");
        let mut mask = u64::from(low & !0xf) | 0xffff_ffff_0000_0000;
        if is_64_bit {
            qemu.write_config(1, 0, 0, register + 4, u32::MAX).expect("all ones");
            let high = qemu.read_config(1, 0, 0, register + 4).expect("the size");
            mask = u64::from(low & !0xf) | u64::from(high) << 32;
        }
        let size = mask.wrapping_neg();
        assert_eq!(low & 0xf, kind, "the kind of BAR at {register:#x}");
        assert!(size.is_power_of_two() && size >= at_least, "BAR at {register:#x}: {size:#x}");
    }
}

/// A machine's reset reaches the device, whatever it was doing, and leaves it fit for the next driver.
pub fn a_reset_of_the_machine_is_a_reset_of_the_device() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let mut machines = machines(&lab, &fabric, GuestMemory::Shared);
    let spec = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    Pair::bring_up(machines.each_ref().map(Machine::backing), &spec).run();
    let before = fabric.resets("B");
    machines[1].qemu.qmp().execute("system_reset", json!({})).expect("a reset");
    let until = Instant::now() + Duration::from_secs(10);
    while fabric.resets("B") == before {
        assert!(Instant::now() < until, "the reset has not arrived");
        std::thread::sleep(Duration::from_millis(5));
    }
    let enabled = fabric.adapter("B").call(|adapter| {
        let function = &adapter.function;
        (function.engine.is_enabled(), function.link.bus_master(), function.engine.object_counts())
    });
    assert_eq!(enabled.expect("an answer"), (false, false, [0; 5]), "nothing of before is left");
    Pair::bring_up(machines.each_ref().map(Machine::backing), &spec).run();
}

/// One client at a time: the second is told so at once, the first goes on; the next one finds a free device.
pub fn a_second_client_is_refused_and_a_later_one_is_served() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let mut machine = qtest::start(&lab, "first", &fabric.function("B"), GuestMemory::Shared);
    let second = qtest::try_start(&lab, "second", &fabric.function("B"), GuestMemory::Shared);
    let refusal = second.err().expect("a second QEMU is refused").to_string();
    assert!(refusal.contains("second"), "{refusal}");
    lab.run_folder().drop_logs();
    let start = Instant::now();
    let limit = Duration::from_millis(300);
    let client = Socket::connect(&fabric.socket("B"), ModelHost::default(), MemoryAccess::Shared, limit);
    let refusal = client.expect_err("a second client is refused").to_string();
    assert!(refusal.contains("refused"), "{refusal}");
    assert!(start.elapsed() < Duration::from_secs(2), "refused at once, not by silence");
    let spec = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let pair = || over_socket(&fabric.socket("A"));
    Pair::bring_up([pair(), machine.backing()], &spec).run();
    machine.qemu.running().kill();
    let heir = qtest::start(&lab, "heir", &fabric.function("B"), GuestMemory::Shared);
    let watch = fabric.watch("B");
    Pair::bring_up([pair(), heir.backing()], &spec).run();
    assert_eq!(by_class(&watch.crossings()).get(&Class::PayloadWrite), Some(&1));
    drop(heir);
    // Right behind one that has closed: its end is read first, and nobody is refused for it.
    for number in 0..50 {
        let stream = UnixStream::connect(fabric.socket("A")).expect("a connection");
        let client = Socket::open(stream, ModelHost::default(), MemoryAccess::Shared, limit);
        assert!(client.is_ok(), "client {number}: {:?}", client.err());
    }
}
