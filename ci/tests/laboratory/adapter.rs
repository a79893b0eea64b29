//! An adapter for tests of the laboratory itself: a PCIe endpoint with one BAR, served by the crate `vfio_user`. Its
//! first register reads as a known word, and it keeps what was written to the BAR and how memory was announced.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use vfio_bindings::bindings::vfio::{VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

pub const VENDOR: u16 = 0x1234;
pub const DEVICE: u16 = 0x12b7;
pub const FIRST_REGISTER: u32 = 0x524e_4943;
const BAR_BYTES: u64 = 4096;
const CONFIG_BYTES: usize = 4096;
const CONFIG_REGION: u32 = 7;

/// What the adapter saw.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub bar_writes: Vec<(u64, Vec<u8>)>,
    pub maps_with_descriptor: usize,
    /// Writable maps, so without ROM.
    pub maps_without_descriptor: usize,
}

struct Adapter {
    config: Vec<u8>,
    seen: Arc<Mutex<Seen>>,
}

/// Serves one client at `path` from a thread of its own.
pub fn serve(path: &Path) -> Arc<Mutex<Seen>> {
    let region = |index, size| ServerRegion {
        region_info: vfio_region_info {
            argsz: 32,
            flags: if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 },
            index,
            size,
            ..Default::default()
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    };
    let size = |index| match index {
        0 => BAR_BYTES,
        CONFIG_REGION => CONFIG_BYTES as u64,
        _ => 0,
    };
    let regions = (0..9).map(|index| region(index, size(index))).collect();
    let irqs = (0..5).map(|index| IrqInfo { index, flags: 0, count: u32::from(index == 3) }).collect();
    let server = Server::new(path, true, irqs, regions).expect("a server");
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut adapter = Adapter { config: config_space(), seen: Arc::clone(&seen) };
    thread::spawn(move || server.run(&mut adapter));
    seen
}

/// Type 0 header with one memory BAR and the capability of a PCIe endpoint.
fn config_space() -> Vec<u8> {
    let mut config = vec![0u8; CONFIG_BYTES];
    config[0..2].copy_from_slice(&VENDOR.to_le_bytes());
    config[2..4].copy_from_slice(&DEVICE.to_le_bytes());
    config[6] = 0x10; // it has capabilities
    config[11] = 0x02; // network controller
    config[0x34] = 0x40;
    config[0x40..0x44].copy_from_slice(&[0x10, 0, 0x02, 0]); // PCIe, last, version 2 endpoint
    config
}

impl ServerBackend for Adapter {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.fill(0);
        let offset = offset as usize;
        if region == CONFIG_REGION {
            data.copy_from_slice(&self.config[offset..offset + data.len()]);
        } else if region == 0 && offset == 0 && data.len() == 4 {
            data.copy_from_slice(&FIRST_REGISTER.to_le_bytes());
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if region == CONFIG_REGION {
            let offset = offset as usize;
            self.config[offset..offset + data.len()].copy_from_slice(data);
            // The BAR's size shows as bits that cannot be set.
            self.config[0x10] &= 0xf0;
            self.config[0x11] &= !((BAR_BYTES - 1) >> 8) as u8;
            self.config[0x10] = 0;
        } else {
            self.seen.lock().expect("not poisoned").bar_writes.push((offset, data.to_vec()));
        }
        Ok(())
    }

    fn dma_map(&mut self, flags: DmaMapFlags, _: u64, _: u64, _: u64, fd: Option<File>) -> io::Result<()> {
        let mut seen = self.seen.lock().expect("not poisoned");
        match fd {
            Some(_) => seen.maps_with_descriptor += 1,
            None if flags.contains(DmaMapFlags::READ_WRITE) => seen.maps_without_descriptor += 1,
            None => {}
        }
        Ok(())
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_irqs(&mut self, _: u32, _: u32, _: u32, _: u32, _: Vec<File>) -> io::Result<()> {
        Ok(())
    }
}
