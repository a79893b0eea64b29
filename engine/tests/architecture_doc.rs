//! What the documents say of the engine, against the engine: the story's blocks, the accesses that registers take, the
//! transitions of a queue pair, the examples in hex.

mod rig;

use rig::{Fabric, Host, Request, VIRTUAL};
use rnic_abi::WorkOpcode;
use rnic_abi::doorbell::{DB_CQ_ARM, DB_EQ_UPDATE, cq_arm, eq_update};
use rnic_engine::command::transitions::{self, RC_TRANSITIONS};
use rnic_engine::context::queue_pair::{AddressVector, Service};
use rnic_engine::front_end::native::Native;
use rnic_engine::front_end::{
    Body, Completion, CompletionKind, DatagramSource, Destination, DoorbellForm, Element, EventRecord, Expected,
    FrontEnd, Input, Operation, RegisterView, SendWork, Status,
};
use rnic_engine::numbers::{Key, Qpn};
use rnic_engine::{Block, EngineConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/docs/{name}")).unwrap()
}

/// The rows of the table with these columns, code marks taken off.
fn rows(text: &str, columns: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| *line != columns).skip(2);
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>()
    };
    let rows: Vec<_> = lines.by_ref().take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty(), "no table {columns}");
    rows
}

/// The blocks that one armed WRITE with immediate touches on each machine.
fn touched() -> [BTreeSet<Block>; 2] {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    fabric.b.ring(DB_EQ_UPDATE, eq_update(0, 0, true));
    fabric.b.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.a.engine.watch_blocks(true);
    fabric.b.engine.watch_blocks(true);
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 4096));
    fabric.run();
    [&fabric.a, &fabric.b].map(|host| host.engine.block_touches().iter().map(|touch| touch.block).collect())
}

#[test]
fn the_blocks_are_where_and_on_whom_the_architecture_says() {
    let told = rows(&document("architecture.md"), "| block | module | requester | responder |");
    let [requester, responder] = touched();
    let works = |on: &BTreeSet<Block>, block| if on.contains(&block) { "works" } else { "" }.to_owned();
    let made: Vec<Vec<String>> = Block::ALL
        .iter()
        .map(|(block, name, module)| {
            assert!(Path::new(ROOT).join(module).is_file(), "{name}: no file {module}");
            vec![(*name).to_owned(), (*module).to_owned(), works(&requester, *block), works(&responder, *block)]
        })
        .collect();
    assert_eq!(told, made);
    let both = made.iter().filter(|row| row[2] == "works" && row[3] == "works").count();
    assert_eq!(both, 9, "blocks that work on both machines");
}

#[test]
fn registers_take_the_accesses_that_the_datasheet_says() {
    for row in rows(&document("hardware-abi.md"), "| offset | size | access | register | meaning |") {
        let offset = u64::from_str_radix(row[0].trim_start_matches("0x"), 16).unwrap();
        let size: usize = row[1].parse().unwrap();
        let mut host = Host::new(EngineConfig::default(), [10, 0, 0, 1], 0x11);
        for length in [4, 8] {
            host.engine.handle_read(1, &mut host.port, 0, offset, &mut vec![0; length]);
            assert_eq!(host.diagnostics().is_empty(), length <= size, "{row:?} read in {length} bytes");
        }
        host.write(0, offset, &vec![0; size]);
        assert_eq!(host.diagnostics().contains(&"RegisterReadOnly"), row[2] == "R", "{row:?} written");
    }
}

fn attributes(cell: &str) -> u32 {
    let value = |name: &str| {
        let wanted = format!("ATTR_{name}");
        let found = rnic_abi::constants().find(|constant| constant.name == wanted);
        found.unwrap_or_else(|| panic!("no attribute {name}")).value as u32
    };
    cell.split(", ").filter(|name| !name.is_empty()).map(value).fold(0, |mask, bit| mask | bit)
}

#[test]
fn the_transitions_are_those_of_the_datasheet() {
    let mut told = rows(&document("hardware-abi.md"), "| from | to | required | optional |");
    // The last two rows are the steps to RESET and ERR, which every state has.
    let last = told.split_off(told.len() - 2);
    assert_eq!((last[0][..2].concat(), last[1][..2].concat()), ("anyRESET".into(), "any but RESETERR".into()));
    let told: Vec<_> =
        told.iter().map(|row| (row[0].clone(), row[1].clone(), attributes(&row[2]), attributes(&row[3]))).collect();
    let name = |state| format!("{state:?}").to_uppercase();
    let made: Vec<_> =
        RC_TRANSITIONS.iter().map(|step| (name(step.from), name(step.to), step.required, step.optional)).collect();
    assert_eq!(told, made);
}

