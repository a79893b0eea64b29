//! Frames and commands through the queues, however reads are answered.

use super::driver::{BUFFERS, Driver, SIZE, available, table};
use super::{Answers, Buffer};
use crate::function::ethernet::device::{CONTROL, FEATURES, RECEIVE, TRANSMIT, feature};
use crate::function::ethernet::header::HEADER_BYTES;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_MRG_RXBUF};

const EVERY: [Answers; 3] = [Answers::AtOnce, Answers::Late, Answers::ByMessage];
const PLAIN_HEADER: [u8; HEADER_BYTES] = [0; HEADER_BYTES];

fn frame(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

/// A UDP datagram to everybody with a right checksum.
fn datagram() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x08, 0x00]);
    frame.extend([0x45, 0, 0, 31, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x04, 0x01, 0x00, 0x35, 0, 11]);
    frame.extend((!0xdcc2u16).to_be_bytes());
    frame.extend(b"abc");
    frame
}

#[test]
fn frames_go_out_whole_whatever_their_chain() {
    for answers in EVERY {
        let mut driver = Driver::up(answers);
        let contents = [frame(60, 1), frame(9014, 2), frame(1514, 3), frame(14, 4)];
        let with_header = |contents: &[u8]| [PLAIN_HEADER.as_slice(), contents].concat();
        let whole = with_header(&contents[0]);
        driver.post(TRANSMIT, &[Buffer::Readable(whole)]);
        let split = vec![Buffer::Readable(PLAIN_HEADER.to_vec()), Buffer::Readable(contents[1].clone())];
        driver.post(TRANSMIT, &split);
        let bytes = with_header(&contents[2]);
        let pieces: Vec<_> = bytes.chunks(200).map(|piece| Buffer::Readable(piece.to_vec())).collect();
        let (head, _) = driver.lay_out(TRANSMIT, &pieces, true);
        driver.make_available(TRANSMIT, head);
        driver.notify(TRANSMIT);
        driver.post(TRANSMIT, &[Buffer::Readable(with_header(&contents[3]))]);
        driver.rig.settle();
        assert_eq!(driver.rig.sent, contents, "{answers:?}");
        assert_eq!(driver.used(TRANSMIT), [(0, 0), (1, 0), (3, 0), (4, 0)], "{answers:?}");
        assert_eq!(driver.rig.device.fault(), None);
    }
}

#[test]
fn every_crossing_of_a_frame_is_counted_in_classes_of_its_own() {
    let mut driver = Driver::up(Answers::AtOnce);
    driver.rig.settle();
    driver.post(TRANSMIT, &[Buffer::Readable([PLAIN_HEADER.as_slice(), &frame(60, 1)].concat())]);
    let (before, undelivered) = (driver.rig.link.ledger().snapshot(), driver.rig.link.undelivered_messages());
    driver.notify(TRANSMIT);
    driver.rig.settle();
    // Flags with index, the entry, and the flags once more after the used index was written.
    let transmitted = [
        ("net_doorbell", 1),
        ("net_available_fetch", 3),
        ("net_descriptor_fetch", 1),
        ("net_payload_read", 1),
        ("net_used_write", 1),
    ];
    assert_eq!(driver.rig.counted(&before), transmitted);
    // Nobody listens to the vector here; it was raised all the same.
    assert_eq!(driver.rig.link.undelivered_messages(), undelivered + 1);
    driver.post(RECEIVE, &[Buffer::Writable(100)]);
    let before = driver.rig.link.ledger().snapshot();
    driver.rig.receive(&datagram());
    driver.rig.settle();
    let received =
        [("net_available_fetch", 3), ("net_descriptor_fetch", 1), ("net_payload_write", 1), ("net_used_write", 1)];
    assert_eq!(driver.rig.counted(&before), received);
}

#[test]
fn a_driver_that_wants_no_interrupt_gets_none() {
    for answers in EVERY {
        let mut driver = Driver::up(answers);
        driver.rig.settle();
        for (flags, raised) in [(1u16, 0), (0, 1)] {
            driver.rig.write_memory(available(TRANSMIT), &flags.to_le_bytes());
            let before = driver.rig.link.undelivered_messages();
            driver.post(TRANSMIT, &[Buffer::Readable([PLAIN_HEADER.as_slice(), &frame(60, 1)].concat())]);
            driver.rig.settle();
            assert_eq!(driver.rig.link.undelivered_messages() - before, raised, "{answers:?} {flags}");
        }
    }
}

