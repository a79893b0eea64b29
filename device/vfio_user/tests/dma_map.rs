//! DMA_MAP.

use super::super::message::{Command, DmaMap};
use super::recorder::Call;
use super::rig::{Rig, assert_refused, message};
use rustix::io::Errno;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use zerocopy::IntoBytes;

const GOOD: DmaMap = DmaMap { argsz: 32, flags: 3, offset: 0x2000, address: 0x10_0000, size: 0x8000 };

fn request(map: DmaMap) -> Vec<u8> {
    message(11, Command::DMA_MAP, 0, map.as_bytes())
}

#[test]
fn with_a_descriptor_and_without() {
    let mut rig = Rig::negotiated();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"guest RAM").unwrap();
    let reply = rig.ask_fds(&request(GOOD), &[file.as_fd()]);
    assert_eq!((reply.header.flags, reply.header.size_bytes), (1, 16));
    let rom = DmaMap { flags: 1, address: 0xfffc_0000, size: 0x4_0000, offset: 0, ..GOOD };
    assert!(rig.succeed(&request(rom)).is_empty());
    let expected = vec![
        Call::Map { iova: 0x10_0000, size_bytes: 0x8000, permissions: 3, file_offset: Some(0x2000) },
        Call::Map { iova: 0xfffc_0000, size_bytes: 0x4_0000, permissions: 1, file_offset: None },
    ];
    assert_eq!(rig.device.take(), expected);
    let mut arrived = std::fs::File::from(rig.device.files.remove(0));
    assert!(rustix::io::fcntl_getfd(&arrived).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    let mut text = String::new();
    arrived.rewind().unwrap();
    arrived.read_to_string(&mut text).unwrap();
    assert_eq!(text, "guest RAM");
}

#[test]
fn ranges_up_to_the_very_end_pass_and_wrapping_ones_do_not() {
    let mut rig = Rig::negotiated();
    for (address, size) in [(0, u64::MAX), (1, u64::MAX), (u64::MAX, 1), (1 << 63, 1 << 63)] {
        rig.succeed(&request(DmaMap { address, size, ..GOOD }));
    }
    for (address, size) in [(0, 0), (u64::MAX, 2), (2, u64::MAX), (1 << 63, (1 << 63) + 1)] {
        rig.refuse(&request(DmaMap { address, size, ..GOOD }), Errno::INVAL);
    }
}

#[test]
fn malformed_maps_are_refused() {
    let mut rig = Rig::negotiated();
    for flags in [0, 4, 7, 1 << 31 | 3] {
        rig.refuse(&request(DmaMap { flags, ..GOOD }), Errno::INVAL);
    }
    for argsz in [0, 31] {
        rig.refuse(&request(DmaMap { argsz, ..GOOD }), Errno::INVAL);
    }
    for length in [0, 1, 31, 33, 4096] {
        rig.refuse(&message(11, Command::DMA_MAP, 0, &vec![32; length]), Errno::INVAL);
    }
    let file = tempfile::tempfile().unwrap();
    for offset in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 0x7fff] {
        rig.refuse_fds(&request(DmaMap { offset, ..GOOD }), &[file.as_fd()], Errno::INVAL);
        // Without a file the offset means nothing.
        rig.succeed(&request(DmaMap { offset, ..GOOD }));
    }
    rig.refuse_fds(&request(GOOD), &[file.as_fd(); 2], Errno::INVAL);
    rig.refuse_fds(&request(GOOD), &[file.as_fd(); 17], Errno::INVAL);
    assert_eq!((rig.server.held_fds(), rig.device.files.len()), (0, 0));
}

#[test]
fn the_devices_own_refusal_has_an_errno_that_is_not_zero() {
    let mut rig = Rig::negotiated();
    for errno in [Errno::EXIST, Errno::NOMEM] {
        rig.device.fails_with = Some(errno);
        assert_refused(&rig.ask(&request(GOOD)), errno);
    }
}
