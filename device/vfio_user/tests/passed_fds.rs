//! Descriptors reach the message they came with, however the stream is cut.

use super::super::message::{Command, DmaMap, RegionAccess};
use super::recorder::Call;
use super::rig::{POSTED, Rig, message};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use zerocopy::IntoBytes;

fn map(iova: u64) -> Vec<u8> {
    let map = DmaMap { argsz: 32, flags: 3, offset: 0, address: iova, size: 0x1000 };
    message(iova as u16, Command::DMA_MAP, 0, map.as_bytes())
}

fn write() -> Vec<u8> {
    let access = RegionAccess { offset: 0, region: 0, count: 8 };
    message(0, Command::REGION_WRITE, POSTED, &[access.as_bytes(), &[0; 8]].concat())
}

/// Which maps came with a descriptor.
fn maps(rig: &mut Rig) -> Vec<(u64, bool)> {
    rig.device
        .take()
        .iter()
        .filter_map(|call| match call {
            Call::Map { iova, file_offset, .. } => Some((*iova, file_offset.is_some())),
            _ => None,
        })
        .collect()
}

#[test]
fn separate_messages_read_at_once_keep_their_own() {
    let mut rig = Rig::negotiated();
    let files: Vec<File> = (0..4).map(|_| tempfile::tempfile().unwrap()).collect();
    rig.send(&map(1));
    rig.send_fds(&map(2), &[files[2].as_fd()]);
    rig.send(&write());
    rig.send(&map(3));
    rig.send_fds(&map(4), &[files[3].as_fd()]);
    rig.send_fds(&map(5), &[files[1].as_fd()]);
    rig.send(&map(6));
    rig.pump().unwrap();
    assert_eq!(maps(&mut rig), [(1, false), (2, true), (3, false), (4, true), (5, true), (6, false)]);
    let inodes = |files: &mut dyn Iterator<Item = File>| files.map(|f| f.metadata().unwrap().ino()).collect::<Vec<_>>();
    let arrived = inodes(&mut rig.device.files.drain(..).map(File::from));
    let sent = inodes(&mut [2, 3, 1].iter().map(|&at| files[at as usize].try_clone().unwrap()));
    assert_eq!(arrived, sent);
    assert_eq!(rig.seen().len(), 6);
}

#[test]
fn a_split_message_keeps_what_came_with_either_part() {
    let file = tempfile::tempfile().unwrap();
    for cut in 1..map(1).len() {
        for with_first in [true, false] {
            let mut rig = Rig::negotiated();
            let bytes = map(1);
            let fds = [file.as_fd()];
            rig.send(&write());
            rig.send_fds(&bytes[..cut], if with_first { &fds } else { &[] });
            rig.pump().unwrap();
            rig.send_fds(&bytes[cut..], if with_first { &[] } else { &fds });
            rig.send(&map(2));
            rig.pump().unwrap();
            assert_eq!(maps(&mut rig), [(1, true), (2, false)], "cut at {cut}, with the first part: {with_first}");
            assert_eq!(rig.server.held_fds(), 0);
        }
    }
}

#[test]
fn one_packet_of_several_messages_gives_them_to_the_one_that_takes_some() {
    let file = tempfile::tempfile().unwrap();
    let mut rig = Rig::negotiated();
    rig.send_fds(&[write(), map(1), write(), write()].concat(), &[file.as_fd()]);
    rig.pump().unwrap();
    assert_eq!(maps(&mut rig), [(1, true)]);
}

#[test]
fn descriptors_that_nobody_takes_are_closed() {
    let mut rig = Rig::negotiated();
    let (reader, writer) = std::io::pipe().unwrap();
    rig.send_fds(&write(), &[writer.as_fd(); 16]);
    rig.send_fds(&write(), &[writer.as_fd(); 17]);
    rig.send_fds(&message(3, Command(0x99), 0, &[]), &[writer.as_fd()]);
    rig.send_fds(&map(1), &[writer.as_fd(); 3]);
    // Every byte with its own descriptors: still no more than one message may bring are held.
    for byte in &map(2)[..40] {
        rig.send_fds(&[*byte], &[writer.as_fd(); 16]);
        rig.pump().unwrap();
        assert!(rig.server.held_fds() <= 16);
    }
    rig.send(&map(2)[40..]);
    rig.pump().unwrap();
    assert_eq!(rig.server.held_fds(), 0);
    assert_eq!(maps(&mut rig), []);
    assert_eq!(rig.seen().len(), 3);
    drop(writer);
    // The last writer is gone, so the pipe is at its end: nothing was kept.
    assert_eq!(std::io::Read::read(&mut &reader, &mut [0; 1]).unwrap(), 0);
}

#[test]
fn descriptors_of_a_connection_that_ends_are_closed() {
    let mut rig = Rig::negotiated();
    let (reader, writer) = std::io::pipe().unwrap();
    rig.send_fds(&map(1)[..20], &[writer.as_fd()]);
    rig.pump().unwrap();
    assert_eq!(rig.server.held_fds(), 1);
    rig.server.shutdown(&mut rig.device);
    drop(writer);
    assert_eq!(std::io::Read::read(&mut &reader, &mut [0; 1]).unwrap(), 0);
}