#[test]
fn a_checksum_that_the_driver_left_is_completed() {
    let mut driver = Driver::up(Answers::AtOnce);
    let (mut unfinished, finished) = (datagram(), datagram());
    // The sum of the pseudo header: addresses, protocol, length.
    let pseudo_header: u16 = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 11;
    unfinished[40..42].copy_from_slice(&pseudo_header.to_be_bytes());
    let header = |start: u16, offset: u16| {
        let mut header = PLAIN_HEADER;
        header[0] = 1;
        header[6..8].copy_from_slice(&start.to_le_bytes());
        header[8..10].copy_from_slice(&offset.to_le_bytes());
        header
    };
    driver.post(TRANSMIT, &[Buffer::Readable([header(34, 6).as_slice(), &unfinished].concat())]);
    driver.post(TRANSMIT, &[Buffer::Readable([header(34, 12).as_slice(), &unfinished].concat())]);
    driver.rig.settle();
    assert_eq!(driver.rig.sent, [finished], "and a place outside the frame is no frame");
    assert_eq!((driver.used(TRANSMIT).len(), driver.rig.device.counters().transmit_dropped), (2, 1));
}

#[test]
fn a_frame_takes_as_many_buffers_as_it_needs() {
    for answers in EVERY {
        let mut driver = Driver::up(answers);
        let mut places = Vec::new();
        for length in [500usize, 100, 2000] {
            places.push(driver.post(RECEIVE, &[Buffer::Writable(length / 2), Buffer::Writable(length / 2)]).1);
        }
        let contents = [vec![0xff; 6], frame(694, 5)].concat();
        driver.rig.receive(&contents);
        driver.rig.settle();
        assert_eq!(driver.used(RECEIVE), [(0, 500), (2, 100), (4, 112)], "{answers:?}");
        let mut bytes = Vec::new();
        for (place, length) in [(0, 250usize), (1, 50), (2, 112)].map(|(chain, length)| (&places[chain], length)) {
            bytes.extend(driver.rig.read_memory(place[0], length));
            if length != 112 {
                bytes.extend(driver.rig.read_memory(place[1], length));
            }
        }
        let mut header = PLAIN_HEADER;
        header[10] = 3;
        assert_eq!(bytes, [header.as_slice(), &contents].concat(), "{answers:?}");
        assert_eq!(driver.rig.read_memory(places[2][0] + 112, 888), vec![0; 888], "nothing beyond the frame");
    }
}

#[test]
fn without_merging_a_frame_has_one_buffer_or_is_lost() {
    let mut driver = Driver::with(Answers::Late, FEATURES & !feature(VIRTIO_NET_F_MRG_RXBUF), SIZE);
    driver.post(RECEIVE, &[Buffer::Writable(12), Buffer::Writable(60)]);
    driver.rig.receive(&[0xff; 61]);
    driver.rig.receive(&[0xff; 60]);
    driver.rig.settle();
    assert_eq!(driver.used(RECEIVE), [(0, 72)]);
    assert_eq!(driver.rig.device.counters().received_too_long, 1);
}

#[test]
fn a_right_checksum_is_told_to_a_driver_that_asked() {
    for (features, flag) in [(FEATURES, 2), (FEATURES & !feature(VIRTIO_NET_F_GUEST_CSUM), 0)] {
        let mut driver = Driver::with(Answers::AtOnce, features, SIZE);
        let (_, places) = driver.post(RECEIVE, &[Buffer::Writable(100)]);
        driver.rig.receive(&datagram());
        driver.rig.settle();
        assert_eq!(driver.rig.read_memory(places[0], 1), [flag]);
        let mut wrong = datagram();
        wrong[44] ^= 1;
        let (_, places) = driver.post(RECEIVE, &[Buffer::Writable(100)]);
        driver.rig.receive(&wrong);
        driver.rig.settle();
        assert_eq!(driver.rig.read_memory(places[0], 1), [0]);
        assert_eq!(driver.rig.read_memory(places[0] + 12, wrong.len()), wrong, "it is delivered all the same");
    }
}

