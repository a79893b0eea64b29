//! Where messages begin and end: sizes, splits, coalescing, the end of the stream.

use super::super::connection::{CloseReason, Closed};
use super::super::message::{Command, Header, MAX_MESSAGE_BYTES};
use super::super::parser::{BadSize, INPUT_BUFFER_BYTES};
use super::recorder::Call;
use super::rig::{POSTED, Rig, message, qemu_version};
use zerocopy::IntoBytes;

fn header(size_bytes: u32) -> Header {
    Header { message_id: 77, command: Command::REGION_WRITE.0, size_bytes, flags: 0, error: 0 }
}

fn write(at: u64) -> Vec<u8> {
    let body = [0u64.as_bytes(), 0u32.as_bytes(), 8u32.as_bytes(), at.as_bytes()].concat();
    message(at as u16, Command::REGION_WRITE, POSTED, &body)
}

fn written(at: u64) -> Call {
    Call::Write { region: 0, offset: 0, data: at.to_ne_bytes().to_vec() }
}

#[test]
fn a_size_no_message_can_have_ends_the_connection_with_the_reason() {
    let cap = MAX_MESSAGE_BYTES as u32;
    for size_bytes in (0..16).chain([cap + 1, 1 << 31, u32::MAX]) {
        let mut rig = Rig::negotiated();
        // What came before is served.
        rig.send(&[&write(1)[..], header(size_bytes).as_bytes(), &[0; 64]].concat());
        let Err(Closed { reason }) = rig.pump() else { panic!("size {size_bytes} was taken") };
        let bad = BadSize { message_id: 77, command: 10, size_bytes };
        assert_eq!(reason, CloseReason::FramingLost(bad));
        assert!(reason.to_string().contains(&format!("{size_bytes} bytes")), "{reason}");
        assert_eq!(rig.device.take(), vec![written(1), Call::Disconnected]);
        // It stays closed, and the backend is told once.
        assert_eq!(rig.server.on_readable(&mut rig.device, 1), Err(Closed { reason }));
        assert_eq!(rig.server.on_writable(&mut rig.device), Err(Closed { reason }));
        rig.server.shutdown(&mut rig.device);
        assert_eq!(rig.device.take(), vec![]);
        assert!(!rig.server.has_work() && !rig.server.wants_read() && !rig.server.wants_write());
    }
}

#[test]
fn the_shortest_and_the_longest_size_are_taken() {
    let mut rig = Rig::negotiated();
    rig.send(header(MAX_MESSAGE_BYTES as u32).as_bytes());
    rig.pump().unwrap();
    let part = vec![0; 64 << 10];
    let mut left = MAX_MESSAGE_BYTES - 16;
    while left > 0 {
        let next = left.min(part.len());
        rig.send(&part[..next]);
        rig.pump().unwrap();
        left -= next;
    }
    assert_eq!(rig.seen().len(), 1);
    rig.still_in_step();
    // The memory that one large message took is given back.
    assert!(rig.server.memory_bytes() < INPUT_BUFFER_BYTES + (64 << 10), "{}", rig.server.memory_bytes());
}

#[test]
fn messages_split_at_every_byte_are_whole_again() {
    let stream = [qemu_version(), write(1), message(2, Command::DEVICE_RESET, 0, &[]), write(3)].concat();
    for cut in 0..=stream.len() {
        let mut rig = Rig::connected();
        for part in [&stream[..cut], &stream[cut..]] {
            if !part.is_empty() {
                rig.send(part);
            }
            rig.pump().unwrap();
        }
        let ids: Vec<u16> = rig.seen().iter().map(|reply| reply.header.message_id).collect();
        assert_eq!(ids, [0, 2], "cut at {cut}");
        assert_eq!(rig.device.take(), vec![written(1), Call::Reset, written(3)]);
    }
}

#[test]
fn one_byte_at_a_time() {
    let mut rig = Rig::connected();
    for byte in [qemu_version(), write(9)].concat() {
        rig.send(&[byte]);
        rig.pump().unwrap();
    }
    assert_eq!(rig.device.take(), vec![written(9)]);
}

#[test]
fn a_stream_larger_than_the_buffer_stays_in_order() {
    let mut rig = Rig::negotiated();
    let total = 4 * INPUT_BUFFER_BYTES / 40;
    let mut next = 0;
    // Parts that do not fit the messages, so that the end of the buffer falls inside one again and again.
    let stream: Vec<u8> = (0..total as u64).flat_map(write).collect();
    for part in stream.chunks(50_021) {
        rig.send(part);
        rig.pump().unwrap();
        for call in rig.device.take() {
            assert_eq!(call, written(next));
            next += 1;
        }
    }
    assert_eq!(next, total as u64);
}

#[test]
fn the_end_of_the_stream_is_told_from_an_end_inside_a_message() {
    for (bytes, reason) in [
        (vec![], CloseReason::ByClient),
        (write(1), CloseReason::ByClient),
        (write(1)[..39].to_vec(), CloseReason::InMessage),
    ] {
        let mut rig = Rig::negotiated();
        if !bytes.is_empty() {
            rig.send(&bytes);
        }
        rig.client.shutdown(std::net::Shutdown::Both).unwrap();
        // The first read may end with the bytes, before the end itself.
        assert_eq!(rig.pump().and_then(|()| rig.pump()), Err(Closed { reason }));
        assert_eq!(rig.device.take().last(), Some(&Call::Disconnected));
    }
}

#[test]
fn a_client_that_is_gone_when_it_is_answered_is_noticed() {
    let mut rig = Rig::negotiated();
    rig.send(&message(1, Command::DEVICE_RESET, 0, &[]));
    drop(std::mem::replace(&mut rig.client, std::os::unix::net::UnixStream::pair().unwrap().0));
    assert!(matches!(rig.pump(), Err(Closed { reason: CloseReason::Send(_) | CloseReason::Receive(_) })));
    assert_eq!(rig.device.take(), vec![Call::Reset, Call::Disconnected]);
}

#[test]
fn shutdown_on_this_side_ends_the_clients_stream() {
    let mut rig = Rig::negotiated();
    rig.server.shutdown(&mut rig.device);
    assert_eq!(rig.device.take(), vec![Call::Disconnected]);
    assert_eq!(std::io::Read::read(&mut rig.client, &mut [0; 1]).unwrap(), 0);
    assert_eq!(rig.pump(), Err(Closed { reason: CloseReason::Shutdown }));
}
