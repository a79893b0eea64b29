//! What impairments do, how often, and that they do the same again.

use super::*;
use crate::{Displacement, DropReason, Impairment, Marking, Probability, RateLimit, Reorder};

const FRAMES: u32 = 20_000;

fn share(fraction: f64) -> Probability {
    Probability::from_fraction(fraction).unwrap()
}

/// Sends numbered frames, one a microsecond, and says which numbers arrive in which order, with their times.
fn numbers(impairment: Impairment, frames: u32) -> (Vec<(u64, u32)>, crate::PortStatistics) {
    let (_, mut ports) = switch_of(2);
    ports[1].set_impairment(impairment);
    let mut arrived = Vec::new();
    let mut frame = Frame::new();
    for number in 0..frames + 100 {
        let now_ns = u64::from(number) * 1_000;
        if number < frames {
            ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), &number.to_be_bytes())), now_ns);
        }
        while ports[1].receive(&mut frame, now_ns) {
            arrived.push((now_ns, u32::from_be_bytes(frame.bytes()[14..18].try_into().unwrap())));
        }
    }
    while let Some(due_ns) = ports[1].next_release_ns() {
        assert!(ports[1].receive(&mut frame, due_ns), "what is due comes");
        arrived.push((due_ns, u32::from_be_bytes(frame.bytes()[14..18].try_into().unwrap())));
    }
    (arrived, ports[1].statistics())
}

/// Five standard deviations around the mean of a binomial.
fn assert_share(count: u64, of: u32, fraction: f64) {
    let mean = f64::from(of) * fraction;
    let bound = 5.0 * (mean * (1.0 - fraction)).sqrt();
    assert!((count as f64 - mean).abs() <= bound, "{count} of {of}, expected {mean} within {bound}");
}

#[test]
fn loss_takes_its_share_and_counts_it() {
    let (arrived, statistics) = numbers(Impairment { seed: 4, loss: share(0.1), ..Impairment::default() }, FRAMES);
    let lost = statistics.dropped(DropReason::Loss);
    assert_share(lost, FRAMES, 0.1);
    assert_eq!(arrived.len() as u64 + lost, u64::from(FRAMES));
    assert!(arrived.is_sorted());
}

#[test]
fn duplicates_come_beside_their_originals() {
    let (arrived, statistics) =
        numbers(Impairment { seed: 4, duplication: share(0.2), ..Impairment::default() }, FRAMES);
    assert_share(statistics.duplicated_frames, FRAMES, 0.2);
    assert_eq!(arrived.len() as u64, u64::from(FRAMES) + statistics.duplicated_frames);
    let mut distinct = arrived.clone();
    distinct.dedup();
    assert_eq!(distinct.len() as u32, FRAMES);
    assert!(arrived.is_sorted());
}

#[test]
fn delay_is_the_same_for_all() {
    let (arrived, _) = numbers(Impairment { delay_ns: 5_000, ..Impairment::default() }, 1_000);
    let expected: Vec<(u64, u32)> = (0..1_000).map(|number| (u64::from(number) * 1_000 + 5_000, number)).collect();
    assert_eq!(arrived, expected);
}

#[test]
fn reordering_by_frames_lets_so_many_pass() {
    let by = Displacement::Frames { count: 3, timeout_ns: 1_000_000 };
    let reorder = Some(Reorder { probability: share(0.05), by });
    let (arrived, statistics) = numbers(Impairment { seed: 8, reorder, ..Impairment::default() }, FRAMES);
    assert_share(statistics.reordered_frames, FRAMES, 0.05);
    let mut all: Vec<u32> = arrived.iter().map(|&(_, number)| number).collect();
    let late = all.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(late > 0);
    for (place, &number) in all.iter().enumerate() {
        let passed = all[..place].iter().rev().take(100).filter(|&&earlier| earlier > number).count();
        // Others that are held back in between pass as well, or are passed.
        assert!(passed <= 3 + 3, "{number} was passed by {passed}");
    }
    all.sort_unstable();
    assert_eq!(all, (0..FRAMES).collect::<Vec<_>>(), "nothing is lost or doubled");
}

#[test]
fn a_frame_held_back_is_not_held_for_ever() {
    let by = Displacement::Frames { count: 3, timeout_ns: 7_000 };
    let reorder = Some(Reorder { probability: Probability::ALWAYS, by });
    let (arrived, _) = numbers(Impairment { reorder, ..Impairment::default() }, 1);
    assert_eq!(arrived, [(7_000, 0)]);
}

#[test]
fn reordering_by_time_delays_some() {
    let reorder = Some(Reorder { probability: share(0.1), by: Displacement::Time { delay_ns: 2_500 } });
    let (arrived, statistics) = numbers(Impairment { seed: 2, reorder, ..Impairment::default() }, FRAMES);
    let late = arrived.iter().filter(|&&(arrived_ns, number)| arrived_ns == u64::from(number) * 1_000 + 3_000).count();
    assert_eq!(late as u64, statistics.reordered_frames);
    assert_share(late as u64, FRAMES, 0.1);
}