#[test]
fn frames_wait_for_buffers_and_the_newest_are_lost_when_too_many_do() {
    let mut driver = Driver::up(Answers::AtOnce);
    for number in 0..200u8 {
        driver.rig.receive(&[vec![0xff; 6], vec![number; 8]].concat());
    }
    driver.rig.settle();
    assert_eq!(driver.rig.device.counters().received_overrun, 72);
    let mut number = 0u8;
    for _ in 0..9 {
        let places: Vec<u64> = (0..SIZE).map(|_| driver.post(RECEIVE, &[Buffer::Writable(40)]).1[0]).collect();
        driver.rig.settle();
        let used = driver.used(RECEIVE).len();
        for &place in &places[..used] {
            assert_eq!(driver.rig.read_memory(place + 12 + 6, 8), [number; 8], "in the order they came");
            number += 1;
        }
    }
    assert_eq!((number, driver.rig.device.has_work()), (128, false));
}

#[test]
fn commands_are_answered_and_decide_what_is_received() {
    for answers in EVERY {
        let mut driver = Driver::up(answers);
        let foreign = [vec![2, 9, 9, 9, 9, 9], vec![0; 54]].concat();
        driver.rig.receive(&foreign);
        let command = |driver: &mut Driver, bytes: &[u8]| {
            let chain =
                [Buffer::Readable(bytes[..2].to_vec()), Buffer::Readable(bytes[2..].to_vec()), Buffer::Writable(1)];
            let (_, places) = driver.post(CONTROL, &chain);
            driver.rig.settle();
            driver.rig.read_memory(places[2], 1)[0]
        };
        assert_eq!(command(&mut driver, &[0, 0, 0]), 0, "promiscuous off");
        driver.rig.receive(&foreign);
        assert_eq!(driver.rig.device.counters().received_filtered, 1);
        let mut table = vec![1, 0, 1, 0, 0, 0];
        table.extend(&foreign[..6]);
        table.extend([0; 4]);
        assert_eq!(command(&mut driver, &table), 0, "address table");
        driver.rig.receive(&foreign);
        assert_eq!(command(&mut driver, &[9, 9, 9]), 1, "no such class");
        assert_eq!(command(&mut driver, &[1, 0, 0xff, 0xff, 0xff, 0xff]), 1, "a table cut short");
        assert_eq!(driver.used(CONTROL).iter().map(|used| used.1).collect::<Vec<_>>(), [1; 4]);
        let counters = *driver.rig.device.counters();
        assert_eq!((counters.received_filtered, counters.commands), (1, 4), "{answers:?}");
    }
}

#[test]
fn a_cable_that_is_pulled_out_carries_nothing() {
    let mut driver = Driver::up(Answers::AtOnce);
    driver.post(RECEIVE, &[Buffer::Writable(100)]);
    let undelivered = driver.rig.link.undelivered_messages();
    driver.rig.device.set_link_up(false);
    driver.rig.receive(&[0xff; 60]);
    driver.post(TRANSMIT, &[Buffer::Readable([PLAIN_HEADER.as_slice(), &frame(60, 1)].concat())]);
    driver.rig.settle();
    assert_eq!((driver.rig.sent.len(), driver.used(TRANSMIT).len(), driver.used(RECEIVE).len()), (0, 1, 0));
    assert_eq!(driver.rig.link.undelivered_messages() - undelivered, 2, "the configuration's vector, and the queue's");
    driver.rig.device.set_link_up(true);
    driver.rig.receive(&[0xff; 60]);
    driver.rig.settle();
    assert_eq!(driver.used(RECEIVE).len(), 1);
}

#[test]
fn a_reset_forgets_everything_and_late_answers_find_nobody() {
    let mut driver = Driver::up(Answers::Late);
    driver.post(TRANSMIT, &[Buffer::Readable([PLAIN_HEADER.as_slice(), &frame(60, 1)].concat())]);
    driver.rig.receive(&[0xff; 60]);
    for _ in 0..3 {
        driver.rig.step();
        driver.rig.release(0);
    }
    driver.rig.write_register(0x14, &[0]);
    assert_eq!(driver.rig.read_register(0x14), [0u8]);
    driver.rig.settle();
    assert!(driver.rig.sent.is_empty() && !driver.rig.device.has_work());
    assert_eq!(driver.rig.read_memory(table(RECEIVE) + 0x800, 0x100), vec![0; 0x100]);
    // The memory is laid out anew, as a driver does.
    driver.rig.write_memory(super::rig::BASE, &vec![0; (BUFFERS - super::rig::BASE) as usize]);
    driver.bring_up(FEATURES);
    driver.post(TRANSMIT, &[Buffer::Readable([PLAIN_HEADER.as_slice(), &frame(60, 2)].concat())]);
    driver.rig.settle();
    assert_eq!(driver.rig.sent, [frame(60, 2)]);
}
