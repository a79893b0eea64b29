//! Unreliable datagrams: one packet a message, to and from anybody, with the network header in front; management datagrams;
//! groups.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::completion::*;
use rnic_abi::{CommandOpcode, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_wire::{Deth, Gid, ImmDt, Network, Opcode, Vlan};
use zerocopy::IntoBytes;

/// Datagram queue pairs; B has two of the same kind.
const A: u32 = 0x13;
const B: u32 = 0x15;
const B2: u32 = 0x16;
const QKEY: u32 = 7;
const REMOTE: u64 = VIRTUAL + 0x8_0000;
const TARGET: u64 = BUFFER + 0x8_0000;

fn fabric() -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.create_datagram(A, QP_TYPE_UD);
    fabric.b.create_datagram(B, QP_TYPE_UD);
    fabric.b.create_datagram(B2, QP_TYPE_UD);
    fabric.a.port.put(BUFFER, &pattern(0x2000, 9));
    fabric.clear_logs();
    fabric
}

fn to(qpn: u32, length: u32) -> Request {
    Request::datagram(A, IP_B, qpn, QKEY, length)
}

fn state(host: &Host, qpn: u32) -> QpState {
    host.engine.queue_pair_state(qpn).unwrap()
}

#[test]
fn a_datagram_arrives_behind_the_header_that_it_came_with() {
    for length in [0, 1, 255, 1024, 4095, 4096] {
        let mut fabric = fabric();
        fabric.b.port.put(TARGET, &[0xa5; 4200]);
        fabric.b.post_receive_of(B, REMOTE, length + 40, 0x100);
        let mut request = Request { opcode: WorkOpcode::SEND_IMM, ..to(B, length) };
        let segment = request.datagram.as_mut().unwrap();
        (segment.av.traffic_class, segment.av.hop_limit) = (0x22, 9);
        fabric.a.send(&request);
        fabric.run();
        assert_eq!((fabric.wire.len(), fabric.wire[0].opcode), (1, Opcode::UD_SEND_ONLY_IMM));
        assert_eq!((fabric.wire[0].ack_req, fabric.wire[0].dest_qp), (false, B));
        assert_eq!(fabric.a.completions(), [(A, 0, 2, 0)]);
        let cqe = fabric.b.poll().unwrap();
        assert_eq!((cqe.qpn.get(), cqe.opcode, cqe.status, cqe.byte_len.get()), (B, 0x80, 0, length + 40));
        assert_eq!((cqe.src_qpn.get(), cqe.immediate.get(), cqe.network_type), (A, 0x2a, NETWORK_IPV4));
        assert_eq!(cqe.flags.get(), CQE_WITH_IMM | CQE_GRH | CQE_WITH_SMAC);
        assert_eq!((cqe.source_mac, cqe.vlan_id.get(), cqe.pkey_index.get()), ([2, 0, 0, 0, 0, 1], 0, 0));
        let area = fabric.b.port.slice(TARGET, 40);
        assert_eq!(area[..20], [0; 20]);
        // Version and length, traffic class, TTL, protocol, addresses: what the sender was asked for.
        let header = &area[20..];
        assert_eq!((header[0], header[1], header[8], header[9]), (0x45, 0x22, 9, 17));
        assert_eq!((&header[12..16], &header[16..]), (&IP_A[..], &IP_B[..]));
        let bytes = length as usize;
        assert_eq!(fabric.b.port.slice(TARGET + 40, bytes), &pattern(0x2000, 9)[..bytes]);
        assert_eq!(fabric.b.port.slice(TARGET + 40 + u64::from(length), 8), [0xa5; 8]);
        // One fetch, one placement, one completion, as for any message of one packet.
        let classes = ["recv_wqe_fetch", "payload_write", "cqe_write"];
        assert_eq!(fabric.b.operation_classes(), classes);
    }
}

