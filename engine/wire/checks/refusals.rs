//! Every reason for a drop, from a packet that has that fault and no other.

use super::vectors;
use crate::icrc;
use crate::opcode::Opcode;
use crate::vlan::Vlan;
use crate::{Drop, Frame, IcrcCheck, emit, is_roce, parse};
use std::collections::BTreeSet;

/// Vector D3 (a WRITE_ONLY of 8 bytes over IPv4) with some bytes replaced and its checksum and ICRC made right.
fn altered(changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = vectors::as_frame("D3");
    for (offset, bytes) in changes {
        frame[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    repaired(frame)
}

fn repaired(mut frame: Vec<u8>) -> Vec<u8> {
    use zerocopy::FromBytes;
    if let Ok((layout, _)) = crate::ipv4::Layout::mut_from_prefix(&mut frame[14..]) {
        layout.set_checksum();
    }
    icrc::write(&mut frame);
    frame
}

fn refusal(frame: &[u8]) -> Drop {
    parse(frame, IcrcCheck::Verify).expect_err("the packet has a fault")
}

const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;

#[test]
fn each_fault_has_its_own_reason() {
    let length = vectors::as_frame("D3").len();
    assert!(parse(&altered(&[]), IcrcCheck::Verify).is_ok());
    let mut bad_icrc = altered(&[]);
    bad_icrc[length - 5] ^= 1;
    let mut bad_checksum = altered(&[]);
    bad_checksum[IP + 8] -= 1;
    let mut version_5 = vectors::as_frame("D10");
    version_5[IP] = 0x5a;
    // A UDP datagram of 8 + 12 + 4 bytes: an opcode with a RETH has no room for it.
    let short = [(IP + 2, &[0u8, 44][..]), (UDP + 4, &[0, 24])];
    let truncated = repaired(altered(&short)[..IP + 44].to_vec());
    let mut send = short.to_vec();
    send.push((BTH, &[0x04, 0x30]));
    let padded = repaired(altered(&send)[..IP + 44].to_vec());
    let unaligned = [(IP + 2, &[0u8, 0x43][..]), (UDP + 4, &[0, 0x2f])];
    let unaligned = repaired(altered(&unaligned)[..length - 1].to_vec());

    let mut met = BTreeSet::new();
    let mut expect = |frame: &[u8], expected: &str| {
        let reason = refusal(frame);
        assert_eq!(reason.counter_name(), format!("rx_drop_{expected}"), "{reason}");
        assert!(!reason.to_string().is_empty());
        met.insert(reason.counter_index());
    };
    expect(&altered(&[])[..UDP + 7], "runt_frame");
    expect(&[], "runt_frame");
    expect(&altered(&[(12, &[0x08, 0x06])]), "not_ip");
    expect(&altered(&[(IP, &[0x65])]), "bad_ipv4_header");
    expect(&altered(&[(IP, &[0x46])]), "ipv4_options");
    expect(&altered(&[(IP + 6, &[0x20, 0])]), "ipv4_fragment");
    expect(&bad_checksum, "bad_ipv4_checksum");
    expect(&version_5, "bad_ipv6_header");
    expect(&altered(&[(IP + 9, &[6])]), "not_udp");
    expect(&altered(&[(UDP + 2, &[0x12, 0xb6])]), "not_roce_port");
    expect(&altered(&[(UDP + 4, &[0, 0x2c])]), "length_mismatch");
    expect(&altered(&[(IP + 2, &[0, 0x48])]), "length_mismatch");
    expect(&altered(&[])[..length - 1], "length_mismatch");
    expect(&[altered(&[]), vec![0]].concat(), "length_mismatch");
    expect(&unaligned, "bad_packet_length");
    expect(&altered(&[(BTH + 1, &[0x41])]), "bad_transport_version");
    expect(&bad_icrc, "bad_icrc");
    expect(&altered(&[(BTH, &[0x15])]), "unknown_opcode");
    expect(&truncated, "truncated_headers");
    expect(&padded, "pad_longer_than_payload");
    assert_eq!(met.len(), Drop::COUNTER_NAMES.len(), "a reason was never met");
    assert_eq!(Drop::COUNTER_NAMES.iter().collect::<BTreeSet<_>>().len(), met.len());
}

#[test]
fn no_prefix_of_a_packet_is_a_packet() {
    for name in vectors::roce_v2() {
        let frame = vectors::as_frame(name);
        for length in 0..frame.len() {
            assert!(parse(&frame[..length], IcrcCheck::Trusted).is_err(), "{name} cut to {length}");
        }
    }
}

#[test]
fn ethernet_padding_is_tolerated_up_to_the_shortest_frame() {
    let mut headers = parse(&vectors::as_frame("D1"), IcrcCheck::Verify).unwrap().headers;
    headers.bth.opcode = Opcode::RC_SEND_ONLY;
    for (vlan, shortest) in [(None, 60), (Some(Vlan::new(0, 5)), 64)] {
        headers.link.vlan = vlan;
        let mut frame = Frame::new();
        assert!(emit(&headers, 0, &mut frame).is_empty());
        frame.seal();
        let mut bytes = frame.bytes().to_vec();
        bytes.resize(shortest, 0x77);
        assert_eq!(parse(&bytes, IcrcCheck::Verify).map(|packet| packet.payload.len()), Ok(0));
        bytes.push(0);
        assert_eq!(refusal(&bytes).counter_name(), "rx_drop_length_mismatch");
    }
}

#[test]
fn classification_looks_at_ports_only() {
    for name in vectors::roce_v2() {
        assert!(is_roce(&vectors::as_frame(name)), "{name}");
    }
    assert!(!is_roce(&vectors::bytes("K2")) && !is_roce(&[]) && !is_roce(&altered(&[])[..UDP + 7]));
    assert!(is_roce(&altered(&[])[..BTH]), "a truncated RoCE packet is the RDMA function's to count");
    assert!(is_roce(&altered(&[(BTH, &[0x15])])));
    assert!(!is_roce(&altered(&[(UDP + 2, &[0x12, 0xb6])])));
    assert!(!is_roce(&altered(&[(IP + 9, &[6])])));
    assert!(!is_roce(&altered(&[(IP + 6, &[0x00, 0x01])])), "a later fragment has no ports");
}
