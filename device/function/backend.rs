//! The function as the vfio-user server's backend: regions, interrupts, DMA maps, resets.

use super::marks::{self, Mark};
use super::sharing::SharingCheck;
use super::{QUESTION, RdmaFunction};
use crate::vfio_user::device_tables::{CONFIG_REGION, MSIX_IRQ};
use crate::vfio_user::{Backend, DmaMap, DmaUnmap, IrqRequest};
use rnic_abi::registers::{BAR_DOORBELLS, BAR_MSIX, BAR_REGISTERS};
use rnic_engine::HostWrite;
use rnic_pcie::dma_window::{Backing, Permissions};
use rnic_pcie::{DmaFault, MessageId, Observed, write_combine};
use rustix::io::Errno;
use std::fs::File;
use vfio_user::{DmaMapFlags, IrqInfo, ServerRegion};

impl Backend for RdmaFunction {
    fn regions(&self) -> &[ServerRegion] {
        &self.regions
    }

    fn irqs(&self) -> &[IrqInfo] {
        &self.irqs
    }

    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.tick();
        match u8::try_from(region).map_err(|_| Errno::INVAL)? {
            bar @ (BAR_REGISTERS | BAR_DOORBELLS) => {
                // A read pushes what the processor has combined so far.
                self.flush_line();
                self.engine.handle_read(self.now_ns, &mut self.link, bar, offset, into);
            }
            BAR_MSIX => self.link.msix_read(offset, into),
            _ if region == CONFIG_REGION => self.config.read(offset, into),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.tick();
        match u8::try_from(region).map_err(|_| Errno::INVAL)? {
            BAR_REGISTERS => {
                self.flush_line();
                let observed = Observed { messages: 1, bytes: from.len() as u32 };
                let access = HostWrite { bar: BAR_REGISTERS, offset, data: from, observed, torn: false };
                let was_enabled = self.engine.is_enabled();
                let before = marks::is_mark(offset).then(|| self.reading());
                self.engine.handle_write(self.now_ns, &mut self.link, &access);
                if let (Some(before), Some(value)) = (before, self.engine.take_mark()) {
                    let after = self.reading();
                    self.marks.push(Mark { value, time_ns: self.now_ns, before, after });
                }
                if was_enabled && !self.engine.is_enabled() {
                    // The driver's own reset takes the path of every other: nothing may land after it.
                    self.quiesce();
                }
            }
            BAR_DOORBELLS => self.store_doorbell(offset, from),
            BAR_MSIX => self.link.msix_write(offset, from),
            _ if region == CONFIG_REGION => {
                let effects = self.config.write(offset, from);
                self.apply_effects(effects);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        let permissions = Permissions {
            read: map.permissions.contains(DmaMapFlags::READ),
            write: map.permissions.contains(DmaMapFlags::WRITE),
        };
        let mapped = match map.file {
            Some((file, offset)) => self.link.map_file(map.iova, map.size_bytes, permissions, File::from(file), offset),
            None => self.link.map(map.iova, map.size_bytes, permissions, Backing::Message),
        };
        mapped.map_err(|error| {
            log::warn!("DMA map of {:#x} bytes at {:#x} refused: {error}", map.size_bytes, map.iova);
            Errno::INVAL
        })
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        match unmap {
            DmaUnmap::All => self.link.unmap_all(),
            DmaUnmap::Range { iova, size_bytes } => self.link.unmap(iova, size_bytes),
        };
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Errno> {
        self.tick();
        self.reset_all();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, request: IrqRequest<'_>) -> Result<(), Errno> {
        if index != MSIX_IRQ {
            // ERR: its eventfd is taken and never signalled; it would stop the guest.
            return Ok(());
        }
        match request {
            IrqRequest::DisableAll => self.link.clear_vector_eventfds(),
            IrqRequest::Assign { start, eventfds, .. } => {
                for (vector, eventfd) in (start..).zip(eventfds) {
                    let vector = u16::try_from(vector).map_err(|_| Errno::INVAL)?;
                    if !self.link.set_vector_eventfd(vector, Some(eventfd)) {
                        return Err(Errno::INVAL);
                    }
                }
            }
            IrqRequest::Deassign { start, count, .. } => {
                for vector in start..start.saturating_add(count) {
                    let vector = u16::try_from(vector).map_err(|_| Errno::INVAL)?;
                    self.link.set_vector_eventfd(vector, None);
                }
            }
            // A trigger by the client is a test of its own wiring; masks are kept by the client.
            IrqRequest::Perform { .. } => {}
        }
        Ok(())
    }

    fn dma_answered(&mut self, id: u64, answer: Result<&[u8], Errno>) {
        self.tick();
        if id == QUESTION {
            let stale = self.sharing.answered(&self.link, answer.ok(), self.now_ns);
            self.stale_memory = self.stale_memory.or(stale);
            return;
        }
        let answer = answer.map_err(|errno| match errno {
            Errno::CANCELED => DmaFault::Revoked,
            _ => DmaFault::UnsupportedRequest,
        });
        self.link.message_answered(MessageId(id), answer);
    }

    fn disconnected(&mut self) {
        self.tick();
        self.reset_all();
        self.link.clear_vector_eventfds();
        self.link.unmap_all();
        self.sharing = SharingCheck::default();
    }
}

impl RdmaFunction {
    fn flush_line(&mut self) {
        if self.combiner.deadline_ns().is_some() {
            let writes = self.combiner.flush();
            self.deliver_writes(BAR_DOORBELLS, &writes);
        }
    }

    fn store_doorbell(&mut self, offset: u64, from: &[u8]) {
        for (offset, piece) in write_combine::pieces(offset, from) {
            if let Ok(writes) = self.combiner.push(offset, piece, self.now_ns) {
                self.deliver_writes(BAR_DOORBELLS, &writes);
            }
        }
    }
}
