//! `rnic stat` against QEMU's own trace, over a run of 1,000 mixed operations.
//!
//! Two unmodified QEMUs under qtest are attached to a live `rnic serve`; their memory is not shared, so every DMA is a
//! message that QEMU sees. Each crossing of `rnic trace` is compared with QEMU's record, in order; the totals of `rnic stat`
//! are then those of the crossings by class, and by direction the bytes that QEMU saw.

use crate::bench::laboratory;
use crate::bench::program;
use crate::bench::qtest;
use crate::bench::serving::Serving;
use crate::bench::station::{Retries, Station};
use crate::bench::trace_judge::{self, Dma, Seen, Told};
use rnic_abi::WorkOpcode;
use rnic_ci::guest::{AdapterFunction, GuestMemory};
use rnic_pcie::{Class, Direction};
use rnic_shim::exchange::Endpoint;
use rnic_shim::verbs::{DoorbellForm, Payload, Qpn, ReceiveRequest, Remote, SendRequest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const OPERATIONS: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(20);

fn gid(last: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
    gid
}

/// A choice that depends on the operation's number alone, and on nothing else that changes with it.
fn pick<T: Copy>(number: u64, salt: u64, of: &[T]) -> T {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt.wrapping_mul(0xd134_2543_de82_ef95));
    of[(mixed >> 33) as usize % of.len()]
}

/// One operation from A to B, of a kind, a length and a doorbell of its own.
fn operate(number: u64, a: &mut Station, b: &mut Station, ends: &[Endpoint; 2]) {
    let opcode = pick(number, 1, &[WorkOpcode::WRITE, WorkOpcode::WRITE_IMM, WorkOpcode::SEND, WorkOpcode::SEND_IMM]);
    let length = pick(number, 2, &[0u32, 8, 64, 200, 1000, 1024, 2500]);
    let form = pick(number, 3, &[DoorbellForm::Word, DoorbellForm::Line, DoorbellForm::Wqe]);
    let inline = length <= 200 && pick(number, 4, &[true, false]);
    let armed = pick(number, 5, &[true, false, false]);
    let receives = opcode != WorkOpcode::WRITE;
    if receives {
        let elements = [b.region.sge(0x1_0000, 4096)];
        let request = ReceiveRequest { wr_id: number, elements: &elements };
        b.device.post_receive(Qpn(ends[1].qpn), &[request]).expect("a receive is posted");
        if armed {
            b.device.arm(b.cqn, false).expect("armed");
        }
        // The doorbell is posted: a read behind it says that the device has it.
        b.device.status().expect("a register");
    }
    let bytes = vec![number as u8; length as usize];
    let elements = [a.region.sge(0, length)];
    let is_write = matches!(opcode, WorkOpcode::WRITE | WorkOpcode::WRITE_IMM);
    let request = SendRequest {
        wr_id: number,
        opcode,
        payload: if inline { Payload::Inline(&bytes) } else { Payload::Elements(&elements) },
        remote: is_write.then_some(Remote { address: ends[1].address, rkey: ends[1].rkey }),
        immediate: number as u32,
        signaled: true,
        solicited: false,
        datagram: None,
        srqn: None,
        fence: false,
    };
    a.device.post_send(Qpn(ends[0].qpn), &[request], form).expect("posted");
    assert_eq!(a.completion(LIMIT).status, rnic_abi::CompletionStatus::SUCCESS.0, "operation {number}");
    if receives {
        assert_eq!(b.completion(LIMIT).status, rnic_abi::CompletionStatus::SUCCESS.0, "operation {number}");
        if armed {
            b.device.wait_completion_event(b.cqn, LIMIT).expect("an event");
        }
    }
}

