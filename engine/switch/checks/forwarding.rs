//! Learning, forwarding, flooding, moving and ageing.

use super::*;
use crate::{DropReason, ForwardConfig, Forwarded};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn the_unknown_is_flooded_and_the_learned_is_not() {
    let (switch, mut ports) = switch_of(4);
    assert_eq!(reaches(&mut ports, 0, &ethernet(mac(1), mac(2), b"a"), 0), [1, 2, 3]);
    assert_eq!(reaches(&mut ports, 1, &ethernet(mac(2), mac(1), b"b"), 0), [0]);
    assert_eq!(reaches(&mut ports, 0, &ethernet(mac(1), mac(2), b"c"), 0), [1]);
    assert_eq!(switch.learned_addresses(), (2, 0));
    assert_eq!(ports[0].statistics().flooded_frames, 1);
}

#[test]
fn groups_are_flooded_whatever_was_learned() {
    let (switch, mut ports) = switch_of(3);
    assert_eq!(reaches(&mut ports, 0, &ethernet(BROADCAST, mac(2), b""), 0), [1, 2]);
    assert_eq!(switch.learned_addresses(), (0, 0), "a group is nobody's source");
    reaches(&mut ports, 0, &ipv4(mac(1), BROADCAST, [10, 0, 0, 1], [10, 0, 0, 2]), 0);
    reaches(&mut ports, 1, &ipv4(mac(2), mac(1), [10, 0, 0, 2], [10, 0, 0, 1]), 0);
    for destination in [[255; 4], [224, 0, 0, 1]] {
        assert_eq!(reaches(&mut ports, 1, &ipv4(mac(2), mac(1), [10, 0, 0, 2], destination), 0), [0, 2]);
    }
    let to_known_ip = ipv4(mac(2), BROADCAST, [10, 0, 0, 2], [10, 0, 0, 1]);
    assert_eq!(reaches(&mut ports, 1, &to_known_ip, 0), [0, 2], "an Ethernet group is a group");
    let solicited_node = ipv6(mac(2), mac(1), "fe80::2".parse().unwrap(), "ff02::1:ff00:1".parse().unwrap());
    assert_eq!(reaches(&mut ports, 1, &solicited_node, 0), [0, 2]);
}

#[test]
fn ip_goes_by_ip_address_even_where_the_mac_says_otherwise() {
    let (_, mut ports) = switch_of(3);
    reaches(&mut ports, 1, &ipv4(mac(2), BROADCAST, [10, 0, 0, 2], [10, 0, 0, 9]), 0);
    reaches(&mut ports, 2, &ethernet(mac(3), BROADCAST, b""), 0);
    assert_eq!(reaches(&mut ports, 0, &ipv4(mac(1), mac(3), [10, 0, 0, 1], [10, 0, 0, 2]), 0), [1]);
    assert_eq!(reaches(&mut ports, 0, &ipv4(mac(1), mac(3), [10, 0, 0, 1], [10, 0, 0, 7]), 0), [1, 2]);
    assert_eq!(reaches(&mut ports, 0, &ethernet(mac(1), mac(3), b""), 0), [2]);
}

#[test]
fn vlan_tags_are_skipped() {
    let (switch, mut ports) = switch_of(3);
    let there = tagged(&ipv4(mac(1), mac(2), [10, 0, 0, 1], [10, 0, 0, 2]));
    let back = tagged(&tagged(&ipv4(mac(2), mac(1), [10, 0, 0, 2], [10, 0, 0, 1])));
    assert_eq!(reaches(&mut ports, 0, &there, 0), [1, 2]);
    assert_eq!(reaches(&mut ports, 1, &back, 0), [0]);
    assert_eq!(switch.learned_addresses(), (2, 2));
}

#[test]
fn ipv6_is_learned_and_apart_from_ipv4() {
    let (switch, mut ports) = switch_of(3);
    let (one, two) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    assert_eq!(reaches(&mut ports, 0, &ipv6(mac(1), mac(2), one, two), 0), [1, 2]);
    assert_eq!(reaches(&mut ports, 1, &ipv6(mac(2), mac(1), two, one), 0), [0]);
    assert_eq!(reaches(&mut ports, 2, &ipv4(mac(3), mac(1), [10, 0, 0, 3], [10, 0, 0, 1]), 0), [0, 1]);
    assert_eq!(switch.learned_addresses(), (3, 3));
}

#[test]
fn addresses_without_a_single_owner_are_not_learned() {
    let (switch, mut ports) = switch_of(2);
    reaches(&mut ports, 0, &ipv4([0; 6], mac(2), [0, 0, 0, 0], [10, 0, 0, 2]), 0);
    reaches(&mut ports, 0, &ipv4(BROADCAST, mac(2), [127, 0, 0, 1], [10, 0, 0, 2]), 0);
    assert_eq!(switch.learned_addresses(), (0, 0));
    assert_eq!(ports[0].statistics().learned_frames, 0);
}

#[test]
fn a_station_that_moves_is_followed() {
    let (switch, mut ports) = switch_of(3);
    let hello = ipv4(mac(1), BROADCAST, [10, 0, 0, 1], [10, 0, 0, 9]);
    let to_it = ipv4(mac(3), mac(1), [10, 0, 0, 3], [10, 0, 0, 1]);
    reaches(&mut ports, 0, &hello, 0);
    assert_eq!(reaches(&mut ports, 2, &to_it, 0), [0]);
    reaches(&mut ports, 1, &hello, 1);
    assert_eq!(reaches(&mut ports, 2, &to_it, 1), [1]);
    assert_eq!(switch.learned_addresses(), (2, 2));
}

