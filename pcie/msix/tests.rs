use super::*;
use crate::{Cause, Class};

const EVENT: Origin = Origin::new(Class::Event, Cause::Event { eqn: 1, index: 2 });
const ENABLED: MsixControl = MsixControl { enabled: true, function_masked: false };

fn eventfd() -> EventFd {
    EventFd::new(0).unwrap()
}

/// A table whose vector 1 the driver has written: address, data, unmasked.
fn written_by_driver(address: u64) -> MsixTable {
    let mut table = MsixTable::new(4);
    table.set_control(ENABLED);
    table.write(16, &address.to_le_bytes());
    table.write(24, &0xfeed_u32.to_le_bytes());
    table.write(28, &[0; 4]);
    table
}

#[test]
fn under_qemu_an_eventfd_is_all_it_takes() {
    let mut table = MsixTable::new(4);
    assert_eq!(table.raise(2, EVENT), Raised::Undelivered(Undelivered::NoReceiver));
    assert!(!table.usable(2));
    let receiver = eventfd();
    assert!(table.set_eventfd(2, Some(receiver.try_clone().unwrap())));
    assert!(table.usable(2));
    assert_eq!(table.raise(2, EVENT), Raised::Message(Message::Signal { vector: 2, wide: false }));
    table.signal(2).unwrap();
    assert_eq!(receiver.read().unwrap(), 1);
    table.reset();
    assert!(table.usable(2), "the client's eventfds outlive a reset");
    table.clear_eventfds();
    assert!(!table.usable(2));
}

#[test]
fn a_full_counter_does_not_block() {
    let mut table = MsixTable::new(1);
    let receiver = eventfd();
    receiver.write(u64::MAX - 1).unwrap();
    assert!(table.set_eventfd(0, Some(receiver)));
    assert_eq!(table.signal(0), Ok(()));
}

#[test]
fn vectors_that_do_not_exist() {
    let mut table = MsixTable::new(4);
    assert!(!table.set_eventfd(4, Some(eventfd())));
    assert_eq!(table.raise(4, EVENT), Raised::Undelivered(Undelivered::NoSuchVector));
    assert_eq!(table.signal(9), Err(Undelivered::NoSuchVector));
    assert!(!table.usable(u16::MAX));
}

#[test]
fn a_driver_that_writes_the_table_gets_a_write_to_its_address() {
    let mut table = written_by_driver(0x1_fee0_0000);
    assert!(table.usable(1));
    assert_eq!(table.raise(1, EVENT), Raised::Message(Message::Write { address: 0x1_fee0_0000, data: 0xfeed }));
    assert!(table.set_eventfd(1, Some(eventfd())));
    assert_eq!(table.raise(1, EVENT), Raised::Message(Message::Signal { vector: 1, wide: true }));
    table.set_control(MsixControl::default());
    assert_eq!(table.raise(1, EVENT), Raised::Undelivered(Undelivered::Disabled));
}

#[test]
fn a_masked_vector_is_pending_until_it_is_unmasked() {
    let mut table = written_by_driver(0xfee0_0000);
    table.write(28, &[1]);
    assert!(!table.usable(1));
    assert_eq!(table.raise(1, EVENT), Raised::Pending);
    assert_eq!(table.raise(1, EVENT), Raised::Pending);
    let mut pba = [0xff; 8];
    table.read(PBA_OFFSET, &mut pba);
    assert_eq!(u64::from_le_bytes(pba), 0b10);
    assert_eq!(table.take_deliverable(), None);
    table.write(28, &[0]);
    let message = Message::Write { address: 0xfee0_0000, data: 0xfeed };
    assert_eq!(table.take_deliverable(), Some((message, EVENT)));
    assert_eq!(table.take_deliverable(), None);
    table.read(PBA_OFFSET, &mut pba);
    assert_eq!(pba, [0; 8]);
}

#[test]
fn the_function_mask_holds_back_every_vector() {
    let mut table = written_by_driver(0xfee0_0000);
    table.set_control(MsixControl { enabled: true, function_masked: true });
    assert_eq!(table.raise(1, EVENT), Raised::Pending);
    assert_eq!(table.take_deliverable(), None);
    table.set_control(ENABLED);
    assert!(table.take_deliverable().is_some());
}

#[test]
fn accesses_of_any_size_and_alignment() {
    let mut table = MsixTable::new(4);
    let mut entry = [0; 16];
    table.read(0, &mut entry);
    assert_eq!(entry[12..], [1, 0, 0, 0], "masked after reset");
    table.write(13, &[0xff; 6]); // reserved control bytes of entry 0, the address of entry 1
    table.read(0, &mut entry);
    assert_eq!(entry[12..], [1, 0, 0, 0]);
    let mut address = [0; 3];
    table.read(16, &mut address);
    assert_eq!(address, [0xfc, 0xff, 0xff], "the low two bits of an address are zero");
    for offset in [0, 63, 64, 0x7fff, 0x8000, 0xffff, 1 << 40, u64::MAX] {
        table.write(offset, &[0xff; 8]);
        table.read(offset, &mut [0; 8]);
    }
}
