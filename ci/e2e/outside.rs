//! Outside eyes: QEMU's own trace counts the crossings, scapy and tshark read the wire, QMP reads the guest's memory.
//!
//! Nothing here trusts the device's word: each judge is a program that others wrote.

use rnic_ci::tools::Tools;
use rnic_ci::{Options, StandardError};
use rnic_device::server::{Server, adapter_options};
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::verbs::Device;
use rnic_switch::{NeverSleeps, SwitchConfig};
use rnic_wire::{Frame, IcrcCheck, Network, parse};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const JUDGE_LIMIT: Duration = Duration::from_secs(120);

fn demo(arguments: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic"));
    let output = command.arg("demo").arg("--json").args(arguments.split_whitespace()).output();
    let output = output.expect("the program of this workspace starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rnic demo {arguments}: {errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn tools() -> Tools {
    Tools::provide(&Options::from_environment(), &mut StandardError).expect("tshark and scapy from the archive")
}

/// Runs the scapy judge; its exit number is part of its answer.
fn scapy(tools: &Tools, arguments: &[&str]) -> Vec<Value> {
    let script = format!("{}/ci/judges/scapy_roce.py", env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![script.as_str()];
    all.extend(arguments);
    let output = tools.python().run(&all, JUDGE_LIMIT).expect("the judge runs");
    let errors = &output.standard_error;
    assert!(output.status.success(), "scapy {arguments:?}: {errors}");
    let text = &output.standard_output;
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// The header fields of a frame as this workspace's parser sees them, under the judge's names.
fn fields(frame: &[u8], check: IcrcCheck) -> Option<Value> {
    let packet = parse(frame, check).ok()?;
    let (bth, network) = (&packet.headers.bth, &packet.headers.network);
    let (source, dest) = match network {
        Network::V4 { source, dest, .. } => (source.to_string(), dest.to_string()),
        Network::V6 { source, dest, .. } => (source.to_string(), dest.to_string()),
    };
    Some(serde_json::json!({
        "udp_source_port": packet.headers.udp_source_port,
        "opcode": bth.opcode.0,
        "solicited_event": bth.solicited_event,
        "migration_request": bth.migration_request,
        "pad_bytes": bth.pad_bytes,
        "partition_key": bth.partition_key,
        "fecn": bth.fecn,
        "becn": bth.becn,
        "dest_qp": bth.dest_qp,
        "ack_req": bth.ack_req,
        "psn": bth.psn.get(),
        "payload_length": packet.payload.len(),
        "source": source,
        "dest": dest,
    }))
}

/// Every field that both name is the same in both; how many those were.
fn assert_same(ours: &Value, judge: &Value) -> usize {
    let ours = ours.as_object().expect("fields");
    let common = ours.iter().filter_map(|(name, value)| Some((name, value, judge.get(name)?)));
    common.inspect(|(name, value, other)| assert_eq!(value, other, "{name}: {judge}")).count()
}

/// Frames of a pcapng file.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(path).expect("the capture");
    let mut reader = pcap_file::pcapng::PcapNgReader::new(file).expect("pcapng");
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.expect("a block") {
            frames.push(packet.data.to_vec());
        }
    }
    frames
}

pub fn scapy_and_tshark_read_every_packet_of_the_demo_as_we_do() {
    let (tools, folder) = (tools(), tempfile::tempdir().expect("a folder"));
    for (name, arguments, packets) in [
        ("story", "--hosts model", 2),
        ("segments", "--hosts model --length 10000 --mtu 1024", 11),
        ("send", "--hosts model --op send_imm --length 777 --mtu 256", 5),
        ("refused", "--hosts model --fault bad-rkey", 2),
    ] {
        let path = folder.path().join(format!("{name}.pcapng"));
        let capture = path.to_str().expect("a plain path");
        demo(&format!("{arguments} --capture {capture}"));
        let frames = frames(&path);
        assert!(frames.len() >= packets, "{name}: {} packets", frames.len());
        let judged = scapy(&tools, &["verify", capture]);
        assert_eq!(judged.len(), frames.len(), "scapy saw every packet of {name}");
        let shark = tshark(&tools, capture);
        assert_eq!(shark.len(), frames.len(), "tshark saw every packet of {name}");
        for ((frame, scapy), shark) in frames.iter().zip(&judged).zip(&shark) {
            let ours = fields(frame, IcrcCheck::Verify).expect("our own packet");
            assert_eq!(scapy["icrc_ok"], true, "{scapy}");
            assert!(assert_same(&ours, scapy) >= 12, "{scapy}");
            let seen =
                [&ours["opcode"], &ours["dest_qp"], &ours["psn"]].map(|value| value.as_u64().unwrap_or(u64::MAX));
            assert_eq!(*shark, seen, "{name}");
        }
        crate::tally::packets_judged(2 * frames.len());
    }
}

/// Opcode, destination QP and PSN of each packet.
fn tshark(tools: &Tools, capture: &str) -> Vec<[u64; 3]> {
    let names = ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn"];
    let mut arguments = vec!["-r", capture, "-T", "fields"];
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    let output = tools.tshark().run(&arguments, JUDGE_LIMIT).expect("tshark runs");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(u64::MAX),
        None => text.parse().unwrap_or(u64::MAX),
    };
    let text = &output.standard_output;
    text.lines()
        .map(|line| {
            let mut words = line.split('\t').map(number);
            std::array::from_fn(|_| words.next().unwrap_or(u64::MAX))
        })
        .collect()
}

