//! DEVICE_GET_REGION_INFO.

use super::super::message::{Command, RegionInfo, SparseMmapArea, SparseMmapCapability};
use super::recorder::{BAR0_BYTES, BAR2_BYTES};
use super::rig::{Rig, message, qemu_version};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use vfio_bindings::bindings::vfio::{VFIO_REGION_INFO_FLAG_MMAP, vfio_region_sparse_mmap_area};
use vfio_user::SparseArea;
use zerocopy::{FromBytes, IntoBytes};

fn request(index: u32, argsz: u32) -> Vec<u8> {
    let body = RegionInfo { argsz, index, ..Default::default() };
    message(2, Command::DEVICE_GET_REGION_INFO, 0, body.as_bytes())
}

#[test]
fn nine_regions_none_of_which_can_be_mapped() {
    let mut rig = Rig::negotiated();
    let sizes = [BAR0_BYTES, 0, BAR2_BYTES, 0, 4096, 4096, 0, 4096, 0];
    let flags = [3, 0, 3, 0, 3, 1, 0, 3, 0];
    for index in 0..9 {
        let body = rig.succeed(&request(index, 32));
        let info = RegionInfo::read_from_bytes(&body).unwrap();
        let (size, flags) = (sizes[index as usize], flags[index as usize]);
        assert_eq!(info, RegionInfo { argsz: 32, flags, index, cap_offset: 0, size, offset: 0 });
    }
    assert!(rig.fds.is_empty());
}

#[test]
fn a_wrong_index_length_or_argsz_is_refused() {
    let mut rig = Rig::negotiated();
    for index in [9, 10, u32::MAX] {
        rig.refuse(&request(index, 32), Errno::INVAL);
    }
    for argsz in [0, 31] {
        rig.refuse(&request(0, argsz), Errno::INVAL);
    }
    for length in [0, 31, 33, 64] {
        rig.refuse(&message(2, Command::DEVICE_GET_REGION_INFO, 0, &vec![32; length]), Errno::INVAL);
    }
}

/// The option to map doorbell pages: the descriptor comes with the reply that holds the areas, and only with it.
#[test]
fn sparse_areas_and_their_descriptor_come_when_there_is_room() {
    let mut rig = Rig::negotiated();
    let file = tempfile::tempfile().unwrap();
    let region = &mut rig.device.regions[2];
    region.mmap_fd = Some(file.as_raw_fd());
    region.region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
    let area = vfio_region_sparse_mmap_area { offset: 4096, size: 8192 };
    region.sparse_areas = vec![SparseArea { area }; 2];

    let short = RegionInfo::read_from_bytes(&rig.succeed(&request(2, 32))).unwrap();
    assert_eq!((short.argsz, short.flags, short.cap_offset), (80, 0b1111, 32));
    assert!(rig.fds.is_empty());

    let body = rig.succeed(&request(2, 80));
    assert_eq!(rig.fds.len(), 1);
    let (info, rest) = RegionInfo::read_from_prefix(&body).unwrap();
    assert_eq!(info, short);
    let (capability, rest) = SparseMmapCapability::read_from_prefix(rest).unwrap();
    assert_eq!(capability, SparseMmapCapability { id: 1, version: 1, next: 0, nr_areas: 2, reserved: 0 });
    let area = SparseMmapArea { offset: 4096, size: 8192 };
    assert_eq!(rest, [area.as_bytes(), area.as_bytes()].concat());
}

#[test]
fn a_client_that_takes_no_descriptors_is_sent_none() {
    let mut rig = Rig::connected();
    let version = String::from_utf8(qemu_version()[20..].to_vec()).unwrap();
    let none = version.replace("\"max_msg_fds\":16", "\"max_msg_fds\":0");
    rig.succeed(&message(0, Command::VERSION, 0, &[&[0; 4], none.as_bytes()].concat()));
    let file = tempfile::tempfile().unwrap();
    rig.device.regions[0].mmap_fd = Some(file.as_raw_fd());
    rig.succeed(&request(0, 32));
    assert!(rig.fds.is_empty());
}