#[test]
fn an_ipv6_header_fills_the_40_bytes_and_a_tag_is_told_apart() {
    let mut fabric = fabric();
    let own: Gid = "fd00::2".parse().unwrap();
    let mut entry = SetGid::zeroed();
    (entry.index, entry.valid, entry.vlan_id, entry.gid) = (1.into(), 1, 5.into(), own.0);
    fabric.b.must(CommandOpcode::SET_GID, entry.as_bytes());
    fabric.b.post_receive_of(B, REMOTE, 100, 0x100);
    let mut packet = Forged::new(&fabric.b, IP_A, Opcode::UD_SEND_ONLY, 77, b"hello");
    packet.headers.link.vlan = Some(Vlan::new(3, 5));
    packet.headers.network = Network::V6 {
        source: "fd00::1".parse().unwrap(),
        dest: own.to_ipv6(),
        traffic_class: 0x12,
        flow_label: 0xabcde,
        hop_limit: 7,
    };
    packet.headers.bth.dest_qp = B;
    packet.headers.extension.deth = Deth { queue_key: QKEY, source_qp: 0xabcdef };
    fabric.b.receive(packet.frame());
    let cqe = fabric.b.poll().unwrap();
    assert_eq!((cqe.byte_len.get(), cqe.src_qpn.get(), cqe.network_type), (45, 0xabcdef, NETWORK_IPV6));
    assert_eq!(cqe.flags.get(), CQE_GRH | CQE_WITH_SMAC | CQE_WITH_VLAN);
    assert_eq!((cqe.vlan_id.get(), cqe.service_level, cqe.source_mac), (5, 3, [2; 6]));
    let area = fabric.b.port.slice(TARGET, 45);
    assert_eq!(area[..4], [0x61, 0x2a, 0xbc, 0xde]);
    assert_eq!((area[6], area[7], &area[24..40], &area[40..]), (17, 7, &own.0[..], &b"hello"[..]));
}

/// One queue pair sends to many, and each is told who sent.
#[test]
fn one_queue_pair_reaches_many_and_is_reached_by_many() {
    let mut fabric = fabric();
    fabric.a.create_datagram(0x14, QP_TYPE_UD);
    for (qpn, at) in [(B, 0), (B, 0x1000), (B2, 0x2000)] {
        fabric.b.post_receive_of(qpn, REMOTE + at, 0x1000, 0x100);
    }
    fabric.a.post(&to(B2, 30));
    fabric.a.post(&Request { flags: 0, ..to(B, 10) });
    fabric.a.ring_send_of(A);
    fabric.a.send(&Request { qpn: Some(0x14), ..to(B, 20) });
    fabric.run();
    let all: Vec<_> = std::iter::from_fn(|| fabric.b.poll()).collect();
    let mut seen: Vec<_> = all.iter().map(|cqe| (cqe.qpn.get(), cqe.src_qpn.get(), cqe.byte_len.get())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(B, A, 50), (B, 0x14, 60), (B2, A, 70)]);
    let mut sent = fabric.a.completions();
    sent.sort_unstable();
    assert_eq!(sent, [(A, 0, 1, 0), (0x14, 0, 1, 0)], "the unsignaled one is silent");
}

/// What a receiver does not take costs nobody anything but the datagram.
#[test]
fn what_is_not_taken_is_dropped_in_silence() {
    type Dropped = (&'static str, Request, u32, fn(&rnic_engine::Counters) -> u64);
    let cases: [Dropped; 4] = [
        ("Q_Key", Request::datagram(A, IP_B, B, QKEY + 1, 8), 100, |counters| counters.rx_bad_qkey),
        ("no receive", to(B2, 8), 100, |counters| counters.rx_dropped_no_receive),
        ("too long for the receive", to(B, 61), 100, |counters| counters.rx_dropped_too_long),
        ("no queue pair", to(0x2f, 8), 100, |counters| counters.rx_dropped_no_qp),
    ];
    for (name, request, room, counter) in cases {
        let mut fabric = fabric();
        fabric.b.post_receive_of(B, REMOTE, room, 0x100);
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(counter(fabric.b.engine.counters()), 1, "{name}");
        assert_eq!(fabric.a.completions(), [(A, 0, 1, 0)], "{name}: the sender knows nothing");
        assert_eq!((fabric.b.poll(), fabric.sent_by('b').len(), fabric.b.events()), (None, 0, vec![]), "{name}");
        assert_eq!((state(&fabric.b, B), fabric.b.diagnostics()), (QpState::Rts, vec![]), "{name}");
        fabric.a.send(&to(B, 60));
        fabric.run();
        assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0)], "{name}: the receive is still there");
    }
}