#[test]
fn a_corrupted_packet_fails_its_icrc_or_another_check_unless_the_field_is_masked() {
    let (_, mut ports) = switch_of(2);
    ports[1].set_impairment(Impairment { seed: 6, corruption: Probability::ALWAYS, ..Impairment::default() });
    let mut sent = roce(Opcode::RC_SEND_ONLY, 1, &[0x5a; 256]);
    sent.seal();
    let sent = sent.bytes().to_vec();
    for psn in 0..200 {
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, psn, &[0x5a; 256]), 0);
    }
    let frames = received(&mut ports[1], 0);
    assert_eq!(frames.len(), 200);
    let mut refused = 0;
    for (psn, frame) in frames.iter().enumerate() {
        let mut original = roce(Opcode::RC_SEND_ONLY, psn as u32, &[0x5a; 256]);
        original.seal();
        let flipped: u32 = frame.iter().zip(original.bytes()).map(|(one, other)| (one ^ other).count_ones()).sum();
        assert_eq!((flipped, frame.len()), (1, sent.len()));
        refused += usize::from(rnic_wire::parse(frame, rnic_wire::IcrcCheck::Verify).is_err());
    }
    // 4 of about 300 bytes are covered by no check: the UDP checksum, half of the identification… and BTH byte 4.
    assert!(refused >= 190, "{refused} of 200 were noticed");
    assert_eq!(ports[1].statistics().corrupted_frames, 200);
}

#[test]
fn a_full_hold_fills_the_ring_and_loses_nothing() {
    let config = SwitchConfig { ring_frames: 4, ..SwitchConfig::default() };
    let (_, mut ports) = switch_with(config, 2);
    ports[1].set_impairment(Impairment { delay_ns: 1_000, held_frames_max: 8, ..Impairment::default() });
    let mut frame = Frame::new();
    let mut sent = 0u32;
    for now_ns in 0..100 {
        while ports[0].room() > 0 {
            ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), &sent.to_be_bytes())), now_ns);
            sent += 1;
        }
        assert!(!ports[1].receive(&mut frame, now_ns));
    }
    assert_eq!((sent, ports[1].held_frames()), (12, 8));
    assert!(ports[1].before_sleep(), "there is nothing to do before the first release");
    let mut got = Vec::new();
    while let Some(due_ns) = ports[1].next_release_ns() {
        while ports[1].receive(&mut frame, due_ns) {
            got.push(u32::from_be_bytes(frame.bytes()[14..18].try_into().unwrap()));
        }
    }
    assert_eq!(got, (0..12).collect::<Vec<_>>());
}

#[test]
fn switched_off_again_it_lets_go_of_what_it_holds_first() {
    let (_, mut ports) = switch_of(2);
    ports[1].set_impairment(Impairment { delay_ns: 1_000, ..Impairment::default() });
    let [first, second] = [b"1", b"2"].map(|payload| ethernet(mac(1), mac(2), payload));
    ports[0].transmit(&mut frame_of(&first), 0);
    assert_eq!(received(&mut ports[1], 0).len(), 0);
    ports[1].set_impairment(Impairment::default());
    ports[0].transmit(&mut frame_of(&second), 10);
    assert_eq!(received(&mut ports[1], 10), std::slice::from_ref(&second));
    assert_eq!(received(&mut ports[1], 1_000), [first]);
    ports[0].transmit(&mut frame_of(&second), 2_000);
    assert_eq!((received(&mut ports[1], 2_000), ports[1].held_frames()), (vec![second], 0));
}

/// A little of everything, three ports, one thread, virtual time: all frames that arrive, with place and time.
fn a_bad_day(seed: u64) -> Vec<u8> {
    let (switch, mut ports) = switch_of(3);
    let marking = Marking { threshold_min_bytes: 500, threshold_max_bytes: 5_000, probability_max: share(0.5) };
    for (port, seed) in ports.iter_mut().zip(seed..) {
        port.set_impairment(Impairment {
            seed,
            loss: share(0.05),
            duplication: share(0.05),
            corruption: share(0.05),
            reorder: Some(Reorder {
                probability: share(0.1),
                by: Displacement::Frames { count: 2, timeout_ns: 9_000 },
            }),
            delay_ns: 1_500,
            rate_limit: Some(RateLimit { bits_per_second: 1_000_000_000, queue_bytes: 8_000, marking: Some(marking) }),
            held_frames_max: 64,
        });
    }
    let mut day = Vec::new();
    let mut frame = Frame::new();
    for step in 0..3_000u32 {
        let now_ns = u64::from(step) * 700;
        if ports[0].room() > 0 && step < 2_000 {
            ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, step, &step.to_be_bytes()), now_ns);
        }
        if ports[1].room() > 0 && step < 2_000 {
            ports[1].transmit(&mut frame_of(&ethernet(mac(2), mac(1), &step.to_be_bytes())), now_ns);
        }
        for (place, port) in ports.iter_mut().enumerate() {
            while port.receive(&mut frame, now_ns) {
                frame.seal();
                day.extend_from_slice(&now_ns.to_be_bytes());
                day.push(place as u8);
                day.extend_from_slice(frame.bytes());
            }
        }
    }
    for (name, statistics) in switch.statistics() {
        day.extend(format!("{name} {statistics:?}").into_bytes());
    }
    day
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let day = a_bad_day(1);
    assert!(day.len() > 100_000, "{} bytes arrived", day.len());
    assert!(day == a_bad_day(1));
    assert!(day != a_bad_day(2));
}
