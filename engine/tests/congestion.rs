//! Congestion: what is told to whom when packets come marked, and what a queue pair does that is told.

mod rig;

use rig::*;
use rnic_abi::WorkOpcode;
use rnic_engine::{CnpScope, CongestionConfig, EngineConfig};
use rnic_wire::{Ecn, Frame, IcrcCheck, Network, Opcode, parse};

const LINE: u64 = 8_000_000_000;

/// A byte a nanosecond, and so few bytes that a stage of them ends soon.
fn config() -> EngineConfig {
    let congestion = CongestionConfig { ecn: true, line_bits_per_second: LINE, ..CongestionConfig::default() };
    EngineConfig { congestion, ..EngineConfig::default() }
}

fn fabric() -> Fabric {
    let mut fabric = Fabric::new(config(), 1);
    fabric.a.port.put(BUFFER, &pattern(0x1_0000, 5));
    fabric
}

/// A WRITE of nothing to B, as a switch on the way may have marked it.
fn marked(fabric: &Fabric, psn: u32) -> Frame {
    let mut forged = Forged::new(&fabric.b, IP_A, Opcode::RC_WRITE_ONLY, psn, &[]).reth(VIRTUAL, 0x100, 0);
    let (Network::V4 { traffic_class, .. } | Network::V6 { traffic_class, .. }) = &mut forged.headers.network;
    *traffic_class |= 3;
    forged.frame()
}

fn told(fabric: &Fabric) -> usize {
    fabric.sent_by('b').iter().filter(|packet| packet.opcode == Opcode::CNP).count()
}

#[test]
fn who_sends_marked_packets_is_told_at_most_once_an_interval() {
    let mut fabric = fabric();
    for psn in 0..3 {
        let frame = marked(&fabric, PSN + psn);
        fabric.b.receive(frame);
    }
    fabric.run();
    assert_eq!(told(&fabric), 1);
    let notification = fabric.sent_by('b').into_iter().find(|packet| packet.opcode == Opcode::CNP).unwrap();
    assert_eq!((notification.dest_qp, notification.psn, notification.ack_req), (fabric.a.qpn, 0, false));
    let counters = *fabric.b.engine.counters();
    assert_eq!((counters.np_ecn_marked_roce_packets, counters.np_cnp_sent), (3, 1));
    assert_eq!(fabric.a.engine.counters().rp_cnp_handled, 1);
    fabric.advance_to(49_999);
    let frame = marked(&fabric, PSN + 3);
    fabric.b.receive(frame);
    fabric.run();
    assert_eq!(told(&fabric), 1);
    fabric.advance_to(50_001);
    // Marked, it counts whatever else becomes of it.
    let duplicate = marked(&fabric, PSN);
    fabric.b.receive(duplicate);
    fabric.run();
    assert_eq!(told(&fabric), 2);
}

#[test]
fn the_notification_is_as_hardware_sends_it() {
    let mut fabric = fabric();
    let frame = marked(&fabric, PSN);
    fabric.b.receive(frame);
    let mut notification = fabric.b.transmit().unwrap();
    notification.seal();
    let packet = parse(notification.bytes(), IcrcCheck::Verify).unwrap();
    let bth = &packet.headers.bth;
    assert_eq!(bth.opcode, Opcode::CNP);
    assert!(bth.becn && !bth.fecn && !bth.solicited_event && !bth.migration_request);
    assert_eq!(packet.headers.network.traffic_class(), 0xc2, "DSCP 48, ECT(0)");
    // Ethernet, IPv4, UDP, BTH, 16 bytes of nothing, ICRC.
    assert_eq!(notification.bytes().len(), 14 + 20 + 8 + 12 + 16 + 4);
    assert_eq!(packet.payload, [0; 0]);
}

#[test]
fn each_scope_paces_what_it_says() {
    for (cnp_scope, told_of) in [(CnpScope::QueuePair, 2), (CnpScope::Destination, 1), (CnpScope::Port, 1)] {
        let mut config = config();
        config.congestion.cnp_scope = cnp_scope;
        let mut fabric = Fabric::new(config, 1);
        fabric.connect_another(1, &Attributes::mtu(1));
        for further in 0..2 {
            let mut forged = Forged::new(&fabric.b, IP_A, Opcode::RC_WRITE_ONLY, PSN, &[]).reth(VIRTUAL, 0x100, 0);
            forged.headers.bth.dest_qp += further;
            if let Network::V4 { traffic_class, .. } = &mut forged.headers.network {
                *traffic_class = 3;
            }
            fabric.b.receive(forged.frame());
        }
        fabric.run();
        assert_eq!(told(&fabric), told_of, "{cnp_scope:?}");
    }
}

/// Departure times of a message's packets after so many notifications.
fn departures(notifications: u32, packets: u32) -> Vec<u64> {
    let mut fabric = fabric();
    fabric.advance_to(1_000);
    for told in 0..notifications {
        fabric.advance_to(1_000 + u64::from(told) * 10_000);
        let notification = Forged::new(&fabric.a, IP_B, Opcode::CNP, 0, &[]);
        fabric.a.receive(notification.frame());
    }
    let start = 1_000 + u64::from(notifications) * 10_000;
    fabric.advance_to(start);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 256 * packets));
    let mut departures = Vec::new();
    let mut now_ns = start;
    loop {
        while let Some(frame) = fabric.a.transmit() {
            departures.push(now_ns - start);
            fabric.b.receive(frame);
        }
        if departures.len() == packets as usize {
            return departures;
        }
        now_ns = fabric.a.engine.poll_timeout().expect("the rest waits for its turn").max(now_ns);
        fabric.a.advance_to(now_ns);
    }
}

