//! DMA_READ and DMA_WRITE, which this side asks and the client answers.

use super::super::connection::CloseReason;
use super::super::dma_message::{DmaRefusal, MAX_DMA_BYTES, MAX_IN_FLIGHT};
use super::super::message::{Command, DmaAccess, DmaUnmap, header_flags};
use super::recorder::Call;
use super::rig::{Rig, Seen, message, qemu_version};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

fn asked(rig: &mut Rig) -> Seen {
    let mut seen = rig.seen();
    assert_eq!(seen.len(), 1);
    seen.remove(0)
}

fn answer(rig: &mut Rig, request: &Seen, data: &[u8]) {
    let body = [&request.body[..16], data].concat();
    rig.send(&message(request.header.message_id, request.header.command(), header_flags::REPLY, &body));
    rig.pump().unwrap();
}

fn answered(id: u64, answer: Result<&[u8], Errno>) -> Call {
    Call::Answered { id, answer: answer.map(<[u8]>::to_vec) }
}

#[test]
fn a_read_is_32_bytes_and_its_data_stand_at_byte_32() {
    let mut rig = Rig::negotiated();
    rig.server.request_dma_read(900, 0x1234_5678_9000, 64).unwrap();
    let request = asked(&mut rig);
    assert_eq!((request.header.command(), request.header.flags), (Command::DMA_READ, 0));
    assert_eq!((request.header.size_bytes, request.body.len()), (32, 16));
    assert_eq!(request.body, DmaAccess { address: 0x1234_5678_9000, count: 64 }.as_bytes());
    let data: Vec<u8> = (0..64).collect();
    answer(&mut rig, &request, &data);
    assert_eq!(rig.device.take(), vec![answered(900, Ok(&data))]);
    assert_eq!(rig.server.dma_in_flight(), 0);
}

#[test]
fn a_write_carries_its_data_and_is_answered_with_or_without_a_body() {
    let mut rig = Rig::negotiated();
    let data = vec![0xa5; MAX_DMA_BYTES as usize];
    for body_bytes in [0, 12, 16] {
        rig.server.request_dma_write(7, 0x4000, &data).unwrap();
        let request = asked(&mut rig);
        assert_eq!(request.header.command(), Command::DMA_WRITE);
        let (access, sent) = DmaAccess::read_from_prefix(&request.body).unwrap();
        assert_eq!((access.address, access.count, sent), (0x4000, data.len() as u64, &data[..]));
        let reply = &request.body[..body_bytes];
        rig.send(&message(request.header.message_id, Command::DMA_WRITE, header_flags::REPLY, reply));
        rig.pump().unwrap();
        assert_eq!(rig.device.take(), vec![answered(7, Ok(&[]))]);
    }
}

#[test]
fn errors_are_passed_on_and_zero_is_an_error_too() {
    let mut rig = Rig::negotiated();
    let cases = [(14, Errno::FAULT), (19, Errno::NODEV), (0, Errno::IO), (u32::MAX, Errno::IO), (4096, Errno::IO)];
    for (error, expected) in cases {
        rig.server.request_dma_read(1, 0, 8).unwrap();
        let id = asked(&mut rig).header.message_id;
        let mut reply = message(id, Command::DMA_READ, header_flags::REPLY | header_flags::ERROR, &[]);
        reply[12..16].copy_from_slice(&error.to_ne_bytes());
        rig.send(&reply);
        rig.pump().unwrap();
        assert_eq!(rig.device.take(), vec![answered(1, Err(expected))]);
    }
}

#[test]
fn answers_come_in_any_order_between_client_requests() {
    let mut rig = Rig::negotiated();
    let mut requests = vec![];
    for id in 0..8 {
        rig.server.request_dma_read(id, id * 16, 16).unwrap();
        requests.push(asked(&mut rig));
    }
    for id in [5u64, 0, 7, 1, 2, 6, 3, 4] {
        rig.still_in_step();
        answer(&mut rig, &requests[id as usize], &[id as u8; 16]);
        assert_eq!(rig.device.take(), vec![answered(id, Ok(&[id as u8; 16]))]);
    }
}