/// The table of the other types: several types and several states share a row.
#[test]
fn the_transitions_of_the_other_types_are_those_of_the_datasheet() {
    let mut told = Vec::new();
    for row in rows(&document("hardware-abi.md"), "| type | from | to | required | optional |") {
        for service in row[0].split(", ") {
            for from in row[1].split(", ") {
                let names = (service.to_owned(), from.to_owned(), row[2].clone());
                told.push((names, attributes(&row[3]), attributes(&row[4])));
            }
        }
    }
    let name = |state| format!("{state:?}").to_uppercase();
    let others = Service::ALL.into_iter().filter(|service| *service != Service::Rc);
    let mut made: Vec<_> = others
        .flat_map(|service| transitions::of(service).iter().map(move |step| (service, step)))
        .map(|(service, step)| {
            ((service.name().to_owned(), name(step.from), name(step.to)), step.required, step.optional)
        })
        .collect();
    told.sort();
    made.sort();
    assert_eq!(told, made);
}

#[test]
fn the_rnr_delays_are_those_of_the_datasheet() {
    let mut told = BTreeMap::new();
    for row in rows(&document("hardware-abi.md"), "| code | ms | code | ms | code | ms | code | ms |") {
        for pair in row.chunks(2) {
            told.insert(pair[0].parse().unwrap(), pair[1].clone());
        }
    }
    let made: BTreeMap<u8, String> =
        (0..32).map(|code| (code, format!("{:.2}", rnic_wire::RnrTimer::new(code).delay_ns() as f64 / 1e6))).collect();
    assert_eq!(told, made);
}

/// The blocks of hex of the datasheet by their captions: lines `offset: bytes  meaning`.
fn examples() -> BTreeMap<String, Vec<u8>> {
    let text = document("hardware-abi.md");
    let mut lines = text.lines();
    let mut examples = BTreeMap::new();
    while let Some(line) = lines.next() {
        let Some((name, _)) = line.strip_prefix("**Example `").and_then(|rest| rest.split_once("`**")) else {
            continue;
        };
        let block = lines.by_ref().skip_while(|line| !line.starts_with("```")).skip(1);
        let mut bytes = Vec::new();
        for line in block.take_while(|line| !line.starts_with("```")) {
            let (offset, rest) = line.split_once(": ").unwrap_or_else(|| panic!("{name}: {line}"));
            assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "{name}: {line}");
            let hex = rest.split("  ").next().unwrap_or_default();
            bytes.extend(hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect(line)));
        }
        assert!(examples.insert(name.to_owned(), bytes).is_none(), "{name} is there twice");
    }
    examples
}

fn elements(list: &[(u64, u32, u32)]) -> Vec<Element> {
    list.iter().map(|&(address, length_bytes, key)| Element { address, length_bytes, key: Key(key) }).collect()
}

/// What the datasheet says of each of its send work requests: slot, and what it asks for.
fn send_examples() -> Vec<(&'static str, u16, SendWork)> {
    let plain = SendWork {
        operation: Operation::Send,
        signaled: true,
        solicited: false,
        fence: false,
        immediate: 0,
        remote_address: 0,
        rkey: Key(0),
        swap_or_add: 0,
        compare: 0,
        length_bytes: 0,
        slots: 1,
        destination: None,
        srqn: None,
        body: Body::Gather(Default::default()),
    };
    let gather = |list: &[(u64, u32, u32)]| Body::Gather(elements(list).into_iter().collect());
    let write = SendWork { remote_address: 0x7f00_0008_0000, rkey: Key(0x2200), ..plain.clone() };
    let av = AddressVector {
        dest_gid: rig::gid([10, 0, 0, 2]),
        dest_mac: [2, 0, 0, 0, 0, 2],
        hop_limit: 64,
        ..AddressVector::default()
    };
    let destination = Destination { av, qpn: Qpn(0x12), qkey: 0x1111_1111 };
    let four: Vec<_> = (0..4).map(|page| (0x7f00_0000_0000 + page * 0x1000, 256, 0x1100)).collect();
    vec![
        (
            "WRITE_IMM of 4096 bytes",
            0,
            SendWork {
                operation: Operation::WriteImm,
                immediate: 0x2a,
                length_bytes: 4096,
                body: gather(&[(0x7f00_0000_0000, 4096, 0x1100)]),
                ..write.clone()
            },
        ),
        (
            "SEND of 5 inline bytes",
            1,
            SendWork { length_bytes: 5, body: Body::Inline(b"hello".iter().copied().collect()), ..plain.clone() },
        ),
        ("WRITE of no bytes", 2, SendWork { operation: Operation::Write, signaled: false, ..write.clone() }),
        (
            "READ of 4096 bytes",
            5,
            SendWork {
                operation: Operation::Read,
                length_bytes: 4096,
                body: gather(&[(0x7f00_0000_0000, 4096, 0x1100)]),
                ..write.clone()
            },
        ),
        (
            "CMP_SWAP of 1 for 0",
            6,
            SendWork {
                operation: Operation::CompareSwap,
                swap_or_add: 1,
                length_bytes: 8,
                body: gather(&[(0x7f00_0000_0000, 8, 0x1100)]),
                ..write
            },
        ),
        (
            "datagram of 5 bytes",
            7,
            SendWork {
                length_bytes: 5,
                slots: 2,
                destination: Some(destination),
                body: gather(&[(0x7f00_0000_0000, 5, 0x1100)]),
                ..plain.clone()
            },
        ),
        ("SEND of four elements", 3, SendWork { length_bytes: 1024, slots: 2, body: gather(&four), ..plain }),
    ]
}

