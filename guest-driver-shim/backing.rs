//! What a driver needs of the place it runs in: the device's BARs, memory the device can reach, configuration space
//! and vectors.
//!
//! In: offsets, IOVAs and bytes. Out: the same, or a [`BackingError`] that says what failed. DMA memory is named by
//! its IOVA, never by a pointer, since one backing reaches it by messages only.

use std::time::Duration;

pub type Result<T> = std::result::Result<T, BackingError>;

/// A range of DMA memory, contiguous in IOVAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaBuffer {
    pub iova: u64,
    pub length_bytes: u64,
}

/// A way to reach one device.
pub trait Backing {
    /// Which backing this is, for reports.
    fn name(&self) -> &'static str;

    fn read32(&mut self, bar: u8, offset: u64) -> Result<u32>;
    fn read64(&mut self, bar: u8, offset: u64) -> Result<u64>;
    /// One aligned 4-byte store. Everything written to memory before is visible to the device first.
    fn write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<()>;
    /// One aligned 8-byte store, with the same order.
    fn write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<()>;

    /// A 64-byte line as eight ascending 8-byte stores: no other instruction sequence arrives whole under QEMU.
    fn write_line(&mut self, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
        for (at, word) in (offset..).step_by(8).zip(line.chunks_exact(8)) {
            self.write64(bar, at, u64::from_le_bytes(word.try_into().unwrap_or_default()))?;
        }
        Ok(())
    }

    /// Takes zeroed DMA memory, contiguous for the device. `align_bytes` is a power of two.
    fn allocate(&mut self, length_bytes: u64, align_bytes: u64) -> Result<DmaBuffer>;
    /// Gives memory back. The device must have stopped using it.
    fn release(&mut self, buffer: DmaBuffer);
    fn copy_in(&mut self, iova: u64, bytes: &[u8]) -> Result<()>;
    fn copy_out(&mut self, iova: u64, bytes: &mut [u8]) -> Result<()>;
    /// An aligned load with acquire order: what the device wrote before it is seen afterwards.
    fn load32(&mut self, iova: u64) -> Result<u32>;
    fn load64(&mut self, iova: u64) -> Result<u64>;
    /// An aligned store with release order.
    fn store32(&mut self, iova: u64, value: u32) -> Result<()>;
    fn store64(&mut self, iova: u64, value: u64) -> Result<()>;

    /// An aligned word of the function's configuration space.
    fn config_read32(&mut self, offset: u16) -> Result<u32>;
    fn config_write32(&mut self, offset: u16, value: u32) -> Result<()>;
    /// Half a word, because the other half of a command register is write-one-to-clear.
    fn config_write16(&mut self, offset: u16, value: u16) -> Result<()>;

    /// Sets up MSI-X vectors 0 to `count` - 1 and enables MSI-X.
    fn enable_vectors(&mut self, count: u16) -> Result<()>;
    /// Waits until the vector is raised and takes the interrupt; false when `timeout` passed first.
    fn wait_event(&mut self, vector: u16, timeout: Duration) -> Result<bool>;

    /// Called between two looks at memory: serve the device's messages, let it run, or just breathe.
    fn pause(&mut self) -> Result<()>;
}

/// Why the device or its memory could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum BackingError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error(
        "no DMA memory for {length_bytes} bytes aligned to {align_bytes}: the largest free run is {largest_bytes} bytes"
    )]
    OutOfMemory { length_bytes: u64, align_bytes: u64, largest_bytes: u64 },
    #[error("{length_bytes} bytes at IOVA {iova:#x} are not DMA memory of this backing")]
    NotDmaMemory { iova: u64, length_bytes: u64 },
    #[error("IOVA {iova:#x} is not aligned to {align_bytes} bytes")]
    Unaligned { iova: u64, align_bytes: u64 },
    #[error("BAR {bar} has no {length_bytes} aligned bytes at offset {offset:#x}")]
    BarAccess { bar: u8, offset: u64, length_bytes: u64 },
    #[error("{peer} refused {what}: errno {errno}")]
    Refused { peer: &'static str, what: String, errno: u32 },
    #[error("{peer} broke the protocol: {what}")]
    Protocol { peer: &'static str, what: String },
    #[error("{what} took longer than {limit:?}")]
    Timeout { what: String, limit: Duration },
    #[error("no device {vendor:04x}:{device:04x} {place}")]
    NoDevice { vendor: u16, device: u16, place: String },
    #[error("the device has no {what}")]
    Missing { what: String },
    #[error("vector {vector} was not set up: {count} are")]
    NoVector { vector: u16, count: usize },
}

impl BackingError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn errno(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let what = what.into();
        move |errno| Self::Io { what, source: errno.into() }
    }
}
