//! REGION_WRITE_MULTI.

use super::super::message::{Command, MultiWrite, RegionAccess};
use super::recorder::{BAR0_BYTES, Call};
use super::rig::{POSTED, Rig, assert_refused, message};
use rustix::io::Errno;
use zerocopy::IntoBytes;

fn entry(region: u32, offset: u64, count: u32, data: [u8; 8]) -> MultiWrite {
    MultiWrite { access: RegionAccess { offset, region, count }, data }
}

fn request(flags: u32, write_count: u64, entries: &[MultiWrite]) -> Vec<u8> {
    message(8, Command::REGION_WRITE_MULTI, flags, &[write_count.as_bytes(), entries.as_bytes()].concat())
}

#[test]
fn two_hundred_writes_are_made_in_order_and_counted_in_the_budget() {
    let mut rig = Rig::negotiated();
    let entries: Vec<_> = (0..200u64).map(|at| entry(0, at * 8, 8, at.to_ne_bytes())).collect();
    rig.send(&request(POSTED, 200, &entries));
    assert_eq!(rig.server.on_readable(&mut rig.device, 1).unwrap().served, 200);
    assert_eq!(rig.seen(), vec![]);
    let expected: Vec<_> =
        (0..200u64).map(|at| Call::Write { region: 0, offset: at * 8, data: at.to_ne_bytes().to_vec() }).collect();
    assert_eq!(rig.device.take(), expected);
    assert_eq!(rig.succeed(&request(0, 200, &entries)), 200u64.as_bytes());
}

#[test]
fn only_count_bytes_of_an_entry_are_written() {
    let mut rig = Rig::negotiated();
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    rig.succeed(&request(0, 3, &[entry(0, 0, 1, data), entry(7, 4, 2, data), entry(0, 8, 4, data)]));
    let lengths: Vec<usize> = rig
        .device
        .take()
        .iter()
        .map(|call| match call {
            Call::Write { data: written, .. } => {
                assert!(data.starts_with(written));
                written.len()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [1, 2, 4]);
}

#[test]
fn a_refused_entry_is_left_out_and_answered_once() {
    let mut rig = Rig::negotiated();
    for bad in [
        entry(0, 0, 0, [0; 8]),
        entry(0, 0, 9, [0; 8]),
        entry(0, 0, u32::MAX, [0; 8]),
        entry(0, BAR0_BYTES, 8, [0; 8]),
        entry(12, 0, 8, [0; 8]),
    ] {
        let entries = [entry(0, 0, 8, [1; 8]), bad, entry(0, 16, 8, [3; 8])];
        assert_refused(&rig.ask(&request(0, 3, &entries)), Errno::INVAL);
        assert_eq!(rig.device.take().len(), 2);
        rig.post(&request(POSTED, 3, &entries));
        assert_eq!(rig.device.take().len(), 2);
    }
}

#[test]
fn a_count_that_is_not_that_of_the_body_is_refused() {
    let mut rig = Rig::negotiated();
    let one = [entry(0, 0, 8, [0; 8])];
    // The last two wrap to the right product, and to 0.
    for count in [0, 2, u64::MAX, (1 << 61) + 1, 1 << 61, u64::MAX / 24 + 1] {
        rig.refuse(&request(0, count, &one), Errno::INVAL);
    }
    rig.refuse(&request(0, 1 << 61, &[]), Errno::INVAL);
    for length in [0, 7, 9, 8 + 23, 8 + 25] {
        rig.refuse(&message(8, Command::REGION_WRITE_MULTI, 0, &vec![0x11; length]), Errno::INVAL);
    }
    assert_eq!(rig.succeed(&request(0, 0, &[])), 0u64.as_bytes());
}
