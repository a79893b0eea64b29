//! Ports that join and leave at run time.

use super::*;
use crate::{DropReason, Forwarded, PORTS_MAX, PortError};

#[test]
fn ports_have_names_and_a_limit() {
    let (switch, mut ports) = switch_of(PORTS_MAX);
    assert_eq!(switch.port("p3", Arc::new(NeverSleeps)).err(), Some(PortError::NameTaken { name: "p3".into() }));
    let refused = switch.port("one more", Arc::new(NeverSleeps)).err();
    assert_eq!(refused, Some(PortError::TooMany { name: "one more".into(), max: PORTS_MAX }));
    let reached = reaches(&mut ports, 63, &ethernet(mac(1), BROADCAST, b"x"), 0);
    assert_eq!(reached, (0..63).collect::<Vec<_>>());
    drop(ports.remove(5));
    assert_eq!(switch.port("p3b", Arc::new(NeverSleeps)).unwrap().index(), 5, "a free place is used again");
}

#[test]
fn a_port_that_joins_hears_and_is_heard() {
    let (switch, mut ports) = switch_of(2);
    reaches(&mut ports, 0, &ethernet(mac(1), BROADCAST, b""), 0);
    ports.push(switch.port("late", Arc::new(NeverSleeps)).unwrap());
    assert_eq!(reaches(&mut ports, 2, &ethernet(mac(3), mac(1), b""), 0), [0]);
    assert_eq!(reaches(&mut ports, 0, &ethernet(mac(1), BROADCAST, b""), 0), [1, 2]);
    assert_eq!(reaches(&mut ports, 1, &ethernet(mac(2), mac(3), b""), 0), [2]);
}

#[test]
fn frames_to_a_port_that_leaves_are_dropped_and_counted_by_their_sender() {
    let (switch, mut ports) = switch_of(3);
    reaches(&mut ports, 2, &ethernet(mac(3), BROADCAST, b""), 0);
    let to_it = ethernet(mac(1), mac(3), b"");
    ports[0].transmit(&mut frame_of(&to_it), 0);
    ports[0].transmit(&mut frame_of(&to_it), 0);
    drop(ports.pop());
    assert_eq!(reaches(&mut ports, 0, &to_it, 0), [1], "what was behind it is unknown again");
    assert_eq!(ports[0].statistics().dropped(DropReason::PortLeft), 2);
    assert_eq!(switch.learned_addresses(), (1, 0));
    assert_eq!(switch.statistics().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["p0", "p1"]);
}

#[test]
fn frames_from_a_port_that_leaves_are_still_delivered() {
    let (switch, mut ports) = switch_of(2);
    let frame = ethernet(mac(2), BROADCAST, b"last words");
    ports[1].transmit(&mut frame_of(&frame), 0);
    drop(ports.pop());
    let again = switch.port("p1", Arc::new(NeverSleeps)).unwrap();
    assert_eq!(again.index(), 1);
    assert_eq!(received(&mut ports[0], 0), [frame]);
}

#[test]
fn whoever_leaves_last_counts_what_was_never_taken() {
    let (_, mut ports) = switch_of(2);
    let mut second = ports.pop().unwrap();
    let first = ports.pop().unwrap();
    let counts = (first.statistics_reader(), second.statistics_reader());
    second.transmit(&mut frame_of(&ethernet(mac(2), BROADCAST, b"")), 0);
    drop(second);
    drop(first);
    assert_eq!(counts.0.read().dropped(DropReason::PortLeft) + counts.1.read().dropped(DropReason::PortLeft), 1);
}

#[test]
fn a_switch_lives_as_long_as_its_ports() {
    let (switch, mut ports) = switch_of(2);
    drop(switch);
    assert_eq!(reaches(&mut ports, 0, &ethernet(mac(1), mac(2), b""), 0), [1]);
    let outcome = {
        drop(ports.pop());
        ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0)
    };
    assert_eq!(outcome, Forwarded::Dropped(DropReason::NoOtherPort));
}
