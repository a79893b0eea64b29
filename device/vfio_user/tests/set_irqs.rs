//! DEVICE_SET_IRQS: three kinds of data, three actions.

use super::super::backend::IrqAction;
use super::super::message::{Command, SetIrqs};
use super::recorder::{Call, MASKABLE_IRQ, MSIX_VECTORS};
use super::rig::{Rig, eventfd, message};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::IntoBytes;

const NONE: u32 = 1;
const BOOL: u32 = 2;
const EVENTFD: u32 = 4;
const MASK: u32 = 8;
const UNMASK: u32 = 16;
const TRIGGER: u32 = 32;
const MSIX: u32 = 2;

fn request(flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let set = SetIrqs { argsz: 20 + data.len() as u32, flags, index, start, count };
    message(4, Command::DEVICE_SET_IRQS, 0, &[set.as_bytes(), data].concat())
}

fn borrowed(fds: &[EventFd]) -> Vec<BorrowedFd<'_>> {
    // SAFETY: the eventfds outlive the slice they are borrowed from.
    fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) }).collect()
}

#[test]
fn qemus_sequence_for_msix() {
    let mut rig = Rig::negotiated();
    let action = IrqAction::Trigger;
    // Enabled without a vector, then one vector at a time, then off.
    assert!(rig.succeed(&request(EVENTFD | TRIGGER, MSIX, 0, 1, &[])).is_empty());
    let fds = [eventfd()];
    let reply = rig.ask_fds(&request(EVENTFD | TRIGGER, MSIX, 7, 1, &[]), &borrowed(&fds));
    assert_eq!(reply.header.flags, 1);
    rig.succeed(&request(NONE | TRIGGER, MSIX, 0, 0, &[]));
    let expected = vec![
        Call::Deassign { index: MSIX, action, start: 0, count: 1 },
        Call::Assign { index: MSIX, action, start: 7, count: 1 },
        Call::DisableAll { index: MSIX },
    ];
    assert_eq!(rig.device.take(), expected);
    // The descriptor that arrived is the one that was sent, it does not block and does not leak over exec.
    let arrived = &rig.device.eventfds[0];
    arrived.write(3).unwrap();
    assert_eq!(fds[0].read().unwrap(), 3);
    arrived.write(u64::MAX - 1).unwrap();
    assert_eq!(arrived.write(1).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // SAFETY: the eventfd is open while it is borrowed.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(arrived.as_raw_fd()) }).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn all_data_and_actions_on_a_maskable_index() {
    let mut rig = Rig::negotiated();
    let index = MASKABLE_IRQ;
    for (flag, action) in [(MASK, IrqAction::Mask), (UNMASK, IrqAction::Unmask), (TRIGGER, IrqAction::Trigger)] {
        rig.succeed(&request(NONE | flag, index, 0, 2, &[]));
        rig.succeed(&request(BOOL | flag, index, 0, 2, &[0, 1]));
        rig.succeed(&request(EVENTFD | flag, index, 1, 1, &[]));
        let fds = [eventfd(), eventfd()];
        rig.ask_fds(&request(EVENTFD | flag, index, 0, 2, &[]), &borrowed(&fds));
        let expected = vec![
            Call::Perform { index, action, start: 0, count: 2, selected: None },
            Call::Perform { index, action, start: 0, count: 2, selected: Some(vec![0, 1]) },
            Call::Deassign { index, action, start: 1, count: 1 },
            Call::Assign { index, action, start: 0, count: 2 },
        ];
        assert_eq!(rig.device.take(), expected);
    }
}

#[test]
fn flags_must_name_one_kind_of_data_and_one_action() {
    let mut rig = Rig::negotiated();
    let legal: Vec<u32> = [NONE, BOOL, EVENTFD].iter().flat_map(|d| [MASK, UNMASK, TRIGGER].map(|a| d | a)).collect();
    for flags in (0..64).filter(|flags| !legal.contains(flags)).chain([64 | NONE | TRIGGER, 1 << 31 | NONE | TRIGGER]) {
        rig.refuse(&request(flags, MASKABLE_IRQ, 0, 1, &[]), Errno::INVAL);
        rig.refuse(&request(flags, MASKABLE_IRQ, 0, 1, &[1]), Errno::INVAL);
    }
    for flags in [NONE | MASK, NONE | UNMASK, BOOL | MASK, EVENTFD | UNMASK] {
        let data: &[u8] = if flags & BOOL != 0 { &[1] } else { &[] };
        rig.refuse(&request(flags, MSIX, 0, 1, data), Errno::INVAL);
    }
}

#[test]
fn indices_ranges_and_lengths_are_checked() {
    let mut rig = Rig::negotiated();
    for (index, start, count) in [
        (5, 0, 1),
        (u32::MAX, 0, 1),
        (MSIX, MSIX_VECTORS, 1),
        (MSIX, 0, MSIX_VECTORS + 1),
        (MSIX, u32::MAX, u32::MAX),
        (MSIX, 1, u32::MAX),
        (0, 0, 1),
        (MSIX, 1, 0),
    ] {
        rig.refuse(&request(NONE | TRIGGER, index, start, count, &[]), Errno::INVAL);
        rig.refuse(&request(EVENTFD | TRIGGER, index, start, count, &[]), Errno::INVAL);
    }
    rig.refuse(&request(EVENTFD | TRIGGER, MSIX, 0, 0, &[]), Errno::INVAL);
    rig.refuse(&request(BOOL | TRIGGER, MSIX, 0, 0, &[]), Errno::INVAL);
    rig.refuse(&request(BOOL | TRIGGER, MSIX, 0, 4, &[1; 3]), Errno::INVAL);
    rig.refuse(&request(BOOL | TRIGGER, MSIX, 0, 4, &[1; 5]), Errno::INVAL);
    rig.refuse(&request(NONE | TRIGGER, MSIX, 0, 4, &[1; 4]), Errno::INVAL);
    rig.refuse(&request(EVENTFD | TRIGGER, MSIX, 0, 4, &[1; 16]), Errno::INVAL);
    for length in [0, 19] {
        rig.refuse(&message(4, Command::DEVICE_SET_IRQS, 0, &vec![1; length]), Errno::INVAL);
    }
    let small = SetIrqs { argsz: 19, flags: NONE | TRIGGER, index: MSIX, start: 0, count: 0 };
    rig.refuse(&message(4, Command::DEVICE_SET_IRQS, 0, small.as_bytes()), Errno::INVAL);
}

#[test]
fn descriptors_must_be_eventfds_and_as_many_as_interrupts() {
    let mut rig = Rig::negotiated();
    let fds: Vec<EventFd> = (0..17).map(|_| eventfd()).collect();
    let all = borrowed(&fds);
    let reply = rig.ask_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 16, &[]), &all[..16]);
    assert_eq!(reply.header.error, 0);
    assert_eq!(rig.device.eventfds.len(), 16);
    rig.refuse_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 17, &[]), &all, Errno::INVAL);
    rig.refuse_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 16, &[]), &all, Errno::INVAL);
    rig.refuse_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 3, &[]), &all[..2], Errno::INVAL);
    rig.refuse_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 2, &[]), &all[..3], Errno::INVAL);
    rig.refuse_fds(&request(NONE | TRIGGER, MSIX, 0, 1, &[]), &all[..1], Errno::INVAL);
    rig.refuse_fds(&request(BOOL | TRIGGER, MSIX, 0, 1, &[1]), &all[..1], Errno::INVAL);
    let file = tempfile::tempfile().unwrap();
    rig.refuse_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 1, &[]), &[file.as_fd()], Errno::INVAL);
    let (pipe, _) = std::io::pipe().unwrap();
    rig.refuse_fds(&request(EVENTFD | TRIGGER, MSIX, 0, 1, &[]), &[pipe.as_fd()], Errno::INVAL);
    assert_eq!(rig.server.held_fds(), 0);
}

#[test]
fn the_devices_own_refusal_is_passed_on() {
    let mut rig = Rig::negotiated();
    rig.device.fails_with = Some(Errno::NOSPC);
    let reply = rig.ask(&request(NONE | TRIGGER, MSIX, 0, 0, &[]));
    super::rig::assert_refused(&reply, Errno::NOSPC);
}