/// A packet of another transport, or for an address that is not the port's, is not a datagram for this queue pair.
#[test]
fn other_transports_and_addresses_are_told_apart() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 100, 0x100);
    let forge = |opcode, dest: [u8; 4], pkey| {
        let mut packet = Forged::new(&fabric.b, IP_A, opcode, PSN, &[1; 8]);
        packet.headers.bth.dest_qp = B;
        packet.headers.bth.partition_key = pkey;
        packet.headers.extension.deth = Deth { queue_key: QKEY, source_qp: A };
        if let Network::V4 { dest: there, .. } = &mut packet.headers.network {
            *there = dest.into();
        }
        packet.frame()
    };
    let frames = [
        forge(Opcode::RC_SEND_ONLY, IP_B, 0xffff),
        forge(Opcode::UC_SEND_ONLY, IP_B, 0xffff),
        forge(Opcode::UD_SEND_ONLY, [10, 0, 0, 99], 0xffff),
        forge(Opcode::UD_SEND_ONLY, IP_B, 0x1234),
    ];
    frames.into_iter().for_each(|frame| fabric.b.receive(frame));
    let counters = *fabric.b.engine.counters();
    assert_eq!((counters.rx_dropped_transport, counters.rx_dropped_address, counters.rx_bad_pkey), (2, 1, 1));
    assert_eq!(fabric.b.poll(), None);
    // And the other way round: a datagram for a connected queue pair.
    let mut packet = Forged::new(&fabric.b, IP_A, Opcode::UD_SEND_ONLY, PSN, &[1; 8]);
    packet.headers.extension.immdt = ImmDt::default();
    fabric.b.receive(packet.frame());
    assert_eq!(fabric.b.engine.counters().rx_dropped_transport, 3);
}

#[test]
fn a_privileged_qkey_is_the_queue_pairs_own() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 100, 0x100);
    fabric.a.send(&Request::datagram(A, IP_B, B, 0x8123_4567, 8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0)], "A's own Q_Key is B's");
}

/// Refused before anything leaves; the send queue stops, receiving goes on.
#[test]
fn what_cannot_be_sent_stops_the_send_queue() {
    type Spoil = fn(&mut Request);
    let cases: [(&str, u32, Spoil, u8, u32); 7] = [
        ("longer than the MTU", 4097, |_| {}, 1, 413),
        ("GID index", 8, |request| request.datagram.as_mut().unwrap().av.sgid_index = 3.into(), 2, 414),
        ("QPN", 8, |request| request.datagram.as_mut().unwrap().dest_qpn = 0x100_0000.into(), 2, 414),
        ("P_Key index", 8, |request| request.datagram.as_mut().unwrap().pkey_index = 1.into(), 2, 414),
        ("reserved", 8, |request| request.datagram.as_mut().unwrap().reserved = 1.into(), 2, 402),
        ("opcode", 8, |request| request.opcode = WorkOpcode::WRITE, 2, 401),
        ("lkey", 8, |request| request.elements[0].2 = 0x900, 4, 420),
    ];
    for (name, length, spoil, status, diagnostic) in cases {
        let mut fabric = fabric();
        fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x100);
        fabric.a.post_receive_of(A, REMOTE, 0x1000, 0x100);
        let mut request = Request { flags: 0, ..to(B, length) };
        spoil(&mut request);
        fabric.a.post(&request);
        fabric.a.post(&to(B, 8));
        fabric.a.ring_send_of(A);
        fabric.run();
        let (first, second) = (fabric.a.poll().unwrap(), fabric.a.poll().unwrap());
        assert_eq!((first.status, first.vendor_err.get()), (status, diagnostic), "{name}");
        assert_eq!((second.status, fabric.wire.len()), (5, 0), "{name}");
        assert_eq!((state(&fabric.a, A), fabric.a.events()), (QpState::Sqe, vec![]), "{name}");
        fabric.b.send(&Request::datagram(B, IP_A, A, QKEY, 8));
        fabric.run();
        assert_eq!(fabric.a.completions(), [(A, 0, 0x80, 0)], "{name}: receives on");
        fabric.a.modify(&fabric.a.attributes(A, QP_STATE_RTS, 0));
        fabric.a.send(&to(B, 8));
        fabric.run();
        assert_eq!(fabric.b.poll().map(|cqe| cqe.status), Some(0), "{name}: sends again");
    }
}

