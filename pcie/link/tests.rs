use super::*;
use crate::guest_region::GuestRegion;
use crate::msix::PBA_OFFSET;
use crate::outbound::MAX_MESSAGE_BYTES;
use crate::{Cause, Class, DmaPort, HostAccess, MessageKind, Observed, Submitted, Tlps, WireBytes};
use std::sync::Arc;

/// Mapped memory at 4 GiB, memory reached by message at 8 GiB.
const MAPPED: u64 = 1 << 32;
const BY_MESSAGE: u64 = 2 << 32;
const SIZE: u64 = 0x4_0000;
const EVENT: Origin = Origin::new(Class::Event, Cause::Event { eqn: 3, index: 4 });

const WRITE: Origin = Origin::new(Class::PayloadWrite, Cause::Maintenance);
const READ: Origin = Origin::new(Class::PayloadRead, Cause::Maintenance);

fn link() -> Link {
    let mut link = Link::new(LinkSettings::MODEL_HOST, 4);
    let region = Arc::new(GuestRegion::anonymous(SIZE as usize).unwrap());
    link.map(MAPPED, SIZE, Permissions::READ_WRITE, Backing::Mapped { region, offset: 0 }).unwrap();
    link.map(BY_MESSAGE, SIZE, Permissions::READ_WRITE, Backing::Message).unwrap();
    link.set_bus_master(true);
    link.trace_mut().watch(100);
    link
}

fn range(iova: u64, length_bytes: u32) -> DmaRange {
    DmaRange::new(Iova(iova), length_bytes)
}

fn write(link: &mut Link, iova: u64, data: &[u8]) {
    link.write(WRITE, &[range(iova, data.len() as u32)], data).unwrap();
}

fn read(link: &mut Link, iova: u64, length: usize) -> Result<Vec<u8>, DmaTag> {
    let mut into = vec![0; length];
    match link.read(READ, &[range(iova, length as u32)], &mut into).unwrap() {
        Submitted::Ready => Ok(into),
        Submitted::Pending(tag) => Err(tag),
    }
}

/// What is in mapped memory, seen past the port.
fn memory(link: &Link, iova: u64, length: usize) -> Vec<u8> {
    let mut into = vec![0; length];
    link.window().read_mapped(iova, &mut into).unwrap();
    into
}

fn message(link: &mut Link) -> OutboundMessage {
    link.next_message().expect("a message")
}

fn last_crossing(link: &Link) -> Crossing {
    let mut crossings = Vec::new();
    link.read_trace(link.last_sequence(), 1, &mut crossings);
    crossings[0]
}

#[test]
fn a_link_can_move_to_the_engine_thread() {
    fn is_send<T: Send>() {}
    is_send::<Link>();
}

#[test]
fn mapped_transfers_are_made_at_once_and_counted_once() {
    let mut link = link();
    link.set_time(77);
    write(&mut link, MAPPED + 8, &[1, 2, 3, 4]);
    assert_eq!(read(&mut link, MAPPED + 8, 4), Ok(vec![1, 2, 3, 4]));
    let crossing = last_crossing(&link);
    assert_eq!((crossing.sequence, crossing.time_ns, crossing.origin, crossing.bytes), (2, 77, READ, 4));
    assert_eq!(crossing.tlps, Tlps { mrd: 1, mwr: 0, cpld: 1 });
    assert_eq!(crossing.wire_bytes, WireBytes { down: 24, up: 24 });
    assert_eq!(link.ledger().total().crossings, 2);
    assert_eq!(link.ledger().class(Class::PayloadWrite).wire_up_bytes, 28);
}

#[test]
fn neighbouring_ranges_are_one_piece() {
    let mut link = link();
    let ranges = [range(MAPPED, 100), range(MAPPED + 100, 156), range(MAPPED + 0x1000, 64)];
    link.write(WRITE, &ranges, &[9; 320]).unwrap();
    let crossing = last_crossing(&link);
    assert_eq!((crossing.ranges, crossing.tlps.mwr, crossing.bytes), (2, 2, 320));
}

#[test]
fn nothing_is_no_crossing() {
    let mut link = link();
    assert_eq!(link.read(READ, &[], &mut []), Ok(Submitted::Ready));
    assert_eq!(link.write(WRITE, &[range(0, 0)], &[]), Ok(()));
    assert_eq!(link.last_sequence(), 0);
}