fn lines(serving: &Serving, command: &str) -> Vec<Value> {
    let output = program::run(program::command(&format!("{command} --json --folder {}", serving.folder().display())));
    assert!(output.status.success(), "{}", output.standard_error);
    output.standard_output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

pub fn stat_is_qemus_trace_over_a_thousand_mixed_operations() {
    let lab = laboratory::lab();
    let serving = Serving::start("A B --record");
    let machines = ["A", "B"]
        .map(|name| qtest::start(&lab, name, &AdapterFunction::new(serving.socket(name)), GuestMemory::Messages));
    let mut a = Station::open(machines[0].backing(), gid(1));
    let mut b = Station::open(machines[1].backing(), gid(2));
    let ends = [a.create_queue_pair(), b.create_queue_pair()];
    // Under qtest every look at memory is a message, so time runs fast for the retry timer.
    let retries = Retries { timeout: 19, retry_cnt: 7 };
    a.connect(&ends[0], &ends[1], retries);
    b.connect(&ends[1], &ends[0], retries);
    for number in 0..OPERATIONS {
        operate(number, &mut a, &mut b, &ends);
    }
    for (at, name) in ["A", "B"].into_iter().enumerate() {
        let trace = lines(&serving, &format!("trace {name}"));
        assert!(trace.iter().all(|line| line["kind"] != "lost"), "nothing is lost");
        let rows: Vec<&Value> = trace.iter().filter(|line| line["kind"] == "crossing").collect();
        let told: Vec<Told> = rows.iter().map(|row| Told::of_row(row)).collect();
        let seen = trace_judge::agree(&machines[at].trace, &told);
        let stat = &lines(&serving, &format!("stat {name}"))[0];
        assert_totals(stat, &rows, &seen);
        let operations = ["finished_sends", "executed_messages"][at];
        assert_eq!(stat["operations"][operations], OPERATIONS, "{name}");
        println!(
            "{name}: {} crossings, {} stores, {} DMA messages, {} vectors",
            rows.len(),
            seen.stores.len(),
            seen.dma.len(),
            seen.vectors
        );
    }
}

/// The totals are the sum of what QEMU has agreed to, by class; and by direction they are the bytes that QEMU saw.
#[track_caller]
fn assert_totals(stat: &Value, rows: &[&Value], seen: &Seen) {
    let classes = stat["functions"][0]["classes"].as_object().expect("classes");
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(row["class"].as_str().expect("a class")).or_default();
        *sum = (sum.0 + 1, sum.1 + row["bytes"].as_u64().expect("bytes"));
    }
    let number = |totals: &Value, field: &str| totals[field].as_u64().expect("a number");
    let totals: BTreeMap<&str, (u64, u64)> = classes
        .iter()
        .map(|(class, totals)| (class.as_str(), (number(totals, "crossings"), number(totals, "bytes"))))
        .collect();
    assert_eq!(totals, sums);
    let of = |direction: Direction, field: &str| -> u64 {
        let known = |name: &str| Class::ALL.iter().find(|class| class.name() == name).expect("a class").direction();
        classes.iter().filter(|(class, _)| known(class) == direction).map(|(_, totals)| number(totals, field)).sum()
    };
    let dma = |wanted: fn(&Dma) -> Option<u64>| -> u64 { seen.dma.iter().filter_map(wanted).sum() };
    let reads = dma(|dma| if let Dma::Read { bytes } = dma { Some(*bytes) } else { None });
    let writes = dma(|dma| if let Dma::Write { bytes } = dma { Some(*bytes) } else { None });
    let accesses = seen.stores.iter().map(|(_, _, bytes)| bytes).sum::<u64>() + seen.loads.iter().sum::<u64>();
    assert_eq!(of(Direction::DeviceRead, "bytes"), reads, "bytes that the device read");
    // A vector is a message of four bytes, which QEMU sees as a vector.
    assert_eq!(of(Direction::DeviceWrite, "bytes"), writes + 4 * seen.vectors, "bytes that the device wrote");
    assert_eq!(of(Direction::Host, "observed_bytes"), accesses, "bytes that the host stored and loaded");
    assert_eq!(of(Direction::Host, "observed_messages"), (seen.stores.len() + seen.loads.len()) as u64);
}