#[test]
fn inline_bytes_and_the_solicited_bit_travel() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x100);
    let data = pattern(192, 4);
    let flags = rnic_abi::work_request::WQE_SOLICITED;
    fabric.a.send(&Request { inline: Some(data.clone()), flags, ..to(B, 0) });
    fabric.run();
    let cqe = fabric.b.poll().unwrap();
    assert_eq!((cqe.byte_len.get(), cqe.flags.get() & CQE_SOLICITED), (232, CQE_SOLICITED));
    assert_eq!(fabric.b.port.slice(TARGET + 40, 192), &data[..]);
    assert_eq!(fabric.a.count(Class::PayloadRead), 0);
}

#[test]
fn a_bad_receive_and_the_error_state_flush_everything() {
    let mut fabric = fabric();
    fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x900);
    fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x100);
    fabric.a.send(&to(B, 8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 4), (B, 1, 0x80, 5)]);
    assert_eq!((state(&fabric.b, B), fabric.b.events()), (QpState::Err, vec![(EventType::QP_FATAL, B, 420)]));
    fabric.a.modify(&fabric.a.attributes(A, QP_STATE_ERR, 0));
    fabric.a.send(&to(B, 8));
    // A datagram takes two slots.
    assert_eq!(fabric.a.completions().last(), Some(&(A, 2, 1, 5)));
}

/// Management datagrams: queue pair 1, one Q_Key.
#[test]
fn management_datagrams_are_queue_pair_1() {
    let mut fabric = fabric();
    fabric.a.create_datagram(GSI_QPN, QP_TYPE_GSI);
    fabric.b.create_datagram(GSI_QPN, QP_TYPE_GSI);
    fabric.b.post_receive_of(GSI_QPN, REMOTE, 296, 0x100);
    fabric.a.send(&Request::datagram(GSI_QPN, IP_B, 1, GSI_QKEY, 256));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(1, 0, 1, 0)]);
    let cqe = fabric.b.poll().unwrap();
    assert_eq!((cqe.qpn.get(), cqe.src_qpn.get(), cqe.byte_len.get()), (1, 1, 296));
    assert_ne!(cqe.flags.get() & CQE_GRH, 0);
    // Whoever does not know the Q_Key is not heard.
    fabric.b.post_receive_of(GSI_QPN, REMOTE, 296, 0x100);
    fabric.a.send(&to(1, 8));
    fabric.run();
    assert_eq!((fabric.b.poll(), fabric.b.engine.counters().rx_bad_qkey), (None, 1));
    let mut other = fabric.b.attributes(GSI_QPN, QP_STATE_RTS, ATTR_QKEY);
    other.qkey = 9.into();
    assert_eq!(fabric.b.try_command(CommandOpcode::MODIFY_QP, other.as_bytes()), (2, "ModifyValue"));
    for (qpn, qp_type) in [(0, QP_TYPE_RC), (1, QP_TYPE_UD), (2, QP_TYPE_GSI), (MULTICAST_QPN, QP_TYPE_UD)] {
        let mut qp = CreateQp { qp_type, ..fabric.a.new_qp(0x18) };
        qp.qpn = qpn.into();
        let refused = fabric.a.try_command(CommandOpcode::CREATE_QP, qp.as_bytes());
        assert_eq!(refused, (2, "ParameterRange"), "{qpn} of type {qp_type}");
    }
}

const GROUP: [u8; 4] = [239, 1, 2, 3];

fn to_group(length: u32) -> Request {
    Request::datagram(A, GROUP, MULTICAST_QPN, QKEY, length)
}

