//! DMA_UNMAP.

use super::super::backend::DmaUnmap;
use super::super::message::{self as layouts, Command};
use super::recorder::Call;
use super::rig::{Rig, assert_refused, message};
use rustix::io::Errno;
use zerocopy::IntoBytes;

const GOOD: layouts::DmaUnmap = layouts::DmaUnmap { argsz: 24, flags: 0, address: 0x1000, size: 0x2000 };

fn request(unmap: layouts::DmaUnmap) -> Vec<u8> {
    message(12, Command::DMA_UNMAP, 0, unmap.as_bytes())
}

#[test]
fn a_range_is_unmapped_and_echoed() {
    let mut rig = Rig::negotiated();
    assert_eq!(rig.succeed(&request(GOOD)), GOOD.as_bytes());
    assert_eq!(rig.device.take(), vec![Call::Unmap(DmaUnmap::Range { iova: 0x1000, size_bytes: 0x2000 })]);
}

#[test]
fn the_sweep_of_a_viommu_being_switched_off_passes() {
    let mut rig = Rig::negotiated();
    for bit in 12..64 {
        let (address, size) = (1u64 << bit, 1u64 << bit);
        rig.succeed(&request(layouts::DmaUnmap { address, size, ..GOOD }));
    }
    assert_eq!(rig.device.take().len(), 52);
}

#[test]
fn unmap_all_is_bit_1_without_a_range() {
    let mut rig = Rig::negotiated();
    let all = layouts::DmaUnmap { flags: 2, address: 0, size: 0, ..GOOD };
    assert_eq!(rig.succeed(&request(all)), all.as_bytes());
    assert_eq!(rig.device.take(), vec![Call::Unmap(DmaUnmap::All)]);
    rig.refuse(&request(layouts::DmaUnmap { flags: 2, address: 0, ..GOOD }), Errno::INVAL);
    rig.refuse(&request(layouts::DmaUnmap { flags: 2, size: 0, ..GOOD }), Errno::INVAL);
}

#[test]
fn malformed_unmaps_are_refused() {
    let mut rig = Rig::negotiated();
    for flags in [4, 1 << 31] {
        rig.refuse(&request(layouts::DmaUnmap { flags, ..GOOD }), Errno::INVAL);
    }
    for (address, size) in [(0, 0), (u64::MAX, 2), (2, u64::MAX)] {
        rig.refuse(&request(layouts::DmaUnmap { address, size, ..GOOD }), Errno::INVAL);
    }
    for argsz in [0, 23] {
        rig.refuse(&request(layouts::DmaUnmap { argsz, ..GOOD }), Errno::INVAL);
    }
    for length in [0, 23, 25, 40] {
        rig.refuse(&message(12, Command::DMA_UNMAP, 0, &vec![0x20; length]), Errno::INVAL);
    }
}

#[test]
fn the_dirty_bitmap_is_not_supported() {
    let mut rig = Rig::negotiated();
    let dirty = layouts::DmaUnmap { flags: 1, ..GOOD };
    rig.refuse(&request(dirty), Errno::NOTSUP);
    rig.refuse(&message(12, Command::DMA_UNMAP, 0, &[dirty.as_bytes(), &[0; 16]].concat()), Errno::NOTSUP);
}

#[test]
fn the_devices_own_refusal_is_passed_on() {
    let mut rig = Rig::negotiated();
    rig.device.fails_with = Some(Errno::IO);
    assert_refused(&rig.ask(&request(GOOD)), Errno::IO);
}
