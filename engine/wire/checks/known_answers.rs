//! The packets with a known ICRC: built again byte for byte from their values, and spoilt bit by bit.

use super::vectors;
use crate::icrc::{self, Encapsulation};
use crate::{Drop, Frame, IcrcCheck, IcrcState, ParsedPacket, emit, parse};
use core::net::Ipv4Addr;

const UDP_CHECKSUM_OFFSET: usize = 6;

fn rebuilt(packet: &ParsedPacket<'_>) -> Frame {
    let mut frame = Frame::new();
    frame.buffer_mut().fill(0xa5);
    let range = emit(&packet.headers, packet.payload.len(), &mut frame);
    frame.bytes_mut()[range].copy_from_slice(packet.payload);
    assert_eq!(frame.icrc, IcrcState::Deferred);
    frame.seal();
    frame
}

/// UDP's checksum over pseudo header and datagram. RoCEv2 leaves it zero; K4 and K5 carry the one that fits while the
/// ICRC is still zero, and D10 has any.
fn udp_checksum(ip_addresses: &[u8], datagram: &[u8]) -> u16 {
    let length = datagram.len() as u16;
    let pseudo = [ip_addresses, &17u16.to_be_bytes(), &length.to_be_bytes(), datagram].concat();
    let sum: u32 = pseudo.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}

/// Offset of the UDP header in a vector's frame, and the bytes of the addresses in front of it.
fn udp_offset(frame: &[u8]) -> (usize, usize) {
    if frame[12] == 0x86 { (14 + 40, 32) } else { (14 + 20, 8) }
}

#[test]
fn every_vector_is_rebuilt_from_its_values() {
    for name in vectors::roce_v2() {
        let sent = vectors::as_frame(name);
        let packet = parse(&sent, IcrcCheck::Verify).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let mut frame = rebuilt(&packet);
        let (udp, addresses) = udp_offset(&sent);
        let (datagram, _icrc) = frame.bytes()[udp..].split_at(sent.len() - udp - icrc::LENGTH);
        let checksum = match name {
            "K4" | "K5" => udp_checksum(&sent[udp - addresses..udp], &[datagram, &[0; icrc::LENGTH]].concat()),
            "D10" => 0x1234,
            _ => 0,
        };
        frame.bytes_mut()[udp + UDP_CHECKSUM_OFFSET..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(frame.bytes(), sent, "{name}");
    }
}

#[test]
fn the_icrc_routine_knows_roce_v1() {
    for (name, payload_and_headers) in [("K2", 40), ("K3", 20)] {
        let packet = &vectors::bytes(name)[14..];
        let (covered, field) = packet.split_at(40 + payload_and_headers - icrc::LENGTH);
        let value = icrc::compute(Encapsulation::RoceV1, covered).unwrap();
        assert_eq!(value.to_le_bytes(), field, "{name}");
    }
}

#[test]
fn too_short_for_its_headers_is_no_icrc() {
    let packet = vectors::bytes("K5");
    for (encapsulation, shortest) in [(Encapsulation::Ipv4, 40), (Encapsulation::Ipv6, 60), (Encapsulation::RoceV1, 52)]
    {
        assert_eq!(icrc::compute(encapsulation, &packet[..shortest - 1]), None);
        assert!(icrc::compute(encapsulation, &packet[..shortest]).is_some());
    }
}

/// Bits of the packet's headers that the ICRC does not cover, by the rules of the specification.
fn is_masked(encapsulation: Encapsulation, byte: usize, bit: usize) -> bool {
    match encapsulation {
        Encapsulation::Ipv4 => matches!(byte, 1 | 8 | 10 | 11 | 26 | 27 | 32),
        Encapsulation::Ipv6 => matches!(byte, 1..=3 | 7 | 46 | 47 | 52) || (byte == 0 && bit < 4),
        Encapsulation::RoceV1 => matches!(byte, 1..=3 | 7 | 44) || (byte == 0 && bit < 4),
    }
}

#[test]
fn any_covered_bit_is_detected_and_no_masked_bit_is() {
    for (name, _) in vectors::ALL {
        let mut packet = match name {
            "K1" | "K2" | "K3" => vectors::bytes(name)[14..].to_vec(),
            _ => vectors::bytes(name),
        };
        let encapsulation = match (name, packet[0] >> 4) {
            ("K2" | "K3", _) => Encapsulation::RoceV1,
            (_, 4) => Encapsulation::Ipv4,
            _ => Encapsulation::Ipv6,
        };
        let field = packet.split_off(packet.len() - icrc::LENGTH);
        for byte in 0..packet.len() {
            for bit in 0..8 {
                packet[byte] ^= 1 << bit;
                let value = icrc::compute(encapsulation, &packet).unwrap();
                let detected = value.to_le_bytes() != field[..];
                assert_ne!(detected, is_masked(encapsulation, byte, bit), "{name}: byte {byte} bit {bit}");
                packet[byte] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn the_parser_refuses_every_bit_that_the_icrc_covers() {
    for name in vectors::roce_v2() {
        let mut frame = vectors::as_frame(name);
        let encapsulation = if frame[12] == 0x86 { Encapsulation::Ipv6 } else { Encapsulation::Ipv4 };
        for byte in 14..frame.len() {
            for bit in 0..8 {
                frame[byte] ^= 1 << bit;
                let covered = byte >= frame.len() - icrc::LENGTH || !is_masked(encapsulation, byte - 14, bit);
                let answer = parse(&frame, IcrcCheck::Verify);
                assert!(answer.is_err() || !covered, "{name}: byte {byte} bit {bit} went unseen");
                frame[byte] ^= 1 << bit;
            }
        }
    }
}

/// What routers and congested switches do to a packet on its way must not cost it its life.
#[test]
fn changes_under_way_are_accepted() {
    let frame = vectors::as_frame("D1");
    let packet = parse(&frame, IcrcCheck::Verify).unwrap();
    let mut changed = packet.headers;
    let crate::Network::V4 { traffic_class, ttl, .. } = &mut changed.network else { panic!("D1 is IPv4") };
    (*traffic_class, *ttl) = (0xbb, 1);
    changed.bth.fecn = true;
    let frame = rebuilt(&ParsedPacket { headers: changed, ..packet });
    assert_eq!(frame.bytes()[frame.length() - 4..], vectors::as_frame("D1")[frame.length() - 4..]);

    changed.network = match changed.network {
        crate::Network::V4 { dest, traffic_class, ttl, identification, .. } => {
            crate::Network::V4 { source: Ipv4Addr::new(192, 0, 2, 1), dest, traffic_class, ttl, identification }
        }
        v6 => v6,
    };
    let translated = rebuilt(&ParsedPacket { headers: changed, ..packet });
    let mut bytes = translated.bytes().to_vec();
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&frame.bytes()[end..]);
    assert!(matches!(parse(&bytes, IcrcCheck::Verify), Err(Drop::BadIcrc { .. })), "address translation is seen");
}
