//! REGION_READ and REGION_WRITE.

use super::super::message::{Command, HEADER_BYTES, MAX_DATA_BYTES, RegionAccess, header_flags};
use super::recorder::{BAR0_BYTES, BAR2_BYTES, Call, READ_ONLY_BAR};
use super::rig::{POSTED, Rig, assert_refused, message};
use rustix::io::Errno;
use zerocopy::IntoBytes;

fn read(region: u32, offset: u64, count: u32) -> Vec<u8> {
    message(5, Command::REGION_READ, 0, RegionAccess { offset, region, count }.as_bytes())
}

fn write(flags: u32, region: u32, offset: u64, data: &[u8]) -> Vec<u8> {
    let access = RegionAccess { offset, region, count: data.len() as u32 };
    message(6, Command::REGION_WRITE, flags, &[access.as_bytes(), data].concat())
}

#[test]
fn a_read_is_answered_with_what_it_asked_and_the_data() {
    let mut rig = Rig::negotiated();
    for (region, offset, count) in [(0, 8, 1), (0, 16, 8), (7, 0, 4096), (2, BAR2_BYTES - 4, 4)] {
        let body = rig.succeed(&read(region, offset, count));
        assert_eq!(&body[..16], RegionAccess { offset, region, count }.as_bytes());
        let expected: Vec<u8> = (0..count).map(|at| 0x40u8.wrapping_add(offset as u8).wrapping_add(at as u8)).collect();
        assert_eq!(&body[16..], expected);
        assert_eq!(rig.device.take(), vec![Call::Read { region, offset, length: count as usize }]);
    }
}

#[test]
fn a_write_is_answered_with_what_it_asked_and_a_posted_one_with_nothing() {
    let mut rig = Rig::negotiated();
    let expected = vec![Call::Write { region: 0, offset: 24, data: vec![1, 2, 3, 4] }];
    let body = rig.succeed(&write(0, 0, 24, &[1, 2, 3, 4]));
    assert_eq!(body, RegionAccess { offset: 24, region: 0, count: 4 }.as_bytes());
    assert_eq!(rig.device.take(), expected);
    rig.post(&write(POSTED, 0, 24, &[1, 2, 3, 4]));
    assert_eq!(rig.device.take(), expected);
}

#[test]
fn the_largest_accesses_pass() {
    let mut rig = Rig::negotiated();
    let count = MAX_DATA_BYTES as u32;
    rig.send(&read(2, 0, count));
    let mut body = vec![];
    // The socket holds less than the reply: it leaves in parts, as the client reads.
    rig.pump().unwrap();
    while body.is_empty() {
        assert!(rig.server.wants_write());
        let seen = rig.seen();
        rig.server.on_writable(&mut rig.device).unwrap();
        if let Some(reply) = seen.into_iter().next() {
            body = reply.body;
        } else if !rig.server.wants_write() {
            body = rig.seen().remove(0).body;
        }
    }
    assert_eq!(body.len(), MAX_DATA_BYTES + 16);
    assert_eq!(&body[16..20], &[0x40, 0x41, 0x42, 0x43]);
    rig.device.take();

    let data: Vec<u8> = (0..MAX_DATA_BYTES).map(|at| at as u8).collect();
    for part in write(0, 2, 0, &data).chunks(64 << 10) {
        rig.send(part);
        rig.pump().unwrap();
    }
    assert_eq!(rig.seen()[0].header.error, 0);
    assert_eq!(rig.device.take(), vec![Call::Write { region: 2, offset: 0, data }]);
    rig.still_in_step();
}

#[test]
fn accesses_outside_a_region_are_refused() {
    let mut rig = Rig::negotiated();
    let accesses = [
        (9, 0, 4),
        (u32::MAX, 0, 4),
        (1, 0, 4),
        (6, 0, 4),
        (8, 0, 1),
        (0, BAR0_BYTES, 1),
        (0, BAR0_BYTES - 3, 4),
        (0, u64::MAX, 1),
        (0, u64::MAX - 3, 8),
        (0, 0, 0),
    ];
    for (region, offset, count) in accesses {
        rig.refuse(&read(region, offset, count), Errno::INVAL);
        rig.refuse(&write(0, region, offset, &vec![0; count as usize]), Errno::INVAL);
    }
    rig.refuse(&read(0, 0, BAR0_BYTES as u32 + 1), Errno::INVAL);
    rig.refuse(&write(0, READ_ONLY_BAR, 0, &[0; 4]), Errno::INVAL);
    rig.succeed(&read(READ_ONLY_BAR, 0, 4));
}

