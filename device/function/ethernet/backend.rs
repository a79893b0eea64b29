//! The Ethernet function as the vfio-user server's backend.

use super::{EthernetFunction, pci_layout, registers};
use crate::function::pci_interface::{self, BAR_MSIX};
use crate::vfio_user::device_tables::CONFIG_REGION;
use crate::vfio_user::{Backend, DmaMap, DmaUnmap, IrqRequest};
use rustix::io::Errno;
use vfio_user::{IrqInfo, ServerRegion};

const REGISTERS: u32 = registers::BAR as u32;

impl Backend for EthernetFunction {
    fn regions(&self) -> &[ServerRegion] {
        self.pci.regions()
    }

    fn irqs(&self) -> &[IrqInfo] {
        self.pci.irqs()
    }

    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        match region {
            REGISTERS => self.device.handle_read(&mut self.link, offset, into),
            _ if self.pci.read(&self.link, region, offset, into) => {
                if region == CONFIG_REGION
                    && let Some((place, length)) = self.window_access(offset, into.len())
                {
                    self.device.handle_read(&mut self.link, place, &mut into[..length]);
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        match region {
            REGISTERS => self.write_register(offset, from),
            BAR_MSIX => self.link.msix_write(offset, from),
            CONFIG_REGION => {
                if let Some((place, length)) = self.window_access(offset, from.len()) {
                    self.write_register(place, &from[..length]);
                }
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
        self.reset_all();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, request: IrqRequest<'_>) -> Result<(), Errno> {
        self.pci.set_irqs(&mut self.link, index, request)
    }

    fn dma_answered(&mut self, id: u64, answer: Result<&[u8], Errno>) {
        self.pci.dma_answered(&mut self.link, id, answer, self.now_ns);
    }

    fn disconnected(&mut self) {
        self.reset_all();
        self.pci.disconnected(&mut self.link);
    }
}

impl EthernetFunction {
    fn write_register(&mut self, offset: u64, from: &[u8]) {
        if self.device.handle_write(&mut self.link, offset, from) {
            // The driver's own reset takes the path of every other: nothing may land after it.
            self.quiesce();
        }
    }

    /// An access to the window's data is one to the BAR that it names: where, and of how many bytes.
    fn window_access(&self, offset: u64, length: usize) -> Option<(u64, usize)> {
        if offset != pci_layout::window_data().start {
            return None;
        }
        let mut capability = [0; 16];
        self.pci.config().read(pci_layout::window() as u64, &mut capability);
        let [.., bar, _, _, _, a, b, c, d, e, f, g, h] = capability;
        let (place, bytes) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
        let sound = bar == registers::BAR && matches!(bytes, 1 | 2 | 4) && place.is_multiple_of(bytes as u32);
        (sound && length >= bytes && u64::from(place) < registers::BAR_BYTES).then_some((place.into(), bytes))
    }
}