#[test]
fn the_examples_are_what_the_codecs_read_and_write() {
    let mut examples = examples();
    let native = Native::default();
    let mut take = |name: &str| examples.remove(name).unwrap_or_else(|| panic!("no example {name}"));
    for (name, slot_index, work) in send_examples() {
        let bytes = take(name);
        let service = if work.destination.is_some() { Service::Ud } else { Service::Rc };
        let expected = Expected { qpn: Qpn(0x11), slot_index, available_slots: work.slots, service };
        assert_eq!((native.send_slots(&bytes), bytes.len()), (work.slots, usize::from(work.slots) * 64), "{name}");
        assert_eq!(native.decode_send(expected, &bytes), Ok(work), "{name}");
    }
    let mut native = native;
    for (name, offset, producer) in
        [("line that carries a WRITE of 28 inline bytes", 0x1800, 1), ("line with a doorbell value", 0x1400, 1)]
    {
        let line: [u8; 64] = take(name).try_into().expect("a line of 64 bytes");
        let input = native.write(rnic_abi::registers::BAR_DOORBELLS, offset, &line, &RegisterView::default());
        let form = if offset == 0x1400 { DoorbellForm::Line } else { DoorbellForm::WorkRequest(line) };
        assert_eq!(input, Ok(Input::Send { page: 1, qpn: Qpn(0x11), producer, form }), "{name}");
        if let DoorbellForm::WorkRequest(line) = form {
            let expected = Expected { qpn: Qpn(0x11), slot_index: 0, available_slots: 1, service: Service::Rc };
            let work = native.decode_send(expected, &line).expect(name);
            let Body::Inline(data) = &work.body else { panic!("{name}: {work:?}") };
            assert_eq!((work.operation, &data[..]), (Operation::Write, &b"the doorbell carries it all."[..]));
            assert_eq!((work.remote_address, work.rkey, work.signaled), (0x7f00_0008_0000, Key(0x2200), true));
        }
    }
    let receive = native.decode_receive(&take("receive of 8192 bytes")).unwrap();
    assert_eq!(receive[..], elements(&[(0x7f00_0008_0000, 8192, 0x2200)])[..]);

    let sent = Completion {
        srqn: None,
        qpn: Qpn(0x11),
        wqe_index: 0,
        kind: CompletionKind::Sent(Operation::WriteImm),
        status: Status::Success,
        length_bytes: 4096,
        source_qpn: Qpn(0x11),
        datagram: None,
        solicited: false,
        diagnostic: None,
    };
    let kind = CompletionKind::Received { immediate: Some(0x2a), invalidated: None, by_write: true };
    let received = CompletionKind::Received { immediate: None, invalidated: None, by_write: false };
    let mac = [2, 0, 0, 0, 0, 1];
    let datagram = Some(DatagramSource { qpn: Qpn(0x11), mac, vlan: None, is_ipv6: false, pkey_index: 0 });
    let diagnostic = Some(rnic_abi::Diagnostic::RemoteAccessError);
    for (name, completion) in [
        ("send completion", sent),
        ("receive completion", Completion { qpn: Qpn(0x12), kind, ..sent }),
        ("datagram completion", Completion { qpn: Qpn(0x12), kind: received, length_bytes: 45, datagram, ..sent }),
        ("refused completion", Completion { status: Status::RemoteAccess, diagnostic, ..sent }),
    ] {
        let mut entry = [0; 64];
        native.encode_completion(&completion, 1_000_000, true, &mut entry);
        assert_eq!(take(name), entry, "{name}");
    }
    let mut entry = [0; 16];
    native.encode_event(&EventRecord::Completion { cqn: 3, consumer: 0 }, true, &mut entry);
    assert_eq!(take("completion event"), entry);
    assert!(examples.is_empty(), "examples that nobody checks: {:?}", examples.keys());
}
