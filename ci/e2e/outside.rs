//! Outside eyes on the wire: scapy and tshark read what we send, and we read what scapy builds.

use crate::bench::capture::frames;
use crate::bench::fabric::Fabric;
use crate::bench::headers;
use crate::bench::judges::{scapy_make, scapy_verify, tshark_fields};
use crate::bench::transaction::{Pair, over_socket};
use crate::bench::{laboratory, program};
use crate::tally;
use rnic_ci::tools::Tools;
use rnic_shim::transaction::{Fault, Operation, TransactionSpec, Transport};
use rnic_shim::verbs::Device;
use rnic_switch::{Impairment, Marking, NeverSleeps, Probability, RateLimit};
use rnic_wire::{Drop, Frame, Gid, IcrcCheck, IcrcState, Opcode, parse};
use serde_json::Value;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub fn scapy_and_tshark_read_every_packet_of_the_demo_as_we_do() {
    let (tools, folder) = (laboratory::tools(), tempfile::tempdir().expect("a folder"));
    for (name, arguments, packets) in [
        ("story", "", 2),
        ("segments", "--length 10000 --mtu 1024", 11),
        ("send", "--op send_imm --length 777 --mtu 256", 5),
        ("refused", "--fault bad-rkey", 2),
        ("lost", "--fault drop:3 --length 10000 --mtu 1024", 12),
        ("read", "--op read --length 10001 --mtu 1024", 11),
        ("read-lost", "--op read --length 10001 --mtu 1024 --fault drop:3", 19),
        ("read-refused", "--op read --fault bad-rkey", 2),
        ("swap", "--op cmp_swap", 2),
        ("invalidate", "--op send_inv --length 777 --mtu 256", 5),
        ("add-lost", "--op fetch_add --fault drop:1", 4),
        ("uc", "--transport uc --length 10000 --mtu 1024", 10),
        ("ud", "--transport ud --op send_imm --length 777", 1),
    ] {
        let path = folder.path().join(format!("{name}.pcapng"));
        program::model(&format!("{arguments} --capture {}", path.display()));
        judge(&tools, name, &path, packets);
    }
}

/// What the demo has no option for: IPv6, odd lengths, several elements, messages of nothing.
pub fn scapy_and_tshark_read_every_packet_of_other_transactions_as_we_do() {
    let (tools, folder) = (laboratory::tools(), tempfile::tempdir().expect("a folder"));
    let address = |last: u16| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
    let ipv6 = TransactionSpec { requester_gid: address(1), responder_gid: address(2), ..Default::default() };
    let write = |length_bytes| TransactionSpec { length_bytes, ..TransactionSpec::default() };
    let (send, send_imm) = (Operation::Send, Operation::SendImm);
    let fabric = Fabric::new();
    let path = folder.path().join("all.pcapng");
    fabric.capture(&path);
    let mut packets = 0;
    for (name, spec, at_least) in [
        ("ipv6", ipv6.clone(), 2),
        ("ipv6-segments", TransactionSpec { length_bytes: 3001, path_mtu_bytes: 256, ..ipv6.clone() }, 13),
        ("ipv6-send", TransactionSpec { operation: send, length_bytes: 5, ..ipv6.clone() }, 2),
        ("ipv6-refused", TransactionSpec { fault: Some(Fault::NoRemoteRight), ..ipv6.clone() }, 2),
        ("one-byte", write(1), 2),
        ("two-bytes", write(2), 2),
        ("three-bytes", TransactionSpec { operation: send_imm, solicited: true, ..write(3) }, 2),
        ("nothing", TransactionSpec { operation: send, ..write(0) }, 2),
        (
            "ipv6-read",
            TransactionSpec { operation: Operation::Read, length_bytes: 1001, path_mtu_bytes: 256, ..ipv6.clone() },
            5,
        ),
        (
            "ipv6-add",
            TransactionSpec { operation: Operation::FetchAdd, length_bytes: 8, elements: 3, ..ipv6.clone() },
            2,
        ),
        ("read-of-nothing", TransactionSpec { operation: Operation::Read, ..write(0) }, 2),
        (
            "read-near-the-wrap",
            TransactionSpec { operation: Operation::Read, psn: 0xff_fffe, path_mtu_bytes: 256, ..write(1000) },
            5,
        ),
        ("elements", TransactionSpec { elements: 3, path_mtu_bytes: 512, ..write(1025) }, 4),
        ("near-the-wrap", TransactionSpec { psn: 0xff_fffe, path_mtu_bytes: 256, ..write(1000) }, 5),
        ("uc-write", TransactionSpec { transport: Transport::Uc, path_mtu_bytes: 256, ..write(1001) }, 4),
        (
            "ipv6-uc-send",
            TransactionSpec { transport: Transport::Uc, operation: send, length_bytes: 3001, ..ipv6.clone() },
            1,
        ),
        ("ud", TransactionSpec { transport: Transport::Ud, operation: send_imm, solicited: true, ..write(777) }, 1),
        ("ud-of-nothing", TransactionSpec { transport: Transport::Ud, operation: send, ..write(0) }, 1),
        (
            "ipv6-ud",
            TransactionSpec { transport: Transport::Ud, operation: send, length_bytes: 4095, ..ipv6.clone() },
            1,
        ),
    ] {
        println!("{name}");
        let backings = ["A", "B"].map(|adapter| over_socket(&fabric.socket(adapter)));
        Pair::bring_up(backings, &TransactionSpec { timeout: 17, ..spec }).run();
        packets += at_least;
    }
    fabric.end_capture();
    judge(&tools, "all", &path, packets);
}

