//! Registers: what is offered, what is accepted, what reads back.

use super::Answers;
use super::driver::{Driver, available, table, used};
use super::rig::{MAC, Rig};
use crate::function::ethernet::device::FEATURES;
use crate::function::ethernet::{NO_VECTOR, VECTORS, pci_layout};
use rnic_pcie::config_space::ConfigSpace;

const STATUS: u64 = 0x14;
const FEATURES_OK: u8 = 8;
const DRIVER_OK: u8 = 4;

#[test]
fn features_are_offered_in_two_halves_and_no_others_are_accepted() {
    let mut rig = Rig::new(Answers::AtOnce);
    let mut offered = 0;
    for select in [0u32, 1, 2] {
        rig.write_register(0x00, &select.to_le_bytes());
        let half = u64::from(u32::from_le_bytes(rig.read_register(0x04)));
        offered |= half.checked_shl(32 * select).unwrap_or(half);
    }
    // VERSION_1, ACCESS_PLATFORM, INDIRECT_DESC, CTRL_RX, CTRL_VQ, STATUS, MRG_RXBUF, MAC, MTU, GUEST_CSUM, CSUM.
    let bits = [32, 33, 28, 18, 17, 16, 15, 5, 3, 1, 0];
    assert_eq!(offered, bits.iter().fold(0, |word, bit| word | 1u64 << bit));
    assert_eq!(offered, FEATURES);
    let mut driver = Driver::up(Answers::AtOnce);
    for (features, accepted) in
        [(1 << 32, true), (FEATURES, true), (FEATURES & !(1 << 32), false), (0, false), (FEATURES | 1 << 34, false)]
    {
        driver.negotiate(features);
        let [status] = driver.rig.read_register(STATUS);
        assert_eq!(status & FEATURES_OK != 0, accepted, "{features:#x}");
        driver.rig.write_register(STATUS, &[15]);
        let [status] = driver.rig.read_register(STATUS);
        assert_eq!(status & DRIVER_OK != 0, accepted, "{features:#x}");
    }
}

#[test]
fn the_configuration_has_address_link_and_mtu() {
    let mut rig = Rig::new(Answers::AtOnce);
    let expected: [u8; 12] = [MAC.as_slice(), &[1, 0], &[1, 0], &9000u16.to_le_bytes()].concat().try_into().unwrap();
    assert_eq!(rig.read_register(0x2000), expected);
    let [generation] = rig.read_register(0x15);
    rig.device.set_link_up(false);
    assert_eq!(rig.read_register(0x2006), [0, 0]);
    assert_ne!(rig.read_register(0x15), [generation]);
    assert_eq!((rig.read_register(0x1000), rig.read_register(0x1000)), ([2u8], [0u8]), "reading acknowledges");
    assert_eq!(rig.device.counters().refused_accesses, 0);
}

#[test]
fn a_queue_reads_back_as_it_was_set_and_stands_once_enabled() {
    let mut driver = Driver::up(Answers::AtOnce);
    let rig = &mut driver.rig;
    for queue in [2usize, 0, 1] {
        rig.write_register(0x16, &(queue as u16).to_le_bytes());
        let words = [super::driver::SIZE, queue as u16 + 1, 1, queue as u16].map(u16::to_le_bytes).concat();
        assert_eq!(rig.read_register::<8>(0x18).to_vec(), words);
        let places = [table(queue), available(queue), used(queue)].map(u64::to_le_bytes).concat();
        assert_eq!(rig.read_register::<24>(0x20).to_vec(), places);
    }
    let before = rig.device.counters().refused_accesses;
    for (offset, bytes) in [(0x18u64, vec![8, 0]), (0x20, vec![0; 8]), (0x1c, vec![0, 0]), (0x1c, vec![1, 0])] {
        rig.write_register(offset, &bytes);
    }
    assert_eq!(rig.device.counters().refused_accesses, before + 4);
    assert_eq!(rig.read_register::<2>(0x18), super::driver::SIZE.to_le_bytes());
    // A vector may change, to one that there is.
    for (given, kept) in [(0u16, 0), (VECTORS - 1, VECTORS - 1), (VECTORS, NO_VECTOR), (0xffff, NO_VECTOR)] {
        rig.write_register(0x1a, &given.to_le_bytes());
        assert_eq!(rig.read_register(0x1a), kept.to_le_bytes());
        rig.write_register(0x10, &given.to_le_bytes());
        assert_eq!(rig.read_register(0x10), kept.to_le_bytes());
    }
    // A queue that there is none of.
    rig.write_register(0x16, &3u16.to_le_bytes());
    assert_eq!(rig.read_register::<32>(0x18), [0; 32]);
    rig.write_register(0x18, &8u16.to_le_bytes());
    assert_eq!(rig.device.counters().refused_accesses, before + 5);
}

