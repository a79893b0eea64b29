//! The congestion point: which share is marked, and what a mark does to a frame.

use super::*;
use crate::egress_queue::{EgressQueue, mark_congestion_experienced};
use crate::random::{Probability, Random};
use crate::{Impairment, Marking, RateLimit};

const KB: u64 = 1000;

fn paper() -> Marking {
    let probability_max = Probability::from_fraction(0.01).unwrap();
    Marking { threshold_min_bytes: 5 * KB, threshold_max_bytes: 200 * KB, probability_max }
}

#[test]
fn the_share_grows_linearly_between_the_thresholds() {
    for (queue_bytes, share) in
        [(0, 0.0), (4_999, 0.0), (5_000, 0.0), (102_500, 0.005), (200_000, 0.01), (200_001, 1.0), (u64::MAX, 1.0)]
    {
        let marked = paper().probability(queue_bytes).fraction();
        assert!((marked - share).abs() < 1e-9, "{queue_bytes} bytes: {marked}");
    }
    // The paper's testbed: one threshold for both, everything marked above it.
    let probability_max = Probability::ALWAYS;
    let step = Marking { threshold_min_bytes: 40 * KB, threshold_max_bytes: 40 * KB, probability_max };
    assert!(step.probability(40 * KB - 1).is_never());
    assert_eq!(step.probability(40 * KB + 1), Probability::ALWAYS);
}

#[test]
fn the_queue_is_as_long_as_what_it_has_not_yet_sent() {
    // 8 Gb/s is a byte a nanosecond.
    let limit = RateLimit { bits_per_second: 8_000_000_000, queue_bytes: 3_000, marking: None };
    let mut queue = EgressQueue::default();
    let mut random = Random::new(0);
    let mut admit = |length, now| queue.admit(&limit, length, now, &mut random).map(|admission| admission.departs_ns);
    assert_eq!(admit(1_000, 100), Some(1_100));
    assert_eq!(admit(1_000, 100), Some(2_100));
    assert_eq!(admit(1_000, 100), Some(3_100));
    assert_eq!(admit(1, 100), None);
    assert_eq!(admit(1_000, 1_100), Some(4_100));
    assert_eq!(admit(1_000, 10_000), Some(11_000));
}

#[test]
fn a_standing_queue_is_marked_at_the_shares_rate() {
    let limit = RateLimit { bits_per_second: 8_000_000_000, queue_bytes: 1_000_000, marking: Some(paper()) };
    let mut queue = EgressQueue::default();
    let mut random = Random::new(9);
    // Fill it to 102.5 KB, then keep it there: a frame comes whenever one has left.
    for _ in 0..102 {
        queue.admit(&limit, 1_000, 0, &mut random);
    }
    queue.admit(&limit, 500, 0, &mut random);
    let marked = (0..100_000u64).filter(|frame| queue.admit(&limit, 1_000, frame * 1_000, &mut random).unwrap().marked);
    // Five standard deviations of a binomial of 100,000 and 0.5 % are 112.
    let marked = marked.count();
    assert!((388..=612).contains(&marked), "{marked} of 100,000");
}

fn network_v6(traffic_class: u8) -> Network {
    let (source, dest) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    Network::V6 { source, dest, traffic_class, flow_label: 0xabcde, hop_limit: 64 }
}

fn network_v4(traffic_class: u8) -> Network {
    let (source, dest) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Network::V4 { source, dest, traffic_class, ttl: 64, identification: 1 }
}

#[test]
fn a_mark_leaves_checksum_and_icrc_right() {
    for dscp in 0..64u8 {
        for (ecn, marked) in [(0b00, 0b00), (0b01, 0b11), (0b10, 0b11), (0b11, 0b11)] {
            let traffic_class = dscp << 2 | ecn;
            for network in [network_v4(traffic_class), network_v6(traffic_class)] {
                for in_vlan in [false, true] {
                    let mut frame = roce_over(network, Opcode::RC_SEND_ONLY, 7, b"payload");
                    frame.seal();
                    if in_vlan {
                        frame = frame_of(&tagged(frame.bytes()));
                    }
                    let changed = mark_congestion_experienced(&mut frame);
                    assert_eq!(changed, ecn != marked);
                    // The parser checks the header checksum and the ICRC.
                    let packet = rnic_wire::parse(frame.bytes(), rnic_wire::IcrcCheck::Verify).unwrap();
                    assert_eq!(packet.headers.network.traffic_class(), dscp << 2 | marked);
                }
            }
        }
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut frame = roce_over(network_v4(2), Opcode::RC_SEND_ONLY, 7, b"");
    frame.bytes_mut()[24] ^= 1;
    assert!(mark_congestion_experienced(&mut frame));
    let dropped = rnic_wire::parse(frame.bytes(), rnic_wire::IcrcCheck::Trusted).unwrap_err();
    assert!(matches!(dropped, rnic_wire::Drop::BadIpv4Checksum { .. }), "{dropped}");
}

#[test]
fn what_is_not_ip_is_not_marked() {
    for bytes in
        [ethernet(mac(1), mac(2), b"nothing"), vec![], vec![0; 14], ipv4(mac(1), mac(2), [1; 4], [2; 4])[..33].to_vec()]
    {
        let mut frame = frame_of(&bytes);
        assert!(!mark_congestion_experienced(&mut frame));
        assert_eq!(frame.bytes(), bytes);
    }
}

#[test]
fn a_congested_port_marks_and_then_drops() {
    let (_, mut ports) = switch_of(2);
    let probability_max = Probability::ALWAYS;
    let marking = Marking { threshold_min_bytes: 1_000, threshold_max_bytes: 1_000, probability_max };
    let rate_limit = Some(RateLimit { bits_per_second: 8_000_000_000, queue_bytes: 2_000, marking: Some(marking) });
    ports[1].set_impairment(Impairment { rate_limit, ..Impairment::default() });
    let mut length = 0;
    for psn in 0..10 {
        let mut frame = roce(Opcode::RC_SEND_ONLY, psn, &[0; 400]);
        length = frame.length() as u64;
        ports[0].transmit(&mut frame, 0);
    }
    let fitting = 2_000 / length;
    assert!(received(&mut ports[1], 0).is_empty(), "nothing departs at once");
    assert_eq!(ports[1].next_release_ns(), Some(length));
    let frames = received(&mut ports[1], 2_000);
    assert_eq!(frames.len() as u64, fitting);
    let statistics = ports[1].statistics();
    assert_eq!(statistics.dropped(crate::DropReason::QueueFull), 10 - fitting);
    assert_eq!(statistics.marked_frames, frames.iter().filter(|frame| frame[15] & 3 == 3).count() as u64);
    assert_eq!(statistics.marked_frames, fitting - 1_000_u64.div_ceil(length));
}