/// Each queue pair of a group has a copy and uses a receive of its own; who is not attached has none.
#[test]
fn every_queue_pair_of_a_group_has_its_copy() {
    let mut fabric = fabric();
    fabric.b.create_datagram(0x17, QP_TYPE_UD);
    for (at, qpn) in [B, B2, 0x17].into_iter().enumerate() {
        fabric.b.post_receive_of(qpn, REMOTE + at as u64 * 0x1000, 0x1000, 0x100);
    }
    fabric.a.send(&to_group(500));
    fabric.run();
    assert_eq!((fabric.b.poll(), fabric.b.engine.counters().rx_dropped_no_qp), (None, 1));
    fabric.b.attach(B, gid(GROUP));
    fabric.b.attach(B2, gid(GROUP));
    fabric.b.attach(B2, gid(GROUP));
    fabric.a.send(&to_group(500));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(B, 0, 0x80, 0), (B2, 0, 0x80, 0)]);
    for at in [0, 0x1000] {
        assert_eq!(fabric.b.port.slice(TARGET + at + 40, 500), &pattern(0x2000, 9)[..500]);
        assert_eq!(fabric.b.port.slice(TARGET + at + 36, 4), GROUP, "the header's destination");
    }
    // One has no receive left, the other has.
    fabric.b.post_receive_of(B2, REMOTE, 0x1000, 0x100);
    let body = MulticastGroup { qpn: B2.into(), reserved: 0.into(), gid: gid(GROUP) };
    fabric.a.send(&to_group(8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(B2, 1, 0x80, 0)]);
    assert_eq!(fabric.b.engine.counters().rx_dropped_no_receive, 1);
    fabric.b.must(CommandOpcode::DETACH_MULTICAST, body.as_bytes());
    assert_eq!(fabric.b.try_command(CommandOpcode::DETACH_MULTICAST, body.as_bytes()), (3, "ObjectMissing"));
    fabric.b.post_receive_of(B2, REMOTE, 0x1000, 0x100);
    fabric.b.destroy_qp(B);
    assert!(!fabric.b.engine.joined_group(&gid(GROUP)), "the group ends with its last queue pair");
    fabric.a.send(&to_group(8));
    fabric.run();
    assert_eq!(fabric.b.poll(), None);
}

/// A group's number does not make a packet of another address the group's.
#[test]
fn a_groups_packets_are_known_by_address_and_number() {
    let mut fabric = fabric();
    fabric.b.attach(B, gid(GROUP));
    fabric.b.post_receive_of(B, REMOTE, 0x1000, 0x100);
    fabric.a.send(&Request::datagram(A, IP_B, MULTICAST_QPN, QKEY, 8));
    fabric.a.send(&Request::datagram(A, GROUP, B, QKEY, 8));
    fabric.a.send(&Request::datagram(A, GROUP, MULTICAST_QPN, QKEY + 1, 8));
    fabric.run();
    let counters = fabric.b.engine.counters();
    assert_eq!((counters.rx_dropped_no_qp, counters.rx_dropped_address, counters.rx_bad_qkey), (1, 1, 1));
    assert_eq!((fabric.b.poll(), fabric.a.completions().len()), (None, 3));
}

/// Late memory and caches of one entry: each copy waits for its own.
#[test]
fn copies_that_wait_are_not_lost() {
    let config = EngineConfig { qp_cache_entries: 1, key_cache_entries: 1, ..EngineConfig::default() };
    let mut fabric = Fabric::new(config, 1);
    fabric.a.create_datagram(A, QP_TYPE_UD);
    for (at, qpn) in (0x15..0x19).enumerate() {
        fabric.b.create_datagram(qpn, QP_TYPE_UD);
        fabric.b.attach(qpn, gid(GROUP));
        for receive in 0..2 {
            let place = REMOTE + (at as u64 * 2 + receive) * 0x1000;
            fabric.b.post_receive_of(qpn, place, 0x1000, 0x100);
        }
    }
    fabric.b.flush_caches();
    fabric.b.port.hold = Box::new(|_, _| true);
    fabric.a.send(&to_group(700));
    fabric.a.send(&to_group(300));
    fabric.run();
    fabric.b.settle();
    let mut seen = fabric.b.completions();
    seen.sort_unstable();
    let expected: Vec<_> = (0x15..0x19).flat_map(|qpn| [(qpn, 0, 0x80, 0), (qpn, 1, 0x80, 0)]).collect();
    assert_eq!(seen, expected);
}
