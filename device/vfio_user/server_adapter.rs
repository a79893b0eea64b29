//! Our [`Backend`] under the public crate's own server: a cross-check that the tables and callbacks mean what the
//! crate takes them to mean. Not for guests: the crate's server has no DMA messages and closes on malformed input.

use super::backend::{Backend, DmaMap, DmaUnmap, IrqAction, IrqRequest};
use super::message::dma_unmap_flags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_TYPE_MASK, VFIO_IRQ_SET_ACTION_UNMASK,
    VFIO_IRQ_SET_DATA_EVENTFD,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};
use vmm_sys_util::eventfd::EventFd;

/// Lends the backend to `vfio_user::Server::run`. The server does not say when the client has gone:
/// [`Backend::disconnected`] is the caller's to call when `run` returns.
pub struct ServerAdapter<'a>(pub &'a mut dyn Backend);

impl std::fmt::Debug for ServerAdapter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerAdapter")
    }
}

impl ServerBackend for ServerAdapter<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), io::Error> {
        Ok(self.0.region_read(region, offset, data)?)
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        Ok(self.0.region_write(region, offset, data)?)
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), io::Error> {
        let file = fd.map(|file| (file.into(), offset));
        Ok(self.0.dma_map(DmaMap { iova: address, size_bytes: size, permissions: flags, file })?)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> Result<(), io::Error> {
        // The crate's names are one bit off; the bits are the client's.
        let unmap = match flags.bits() & dma_unmap_flags::UNMAP_ALL {
            0 => DmaUnmap::Range { iova: address, size_bytes: size },
            _ => DmaUnmap::All,
        };
        Ok(self.0.dma_unmap(unmap)?)
    }

    fn reset(&mut self) -> Result<(), io::Error> {
        Ok(self.0.reset()?)
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> Result<(), io::Error> {
        let action = match flags & VFIO_IRQ_SET_ACTION_TYPE_MASK {
            VFIO_IRQ_SET_ACTION_MASK => IrqAction::Mask,
            VFIO_IRQ_SET_ACTION_UNMASK => IrqAction::Unmask,
            VFIO_IRQ_SET_ACTION_TRIGGER => IrqAction::Trigger,
            _ => return Err(Errno::INVAL.into()),
        };
        let request = if flags & VFIO_IRQ_SET_DATA_EVENTFD == 0 {
            match count {
                0 => IrqRequest::DisableAll,
                _ => IrqRequest::Perform { action, start, count, selected: None },
            }
        } else if fds.is_empty() {
            IrqRequest::Deassign { action, start, count }
        } else {
            // SAFETY: each `into_raw_fd` gives up the only owner of an open descriptor, and `EventFd` becomes its owner.
            let eventfds = fds.into_iter().map(|fd| unsafe { EventFd::from_raw_fd(fd.into_raw_fd()) }).collect();
            IrqRequest::Assign { action, start, eventfds }
        };
        Ok(self.0.set_irqs(index, request)?)
    }
}
