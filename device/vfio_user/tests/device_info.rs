//! DEVICE_GET_INFO.

use super::super::message::{Command, DeviceInfo};
use super::rig::{Rig, message};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

fn request(argsz: u32) -> Vec<u8> {
    message(1, Command::DEVICE_GET_INFO, 0, DeviceInfo { argsz, ..Default::default() }.as_bytes())
}

#[test]
fn it_is_a_resettable_pci_device_with_nine_regions_and_five_irqs() {
    let mut rig = Rig::negotiated();
    for argsz in [16, 32, u32::MAX] {
        let info = DeviceInfo::read_from_bytes(&rig.succeed(&request(argsz))).unwrap();
        assert_eq!(info, DeviceInfo { argsz: 16, flags: 0b11, num_regions: 9, num_irqs: 5 });
    }
}

#[test]
fn a_wrong_length_or_argsz_is_refused() {
    let mut rig = Rig::negotiated();
    for argsz in [0, 15] {
        rig.refuse(&request(argsz), Errno::INVAL);
    }
    for length in [0, 1, 15, 17, 32, 4096] {
        rig.refuse(&message(1, Command::DEVICE_GET_INFO, 0, &vec![16; length]), Errno::INVAL);
    }
}
