//! DEVICE_GET_IRQ_INFO.

use super::super::message::{Command, IrqInfoMessage};
use super::recorder::MSIX_VECTORS;
use super::rig::{Rig, message};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

fn request(index: u32, argsz: u32) -> Vec<u8> {
    let body = IrqInfoMessage { argsz, index, ..Default::default() };
    message(2, Command::DEVICE_GET_IRQ_INFO, 0, body.as_bytes())
}

#[test]
fn five_indices_with_msix_by_eventfd_only_and_one_err() {
    let mut rig = Rig::negotiated();
    let counts = [0, 2, MSIX_VECTORS, 1, 0];
    for index in 0..5 {
        let info = IrqInfoMessage::read_from_bytes(&rig.succeed(&request(index, 16))).unwrap();
        assert_eq!((info.argsz, info.index, info.count), (16, index, counts[index as usize]));
        assert_eq!(info.flags, if index == 1 { 0b11 } else { 0b1 }, "index {index}");
    }
}

#[test]
fn a_wrong_index_length_or_argsz_is_refused() {
    let mut rig = Rig::negotiated();
    for index in [5, u32::MAX] {
        rig.refuse(&request(index, 16), Errno::INVAL);
    }
    for argsz in [0, 15] {
        rig.refuse(&request(2, argsz), Errno::INVAL);
    }
    for length in [0, 15, 17] {
        rig.refuse(&message(2, Command::DEVICE_GET_IRQ_INFO, 0, &vec![16; length]), Errno::INVAL);
    }
}