#[test]
fn a_malformed_answer_is_a_protocol_error() {
    let access = |address: u64, count: u64| DmaAccess { address, count };
    let bodies: Vec<Vec<u8>> = vec![
        vec![],
        vec![0; 15],
        access(0x1000, 8).as_bytes().to_vec(),
        [access(0x1000, 8).as_bytes(), &[1; 7]].concat(),
        [access(0x1000, 8).as_bytes(), &[1; 9]].concat(),
        [access(0x2000, 8).as_bytes(), &[1; 8]].concat(),
        [access(0x1000, 7).as_bytes(), &[1; 8]].concat(),
        // QEMU before 11.1: a 32-bit count, and the data begin where its upper half should be.
        [access(0x1000, 8 | 0x0101_0101 << 32).as_bytes(), &[1; 8]].concat(),
    ];
    for body in bodies {
        let mut rig = Rig::negotiated();
        rig.server.request_dma_read(3, 0x1000, 8).unwrap();
        let id = asked(&mut rig).header.message_id;
        rig.send(&message(id, Command::DMA_READ, header_flags::REPLY, &body));
        rig.pump().unwrap();
        assert_eq!(rig.device.take(), vec![answered(3, Err(Errno::PROTO))]);
        rig.still_in_step();
    }
}

#[test]
fn an_answer_with_another_id_or_command_answers_nothing() {
    let mut rig = Rig::negotiated();
    rig.server.request_dma_read(3, 0, 8).unwrap();
    let request = asked(&mut rig);
    let id = request.header.message_id;
    let body = [&request.body[..], &[0; 8]].concat();
    for stray in [id ^ 1, id ^ 0x40, id ^ 0x8000] {
        rig.post(&message(stray, Command::DMA_READ, header_flags::REPLY, &body));
    }
    rig.post(&message(id, Command::DMA_WRITE, header_flags::REPLY, &body));
    assert_eq!(rig.device.take(), vec![]);
    answer(&mut rig, &request, &[0; 8]);
    // Twice is once too often.
    answer(&mut rig, &request, &[0; 8]);
    assert_eq!(rig.device.take(), vec![answered(3, Ok(&[0; 8]))]);
}

#[test]
fn lengths_and_states_that_are_refused() {
    let mut rig = Rig::connected();
    assert_eq!(rig.server.request_dma_read(1, 0, 8), Err(DmaRefusal::NotNegotiated));
    rig.succeed(&qemu_version());
    for (iova, length) in [(0, 0), (0, MAX_DMA_BYTES + 1), (0, u32::MAX), (u64::MAX, 2)] {
        assert!(matches!(rig.server.request_dma_read(1, iova, length), Err(DmaRefusal::Length { .. })));
    }
    assert!(matches!(rig.server.request_dma_write(1, 0, &vec![0; 32769]), Err(DmaRefusal::Length { .. })));
    rig.server.request_dma_read(2, u64::MAX, 1).unwrap();
    rig.server.shutdown(&mut rig.device);
    assert_eq!(rig.server.request_dma_read(1, 0, 8), Err(DmaRefusal::Closed));
}

#[test]
fn a_client_that_takes_less_is_sent_less() {
    let mut rig = Rig::connected();
    let json = b"\0\0\0\0{\"capabilities\":{\"max_data_xfer_size\":4096}}\0";
    rig.succeed(&message(0, Command::VERSION, 0, json));
    assert_eq!(rig.server.max_dma_bytes(), 4096);
    assert!(matches!(rig.server.request_dma_read(1, 0, 4097), Err(DmaRefusal::Length { max_bytes: 4096, .. })));
}

#[test]
fn so_many_are_in_flight_and_no_more() {
    let mut rig = Rig::negotiated();
    for id in 0..MAX_IN_FLIGHT as u64 {
        rig.server.request_dma_read(id, id, 1).unwrap();
    }
    assert_eq!(rig.server.request_dma_read(99, 0, 1), Err(DmaRefusal::Busy));
    let requests = rig.seen();
    answer(&mut rig, &requests[10], &[1]);
    assert_eq!(rig.device.take(), vec![answered(10, Ok(&[1]))]);
    rig.server.request_dma_read(99, 0, 1).unwrap();
    // The slot is the same, the id is not.
    let again = asked(&mut rig);
    assert_ne!(again.header.message_id, requests[10].header.message_id);
}

