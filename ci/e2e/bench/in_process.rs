//! A driver's way to an adapter of this process with no socket between: its thread is asked for each access.

use super::fabric::Fabric;
use rnic_device::adapter::Adapter;
use rnic_device::vfio_user::Backend;
use rnic_device::vfio_user::device_tables::CONFIG_REGION;
use rnic_pcie::dma_window::Permissions;
use rnic_shim::backing::Backing;
use rnic_shim::backings::in_process::{InProcess, InProcessDevice, ModelHost};
use std::fs::File;
use std::io;
use std::sync::Arc;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

struct Direct {
    fabric: Arc<Fabric>,
    name: &'static str,
    vectors: Vec<EventFd>,
}

/// A model host whose device is this adapter.
pub fn backing(fabric: &Arc<Fabric>, name: &'static str) -> Box<dyn Backing> {
    let device = Direct { fabric: Arc::clone(fabric), name, vectors: Vec::new() };
    Box::new(InProcess::open(device, ModelHost::default()).expect("a device in this process"))
}

impl Direct {
    fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&mut Adapter) -> T + Send + 'static) -> io::Result<T> {
        self.fabric.adapter(self.name).call(ask).map_err(io::Error::other)
    }

    fn load(&self, region: u32, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut loaded = vec![0; bytes.len()];
        let loaded =
            self.ask(move |adapter| adapter.function.region_read(region, offset, &mut loaded).map(|()| loaded))??;
        bytes.copy_from_slice(&loaded);
        Ok(())
    }

    fn store(&self, region: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let bytes = bytes.to_vec();
        Ok(self.ask(move |adapter| adapter.function.region_write(region, offset, &bytes))??)
    }
}

impl InProcessDevice for Direct {
    fn mmio_read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.load(bar.into(), offset, bytes)
    }

    fn mmio_write(&mut self, bar: u8, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.store(bar.into(), offset, bytes)
    }

    fn config_read(&mut self, offset: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.load(CONFIG_REGION, offset.into(), bytes)
    }

    fn config_write(&mut self, offset: u16, bytes: &[u8]) -> io::Result<()> {
        self.store(CONFIG_REGION, offset.into(), bytes)
    }

    fn map(&mut self, iova: u64, file: File, file_offset: u64, length_bytes: u64) -> io::Result<()> {
        let map = move |adapter: &mut Adapter| {
            adapter.function.link.map_file(iova, length_bytes, Permissions::READ_WRITE, file, file_offset)
        };
        self.ask(map)?.map_err(io::Error::other)
    }

    fn connect_vectors(&mut self, count: u16) -> io::Result<()> {
        for vector in 0..count {
            let ours = EventFd::new(EFD_NONBLOCK)?;
            let theirs = ours.try_clone()?;
            let set = self.ask(move |adapter| adapter.function.link.set_vector_eventfd(vector, Some(theirs)))?;
            assert!(set, "vector {vector}");
            self.vectors.push(ours);
        }
        Ok(())
    }

    fn take_vector(&mut self, vector: u16) -> io::Result<bool> {
        match self.vectors[usize::from(vector)].read() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn step(&mut self) -> io::Result<()> {
        std::thread::yield_now();
        Ok(())
    }
}
