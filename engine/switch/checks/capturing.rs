//! The capture, read back by pcap-file's reader.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::{CaptureError, CaptureOptions, CapturePoints, CaptureState};

/// A file that the test can look into, and that can be full.
#[derive(Clone, Default)]
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    full_at: Option<usize>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.bytes.lock().unwrap();
        if self.full_at.is_some_and(|full| file.len() + bytes.len() > full) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"));
        }
        file.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Record {
    interface: String,
    time: Duration,
    direction: u32,
    bytes: Vec<u8>,
}

fn read_back(sink: &Sink) -> Vec<Record> {
    let bytes = sink.bytes.lock().unwrap().clone();
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let mut names = Vec::new();
    let mut records = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(interface) => {
                assert_eq!(interface.linktype, pcap_file::DataLink::ETHERNET);
                assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                names.push(name.unwrap());
            }
            Block::EnhancedPacket(packet) => {
                assert_eq!(packet.original_len as usize, packet.data.len());
                let [EnhancedPacketOption::Flags(direction)] = packet.options[..] else {
                    panic!("{:?}", packet.options)
                };
                records.push(Record {
                    interface: names[packet.interface_id as usize].clone(),
                    time: packet.timestamp,
                    direction,
                    bytes: packet.data.to_vec(),
                });
            }
            other => panic!("unexpected block {other:?}"),
        }
    }
    records
}

#[test]
fn every_transmitted_frame_is_recorded_sealed_with_port_and_time() {
    let (switch, mut ports) = switch_of(3);
    let sink = Sink::default();
    let options = CaptureOptions { epoch_ns: 1_700_000_000_000_000_000, ..CaptureOptions::default() };
    switch.capture().start(Box::new(sink.clone()), options).unwrap();
    assert_eq!(switch.capture().state(), CaptureState::Running);
    let again = switch.capture().start(Box::new(sink.clone()), options);
    assert!(matches!(again, Err(CaptureError::Running)));

    let mut sealed = roce(Opcode::RC_SEND_ONLY, 5, b"payload");
    ports[0].transmit(&mut sealed.clone(), 123_456_789);
    sealed.seal();
    let plain = ethernet(mac(2), mac(1), b"odd");
    ports[2].transmit(&mut frame_of(&plain), 123_456_790);
    ports[0].transmit(&mut frame_of(&[1, 2, 3]), 123_456_791);
    // Of a thread that read its clock before the others did, and came behind them.
    ports[2].transmit(&mut frame_of(&plain), 123_456_700);
    switch.capture().stop().unwrap();
    ports[0].transmit(&mut sealed.clone(), 123_456_792);

    let record = |interface: &str, ns, bytes: &[u8]| Record {
        interface: interface.into(),
        time: Duration::new(1_700_000_000, ns),
        direction: 1,
        bytes: bytes.to_vec(),
    };
    let expected = [
        record("p0", 123_456_789, sealed.bytes()),
        record("p2", 123_456_790, &plain),
        record("p0", 123_456_791, &[1, 2, 3]),
        record("p2", 123_456_791, &plain),
    ];
    assert_eq!(read_back(&sink), expected);
    rnic_wire::parse(&expected[0].bytes, rnic_wire::IcrcCheck::Verify).unwrap();
    // What the receiver got was not sealed for it.
    let mut frame = Frame::new();
    assert!(ports[1].receive(&mut frame, 0));
    assert_eq!(frame.icrc, rnic_wire::IcrcState::Deferred);
}

#[test]
fn both_points_tell_directions_and_ports_that_come_and_go_apart() {
    for (points, expected) in [
        (CapturePoints::Both, vec![("p0", 1), ("p1", 2), ("p1", 2), ("p0", 1), ("p1", 2)]),
        (CapturePoints::Received, vec![("p1", 2), ("p1", 2), ("p1", 2)]),
        (CapturePoints::Transmitted, vec![("p0", 1), ("p0", 1)]),
    ] {
        let (switch, mut ports) = switch_of(2);
        let sink = Sink::default();
        switch.capture().start(Box::new(sink.clone()), CaptureOptions { points, epoch_ns: 0 }).unwrap();
        ports[1].set_fault_script("duplicate:1".parse().unwrap());
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, 5, b""), 0);
        received(&mut ports[1], 0);
        ports.pop();
        ports.push(switch.port("p1", Arc::new(NeverSleeps)).unwrap());
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, 6, b""), 0);
        received(&mut ports[1], 0);
        switch.capture().flush().unwrap();
        let records = read_back(&sink);
        let seen: Vec<(&str, u32)> = records.iter().map(|record| (&record.interface[..], record.direction)).collect();
        assert_eq!(seen, expected, "{points:?}");
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_nothing_else() {
    let (switch, mut ports) = switch_of(2);
    let sink = Sink { full_at: Some(200_000), ..Sink::default() };
    switch.capture().start(Box::new(sink.clone()), CaptureOptions::default()).unwrap();
    for number in 0..1_000u32 {
        let frame = ethernet(mac(1), mac(2), &[number as u8; 1000]);
        ports[0].transmit(&mut frame_of(&frame), 0);
        assert_eq!(received(&mut ports[1], 0), [frame]);
    }
    assert_eq!(switch.capture().state(), CaptureState::Failed);
    assert!(sink.bytes.lock().unwrap().len() <= 200_000);
    switch.capture().stop().unwrap();
    // It can be started anew.
    let second = Sink::default();
    switch.capture().start(Box::new(second.clone()), CaptureOptions::default()).unwrap();
    ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0);
    drop((switch, ports));
    assert_eq!(read_back(&second).len(), 1, "dropping the switch writes out the rest");
}

#[test]
fn a_sink_that_takes_nothing_is_told_at_the_start() {
    let (switch, _ports) = switch_of(2);
    let sink = Sink { full_at: Some(10), ..Sink::default() };
    let refused = switch.capture().start(Box::new(sink), CaptureOptions::default()).unwrap_err();
    assert_eq!(refused.to_string(), "the capture cannot be written: no space left");
    assert_eq!(switch.capture().state(), CaptureState::Off);
}

/// Takes every other record, as a reader that is too slow.
struct Slow(Sink, u32);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1 > 4 && self.1.is_multiple_of(2) { Err(io::ErrorKind::WouldBlock.into()) } else { self.0.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_slow_reader_misses_is_counted_and_the_rest_is_whole() {
    let (switch, mut ports) = switch_of(2);
    let sink = Sink::default();
    switch.capture().start(Box::new(Slow(sink.clone(), 0)), CaptureOptions::default()).unwrap();
    for number in 0..100 {
        ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), &[number; 60])), 0);
        received(&mut ports[1], 0);
    }
    assert_eq!(switch.capture().state(), CaptureState::Running);
    let records = read_back(&sink);
    assert_eq!(records.len() as u64 + switch.capture().lost_frames(), 100);
    assert!(switch.capture().lost_frames() > 40 && records.len() > 40);
}