#[test]
fn refusals_are_crossings_with_a_fault() {
    let mut link = link();
    assert_eq!(link.read(READ, &[range(0, 600)], &mut [0; 600]), Err(DmaFault::UnsupportedRequest));
    let crossing = last_crossing(&link);
    assert_eq!((crossing.tlps, crossing.fault), (Tlps { mrd: 2, mwr: 0, cpld: 0 }, Some(DmaFault::UnsupportedRequest)));
    assert_eq!(crossing.wire_bytes, WireBytes { down: 40, up: 40 });

    // Not a byte of a write lands where a part of it cannot.
    let ranges = [range(MAPPED, 4), range(0, 4)];
    assert_eq!(link.write(WRITE, &ranges, &[1; 8]), Err(DmaFault::UnsupportedRequest));
    assert_eq!(memory(&link, MAPPED, 4), [0; 4]);

    link.set_bus_master(false);
    assert_eq!(link.write(WRITE, &[range(MAPPED, 4)], &[1; 4]), Err(DmaFault::UnsupportedRequest));
    assert_eq!(last_crossing(&link).tlps, Tlps::default());
    assert_eq!(link.event(EVENT, range(MAPPED, 16), &[0; 16], Some(0)), Err(DmaFault::UnsupportedRequest));
    assert_eq!(link.ledger().total().faults, 4);
    assert!(!link.vector_usable(0));
}

#[test]
fn later_transfers_wait_in_order_behind_an_unanswered_message() {
    let mut link = link();
    let receiver = EventFd::new(rustix::event::EventfdFlags::NONBLOCK.bits() as i32).unwrap();
    assert!(link.set_vector_eventfd(1, Some(receiver.try_clone().unwrap())));
    write(&mut link, BY_MESSAGE, &[1; 8]);
    write(&mut link, MAPPED, &[2; 8]);
    let tag = read(&mut link, MAPPED, 8).unwrap_err();
    link.event(EVENT, range(MAPPED + 64, 16), &[3; 16], Some(1)).unwrap();
    write(&mut link, MAPPED, &[4; 8]);

    let first = message(&mut link);
    assert_eq!(first.kind, MessageKind::Write { iova: Iova(BY_MESSAGE), data: vec![1; 8] });
    assert_eq!(link.next_message(), None);
    assert_eq!(memory(&link, MAPPED, 8), [0; 8]);
    assert!(receiver.read().is_err() && link.next_completion().is_none());

    assert!(link.message_answered(first.id, Ok(&[])));
    assert_eq!(link.next_completion(), Some((tag, Ok(vec![2; 8]))));
    assert_eq!(memory(&link, MAPPED + 64, 16), [3; 16]);
    assert_eq!(receiver.read().unwrap(), 1);
    assert_eq!(memory(&link, MAPPED, 8), [4; 8]);
    assert!(!link.message_answered(first.id, Ok(&[])), "an answer is taken once");
}

#[test]
fn message_writes_follow_each_other_in_pieces_of_32_kib() {
    let mut link = link();
    let length = MAX_MESSAGE_BYTES + 100;
    write(&mut link, BY_MESSAGE, &vec![7; length as usize]);
    let lengths: Vec<usize> = std::iter::from_fn(|| link.next_message())
        .map(|message| match message.kind {
            MessageKind::Write { data, .. } => data.len(),
            MessageKind::Read { .. } => panic!("a read"),
        })
        .collect();
    assert_eq!(lengths, [MAX_MESSAGE_BYTES as usize, 100]);
    assert_eq!(link.unanswered_messages(), 2);
}