/// A line of a gigabit that marks everything behind the first frame in its queue: its receiver tells the sender.
pub fn scapy_and_tshark_read_marks_and_notifications_as_we_do() {
    let (tools, folder) = (laboratory::tools(), tempfile::tempdir().expect("a folder"));
    let marking = Marking { threshold_min_bytes: 0, threshold_max_bytes: 1, probability_max: Probability::ALWAYS };
    let rate = RateLimit { bits_per_second: 1_000_000_000, queue_bytes: 1 << 20, marking: Some(marking) };
    let fabric = Fabric::with(|options| {
        options.engine.congestion.ecn = true;
        options.impairment = Impairment { rate_limit: Some(rate), ..Impairment::default() };
    });
    let path = folder.path().join("marked.pcapng");
    fabric.capture(&path);
    let backings = ["A", "B"].map(|adapter| over_socket(&fabric.socket(adapter)));
    Pair::bring_up(backings, &TransactionSpec { timeout: 17, length_bytes: 65536, ..TransactionSpec::default() }).run();
    fabric.end_capture();
    let [a, b] = ["A", "B"].map(|name| fabric.counters(name));
    assert!(b.np_ecn_marked_roce_packets > 0 && b.np_cnp_sent > 0, "{b:?}");
    assert_eq!(a.rp_cnp_handled + a.rp_cnp_ignored, b.np_cnp_sent);
    let sent = frames(&path);
    let of = |opcode: Opcode| {
        let is =
            |frame: &&Vec<u8>| parse(frame, IcrcCheck::Verify).is_ok_and(|packet| packet.headers.bth.opcode == opcode);
        sent.iter().filter(is).count() as u64
    };
    assert_eq!(of(Opcode::CNP), b.np_cnp_sent);
    judge(&tools, "marked", &path, 17);
}

/// Every packet of a capture: scapy's ICRC, and every field that scapy and tshark know, as our own parser has it.
#[track_caller]
fn judge(tools: &Tools, name: &str, path: &Path, packets: usize) {
    let frames = frames(path);
    assert!(frames.len() >= packets, "{name}: {} packets", frames.len());
    let (scapy, tshark) = (scapy_verify(tools, path), tshark_fields(tools, path, headers::TSHARK));
    assert_eq!((scapy.len(), tshark.len()), (frames.len(), frames.len()), "packets of {name} that the judges saw");
    for ((frame, scapy), tshark) in frames.iter().zip(&scapy).zip(&tshark) {
        let packet = parse(frame, IcrcCheck::Verify).unwrap_or_else(|drop| panic!("{name}: our own packet: {drop}"));
        headers::assert_as_scapy(name, &packet, scapy);
        headers::assert_as_tshark(name, frame, &packet, tshark);
    }
    tally::packets_judged(2 * frames.len());
}

