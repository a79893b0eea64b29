//! Arbitrary bytes of a server: memory and replies are what a second, simpler reading of the stream says.

use super::connection::Connection;
use crate::memory::MappedMemory;
use crate::properties;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const IOVA: u64 = 0x1_0000_0000;
const MEMORY_BYTES: usize = 1024;

/// What memory and replies must be: cut at the sizes, DMA requests that are whole and inside done, others refused.
fn simple_reading(mut stream: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut memory, mut replies) = (vec![0u8; MEMORY_BYTES], Vec::new());
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    while stream.len() >= 16 {
        let size = word(stream, 4) as usize;
        if size < 16 || size > stream.len() || word(stream, 8) & 0xf == 1 {
            break;
        }
        let (message, rest) = stream.split_at(size);
        stream = rest;
        let (command, no_reply, body) = (word(message, 0) >> 16, word(message, 8) & 0x10 != 0, &message[16..]);
        let range = |count: u64| {
            let start = usize::try_from(long(body, 0).checked_sub(IOVA)?).ok()?;
            let end = start.checked_add(usize::try_from(count).ok()?)?;
            (count == 0 || end <= MEMORY_BYTES).then_some(if count == 0 { 0..0 } else { start..end })
        };
        let mut answer = None;
        if body.len() >= 16 {
            let count = long(body, 8);
            let zero = count == 0;
            match command {
                11 if body.len() == 16 && (zero || range(count).is_some()) => {
                    answer = Some([body, &memory[range(count).unwrap_or(0..0)]].concat());
                }
                12 if count == body.len() as u64 - 16 && (zero || range(count).is_some()) => {
                    memory[range(count).unwrap_or(0..0)].copy_from_slice(&body[16..]);
                    answer = Some(body[..16].to_vec());
                }
                _ => {}
            }
        }
        if !no_reply {
            // The errno is not compared: its place is zeroed on both sides.
            let flags: u32 = if answer.is_some() { 1 } else { 0x21 };
            let body = answer.unwrap_or_default();
            replies.extend_from_slice(&message[..4]);
            for field in [16 + body.len() as u32, flags, 0] {
                replies.extend_from_slice(&field.to_ne_bytes());
            }
            replies.extend_from_slice(&body);
        }
    }
    (memory, replies)
}

/// Zeroes the errnos of a stream of replies; each error must have one.
fn without_errnos(mut replies: Vec<u8>) -> Result<Vec<u8>, TestCaseError> {
    let mut at = 0;
    while at + 16 <= replies.len() {
        let word = |at: usize| u32::from_ne_bytes(replies[at..at + 4].try_into().unwrap());
        let (size, flags, errno) = (word(at + 4) as usize, word(at + 8), word(at + 12));
        prop_assert_eq!(flags & 0x20 != 0, errno != 0);
        replies[at + 12..at + 16].fill(0);
        at += size;
    }
    Ok(replies)
}

/// The bytes a memory of its own and a connection see.
fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let bytes = &bytes[..bytes.len().min(1024)];
    let file = rustix::fs::memfd_create("rnic-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, MEMORY_BYTES as u64).unwrap();
    let memory = MappedMemory::new(IOVA, crate::memory::Mapping::of_file(&file, 0, MEMORY_BYTES).unwrap());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let mut connection = Connection::new(ours, Duration::from_secs(5)).unwrap();
    prop_assert!(connection.serve_pending(&memory).is_err(), "the end of the stream is an error");
    drop(connection);
    let mut replies = Vec::new();
    // A connection closed with unread bytes resets the peer's end behind the replies.
    let _ = theirs.read_to_end(&mut replies);
    let mut found = vec![0; MEMORY_BYTES];
    memory.copy_out(IOVA, &mut found).unwrap();
    let (expected_memory, expected_replies) = simple_reading(bytes);
    prop_assert!(found == expected_memory, "memory differs");
    prop_assert_eq!(without_errnos(replies)?, expected_replies);
    Ok(())
}

/// Messages that are mostly DMA requests, mostly well-formed.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![4 => IOVA..IOVA + MEMORY_BYTES as u64, 1 => any::<u64>()];
    let count = prop_oneof![2 => 0..64u64, 1 => any::<u64>()];
    let flags = prop_oneof![4 => Just(0u32), 1 => Just(0x10), 1 => any::<u32>()];
    let command = prop_oneof![4 => 11..=12u16, 1 => any::<u16>()];
    let size_error = prop_oneof![8 => Just(0i32), 1 => -40..40i32];
    let data = proptest::collection::vec(any::<u8>(), 0..64);
    let message = (command, flags, address, count, any::<bool>(), data, size_error);
    let message = message.prop_map(|(command, flags, address, count, fits, data, size_error)| {
        let count = if fits && command == 12 { data.len() as u64 } else { count };
        let data = if command == 11 && fits { &[][..] } else { &data };
        let size = (32 + data.len() as i32 + size_error) as u32;
        let mut bytes = vec![7, 0];
        bytes.extend_from_slice(&command.to_ne_bytes());
        [size, flags, 0].iter().for_each(|field| bytes.extend_from_slice(&field.to_ne_bytes()));
        [address, count].iter().for_each(|field| bytes.extend_from_slice(&field.to_ne_bytes()));
        bytes.extend_from_slice(data);
        bytes
    });
    let structured = proptest::collection::vec(message, 0..10).prop_map(|messages| messages.concat());
    prop_oneof![4 => structured, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

#[test]
fn a_server_s_bytes_do_what_a_simple_reading_says() {
    properties::run("server_stream", &streams(), body);
}

#[test]
fn the_planted_bug_is_found() {
    properties::finds("dma-write-ignores-its-count", &streams(), body);
}
