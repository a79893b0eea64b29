//! The driver's way to its adapter: loads, stores and configuration, as a bus would bring them.

use super::*;
use rnic_pcie::dma_window::Permissions;
use rnic_shim::backings::in_process::InProcessDevice;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::rc::Rc;

/// The driver's way to its adapter. The fabric has another handle on the same one.
#[derive(Clone)]
pub struct Handle(pub Rc<RefCell<Adapter>>);

impl InProcessDevice for Handle {
    fn mmio_read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let adapter = &mut *self.0.borrow_mut();
        let writes = adapter.combiner.flush();
        adapter.deliver(BAR_DOORBELLS, &writes);
        adapter.engine.handle_read(adapter.now_ns, &mut adapter.link, bar, offset, bytes);
        Ok(())
    }

    fn mmio_write(&mut self, bar: u8, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().store(bar, offset, bytes);
        Ok(())
    }

    fn config_read(&mut self, offset: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.0.borrow().config.read(offset.into(), bytes);
        Ok(())
    }

    fn config_write(&mut self, offset: u16, bytes: &[u8]) -> io::Result<()> {
        let adapter = &mut *self.0.borrow_mut();
        let effects = adapter.config.write(offset.into(), bytes);
        if effects.flr {
            let writes = adapter.combiner.flush();
            adapter.deliver(BAR_DOORBELLS, &writes);
            adapter.discard();
            adapter.engine.handle_reset();
            adapter.config.function_level_reset();
            adapter.link.reset_msix();
        }
        adapter.apply_config();
        Ok(())
    }

    fn map(&mut self, iova: u64, file: File, file_offset: u64, length_bytes: u64) -> io::Result<()> {
        let link = &mut self.0.borrow_mut().link;
        link.map_file(iova, length_bytes, Permissions::READ_WRITE, file, file_offset).map_err(io::Error::other)
    }

    fn connect_vectors(&mut self, _count: u16) -> io::Result<()> {
        Err(io::Error::other("the simulation's hosts poll"))
    }

    fn take_vector(&mut self, _vector: u16) -> io::Result<bool> {
        Ok(false)
    }

    /// The driver waits for an answer: time stands still, and what is held back comes home.
    fn step(&mut self) -> io::Result<()> {
        self.0.borrow_mut().release_reads(|_| true);
        Ok(())
    }
}
