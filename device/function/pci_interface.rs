//! What every function has, whatever it does: a configuration space, its tables of regions and interrupts, and what its
//! client says of maps and vectors, passed on to its link.

use super::sharing::{QUESTION, SharingCheck};
use crate::vfio_user::device_tables::{CONFIG_REGION, MSIX_IRQ, pci_irqs, pci_regions};
use crate::vfio_user::{DmaMap, DmaUnmap, IrqRequest};
use rnic_pcie::config_space::{CONFIG_BYTES, ConfigDescription, ConfigEffects, ConfigSpace};
use rnic_pcie::dma_window::{Backing, Permissions};
use rnic_pcie::{DmaFault, Link, MessageId};
use rustix::io::Errno;
use std::fs::File;
use vfio_user::{DmaMapFlags, IrqInfo, ServerRegion};

/// The BAR of the MSI-X table, in every function.
pub const BAR_MSIX: u32 = rnic_abi::registers::BAR_MSIX as u32;

pub struct PciInterface {
    config: ConfigSpace,
    regions: Vec<ServerRegion>,
    irqs: Vec<IrqInfo>,
    pub sharing: SharingCheck,
}

impl PciInterface {
    /// The interface, and the link that belongs to it.
    pub fn new(description: &ConfigDescription) -> (Self, Link) {
        let config = ConfigSpace::new(description);
        let link = Link::new(config.link_settings(), description.vectors);
        let sizes = std::array::from_fn(|bar| description.bars[bar].map_or(0, |bar| bar.size_bytes));
        let interface = Self {
            config,
            regions: pci_regions(sizes, CONFIG_BYTES as u64),
            irqs: pci_irqs(0, description.vectors.into()),
            sharing: SharingCheck::default(),
        };
        (interface, link)
    }

    pub fn config(&self) -> &ConfigSpace {
        &self.config
    }

    pub fn regions(&self) -> &[ServerRegion] {
        &self.regions
    }

    pub fn irqs(&self) -> &[IrqInfo] {
        &self.irqs
    }

    /// A read of what is the same in all functions: configuration space and MSI-X table. False for another region.
    pub fn read(&self, link: &Link, region: u32, offset: u64, into: &mut [u8]) -> bool {
        match region {
            BAR_MSIX => link.msix_read(offset, into),
            CONFIG_REGION => self.config.read(offset, into),
            _ => return false,
        }
        true
    }

    /// A write of configuration space. What it means for the function comes first; [`Self::apply`] then tells the link.
    pub fn write_config(&mut self, offset: u64, from: &[u8]) -> ConfigEffects {
        self.config.write(offset, from)
    }

    /// The link as configuration space says.
    pub fn apply(&self, link: &mut Link) {
        link.set_settings(self.config.link_settings());
        link.set_bus_master(self.config.bus_master());
        link.set_msix_control(self.config.msix_control());
        for bar in 0..6 {
            link.set_bar_address(bar, self.config.bar_address(bar).unwrap_or(0));
        }
    }

    /// A reset of the whole function.
    pub fn reset(&mut self, link: &mut Link) {
        self.config.reset();
        link.reset_msix();
        self.apply(link);
    }

    /// A function level reset: what belongs to the link stays.
    pub fn function_level_reset(&mut self, link: &mut Link) {
        self.config.function_level_reset();
        link.reset_msix();
    }

    pub fn dma_map(&self, link: &mut Link, map: DmaMap) -> Result<(), Errno> {
        let permissions = Permissions {
            read: map.permissions.contains(DmaMapFlags::READ),
            write: map.permissions.contains(DmaMapFlags::WRITE),
        };
        let mapped = match map.file {
            Some((file, offset)) => link.map_file(map.iova, map.size_bytes, permissions, File::from(file), offset),
            None => link.map(map.iova, map.size_bytes, permissions, Backing::Message),
        };
        mapped.map_err(|error| {
            log::warn!("DMA map of {:#x} bytes at {:#x} refused: {error}", map.size_bytes, map.iova);
            Errno::INVAL
        })
    }

    pub fn set_irqs(&self, link: &mut Link, index: u32, request: IrqRequest<'_>) -> Result<(), Errno> {
        if index != MSIX_IRQ {
            // ERR: its eventfd is taken and never signalled; it would stop the guest.
            return Ok(());
        }
        match request {
            IrqRequest::DisableAll => link.clear_vector_eventfds(),
            IrqRequest::Assign { start, eventfds, .. } => {
                for (vector, eventfd) in (start..).zip(eventfds) {
                    let vector = u16::try_from(vector).map_err(|_| Errno::INVAL)?;
                    if !link.set_vector_eventfd(vector, Some(eventfd)) {
                        return Err(Errno::INVAL);
                    }
                }
            }
            IrqRequest::Deassign { start, count, .. } => {
                for vector in start..start.saturating_add(count) {
                    let vector = u16::try_from(vector).map_err(|_| Errno::INVAL)?;
                    link.set_vector_eventfd(vector, None);
                }
            }
            // A trigger by the client is a test of its own wiring; masks are kept by the client.
            IrqRequest::Perform { .. } => {}
        }
        Ok(())
    }

    /// The client's answer to a DMA message of the link, or to the question whether its memory is shared.
    pub fn dma_answered(&mut self, link: &mut Link, id: u64, answer: Result<&[u8], Errno>, now_ns: u64) {
        if id == QUESTION {
            return self.sharing.answered(link, answer.ok(), now_ns);
        }
        let answer = answer.map_err(|errno| match errno {
            Errno::CANCELED => DmaFault::Revoked,
            _ => DmaFault::UnsupportedRequest,
        });
        link.message_answered(MessageId(id), answer);
    }

    /// The client has gone, and with it its memory, its vectors and what was found out about it.
    pub fn disconnected(&mut self, link: &mut Link) {
        link.clear_vector_eventfds();
        link.unmap_all();
        self.sharing = SharingCheck::default();
    }
}

pub fn dma_unmap(link: &mut Link, unmap: DmaUnmap) {
    match unmap {
        DmaUnmap::All => link.unmap_all(),
        DmaUnmap::Range { iova, size_bytes } => link.unmap(iova, size_bytes),
    };
}