#[test]
fn odd_accesses_change_nothing_and_are_counted() {
    let mut driver = Driver::up(Answers::AtOnce);
    let rig = &mut driver.rig;
    let common = rig.read_register::<0x38>(0);
    let mut refused = rig.device.counters().refused_accesses;
    let odd: [(u64, usize); 12] = [
        (0x01, 1),
        (0x04, 4),
        (0x0c, 2),
        (0x12, 2),
        (0x14, 2),
        (0x15, 1),
        (0x20, 2),
        (0x38, 4),
        (0x1000, 1),
        (0x2000, 1),
        (0x3000, 3),
        (0x3ffc, 4),
    ];
    for (offset, length) in odd {
        rig.write_register(offset, &vec![0xff; length]);
        refused += 1;
        assert_eq!(rig.device.counters().refused_accesses, refused, "{length} bytes at {offset:#x}");
    }
    assert_eq!(rig.read_register::<0x38>(0), common);
    for (offset, length) in [(0x37u64, 2usize), (0x1001, 1), (0x2018, 1), (0x3000, 2), (u64::MAX, 4)] {
        let mut bytes = vec![0xa5; length];
        rig.device.handle_read(&mut rig.link, offset, &mut bytes);
        refused += 1;
        assert_eq!((bytes, rig.device.counters().refused_accesses), (vec![0; length], refused), "{offset:#x}");
    }
    for (offset, value) in [(0x3000u64, 1u16), (0x3004, 0), (0x3002, 0), (0x3008, 0x102)] {
        rig.write_register(offset, &value.to_le_bytes());
        refused += 1;
        assert_eq!(rig.device.counters().refused_accesses, refused, "notification of {value} at {offset:#x}");
    }
}

#[test]
fn the_capabilities_say_where_the_registers_are() {
    let space = ConfigSpace::new(&pci_layout::description(MAC));
    let byte = |at: usize| {
        let mut bytes = [0];
        space.read(at as u64, &mut bytes);
        usize::from(bytes[0])
    };
    let dword = |at: usize| (0..4).fold(0, |word, index| word | byte(at + index) << (8 * index));
    assert_eq!((dword(0), dword(8) >> 8), (0x1041_1af4, 0x02_00_00));
    let mut at = byte(0x34);
    let mut found = Vec::new();
    while at != 0 {
        if byte(at) == 0x09 {
            found.push((byte(at + 3), byte(at + 4), dword(at + 8), dword(at + 12), byte(at + 2)));
        }
        at = byte(at + 1);
    }
    assert_eq!(
        found,
        [
            (1, 0, 0x0000, 0x38, 16),
            (2, 0, 0x3000, 12, 20),
            (3, 0, 0x1000, 1, 16),
            (4, 0, 0x2000, 24, 16),
            (5, 0, 0, 0, 20)
        ]
    );
    assert_eq!(byte(pci_layout::window() + 3), 5);
    assert_eq!(pci_layout::window_data().start as usize, pci_layout::window() + 16);
}
