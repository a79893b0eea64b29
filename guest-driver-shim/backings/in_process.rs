//! A device in the same process, behind a trait that the caller implements: no device crate is named here.
//!
//! In: accesses and maps, as a bus would bring them. Out: what the device answers. DMA memory is a memfd that the
//! device gets as a file, so that it reaches host memory in its own way and never through a pointer of ours.

use crate::backing::{Backing, BackingError, DmaBuffer, Result};
use crate::memory::{MappedMemory, Mapping};
use crate::pci::ConfigSpace;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::time::{Duration, Instant};

/// Where the model host's memory stands: above 4 GiB, so that TLP headers have four words.
pub const MODEL_HOST_IOVA: u64 = 0x1_0000_0000;

/// What the caller puts between this backing and its device.
pub trait InProcessDevice {
    /// A load of 4 or 8 aligned bytes; the length of `bytes` says which.
    fn mmio_read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) -> std::io::Result<()>;
    /// A store of 4 or 8 aligned bytes.
    fn mmio_write(&mut self, bar: u8, offset: u64, bytes: &[u8]) -> std::io::Result<()>;
    fn config_read(&mut self, offset: u16, bytes: &mut [u8]) -> std::io::Result<()>;
    fn config_write(&mut self, offset: u16, bytes: &[u8]) -> std::io::Result<()>;
    /// Makes `length_bytes` of the file from `file_offset` visible to the device at `iova`.
    fn map(&mut self, iova: u64, file: File, file_offset: u64, length_bytes: u64) -> std::io::Result<()>;
    /// Gives vectors 0 to `count` - 1 a receiver.
    fn connect_vectors(&mut self, count: u16) -> std::io::Result<()>;
    /// Whether the vector was raised since the last call.
    fn take_vector(&mut self, vector: u16) -> std::io::Result<bool>;
    /// Lets the device work for a while; a device with a thread of its own yields here.
    fn step(&mut self) -> std::io::Result<()>;
}

/// How the model host programs the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelHost {
    pub memory_bytes: u64,
    pub memory_iova: u64,
    pub max_payload_bytes: u32,
    pub max_read_request_bytes: u32,
}

impl Default for ModelHost {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            memory_iova: MODEL_HOST_IOVA,
            max_payload_bytes: 256,
            max_read_request_bytes: 512,
        }
    }
}

impl ModelHost {
    /// A memfd of the host's size and its mapping here.
    pub(crate) fn memory(&self) -> Result<(File, MappedMemory)> {
        let file = rustix::fs::memfd_create("rnic-host", MemfdFlags::CLOEXEC)
            .map_err(BackingError::errno("creating the host's memory"))?;
        rustix::fs::ftruncate(&file, self.memory_bytes)
            .map_err(BackingError::errno(format!("sizing the host's memory to {} bytes", self.memory_bytes)))?;
        let length = usize::try_from(self.memory_bytes)
            .map_err(|_| BackingError::Missing { what: format!("address space for {} bytes", self.memory_bytes) })?;
        let mapping = Mapping::of_file(&file, 0, length)?;
        Ok((file.into(), MappedMemory::new(self.memory_iova, mapping)))
    }
}

/// The backing.
#[derive(Debug)]
pub struct InProcess<D> {
    device: D,
    memory: MappedMemory,
}

impl<D: InProcessDevice> InProcess<D> {
    /// Maps fresh memory for the device and switches decoding and bus mastering on.
    pub fn open(mut device: D, host: ModelHost) -> Result<Self> {
        let (file, memory) = host.memory()?;
        device
            .map(host.memory_iova, file, 0, host.memory_bytes)
            .map_err(BackingError::io("mapping the host's memory for the device"))?;
        let mut backing = Self { device, memory };
        backing.set_payload_sizes(host.max_payload_bytes, host.max_read_request_bytes)?;
        backing.enable_memory_and_bus_master()?;
        Ok(backing)
    }

    /// The caller's own device, for whatever it wants to look at.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    pub fn into_device(self) -> D {
        self.device
    }
}

fn failed(what: &'static str, at: u64) -> impl FnOnce(std::io::Error) -> BackingError {
    move |source| BackingError::Io { what: format!("{what} at {at:#x}"), source }
}

impl<D: InProcessDevice> Backing for InProcess<D> {
    fn name(&self) -> &'static str {
        "in-process"
    }

    fn read32(&mut self, bar: u8, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.device.mmio_read(bar, offset, &mut bytes).map_err(failed("reading a register", offset))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn read64(&mut self, bar: u8, offset: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.device.mmio_read(bar, offset, &mut bytes).map_err(failed("reading a register", offset))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<()> {
        self.device.mmio_write(bar, offset, &value.to_le_bytes()).map_err(failed("writing a register", offset))
    }

    fn write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<()> {
        self.device.mmio_write(bar, offset, &value.to_le_bytes()).map_err(failed("writing a register", offset))
    }

    super::memory_of_the_backing!();

    fn config_read32(&mut self, offset: u16) -> Result<u32> {
        let mut bytes = [0; 4];
        self.device.config_read(offset, &mut bytes).map_err(failed("reading configuration", offset.into()))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn config_write32(&mut self, offset: u16, value: u32) -> Result<()> {
        self.device.config_write(offset, &value.to_le_bytes()).map_err(failed("writing configuration", offset.into()))
    }

    fn config_write16(&mut self, offset: u16, value: u16) -> Result<()> {
        self.device.config_write(offset, &value.to_le_bytes()).map_err(failed("writing configuration", offset.into()))
    }

    fn enable_vectors(&mut self, count: u16) -> Result<()> {
        self.device.connect_vectors(count).map_err(failed("connecting vectors up to", count.into()))?;
        self.enable_msix()
    }

    fn wait_event(&mut self, vector: u16, timeout: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            if self.device.take_vector(vector).map_err(failed("taking vector", vector.into()))? {
                return Ok(true);
            }
            if start.elapsed() >= timeout {
                return Ok(false);
            }
            self.pause()?;
        }
    }

    fn pause(&mut self) -> Result<()> {
        self.device.step().map_err(BackingError::io("stepping the device"))
    }
}
