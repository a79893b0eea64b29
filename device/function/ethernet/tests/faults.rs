//! Drivers that break the rules: each is told by a number, and the device stands still until it is reset.

use super::driver::{Driver, INDIRECT, NEXT, SIZE, WRITE, available, descriptor, table, used};
use super::rig::{BASE, MEMORY};
use super::{Answers, Buffer};
use crate::function::ethernet::NetFault;
use crate::function::ethernet::device::{CONTROL, FEATURES, RECEIVE, TRANSMIT};
use rnic_pcie::{DmaFault, Iova};

const NEEDS_RESET: u8 = 64;

/// A chain of one descriptor.
fn single(driver: &mut Driver, queue: usize, bytes: &[u8]) {
    driver.write_descriptor(queue, 0, bytes);
    driver.make_available(queue, 0);
    driver.notify(queue);
}

type Break = (&'static str, fn(&mut Driver), NetFault);

fn faults() -> Vec<Break> {
    const Q: u16 = TRANSMIT as u16;
    vec![
        ("an index far ahead", |driver| driver.rig.write_memory(available(TRANSMIT) + 2, &[17, 0]), {
            NetFault::AvailableIndex { queue: Q, from: 0, to: 17 }
        }),
        ("a head beyond the table", |driver| driver.make_available(TRANSMIT, SIZE), {
            NetFault::HeadBeyondTable { queue: Q, head: SIZE }
        }),
        ("a next beyond the table", |driver| single(driver, TRANSMIT, &descriptor(BASE, 9, NEXT, SIZE)), {
            NetFault::NextBeyondTable { queue: Q, head: 0, next: SIZE }
        }),
        ("a circle", |driver| single(driver, TRANSMIT, &descriptor(BASE, 1, NEXT, 0)), {
            NetFault::ChainTooLong { queue: Q, head: 0 }
        }),
        (
            "a circle in an indirect table",
            |driver| {
                let place = driver.allocate(32);
                driver.rig.write_memory(place, &[descriptor(BASE, 1, NEXT, 1), descriptor(BASE, 1, NEXT, 0)].concat());
                single(driver, TRANSMIT, &descriptor(place, 32, INDIRECT, 0));
            },
            NetFault::ChainTooLong { queue: Q, head: 0 },
        ),
        (
            "a next beyond an indirect table",
            |driver| {
                let place = driver.allocate(16);
                driver.rig.write_memory(place, &descriptor(BASE, 1, NEXT, 1));
                single(driver, TRANSMIT, &descriptor(place, 16, INDIRECT, 0));
            },
            NetFault::NextBeyondTable { queue: Q, head: 0, next: 1 },
        ),
        (
            "an indirect table in an indirect table",
            |driver| {
                let place = driver.allocate(16);
                driver.rig.write_memory(place, &descriptor(BASE, 48, INDIRECT, 0));
                single(driver, TRANSMIT, &descriptor(place, 16, INDIRECT, 0));
            },
            NetFault::IndirectTable { queue: Q, head: 0, length_bytes: 48 },
        ),
        (
            "an indirect table of no whole descriptors",
            |driver| {
                single(driver, TRANSMIT, &descriptor(BASE, 17, INDIRECT, 0));
            },
            NetFault::IndirectTable { queue: Q, head: 0, length_bytes: 17 },
        ),
        ("an empty indirect table", |driver| single(driver, TRANSMIT, &descriptor(BASE, 0, INDIRECT, 0)), {
            NetFault::IndirectTable { queue: Q, head: 0, length_bytes: 0 }
        }),
        (
            "an indirect table larger than any queue",
            |driver| {
                single(driver, TRANSMIT, &descriptor(BASE, 257 * 16, INDIRECT, 0));
            },
            NetFault::IndirectTable { queue: Q, head: 0, length_bytes: 257 * 16 },
        ),
        (
            "an indirect table that goes on",
            |driver| {
                single(driver, TRANSMIT, &descriptor(BASE, 16, INDIRECT | NEXT, 1));
            },
            NetFault::IndirectTable { queue: Q, head: 0, length_bytes: 16 },
        ),
        (
            "a buffer to be read behind one to be written",
            |driver| {
                driver.write_descriptor(CONTROL, 1, &descriptor(BASE, 2, 0, 0));
                single(driver, CONTROL, &descriptor(BASE, 1, WRITE | NEXT, 1));
            },
            NetFault::ReadableAfterWritable { queue: CONTROL as u16, head: 0 },
        ),
        ("a frame in a buffer to be written", |driver| single(driver, TRANSMIT, &descriptor(BASE, 99, WRITE, 0)), {
            NetFault::WrongBuffers { queue: Q, head: 0 }
        }),
        ("a frame without a header", |driver| single(driver, TRANSMIT, &descriptor(BASE, 11, 0, 0)), {
            NetFault::WrongBuffers { queue: Q, head: 0 }
        }),
        ("a command that cannot be answered", |driver| single(driver, CONTROL, &descriptor(BASE, 3, 0, 0)), {
            NetFault::WrongBuffers { queue: CONTROL as u16, head: 0 }
        }),
        (
            "a frame to a buffer to be read",
            |driver| {
                single(driver, RECEIVE, &descriptor(BASE, 99, 0, 0));
                driver.rig.receive(&[0xff; 60]);
            },
            NetFault::WrongBuffers { queue: RECEIVE as u16, head: 0 },
        ),
        (
            "buffers smaller than the header",
            |driver| {
                single(driver, RECEIVE, &descriptor(BASE, 11, WRITE, 0));
                driver.rig.receive(&[0xff; 60]);
            },
            NetFault::WrongBuffers { queue: RECEIVE as u16, head: 0 },
        ),
        (
            "a buffer that is not there",
            |driver| {
                single(driver, TRANSMIT, &descriptor(BASE + MEMORY as u64 - 50, 60, 0, 0));
            },
            NetFault::Dma { queue: Q, what: "a buffer", fault: DmaFault::UnsupportedRequest },
        ),
        ("an address space that ends", |driver| single(driver, TRANSMIT, &descriptor(u64::MAX, 60, 0, 0)), {
            NetFault::Dma { queue: Q, what: "a buffer", fault: DmaFault::UnsupportedRequest }
        }),
        ("an indirect table that is not there", |driver| single(driver, TRANSMIT, &descriptor(16, 16, INDIRECT, 0)), {
            NetFault::Dma { queue: Q, what: "an indirect table", fault: DmaFault::UnsupportedRequest }
        }),
        (
            "a receive buffer that is not there",
            |driver| {
                single(driver, RECEIVE, &descriptor(16, 99, WRITE, 0));
                driver.rig.receive(&[0xff; 60]);
            },
            NetFault::Dma { queue: RECEIVE as u16, what: "a buffer", fault: DmaFault::UnsupportedRequest },
        ),
        (
            "a queue of three",
            |driver| {
                driver.negotiate(FEATURES);
                driver.set_queue(TRANSMIT, 3, [table(1), available(1), used(1)]);
            },
            NetFault::QueueSize { queue: Q, size: 3 },
        ),
        (
            "a queue of none",
            |driver| {
                driver.negotiate(FEATURES);
                driver.set_queue(TRANSMIT, 0, [table(1), available(1), used(1)]);
            },
            NetFault::QueueSize { queue: Q, size: 0 },
        ),
        (
            "a queue too large",
            |driver| {
                driver.negotiate(FEATURES);
                driver.set_queue(TRANSMIT, 512, [table(1), available(1), used(1)]);
            },
            NetFault::QueueSize { queue: Q, size: 512 },
        ),
        (
            "a misaligned table",
            |driver| {
                driver.negotiate(FEATURES);
                driver.set_queue(TRANSMIT, 4, [table(1) + 8, available(1), used(1)]);
            },
            NetFault::QueueAddress { queue: Q, ring: "descriptor table", address: Iova(table(1) + 8) },
        ),
        (
            "a ring past the end",
            |driver| {
                driver.negotiate(FEATURES);
                driver.set_queue(TRANSMIT, 4, [table(1), u64::MAX - 9, used(1)]);
            },
            NetFault::QueueAddress { queue: Q, ring: "available ring", address: Iova(u64::MAX - 9) },
        ),
        (
            "a queue that is not there",
            |driver| {
                driver.negotiate(FEATURES);
                driver.set_queue(TRANSMIT, 4, [BASE + MEMORY as u64; 3]);
                driver.rig.write_register(0x14, &[15]);
            },
            NetFault::Dma { queue: Q, what: "the available ring", fault: DmaFault::UnsupportedRequest },
        ),
    ]
}

#[test]
fn each_broken_rule_stops_the_device_until_it_is_reset() {
    for answers in [Answers::AtOnce, Answers::Late] {
        for (what, break_it, fault) in faults() {
            let mut driver = Driver::up(answers);
            driver.rig.settle();
            break_it(&mut driver);
            driver.notify(fault_queue(&fault));
            driver.rig.settle();
            assert_eq!(driver.rig.device.fault(), Some(fault), "{what}, {answers:?}");
            let [status] = driver.rig.read_register(0x14);
            assert_eq!(status & NEEDS_RESET, NEEDS_RESET, "{what}");
            assert_eq!(driver.rig.read_register::<1>(0x1000)[0] & 2, 2, "{what}: the configuration has changed");
            // It stands still, and its driver cannot talk it out of that.
            let before = driver.rig.link.ledger().snapshot();
            driver.rig.write_register(0x14, &[15]);
            driver.post(TRANSMIT, &[Buffer::Readable(vec![0; 72])]);
            driver.rig.receive(&[0xff; 60]);
            driver.rig.settle();
            assert!(driver.rig.sent.is_empty() && driver.used(TRANSMIT).is_empty(), "{what}");
            assert!(
                driver
                    .rig
                    .counted(&before)
                    .iter()
                    .all(|(class, _)| matches!(*class, "net_register_write" | "net_doorbell"))
            );
            // A reset makes it good.
            driver.rig.write_memory(BASE, &[0; 0x3000]);
            driver.bring_up(FEATURES);
            driver.post(TRANSMIT, &[Buffer::Readable(vec![0; 72])]);
            driver.rig.settle();
            assert_eq!((driver.rig.sent.len(), driver.rig.device.fault()), (1, None), "{what}");
        }
    }
}

fn fault_queue(fault: &NetFault) -> usize {
    match *fault {
        NetFault::QueueSize { queue, .. }
        | NetFault::QueueAddress { queue, .. }
        | NetFault::AvailableIndex { queue, .. }
        | NetFault::HeadBeyondTable { queue, .. }
        | NetFault::NextBeyondTable { queue, .. }
        | NetFault::ChainTooLong { queue, .. }
        | NetFault::IndirectTable { queue, .. }
        | NetFault::ReadableAfterWritable { queue, .. }
        | NetFault::WrongBuffers { queue, .. }
        | NetFault::Dma { queue, .. } => usize::from(queue),
    }
}

#[test]
fn every_fault_can_be_met_and_is_documented() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ethernet-function.md"));
    let text = text.expect("docs/ethernet-function.md");
    let mut numbers: Vec<u16> = faults().iter().map(|(_, _, fault)| fault.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let documented = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    let documented: Vec<u16> = documented.filter_map(|(number, _)| number.parse().ok()).collect();
    assert_eq!(documented, numbers, "the table of faults");
    for (_, _, fault) in faults() {
        assert!(text.contains(&format!("| {} | `{}` |", fault.number(), fault.name())), "{fault:?}");
    }
}