pub fn a_thousand_packets_of_scapy_parse_and_a_flipped_bit_is_dropped_and_counted() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u32);
    println!("seed {seed}");
    let packets = scapy(&tools(), &["make", "1000", &seed.to_string()]);
    assert_eq!(packets.len(), 1000);
    let bytes = |packet: &Value, name: &str| decode_hex(packet[name].as_str().expect("hex"));
    for packet in &packets {
        let ours = fields(&bytes(packet, "hex"), IcrcCheck::Verify);
        let ours = ours.unwrap_or_else(|| panic!("seed {seed}: refused {packet}"));
        assert!(assert_same(&ours, &packet["fields"]) >= 12, "seed {seed}: {packet}");
    }
    let flipped: Vec<_> = packets.iter().map(|packet| bytes(packet, "flipped_hex")).collect();
    let counted = dropped_by_an_adapter(&flipped);
    assert_eq!(counted, 1000, "seed {seed}: each flipped packet is dropped and counted once");
    crate::tally::packets_judged(2 * packets.len());
}

fn decode_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).expect("hex")).collect()
}

/// Sends frames to an adapter in use and gives how many it has counted as dropped.
fn dropped_by_an_adapter(frames: &[Vec<u8>]) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(vec![adapter_options("A", folder.path())], SwitchConfig::default()).expect("a server");
    let adapter = server.adapter("A").expect("the adapter");
    let socket = Socket::connect(adapter.socket(), Default::default(), MemoryAccess::Shared, Duration::from_secs(5));
    let device = Device::open(Box::new(socket.expect("a connection")), Default::default()).expect("a device in use");
    let mut port = server.switch.port("judge", Arc::new(NeverSleeps)).expect("a port");
    let mut frame = Frame::new();
    for bytes in frames {
        while port.room() == 0 {
            std::thread::yield_now();
        }
        assert!(frame.set_bytes(bytes));
        // As from outside: nothing about the ICRC is taken on trust, whatever the flipped bit made of the frame.
        frame.icrc = rnic_wire::IcrcState::Present;
        port.transmit(&mut frame, 0);
    }
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let counted = adapter.call(|adapter| {
            let counters = adapter.function.engine.counters();
            counters.rx_icrc_errors + counters.rx_dropped_frame + adapter.port.ignored_frames
        });
        let counted = counted.expect("the adapter answers");
        if counted >= frames.len() as u64 || Instant::now() > until {
            drop(device);
            return counted;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One DMA message as QEMU saw it.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    Read(u64),
    Write(u64),
}

const HEADER_BYTES: u64 = 32;

