//! What a device does with the client's requests: the trait the connection calls, and its vocabulary.
//!
//! The connection has checked everything that can be checked from the tables: indices, bounds, flags, lengths and
//! the number of file descriptors. Every callback is answered when it returns, so none may block.

use rustix::io::Errno;
use std::os::fd::OwnedFd;
use vfio_user::{DmaMapFlags, IrqInfo, ServerRegion};
use vmm_sys_util::eventfd::EventFd;

/// Guest memory that the client has made reachable for DMA.
#[derive(Debug)]
pub struct DmaMap {
    pub iova: u64,
    /// Never 0, and `iova + (size_bytes - 1)` does not wrap.
    pub size_bytes: u64,
    pub permissions: DmaMapFlags,
    /// The file to map and the offset in it, where the client has one. Without it the memory can only be reached
    /// by DMA messages. Whether the file is large enough is for the backend to check.
    pub file: Option<(OwnedFd, u64)>,
}

/// Guest memory that is no longer reachable. It need not equal an earlier map: the client sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaUnmap {
    All,
    /// `size_bytes` is never 0 and `iova + (size_bytes - 1)` does not wrap.
    Range {
        iova: u64,
        size_bytes: u64,
    },
}

impl DmaUnmap {
    /// Some byte of `length_bytes` bytes at `iova` is unmapped.
    pub fn touches(self, iova: u64, length_bytes: u64) -> bool {
        match self {
            Self::All => true,
            Self::Range { iova: from, size_bytes } => {
                let last = from.saturating_add(size_bytes.saturating_sub(1));
                let asked_last = iova.saturating_add(length_bytes.saturating_sub(1));
                from <= asked_last && iova <= last
            }
        }
    }
}

/// What is to happen to interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    Mask,
    Unmask,
    Trigger,
}

/// A change to the interrupts of one index.
#[derive(Debug)]
pub enum IrqRequest<'a> {
    /// All interrupts of the index are switched off and their eventfds dropped.
    DisableAll,
    /// Interrupt `start + i` signals `eventfds[i]` when the action happens to it. The eventfds never block.
    Assign { action: IrqAction, start: u32, eventfds: Vec<EventFd> },
    /// The interrupts signal nothing any more. Also how a client enables MSI-X before it has a vector.
    Deassign { action: IrqAction, start: u32, count: u32 },
    /// The action is performed now, on all of them or on those whose byte is not 0 (`count` bytes).
    Perform { action: IrqAction, start: u32, count: u32, selected: Option<&'a [u8]> },
}

/// The device behind a connection.
pub trait Backend {
    /// The regions by index; nine for a PCI device (see [`super::device_tables`]).
    fn regions(&self) -> &[ServerRegion];

    /// The interrupts by index; five for a PCI device.
    fn irqs(&self) -> &[IrqInfo];

    /// Fills `into` from the region. The bytes are zero before.
    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno>;

    fn region_write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno>;

    /// An error is only printed by QEMU: the guest runs on without the map.
    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno>;

    /// When this returns, no access to the range may follow. The DMA messages in flight that touch the range have
    /// been revoked: each was answered with `Err(CANCELED)` just before.
    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno>;

    /// The whole function is reset; all DMA messages in flight have been revoked just before.
    fn reset(&mut self) -> Result<(), Errno>;

    fn set_irqs(&mut self, index: u32, request: IrqRequest<'_>) -> Result<(), Errno>;

    /// A DMA message that the connection accepted is done: the bytes read, or none for a write. Comes exactly once
    /// for each, also when the connection closes; not at all for one that the owner has revoked itself.
    fn dma_answered(&mut self, id: u64, answer: Result<&[u8], Errno>);

    /// The client, which had negotiated, is gone: maps and eventfds are to be dropped and the device reset. Called once.
    fn disconnected(&mut self);
}