#[test]
fn a_sender_that_is_told_slows_down_and_others_do_not() {
    // 14 + 20 + 8 + 12 (+ 16 in the first packet) + 256 + 4 bytes a packet, at half of a byte a nanosecond.
    assert_eq!(departures(0, 4), [0, 0, 0, 0]);
    assert_eq!(departures(1, 4), [0, 660, 1288, 1916]);
    let twice = departures(2, 4);
    assert!(twice[1] > 1200, "{twice:?}");
    let mut other = fabric();
    other.connect_another(1, &Attributes::mtu(1));
    let notification = Forged::new(&other.a, IP_B, Opcode::CNP, 0, &[]);
    other.a.receive(notification.frame());
    let qpn = other.a.qpn + 1;
    other.a.send(&Request { qpn: Some(qpn), ..Request::new(WorkOpcode::WRITE, 4 * 256) });
    assert_eq!(std::iter::from_fn(|| other.a.transmit()).count(), 4);
}

#[test]
fn notifications_that_say_nothing_new_change_nothing() {
    let mut fabric = fabric();
    for _ in 0..3 {
        let notification = Forged::new(&fabric.a, IP_B, Opcode::CNP, 0, &[]);
        fabric.a.receive(notification.frame());
    }
    // Of another sender, and to a datagram queue pair, it is dropped.
    let stranger = Forged::new(&fabric.a, [10, 9, 9, 9], Opcode::CNP, 0, &[]);
    fabric.a.receive(stranger.frame());
    let counters = *fabric.a.engine.counters();
    assert_eq!((counters.rp_cnp_handled, counters.rp_cnp_ignored, counters.rx_dropped_address), (1, 2, 1));
    fabric.run();
    assert_eq!(fabric.wire, [], "nothing answers it");
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
}

#[test]
fn what_may_be_marked_says_so_where_it_is_configured() {
    for (ecn, expected) in [(true, Ecn::Ect0), (false, Ecn::NotCapable)] {
        let mut config = config();
        config.congestion.ecn = ecn;
        let mut fabric = Fabric::new(config, 1);
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        let ecn_of = |frame: &Frame| parse(frame.bytes(), IcrcCheck::Trusted).unwrap().headers.network.ecn();
        let request = fabric.a.transmit().unwrap();
        assert_eq!(ecn_of(&request), expected);
        fabric.b.receive(request);
        assert_eq!(ecn_of(&fabric.b.transmit().unwrap()), Ecn::NotCapable, "acknowledgements are few and short");
    }
}

#[test]
fn a_notification_that_is_due_goes_with_its_connection() {
    let mut fabric = fabric();
    let frame = marked(&fabric, PSN);
    fabric.b.receive(frame);
    let reset = fabric.b.attributes(fabric.b.qpn, rnic_abi::command::QP_STATE_RESET, 0);
    fabric.b.modify(&reset);
    let (qpn, peer) = (fabric.b.qpn, fabric.a.qpn);
    fabric.b.connect(qpn, (IP_A, peer), &Attributes::mtu(1));
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!((told(&fabric), fabric.a.completions().len()), (0, 1));
    // And its pace: the new one's first mark is told of at once.
    let frame = marked(&fabric, PSN + 1);
    fabric.b.receive(frame);
    fabric.run();
    assert_eq!(told(&fabric), 1);
}

/// What a slow packet would have taken is measured by the rate that holds by now.
#[test]
fn a_rate_that_has_risen_lets_go_of_who_waits() {
    let mut config = config();
    config.congestion.min_bits_per_second = 1000;
    let mut fabric = Fabric::new(config, 1);
    for told in 0..60 {
        fabric.a.advance_to(1_000 + told * 4_000);
        let notification = Forged::new(&fabric.a, IP_B, Opcode::CNP, 0, &[]);
        fabric.a.receive(notification.frame());
    }
    let start = 1_000 + 60 * 4_000;
    fabric.a.advance_to(start);
    for _ in 0..2 {
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 200));
    }
    assert_eq!(std::iter::from_fn(|| fabric.a.transmit()).count(), 1);
    let mut waits = 0;
    while fabric.a.transmit().is_none() {
        waits += 1;
        let next = fabric.a.engine.poll_timeout().expect("its turn comes");
        fabric.a.advance_to(next);
        assert!(next < start + 1_000_000, "within some steps of 55 us, not seconds");
    }
    assert!(waits > 1);
}

#[test]
fn a_connection_that_begins_anew_begins_at_the_lines_rate() {
    let mut fabric = fabric();
    let notification = Forged::new(&fabric.a, IP_B, Opcode::CNP, 0, &[]);
    fabric.a.receive(notification.frame());
    let rate = |fabric: &Fabric| fabric.a.engine.inspect_queue_pairs(0, 1)[0].limited_bits_per_second;
    assert_eq!(rate(&fabric), Some(LINE / 2));
    let reset = fabric.a.attributes(0x11, rnic_abi::command::QP_STATE_RESET, 0);
    fabric.a.modify(&reset);
    assert_eq!(rate(&fabric), None);
}