/// The DMA messages between two host accesses, for each such interval.
fn intervals(trace: &str) -> Vec<Vec<Message>> {
    let hex = |line: &str, name: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != name).skip(1);
        u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()
    };
    let (mut all, mut reads) = (vec![Vec::new()], Vec::new());
    for line in trace.lines() {
        if line.starts_with("vfio_user_region_rw") {
            all.push(Vec::new());
        } else if line.starts_with("vfio_user_recv_hdr") {
            let (id, command, size) = (hex(line, "id"), hex(line, "cmd"), hex(line, "size").unwrap_or(0));
            let place = all.len() - 1;
            match command {
                // The length of a read stands in QEMU's answer.
                Some(0xb) => {
                    all[place].push(Message::Read(0));
                    reads.push((id, place, all[place].len() - 1));
                }
                Some(0xc) => all[place].push(Message::Write(size - HEADER_BYTES)),
                _ => {}
            }
        } else if line.starts_with("vfio_user_send_write") {
            let (id, wrote) = (hex(line, "id"), hex(line, "wrote").unwrap_or(0));
            if let Some(at) = reads.iter().position(|(read, _, _)| *read == id) {
                let (_, place, index) = reads.remove(at);
                all[place][index] = Message::Read(wrote - HEADER_BYTES);
            }
        }
    }
    all
}

/// A crossing as the ledger tells it.
#[derive(Debug)]
struct Told {
    reads: bool,
    bytes: u64,
    /// Contiguous pieces: as many messages.
    ranges: usize,
}

/// The device's own crossings of the operation; an event without its interrupt, which is no DMA message.
fn told(host: &Value) -> Vec<Told> {
    let rows = host["crossings"].as_array().expect("crossings").iter();
    rows.filter_map(|row| {
        let bytes = row["bytes"].as_u64().expect("bytes");
        let ranges = row["ranges"].as_u64().expect("ranges") as usize;
        match row["class"].as_str().expect("a class") {
            "doorbell" => None,
            "event" => Some(Told { reads: false, bytes: bytes - 4, ranges: 1 }),
            "payload_write" | "cqe_write" => Some(Told { reads: false, bytes, ranges }),
            _ => Some(Told { reads: true, bytes, ranges }),
        }
    })
    .collect()
}

/// Number, order and bytes: each crossing is its pieces, one after the other, and nothing else is between.
fn tells(told: &[Told], mut messages: &[Message]) -> bool {
    for crossing in told {
        let Some((pieces, rest)) = messages.split_at_checked(crossing.ranges) else { return false };
        let bytes = pieces.iter().map(|piece| match (piece, crossing.reads) {
            (Message::Read(bytes), true) | (Message::Write(bytes), false) => Some(*bytes),
            _ => None,
        });
        if bytes.sum::<Option<u64>>() != Some(crossing.bytes) {
            return false;
        }
        messages = rest;
    }
    messages.is_empty() && !told.is_empty()
}

/// What follows a command in the same interval: its read, what it made the device write, its completion.
fn after_command(interval: &[Message]) -> &[Message] {
    const COMMAND_BYTES: u64 = 128;
    let completion = interval.iter().rposition(|message| *message == Message::Write(COMMAND_BYTES));
    match (interval.first(), completion) {
        (Some(Message::Read(COMMAND_BYTES)), Some(at)) => &interval[at + 1..],
        _ => interval,
    }
}

pub fn qemu_counts_the_same_crossings_when_every_dma_is_a_message() {
    for arguments in ["", "--armed", "--unsignaled", "--cold", "--length 10000 --mtu 1024"] {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().to_str().expect("a plain path");
        let report = demo(&format!("{arguments} --unshared --trace {trace}"));
        crate::tally::guests_booted(2);
        for (name, host) in ["A", "B"].iter().zip(report["hosts"].as_array().expect("hosts")) {
            let text = std::fs::read_to_string(folder.path().join(format!("{name}.trace"))).expect("QEMU's trace");
            let told = told(host);
            let intervals = intervals(&text);
            let matches = intervals.iter().filter(|interval| tells(&told, after_command(interval)));
            assert_eq!(matches.count(), 1, "rnic demo {arguments}, host {name}: {told:?} in {:?}", tail(&intervals));
            if *name == "A" {
                let stores =
                    text.lines().filter(|line| line.starts_with("vfio_user_region_rw") && line.contains("region 2"));
                let line: Vec<_> =
                    stores.filter(|line| (0..8).any(|word| line.contains(&format!("0x14{:02x} ", word * 8)))).collect();
                assert_eq!(line.len(), 8, "one line of eight stores: {line:?}");
            }
        }
    }
}

fn tail(intervals: &[Vec<Message>]) -> &[Vec<Message>] {
    &intervals[intervals.len().saturating_sub(6)..]
}
