//! The Ethernet function: a modern virtio network device (1AF4:1041) with the RNIC's MAC address and switch port, so that
//! a stock kernel has a network interface there.
//!
//! [`device`] is the device as a state machine: frames and register accesses in, frames out, everything else through the
//! port it is lent. In the order of a frame's way from the driver: `registers` (the notification) → `virtqueue`
//! (`fetch`, `chain`) → `transmit` (`header`, `checksum`) → the switch; and to the driver: `filter` → `receive` →
//! `virtqueue`. `control` has the commands, `fault` what makes the device ask for a reset. [`pci_layout`] and `backend`
//! make a PCI function of it.

mod backend;
mod chain;
mod checksum;
mod control;
mod counters;
mod device;
mod fault;
mod fetch;
mod filter;
mod header;
pub mod pci_layout;
mod receive;
mod registers;
mod transmit;
mod virtqueue;

#[cfg(test)]
mod tests;

pub use counters::EthernetCounters;
pub use device::{DEFAULT_MTU, EthernetConfig, EthernetDevice, FEATURES};
pub use fault::NetFault;
pub use virtqueue::VirtqueueView;

use super::pci_interface::PciInterface;
use rnic_pcie::config_space::{ConfigEffects, ConfigSpace};
use rnic_pcie::{Link, Revocation};
use rnic_wire::Frame;

/// The most entries of a queue.
pub const QUEUE_SIZE_MAX: u16 = 256;
/// One for the configuration, one for each queue.
pub const VECTORS: u16 = 4;
/// No vector.
pub const NO_VECTOR: u16 = 0xffff;
/// In a cause: not a queue, the configuration.
pub const CONFIG_QUEUE: u16 = 0xffff;

/// The Ethernet function.
pub struct EthernetFunction {
    pub device: EthernetDevice,
    pub link: Link,
    pub(crate) pci: PciInterface,
    now_ns: u64,
    resets: u64,
    /// Messages to the client that a reset has called back.
    revoked: bool,
}

impl EthernetFunction {
    pub fn new(config: EthernetConfig) -> Self {
        let (pci, link) = PciInterface::new(&pci_layout::description(config.mac));
        Self { device: EthernetDevice::new(config), link, pci, now_ns: 0, resets: 0, revoked: false }
    }

    /// The time that crossings are recorded with; the device itself has none.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.link.set_time(now_ns);
    }

    pub fn config(&self) -> &ConfigSpace {
        self.pci.config()
    }

    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// True once after DMA in flight was called back: the connection then forgets its own.
    pub fn take_revoked(&mut self) -> bool {
        std::mem::take(&mut self.revoked)
    }

    /// Whether guest memory is shared, once that is known.
    pub fn memory_is_shared(&self) -> Option<bool> {
        self.pci.sharing.verdict()
    }

    pub fn has_work(&self) -> bool {
        self.device.has_work()
    }

    /// Hands completions of pending reads to the device.
    pub fn deliver_completions(&mut self) -> bool {
        let mut any = false;
        while let Some((tag, result)) = self.link.next_completion() {
            self.device.handle_dma_completion(tag, result.as_deref().map_err(|fault| *fault));
            any = true;
        }
        any
    }

    /// The next frame that the driver sends.
    pub fn poll_transmit(&mut self, frame: &mut Frame) -> bool {
        self.device.poll_transmit(&mut self.link, frame)
    }

    /// Everything else that can be done now. True if something moved.
    pub fn work(&mut self) -> bool {
        self.device.work(&mut self.link)
    }

    /// Stop, revoke, discard: what every reset, a disconnect, and bus mastering switched off have in common.
    fn quiesce(&mut self) {
        self.link.revoke_all(Revocation::Discard);
        self.device.handle_reset();
        self.pci.sharing.not_asked();
        self.resets += 1;
        self.revoked = true;
    }

    fn reset_all(&mut self) {
        self.quiesce();
        self.pci.reset(&mut self.link);
    }

    fn apply_effects(&mut self, effects: ConfigEffects) {
        if effects.flr {
            self.quiesce();
            self.pci.function_level_reset(&mut self.link);
        } else if effects.bus_master_changed == Some(false) && self.device.is_running() {
            self.quiesce();
        }
        self.pci.apply(&mut self.link);
    }
}
