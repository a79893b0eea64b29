//! Commands that are not served: refused, with their body drained whatever it is.

use super::super::message::{Command, header_flags};
use super::rig::{POSTED, Rig, message};
use rustix::io::Errno;

#[test]
fn each_has_its_errno_and_its_body_is_drained() {
    let mut rig = Rig::negotiated();
    let known = [
        Command::DEVICE_GET_REGION_IO_FDS,
        Command::DMA_READ,
        Command::DMA_WRITE,
        Command::DIRTY_PAGES,
        Command::MIG_DATA_READ,
        Command::MIG_DATA_WRITE,
    ];
    for length in [0, 1, 16, 70_000] {
        let body = vec![0xff; length];
        rig.refuse(&message(1, Command::DEVICE_FEATURE, 0, &body), Errno::NOTTY);
        for command in known {
            rig.refuse(&message(1, command, 0, &body), Errno::NOTSUP);
        }
        for command in [0, 19, 20, 0x100, 0xffff] {
            rig.refuse(&message(1, Command(command), 0, &body), Errno::INVAL);
        }
    }
}

#[test]
fn a_message_that_is_neither_command_nor_reply_is_refused() {
    let mut rig = Rig::negotiated();
    for kind in 2..16 {
        rig.send(&message(1, Command::DEVICE_RESET, kind, &[]));
        rig.pump().unwrap();
        let seen = rig.seen();
        assert_eq!(seen.len(), 1);
        super::rig::assert_refused(&seen[0], Errno::INVAL);
        rig.post(&message(1, Command::DEVICE_RESET, kind | POSTED, &[]));
    }
    assert_eq!(rig.device.take(), vec![]);
}

#[test]
fn a_reply_that_was_not_asked_for_is_dropped() {
    let mut rig = Rig::negotiated();
    for command in 0..20 {
        for flags in [header_flags::REPLY, header_flags::REPLY | header_flags::ERROR] {
            rig.post(&message(command, Command(command), flags, &[0; 40]));
        }
    }
    assert_eq!(rig.device.take(), vec![]);
    rig.still_in_step();
}