#[test]
fn none_is_sent_while_a_client_request_is_unanswered() {
    let mut rig = Rig::negotiated();
    for _ in 0..2 {
        rig.send(&message(1, Command::DEVICE_RESET, 0, &[]));
    }
    assert!(rig.server.on_readable(&mut rig.device, 1).unwrap().more);
    assert_eq!(rig.server.request_dma_read(1, 0, 8), Err(DmaRefusal::Busy));
    rig.server.on_readable(&mut rig.device, 1).unwrap();
    rig.server.request_dma_read(1, 0, 8).unwrap();
    let order: Vec<_> = rig.seen().iter().map(|seen| seen.header.command()).collect();
    assert_eq!(order, [Command::DEVICE_RESET, Command::DEVICE_RESET, Command::DMA_READ]);
}

#[test]
fn an_unmap_revokes_what_touches_it_before_it_is_made() {
    let mut rig = Rig::negotiated();
    for (id, iova) in [(0, 0x0fff), (1, 0x1000), (2, 0x1fff), (3, 0x2000), (4, 0x0ff0)] {
        rig.server.request_dma_read(id, iova, 16).unwrap();
    }
    let requests = rig.seen();
    let unmap = DmaUnmap { argsz: 24, flags: 0, address: 0x1000, size: 0x1000 };
    rig.succeed(&message(1, Command::DMA_UNMAP, 0, unmap.as_bytes()));
    let range = super::super::backend::DmaUnmap::Range { iova: 0x1000, size_bytes: 0x1000 };
    let gone = |id| answered(id, Err(Errno::CANCELED));
    assert_eq!(rig.device.take(), vec![gone(0), gone(1), gone(2), Call::Unmap(range)]);
    for request in &requests {
        answer(&mut rig, request, &[9; 16]);
    }
    assert_eq!(rig.device.take(), vec![answered(3, Ok(&[9; 16])), answered(4, Ok(&[9; 16]))]);
    assert_eq!(rig.server.dma_in_flight(), 0);
    // A refused unmap revokes nothing.
    rig.server.request_dma_read(5, 0x1000, 16).unwrap();
    asked(&mut rig);
    rig.refuse(&message(1, Command::DMA_UNMAP, 0, DmaUnmap { flags: 4, ..unmap }.as_bytes()), Errno::INVAL);
}

#[test]
fn reset_and_the_end_revoke_all_and_late_answers_are_discarded() {
    let mut rig = Rig::negotiated();
    rig.server.request_dma_read(1, 0, 8).unwrap();
    rig.server.request_dma_write(2, 0, &[1]).unwrap();
    let requests = rig.seen();
    rig.succeed(&message(1, Command::DEVICE_RESET, 0, &[]));
    let gone = |id| answered(id, Err(Errno::CANCELED));
    assert_eq!(rig.device.take(), vec![gone(1), gone(2), Call::Reset]);
    assert_eq!(rig.server.dma_in_flight(), 2);
    answer(&mut rig, &requests[0], &[0; 8]);
    answer(&mut rig, &requests[1], &[]);
    assert_eq!((rig.device.take(), rig.server.dma_in_flight()), (vec![], 0));

    rig.server.request_dma_read(3, 0, 8).unwrap();
    rig.client.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(rig.pump().unwrap_err().reason, CloseReason::ByClient);
    assert_eq!(rig.device.take(), vec![gone(3), Call::Disconnected]);
}

#[test]
fn the_owner_may_revoke_without_a_word() {
    let mut rig = Rig::negotiated();
    rig.server.request_dma_read(1, 0, 8).unwrap();
    let request = asked(&mut rig);
    rig.server.revoke_dma();
    answer(&mut rig, &request, &[0; 8]);
    assert_eq!(rig.device.take(), vec![]);
}

#[test]
fn a_full_socket_refuses_and_says_when_to_try_again() {
    let mut rig = Rig::negotiated();
    let data = vec![1; MAX_DMA_BYTES as usize];
    let mut sent = 0;
    while rig.server.request_dma_write(sent, 0, &data).is_ok() {
        sent += 1;
    }
    assert!(sent > 0 && sent < MAX_IN_FLIGHT as u64);
    assert_eq!(rig.server.request_dma_write(sent, 0, &data), Err(DmaRefusal::Busy));
    assert!(rig.server.wants_write());
    assert_eq!(u64::from(rig.server.dma_in_flight()), sent);
    assert_eq!(rig.seen().len() as u64, sent);
    rig.server.on_writable(&mut rig.device).unwrap();
    assert!(!rig.server.wants_write());
    rig.server.request_dma_write(sent, 0, &data).unwrap();
}
