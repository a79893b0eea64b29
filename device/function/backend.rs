//! The function as the vfio-user server's backend: regions, interrupts, DMA maps, resets.

use super::marks::{self, Mark};
use super::{RdmaFunction, pci_interface};
use crate::vfio_user::device_tables::CONFIG_REGION;
use crate::vfio_user::{Backend, DmaMap, DmaUnmap, IrqRequest};
use rnic_abi::registers::{BAR_DOORBELLS, BAR_MSIX, BAR_REGISTERS};
use rnic_engine::HostWrite;
use rnic_pcie::{Observed, write_combine};
use rustix::io::Errno;
use vfio_user::{IrqInfo, ServerRegion};

impl Backend for RdmaFunction {
    fn regions(&self) -> &[ServerRegion] {
        self.pci.regions()
    }

    fn irqs(&self) -> &[IrqInfo] {
        self.pci.irqs()
    }

    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.tick();
        match u8::try_from(region).map_err(|_| Errno::INVAL)? {
            bar @ (BAR_REGISTERS | BAR_DOORBELLS) => {
                // A read pushes what the processor has combined so far.
                self.flush_line();
                self.engine.handle_read(self.now_ns, &mut self.link, bar, offset, into);
            }
            _ if self.pci.read(&self.link, region, offset, into) => {}
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
                    let queues = Some(self.link.take_queue_changes().into());
                    self.marks.push(Mark { value, time_ns: self.now_ns, before, after, queues, ethernet: None });
                }
                if was_enabled && !self.engine.is_enabled() {
                    // The driver's own reset takes the path of every other: nothing may land after it.
                    self.quiesce();
                }
            }
            BAR_DOORBELLS => self.store_doorbell(offset, from),
            BAR_MSIX => self.link.msix_write(offset, from),
            _ if region == CONFIG_REGION => {
                let effects = self.pci.write_config(offset, from);
                self.apply_effects(effects);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        self.pci.dma_map(&mut self.link, map)
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        pci_interface::dma_unmap(&mut self.link, unmap);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Errno> {
        self.tick();
        self.reset_all();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, request: IrqRequest<'_>) -> Result<(), Errno> {
        self.pci.set_irqs(&mut self.link, index, request)
    }

    fn dma_answered(&mut self, id: u64, answer: Result<&[u8], Errno>) {
        self.tick();
        self.pci.dma_answered(&mut self.link, id, answer, self.now_ns);
    }

    fn disconnected(&mut self) {
        self.tick();
        self.reset_all();
        self.engine.forget_last_diagnostic();
        self.pci.disconnected(&mut self.link);
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
