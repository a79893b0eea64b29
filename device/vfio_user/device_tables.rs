//! The region and interrupt tables of a PCI device, in the public crate's vocabulary.
//!
//! No region can be mapped: one mapped region makes QEMU wait for every BAR write of the device.

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{IrqInfo, ServerRegion};

/// The region of the configuration space.
pub const CONFIG_REGION: u32 = VFIO_PCI_CONFIG_REGION_INDEX;
/// The interrupt index of MSI-X.
pub const MSIX_IRQ: u32 = VFIO_PCI_MSIX_IRQ_INDEX;

/// The nine regions: six BARs (0 where there is none; the upper half of a 64-bit BAR is none), an absent ROM, the
/// configuration space, an absent VGA window.
pub fn pci_regions(bar_size_bytes: [u64; 6], config_size_bytes: u64) -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                CONFIG_REGION => config_size_bytes,
                bar => bar_size_bytes.get(bar as usize).copied().unwrap_or(0),
            };
            let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
            // An argsz of 0, as `Default` leaves it, makes QEMU 11.1 refuse the device.
            let argsz = size_of::<vfio_region_info>() as u32;
            let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
            ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
        })
        .collect()
}

/// The five interrupt indices: no INTx, so many MSI and MSI-X vectors, one ERR (QEMU complains without), no REQ.
pub fn pci_irqs(msi_vectors: u32, msix_vectors: u32) -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let count = match index {
                VFIO_PCI_MSI_IRQ_INDEX => msi_vectors,
                MSIX_IRQ => msix_vectors,
                VFIO_PCI_ERR_IRQ_INDEX => 1,
                _ => 0,
            };
            IrqInfo { index, flags: VFIO_IRQ_INFO_EVENTFD, count }
        })
        .collect()
}
