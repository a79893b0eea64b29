//! A device seen from a program inside a Linux guest, with no driver of ours in the kernel: BARs through sysfs, DMA
//! memory from huge pages, vectors pointed at words of that memory.
//!
//! In: the guest's /sys. Out: a [`Backing`]. Root only, and only where no IOMMU stands between.

mod huge_pages;
mod mmio;

use crate::backing::{Backing, BackingError, DmaBuffer, Result};
use crate::memory::MappedMemory;
use crate::pci::{self, ConfigSpace};
use mmio::Mmio;
use rnic_abi::registers::{BAR_DOORBELLS, BAR_MSIX, BAR_REGISTERS};
use rnic_abi::{PCI_DEVICE_ID, PCI_VENDOR_ID};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which device and how much memory.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Where the kernel lists PCI devices.
    pub devices: PathBuf,
    /// Which of several rnics, in the order of their addresses.
    pub nth_device: usize,
    pub memory_bytes: u64,
}

impl Default for GuestOptions {
    fn default() -> Self {
        Self { devices: "/sys/bus/pci/devices".into(), nth_device: 0, memory_bytes: 16 << 20 }
    }
}

/// The backing.
#[derive(Debug)]
pub struct Guest {
    config: File,
    registers: Mmio,
    doorbells: Mmio,
    msix: Mmio,
    memory: MappedMemory,
    vectors: Option<DmaBuffer>,
}

impl Guest {
    pub fn open(options: &GuestOptions) -> Result<Self> {
        let folder = find_device(&options.devices, options.nth_device)?;
        let config = open_file(&folder.join("config"))?;
        // Decoding first: a BAR can be mapped before, but answers nothing.
        ConfigFile(&config).enable_memory_and_bus_master()?;
        let doorbells = Some(folder.join(format!("resource{BAR_DOORBELLS}_wc"))).filter(|path| path.exists());
        let doorbells = doorbells.unwrap_or_else(|| folder.join(format!("resource{BAR_DOORBELLS}")));
        Ok(Self {
            config,
            registers: Mmio::map(BAR_REGISTERS, &open_file(&folder.join(format!("resource{BAR_REGISTERS}")))?)?,
            doorbells: Mmio::map(BAR_DOORBELLS, &open_file(&doorbells)?)?,
            msix: Mmio::map(BAR_MSIX, &open_file(&folder.join(format!("resource{BAR_MSIX}")))?)?,
            memory: huge_pages::allocate(options.memory_bytes)?,
            vectors: None,
        })
    }

    fn bar(&self, bar: u8, offset: u64, length_bytes: u64) -> Result<&Mmio> {
        match bar {
            BAR_REGISTERS => Ok(&self.registers),
            BAR_DOORBELLS => Ok(&self.doorbells),
            BAR_MSIX => Ok(&self.msix),
            _ => Err(BackingError::BarAccess { bar, offset, length_bytes }),
        }
    }
}

fn open_file(path: &Path) -> Result<File> {
    let what = format!("opening {}", path.display());
    File::options().read(true).write(true).open(path).map_err(BackingError::io(what))
}

/// The folder of the `nth` rnic, in the order of the addresses.
fn find_device(devices: &Path, nth: usize) -> Result<PathBuf> {
    let listing = std::fs::read_dir(devices).map_err(BackingError::io(format!("listing {}", devices.display())))?;
    let id = |folder: &Path, name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let mut found: Vec<PathBuf> = listing
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| id(folder, "vendor") == Some(PCI_VENDOR_ID) && id(folder, "device") == Some(PCI_DEVICE_ID))
        .collect();
    found.sort();
    let place = format!("as number {nth} of {} in {}", found.len(), devices.display());
    found.into_iter().nth(nth).ok_or(BackingError::NoDevice { vendor: PCI_VENDOR_ID, device: PCI_DEVICE_ID, place })
}

/// Configuration space as the kernel's file.
struct ConfigFile<'a>(&'a File);

impl ConfigFile<'_> {
    fn write(&self, offset: u16, bytes: &[u8]) -> Result<()> {
        let what = format!("writing configuration space at {offset:#x}");
        self.0.write_all_at(bytes, offset.into()).map_err(BackingError::io(what))
    }
}

impl ConfigSpace for ConfigFile<'_> {
    fn read_config32(&mut self, offset: u16) -> Result<u32> {
        let mut bytes = [0; 4];
        let what = format!("reading configuration space at {offset:#x}");
        self.0.read_exact_at(&mut bytes, offset.into()).map_err(BackingError::io(what))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write_config32(&mut self, offset: u16, value: u32) -> Result<()> {
        self.write(offset, &value.to_le_bytes())
    }

    fn write_config16(&mut self, offset: u16, value: u16) -> Result<()> {
        self.write(offset, &value.to_le_bytes())
    }
}

impl Backing for Guest {
    fn name(&self) -> &'static str {
        "user program in a guest"
    }

    fn read32(&mut self, bar: u8, offset: u64) -> Result<u32> {
        self.bar(bar, offset, 4)?.read32(offset)
    }

    fn read64(&mut self, bar: u8, offset: u64) -> Result<u64> {
        self.bar(bar, offset, 8)?.read64(offset)
    }

    fn write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<()> {
        self.bar(bar, offset, 4)?.write32(offset, value)
    }

    fn write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<()> {
        self.bar(bar, offset, 8)?.write64(offset, value)
    }

    fn write_line(&mut self, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
        self.bar(bar, offset, 64)?.write_line(offset, line)
    }

    super::memory_of_the_backing!();

    fn config_read32(&mut self, offset: u16) -> Result<u32> {
        ConfigFile(&self.config).read_config32(offset)
    }

    fn config_write32(&mut self, offset: u16, value: u32) -> Result<()> {
        ConfigFile(&self.config).write_config32(offset, value)
    }

    fn config_write16(&mut self, offset: u16, value: u16) -> Result<()> {
        ConfigFile(&self.config).write_config16(offset, value)
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

    fn pause(&mut self) -> Result<()> {
        // The device is another process on few cores: let it run.
        std::thread::yield_now();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