#[test]
fn reads_by_message_are_answered_in_any_order() {
    let mut link = link();
    let one = read(&mut link, BY_MESSAGE, 2).unwrap_err();
    let mut into = [0; 6];
    let ranges = [range(BY_MESSAGE + 8, 2), range(MAPPED, 2), range(BY_MESSAGE + 64, 2)];
    write(&mut link, MAPPED, &[5, 6]);
    let Ok(Submitted::Pending(two)) = link.read(READ, &ranges, &mut into) else { panic!("not pending") };
    let ids: Vec<MessageId> = std::iter::from_fn(|| link.next_message()).map(|message| message.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(link.message_answered(ids[2], Ok(&[8, 9])));
    assert!(link.message_answered(ids[1], Ok(&[1, 2])));
    assert_eq!(link.next_completion(), Some((two, Ok(vec![1, 2, 5, 6, 8, 9]))));
    assert!(link.message_answered(ids[0], Ok(&[3, 4])));
    assert_eq!(link.next_completion(), Some((one, Ok(vec![3, 4]))));
    assert_eq!(link.next_completion(), None);
}

#[test]
fn a_read_that_fails_later_is_amended() {
    for (answer, fault) in [
        (Err(DmaFault::UnsupportedRequest), DmaFault::UnsupportedRequest),
        (Ok(&[0u8; 3][..]), DmaFault::CompleterAbort),
    ] {
        let mut link = link();
        let tag = read(&mut link, BY_MESSAGE, 4).unwrap_err();
        assert_eq!(link.ledger().total().cpld, 1);
        let id = message(&mut link).id;
        assert!(link.message_answered(id, answer));
        assert_eq!(link.next_completion(), Some((tag, Err(fault))));
        let total = link.ledger().total();
        assert_eq!((total.crossings, total.mrd, total.cpld, total.faults, total.wire_down_bytes), (1, 1, 0, 1, 20));
        assert_eq!(last_crossing(&link).fault, Some(fault));
    }
}

#[test]
fn unmapping_calls_back_only_what_it_touches() {
    let mut link = link();
    let gone = read(&mut link, BY_MESSAGE, 4).unwrap_err();
    let id = message(&mut link).id;
    link.map(1 << 40, 0x1000, Permissions::READ_WRITE, Backing::Message).unwrap();
    let stays = read(&mut link, 1 << 40, 4).unwrap_err();
    assert_eq!(link.unmap(BY_MESSAGE, SIZE), 1);
    assert_eq!(link.next_completion(), Some((gone, Err(DmaFault::Revoked))));
    link.message_answered(id, Ok(&[1; 4]));
    assert_eq!(link.next_completion(), None, "a late answer is ignored");
    let id = message(&mut link).id;
    link.message_answered(id, Ok(&[1; 4]));
    assert_eq!(link.next_completion(), Some((stays, Ok(vec![1; 4]))));
}

#[test]
fn revoking_everything_drops_writes_and_ends_or_forgets_reads() {
    for revocation in [Revocation::Complete, Revocation::Discard] {
        let mut link = link();
        write(&mut link, BY_MESSAGE, &[1; 4]);
        let sent = message(&mut link).id;
        let tag = read(&mut link, BY_MESSAGE, 4).unwrap_err();
        write(&mut link, MAPPED, &[2; 4]);
        link.revoke_all(revocation);
        let expected = (revocation == Revocation::Complete).then_some((tag, Err(DmaFault::Revoked)));
        assert_eq!(link.next_completion(), expected);
        assert!(!link.message_answered(sent, Ok(&[])));
        assert_eq!((link.next_message(), link.unanswered_messages()), (None, 0));
        assert_eq!(memory(&link, MAPPED, 4), [0; 4]);
        let total = link.ledger().total();
        assert_eq!((total.crossings, total.mwr, total.mrd, total.cpld, total.faults), (3, 1, 1, 0, 2));
        assert_eq!(read(&mut link, MAPPED, 4), Ok(vec![0; 4]), "nothing waits any more");
    }
}

#[test]
fn an_event_is_its_entry_and_its_message() {
    let mut link = link();
    link.event(EVENT, range(MAPPED, 16), &[1; 16], Some(2)).unwrap();
    assert_eq!((last_crossing(&link).tlps.mwr, link.undelivered_messages()), (1, 1));
    let receiver = EventFd::new(0).unwrap();
    assert!(link.set_vector_eventfd(2, Some(receiver.try_clone().unwrap())));
    assert!(link.vector_usable(2));
    link.event(EVENT, range(MAPPED, 16), &[1; 16], Some(2)).unwrap();
    let crossing = last_crossing(&link);
    assert_eq!((crossing.origin, crossing.bytes, crossing.tlps.mwr), (EVENT, 20, 2));
    assert_eq!(crossing.wire_bytes.up, (16 + 24) + (4 + 20));
    assert_eq!(receiver.read().unwrap(), 1);
}

#[test]
fn a_driver_without_qemu_gets_its_message_in_memory() {
    let mut link = link();
    link.set_msix_control(MsixControl { enabled: true, function_masked: false });
    link.msix_write(0, &(MAPPED + 0x100).to_le_bytes());
    link.msix_write(8, &0xabcd_u32.to_le_bytes());
    link.event(EVENT, range(MAPPED, 16), &[1; 16], Some(0)).unwrap();
    assert_eq!(last_crossing(&link).tlps.mwr, 1, "masked after reset");
    let mut pending = [0];
    link.msix_read(PBA_OFFSET, &mut pending);
    assert_eq!(pending, [1]);

    link.msix_write(12, &[0; 4]);
    assert_eq!(memory(&link, MAPPED + 0x100, 4), 0xabcd_u32.to_le_bytes());
    let crossing = last_crossing(&link);
    assert_eq!((crossing.sequence, crossing.bytes, crossing.wire_bytes.up), (2, 4, 28));
    assert_eq!(crossing.origin, EVENT);

    link.event(EVENT, range(MAPPED, 16), &[1; 16], Some(0)).unwrap();
    assert_eq!(last_crossing(&link).wire_bytes.up, (16 + 24) + (4 + 24));
}

#[test]
fn held_reads_take_the_bytes_of_their_release_in_any_order() {
    let mut link = link();
    link.set_read_policy(Some(Box::new(|_, ranges| match ranges[0].iova.0 - MAPPED {
        0 => Verdict::Now,
        0x100 => Verdict::Fault(DmaFault::Poisoned),
        _ => Verdict::Hold,
    })));
    write(&mut link, MAPPED + 8, &[1; 8]);
    assert_eq!(read(&mut link, MAPPED, 1), Ok(vec![0]));
    assert_eq!(link.read(READ, &[range(MAPPED + 0x100, 1)], &mut [0]), Err(DmaFault::Poisoned));
    let tags: Vec<DmaTag> = (0..3).map(|_| read(&mut link, MAPPED + 8, 8).unwrap_err()).collect();
    assert_eq!(link.held_tags(), tags);
    assert!(link.release(tags[1]));
    write(&mut link, MAPPED + 8, &[2; 8]);
    assert!(link.release(tags[0]) && !link.release(tags[0]));
    assert!(link.fail(tags[2], DmaFault::CompleterAbort));
    assert_eq!(link.next_completion(), Some((tags[1], Ok(vec![1; 8]))));
    assert_eq!(link.next_completion(), Some((tags[0], Ok(vec![2; 8]))));
    assert_eq!(link.next_completion(), Some((tags[2], Err(DmaFault::CompleterAbort))));
    assert!(link.held_tags().is_empty());
}

#[test]
fn room_runs_out_and_comes_back() {
    let mut link = link();
    let piece = vec![1; SIZE as usize];
    let mut refused = None;
    for _ in 0..1000 {
        refused = link.write(WRITE, &[range(BY_MESSAGE, SIZE as u32)], &piece).err();
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(DmaFault::CompleterAbort), "bounded even if nobody asks for room");
    assert!(!link.has_room());
    while let Some(message) = link.next_message() {
        link.message_answered(message.id, Ok(&[]));
    }
    assert!(link.has_room());
}

#[test]
fn host_accesses_are_counted_at_their_address_on_the_bus() {
    let mut link = link();
    let doorbell = Origin::new(Class::Doorbell, Cause::Maintenance);
    let observed = Observed { messages: 8, bytes: 64 };
    link.set_bar_address(2, 0x38_0000_0000);
    link.count(doorbell, 2, HostAccess::Write { address: 0x1800, bytes: 64 }, observed);
    assert_eq!(last_crossing(&link).wire_bytes, WireBytes { down: 88, up: 0 });
    assert_eq!(last_crossing(&link).observed, Some(observed));
    link.set_bar_address(2, 0xfe00_0000);
    link.count(doorbell, 2, HostAccess::Write { address: 0x1800, bytes: 8 }, Observed { messages: 1, bytes: 8 });
    assert_eq!(last_crossing(&link).wire_bytes, WireBytes { down: 28, up: 0 });
    let total = link.ledger().total();
    assert_eq!((total.mwr, total.bytes, total.observed_messages, total.observed_bytes), (2, 72, 9, 72));
}

#[test]
fn sequence_numbers_advance_while_nobody_watches() {
    let mut link = link();
    link.trace_mut().unwatch();
    write(&mut link, MAPPED, &[1]);
    link.trace_mut().watch(10);
    write(&mut link, MAPPED, &[1]);
    let mut crossings = Vec::new();
    let reading = link.read_trace(1, 10, &mut crossings);
    assert_eq!((reading, crossings.len()), (Reading { lost: 1, next_sequence: 3 }, 1));
}