pub fn a_thousand_packets_of_scapy_parse_and_a_flipped_bit_is_dropped_and_counted() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u32);
    println!("seed {seed}");
    let packets = scapy_make(&laboratory::tools(), 1000, seed.into());
    assert_eq!(packets.len(), 1000);
    let bytes = |packet: &Value, name: &str| decode_hex(packet[name].as_str().expect("hex"));
    for packet in &packets {
        let frame = bytes(packet, "hex");
        let parsed = parse(&frame, IcrcCheck::Verify);
        let parsed = parsed.unwrap_or_else(|drop| panic!("seed {seed}: {drop}: {packet}"));
        headers::assert_as_scapy(&format!("seed {seed}"), &parsed, &packet["fields"]);
    }
    let flipped: Vec<_> = packets.iter().map(|packet| [bytes(packet, "hex"), bytes(packet, "flipped_hex")]).collect();
    assert_dropped_and_counted(&flipped, &format!("seed {seed}"));
    tally::packets_judged(packets.len());
}

fn decode_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).expect("hex")).collect()
}

/// Sends frames to an adapter that is in use and has their destination; each was changed on its way and is counted as
/// dropped, those with a wrong ICRC as such. Where it was the destination that changed, nobody takes the frame.
fn assert_dropped_and_counted(frames: &[[Vec<u8>; 2]], what: &str) {
    let fabric = Fabric::new();
    let mut device = Device::open(over_socket(&fabric.socket("A")), Default::default()).expect("a device in use");
    let mut port = fabric.server.switch.port("judge", Arc::new(NeverSleeps)).expect("a port");
    let (mut frame, mut expected) = (Frame::new(), (0, 0));
    for [whole, flipped] in frames {
        let gid = destination(whole);
        device.set_gid(0, gid.expect("a destination").0, [2; 6], None).expect("a GID");
        match parse(flipped, IcrcCheck::Verify) {
            Ok(packet) => panic!("{what}: a flipped bit was not noticed in {packet:?}"),
            Err(Drop::BadIcrc { .. }) if are_addressed_alike(whole, flipped) => expected.0 += 1,
            Err(_) => expected.1 += 1,
        }
        assert!(frame.set_bytes(flipped));
        // As from outside: nothing about the ICRC is taken on trust, whatever the flipped bit made of the frame.
        frame.icrc = IcrcState::Present;
        port.transmit(&mut frame, 0);
        // The next GID comes when this frame has gone.
        let until = Instant::now() + Duration::from_secs(10);
        while counted(&fabric) != expected {
            assert!(Instant::now() < until, "{what}: {:?} counted instead of {expected:?}", counted(&fabric));
            std::thread::yield_now();
        }
    }
    drop(device);
}

fn destination(frame: &[u8]) -> Option<Gid> {
    parse(frame, IcrcCheck::Trusted).ok().map(|packet| packet.headers.network.dest_gid())
}

/// Both have the same address for their destination, whatever stands behind it.
fn are_addressed_alike(whole: &[u8], flipped: &[u8]) -> bool {
    let tag = if whole[12..14] == [0x81, 0x00] { 4 } else { 0 };
    let address = if whole[12 + tag..14 + tag] == [0x08, 0x00] { 30 + tag..34 + tag } else { 38 + tag..54 + tag };
    whole[address.clone()] == flipped[address]
}

/// Frames that adapter A has dropped for their ICRC, and for anything else or because they were not for its RNIC.
fn counted(fabric: &Fabric) -> (u64, u64) {
    let counters = fabric.counters("A");
    let elsewhere = fabric.adapter("A").call(|adapter| adapter.ethernet.device.counters().received_unattended);
    (counters.rx_icrc_errors, counters.rx_dropped_frame + elsewhere.expect("an answer"))
}