#[test]
fn an_entry_ages_unless_it_is_seen() {
    let (_, mut ports) = switch_of(3);
    let hello = ethernet(mac(1), BROADCAST, b"");
    let to_it = ethernet(mac(3), mac(1), b"");
    reaches(&mut ports, 0, &hello, 0);
    assert_eq!(reaches(&mut ports, 2, &to_it, 300 * SECOND_NS), [0]);
    reaches(&mut ports, 0, &hello, 300 * SECOND_NS);
    assert_eq!(reaches(&mut ports, 2, &to_it, 600 * SECOND_NS), [0]);
    assert_eq!(reaches(&mut ports, 2, &to_it, 600 * SECOND_NS + 1), [0, 1]);
    reaches(&mut ports, 1, &ethernet(mac(9), BROADCAST, b""), 1000 * SECOND_NS);
    assert_eq!(reaches(&mut ports, 0, &ethernet(mac(8), mac(9), b""), 1000 * SECOND_NS), [1]);
}

#[test]
fn a_full_table_forgets_the_oldest() {
    let forward = ForwardConfig { entries_max: 4, ..ForwardConfig::default() };
    let (switch, mut ports) = switch_with(SwitchConfig { forward, ..SwitchConfig::default() }, 3);
    for station in 1..=4 {
        reaches(&mut ports, 0, &ethernet(mac(station), BROADCAST, b""), u64::from(station) * SECOND_NS);
    }
    // Seen again, the first is no longer the oldest.
    reaches(&mut ports, 0, &ethernet(mac(1), BROADCAST, b""), 10 * SECOND_NS);
    reaches(&mut ports, 0, &ethernet(mac(5), BROADCAST, b""), 11 * SECOND_NS);
    assert_eq!(switch.learned_addresses(), (4, 0));
    let known =
        |ports: &mut [Port], station| reaches(ports, 1, &ethernet([0; 6], mac(station), b""), 11 * SECOND_NS) == [0];
    let found: Vec<u8> = (1..=5).filter(|&station| known(&mut ports, station)).collect();
    assert_eq!(found, [1, 3, 4, 5]);
}

#[test]
fn what_goes_nowhere_is_counted_with_its_reason() {
    let (_, mut ports) = switch_of(2);
    let port = &mut ports[0];
    let sent = |port: &mut Port, bytes: &[u8]| port.transmit(&mut frame_of(bytes), 0);
    assert_eq!(sent(port, &[0; 13]), Forwarded::Dropped(DropReason::Runt));
    assert_eq!(sent(port, &[]), Forwarded::Dropped(DropReason::Runt));
    assert_eq!(sent(port, &ethernet(mac(1), mac(1), b"")), Forwarded::Dropped(DropReason::Hairpin));
    for reason in [DropReason::Runt, DropReason::Hairpin] {
        let expected = if reason == DropReason::Runt { 2 } else { 1 };
        assert_eq!(port.statistics().dropped(reason), expected);
    }
    let (_, mut alone) = switch_of(1);
    assert_eq!(alone[0].room(), 256);
    assert_eq!(sent(&mut alone[0], &ethernet(mac(1), mac(2), b"")), Forwarded::Dropped(DropReason::NoOtherPort));
}

#[test]
fn room_tells_what_fits_and_more_is_dropped_and_counted() {
    let (_, mut ports) = switch_with(SwitchConfig { ring_frames: 4, ..SwitchConfig::default() }, 3);
    reaches(&mut ports, 1, &ethernet(mac(2), BROADCAST, b""), 0);
    let to_one = ethernet(mac(1), mac(2), b"");
    for room in [4, 3, 2, 1] {
        assert_eq!(ports[0].room(), room);
        assert_eq!(ports[0].transmit(&mut frame_of(&to_one), 0), Forwarded::Unicast { port: 1 });
    }
    assert_eq!(ports[0].room(), 0);
    assert_eq!(ports[0].transmit(&mut frame_of(&to_one), 0), Forwarded::Dropped(DropReason::NoRoom));
    let to_all = ethernet(mac(1), BROADCAST, b"");
    assert_eq!(ports[0].transmit(&mut frame_of(&to_all), 0), Forwarded::Flooded { copies: 1 });
    assert_eq!(ports[0].statistics().dropped(DropReason::NoRoom), 2);
    assert_eq!(received(&mut ports[1], 0).len(), 4);
    assert_eq!(received(&mut ports[2], 0), [to_all]);
    assert!(ports[0].room() > 0);
}

#[test]
fn room_comes_back_as_frames_are_taken_however_small_the_ring() {
    for ring_frames in [2, 4, 16] {
        let (_, mut ports) = switch_with(SwitchConfig { ring_frames, ..SwitchConfig::default() }, 2);
        for round in 0..3 {
            while ports[0].room() > 0 {
                ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0);
            }
            assert_eq!(received(&mut ports[1], 0).len(), ring_frames);
            assert!(ports[0].room() > 0, "{ring_frames} frames, round {round}");
        }
    }
}

#[test]
fn senders_take_turns() {
    let (_, mut ports) = switch_of(4);
    reaches(&mut ports, 0, &ethernet(mac(9), BROADCAST, b""), 0);
    for port in &mut ports[1..] {
        let sender = mac(port.index());
        for _ in 0..3 {
            port.transmit(&mut frame_of(&ethernet(sender, mac(9), b"")), 0);
        }
    }
    let senders: Vec<u8> = received(&mut ports[0], 0).iter().map(|frame| frame[11]).collect();
    assert_eq!(senders, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
}