#[test]
fn huge_counts_are_refused_and_cost_no_memory() {
    let mut rig = Rig::negotiated();
    let before = rig.server.memory_bytes();
    rig.device.regions[2].region_info.size = u64::MAX;
    for count in [MAX_DATA_BYTES as u32 + 1, 1 << 31, u32::MAX] {
        rig.refuse(&read(2, 0, count), Errno::INVAL);
        let access = RegionAccess { offset: 0, region: 2, count };
        rig.refuse(&message(6, Command::REGION_WRITE, 0, &[access.as_bytes(), &[0; 8]].concat()), Errno::INVAL);
    }
    assert!(rig.server.memory_bytes() <= before + 4096);
}

#[test]
fn a_body_of_another_length_is_refused() {
    let mut rig = Rig::negotiated();
    let access = RegionAccess { offset: 0, region: 0, count: 8 };
    for length in [0, 1, 7, 9, 16] {
        let body = [access.as_bytes(), &vec![0; length][..]].concat();
        rig.refuse(&message(6, Command::REGION_WRITE, 0, &body), Errno::INVAL);
        if length > 0 {
            rig.refuse(&message(5, Command::REGION_READ, 0, &body), Errno::INVAL);
        }
    }
    for length in [0, 15] {
        rig.refuse(&message(5, Command::REGION_READ, 0, &access.as_bytes()[..length]), Errno::INVAL);
        rig.refuse(&message(6, Command::REGION_WRITE, 0, &access.as_bytes()[..length]), Errno::INVAL);
    }
}

#[test]
fn a_posted_read_is_not_made() {
    let mut rig = Rig::negotiated();
    let mut posted = read(0, 0, 4);
    posted[8] |= header_flags::NO_REPLY as u8;
    rig.post(&posted);
    assert_eq!(rig.device.take(), vec![]);
    rig.still_in_step();
}

#[test]
fn the_devices_own_refusal_is_passed_on_but_not_to_a_posted_write() {
    let mut rig = Rig::negotiated();
    rig.device.fails_with = Some(Errno::PERM);
    assert_refused(&rig.ask(&write(0, 0, 0, &[1])), Errno::PERM);
    assert_refused(&rig.ask(&read(0, 0, 4)), Errno::PERM);
    rig.post(&write(POSTED, 0, 0, &[1]));
}

#[test]
fn a_thousand_coalesced_posted_writes_cost_one_read_and_no_memory() {
    let mut rig = Rig::negotiated();
    let writes: Vec<u8> = (0..1000u64).flat_map(|at| write(POSTED, 2, at * 8, &at.to_ne_bytes())).collect();
    assert_eq!(writes.len(), 1000 * (HEADER_BYTES + 24));
    let before = rig.server.memory_bytes();
    rig.send(&writes);
    let progress = rig.server.on_readable(&mut rig.device, u32::MAX).unwrap();
    assert_eq!((progress.served, progress.more), (1000, false));
    assert_eq!(rig.server.memory_bytes(), before);
    let calls = rig.device.take();
    assert!(calls.iter().enumerate().all(|(at, call)| {
        *call == Call::Write { region: 2, offset: at as u64 * 8, data: (at as u64).to_ne_bytes().to_vec() }
    }));
}

#[test]
fn the_budget_is_kept_and_what_is_left_is_told() {
    let mut rig = Rig::negotiated();
    for _ in 0..10 {
        rig.send(&write(POSTED, 0, 0, &[1]));
    }
    let mut served = vec![];
    loop {
        let progress = rig.server.on_readable(&mut rig.device, 4).unwrap();
        served.push(progress.served);
        assert_eq!(progress.more, rig.server.has_work());
        if !progress.more {
            break;
        }
    }
    assert_eq!(served, [4, 4, 2]);
}
