//! DEVICE_SET_IRQS: eventfds given and taken, interrupts masked, unmasked and triggered.
//!
//! One of three kinds of data (none, booleans, eventfds) and one of three actions. Eventfds travel beside the
//! message, one per interrupt, or none at all to take them back.

use super::super::backend::{Backend, IrqAction, IrqRequest};
use super::super::message::SetIrqs;
use super::super::passed_fds::MessageFds;
use super::{argsz_holds, beginning};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_MASKABLE, VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_ACTION_TYPE_MASK, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_BOOL, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_IRQ_SET_DATA_TYPE_MASK,
};
use vfio_user::IrqInfo;
use vmm_sys_util::eventfd::EventFd;

pub fn set(body: &[u8], passed: MessageFds, backend: &mut dyn Backend) -> Result<(), Errno> {
    let (set, data): (SetIrqs, &[u8]) = beginning(body)?;
    argsz_holds::<SetIrqs>(set.argsz)?;
    let irq = *backend.irqs().get(set.index as usize).ok_or(Errno::INVAL)?;
    let request = understood(&set, data, passed, &irq)?;
    backend.set_irqs(set.index, request)
}

fn understood<'a>(set: &SetIrqs, data: &'a [u8], passed: MessageFds, irq: &IrqInfo) -> Result<IrqRequest<'a>, Errno> {
    let action = action_of(set.flags, irq)?;
    let (start, count) = (set.start, set.count);
    if u64::from(start) + u64::from(count) > u64::from(irq.count) || passed.too_many {
        return Err(Errno::INVAL);
    }
    match set.flags & VFIO_IRQ_SET_DATA_TYPE_MASK {
        VFIO_IRQ_SET_DATA_NONE if data.is_empty() && passed.is_empty() => match count {
            0 if start == 0 && action == IrqAction::Trigger => Ok(IrqRequest::DisableAll),
            0 => Err(Errno::INVAL),
            _ => Ok(IrqRequest::Perform { action, start, count, selected: None }),
        },
        VFIO_IRQ_SET_DATA_BOOL if count > 0 && data.len() == count as usize && passed.is_empty() => {
            Ok(IrqRequest::Perform { action, start, count, selected: Some(data) })
        }
        VFIO_IRQ_SET_DATA_EVENTFD if count > 0 && data.is_empty() && irq.flags & VFIO_IRQ_INFO_EVENTFD != 0 => {
            if passed.fds.is_empty() {
                return Ok(IrqRequest::Deassign { action, start, count });
            }
            if passed.fds.len() != count as usize {
                return Err(Errno::INVAL);
            }
            let eventfds = passed.fds.into_iter().map(eventfd).collect::<Result<_, _>>()?;
            Ok(IrqRequest::Assign { action, start, eventfds })
        }
        _ => Err(Errno::INVAL),
    }
}

fn action_of(flags: u32, irq: &IrqInfo) -> Result<IrqAction, Errno> {
    if flags & !(VFIO_IRQ_SET_DATA_TYPE_MASK | VFIO_IRQ_SET_ACTION_TYPE_MASK) != 0 {
        return Err(Errno::INVAL);
    }
    let action = match flags & VFIO_IRQ_SET_ACTION_TYPE_MASK {
        VFIO_IRQ_SET_ACTION_MASK => IrqAction::Mask,
        VFIO_IRQ_SET_ACTION_UNMASK => IrqAction::Unmask,
        VFIO_IRQ_SET_ACTION_TRIGGER => return Ok(IrqAction::Trigger),
        _ => return Err(Errno::INVAL),
    };
    if irq.flags & VFIO_IRQ_INFO_MASKABLE == 0 { Err(Errno::INVAL) } else { Ok(action) }
}

/// Takes the descriptor for an eventfd that can be written without ever waiting.
///
/// A pipe, a socket or a file in its place could block the thread that signals it: anonymous inodes alone have no
/// file type. An eventfd blocks when its counter is full, which is the client's to cause, unless it is non-blocking;
/// QEMU's is.
fn eventfd(fd: OwnedFd) -> Result<EventFd, Errno> {
    if fstat(&fd)?.st_mode & libc::S_IFMT != 0 {
        return Err(Errno::INVAL);
    }
    let flags = fcntl_getfl(&fd)?;
    if !flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    }
    // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor, and `EventFd` becomes its owner.
    Ok(unsafe { EventFd::from_raw_fd(fd.into_raw_fd()) })
}
