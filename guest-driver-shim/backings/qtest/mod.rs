//! A device in an unmodified QEMU without a running guest: this driver plays firmware, kernel and CPU over qtest.
//!
//! In: a stream to qtest and a range of guest RAM that is ours. Out: a [`Backing`] whose every memory access is a
//! message. Vectors are pointed at words of that RAM, since QEMU delivers an MSI-X as a write to its address.

mod protocol;
mod topology;

use crate::backing::{Backing, BackingError, DmaBuffer, Result};
use crate::memory::Extents;
use crate::pci::{self, ConfigSpace};
use protocol::Qtest as Protocol;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use topology::{Function, FunctionConfig, find_device};

/// Which device, and what guest RAM the driver may use.
#[derive(Clone, Copy, Debug)]
pub struct QtestOptions {
    /// Which of several rnics, in the order of their root ports.
    pub nth_device: usize,
    pub memory_address: u64,
    pub memory_bytes: u64,
    /// How long one qtest command may take.
    pub limit: Duration,
}

impl Default for QtestOptions {
    fn default() -> Self {
        Self { nth_device: 0, memory_address: 16 << 20, memory_bytes: 64 << 20, limit: Duration::from_secs(10) }
    }
}

/// The backing.
#[derive(Debug)]
pub struct Qtest {
    protocol: Protocol,
    function: Function,
    bars: [u64; 6],
    range: (u64, u64),
    free: Extents,
    vectors: Option<DmaBuffer>,
}

impl Qtest {
    /// Enumerates the buses, places the device and enables it.
    pub fn open(stream: UnixStream, options: QtestOptions) -> Result<Self> {
        let mut protocol = Protocol::new(stream, options.limit)?;
        let (function, bars) = find_device(&mut protocol, options.nth_device)?;
        let mut free = Extents::default();
        free.give(options.memory_address, options.memory_bytes);
        let range = (options.memory_address, options.memory_address.saturating_add(options.memory_bytes));
        let mut qtest = Self { protocol, function, bars, range, free, vectors: None };
        qtest.enable_memory_and_bus_master()?;
        Ok(qtest)
    }

    fn config(&mut self) -> FunctionConfig<'_> {
        FunctionConfig { qtest: &mut self.protocol, function: self.function }
    }

    fn bar_address(&self, bar: u8, offset: u64, length_bytes: u64) -> Result<u64> {
        let base = self.bars.get(usize::from(bar)).copied().filter(|base| *base != 0);
        let aligned = offset.is_multiple_of(length_bytes);
        base.filter(|_| aligned).and_then(|base| base.checked_add(offset)).ok_or(BackingError::BarAccess {
            bar,
            offset,
            length_bytes,
        })
    }

    /// Refuses what lies outside the range that is ours: the rest of RAM belongs to the machine.
    fn check(&self, iova: u64, length_bytes: u64, align_bytes: u64) -> Result<()> {
        let (start, end) = self.range;
        if iova < start || iova.checked_add(length_bytes).is_none_or(|last| last > end) {
            return Err(BackingError::NotDmaMemory { iova, length_bytes });
        }
        match iova.is_multiple_of(align_bytes) {
            true => Ok(()),
            false => Err(BackingError::Unaligned { iova, align_bytes }),
        }
    }
}

impl Backing for Qtest {
    fn name(&self) -> &'static str {
        "QEMU under qtest"
    }

    fn read32(&mut self, bar: u8, offset: u64) -> Result<u32> {
        let address = self.bar_address(bar, offset, 4)?;
        self.protocol.read32(address)
    }

    fn read64(&mut self, bar: u8, offset: u64) -> Result<u64> {
        let address = self.bar_address(bar, offset, 8)?;
        self.protocol.read64(address)
    }

    fn write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<()> {
        let address = self.bar_address(bar, offset, 4)?;
        self.protocol.write32(address, value)
    }

    fn write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<()> {
        let address = self.bar_address(bar, offset, 8)?;
        self.protocol.write64(address, value)
    }

    fn allocate(&mut self, length_bytes: u64, align_bytes: u64) -> Result<DmaBuffer> {
        let iova = self.free.take(length_bytes, align_bytes)?;
        self.protocol.zero(iova, length_bytes)?;
        Ok(DmaBuffer { iova, length_bytes })
    }

    fn release(&mut self, buffer: DmaBuffer) {
        self.free.give(buffer.iova, buffer.length_bytes);
    }

    fn copy_in(&mut self, iova: u64, bytes: &[u8]) -> Result<()> {
        self.check(iova, bytes.len() as u64, 1)?;
        self.protocol.write(iova, bytes)
    }

    fn copy_out(&mut self, iova: u64, bytes: &mut [u8]) -> Result<()> {
        self.check(iova, bytes.len() as u64, 1)?;
        self.protocol.read(iova, bytes)
    }

    fn load32(&mut self, iova: u64) -> Result<u32> {
        self.check(iova, 4, 4)?;
        self.protocol.read32(iova)
    }

    fn load64(&mut self, iova: u64) -> Result<u64> {
        self.check(iova, 8, 8)?;
        self.protocol.read64(iova)
    }

    fn store32(&mut self, iova: u64, value: u32) -> Result<()> {
        self.check(iova, 4, 4)?;
        self.protocol.write32(iova, value)
    }

    fn store64(&mut self, iova: u64, value: u64) -> Result<()> {
        self.check(iova, 8, 8)?;
        self.protocol.write64(iova, value)
    }

    fn config_read32(&mut self, offset: u16) -> Result<u32> {
        self.config().read_config32(offset)
    }

    fn config_write32(&mut self, offset: u16, value: u32) -> Result<()> {
        self.config().write_config32(offset, value)
    }

    fn config_write16(&mut self, offset: u16, value: u16) -> Result<()> {
        self.config().write_config16(offset, value)
    }

    fn enable_vectors(&mut self, count: u16) -> Result<()> {
        let words = self.allocate(u64::from(count) * 4, 64)?;
        pci::point_vectors_at_memory(self, count, words.iova)?;
        self.vectors = Some(words);
        Ok(())
    }

    fn wait_event(&mut self, vector: u16, timeout: Duration) -> Result<bool> {
        let word = pci::vector_word(self.vectors, vector)?;
        pci::wait_for_word(self, word, timeout)
    }

    /// A message to QEMU is pause enough.
    fn pause(&mut self) -> Result<()> {
        std::thread::yield_now();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
