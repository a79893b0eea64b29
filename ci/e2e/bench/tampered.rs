//! A backing whose 64-byte lines are written otherwise than they should be.

use rnic_shim::backing::{Backing, DmaBuffer, Result};
use std::time::Duration;

pub struct Tampered {
    pub inner: Box<dyn Backing>,
    pub write_line: fn(&mut dyn Backing, u8, u64, &[u8; 64]) -> Result<()>,
}

macro_rules! as_inside {
    ($($name:ident($($argument:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&mut self, $($argument: $type),*) -> $out {
            self.inner.$name($($argument),*)
        })*
    };
}

impl Backing for Tampered {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn write_line(&mut self, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
        (self.write_line)(self.inner.as_mut(), bar, offset, line)
    }

    as_inside! {
        read32(bar: u8, offset: u64) -> Result<u32>;
        read64(bar: u8, offset: u64) -> Result<u64>;
        write32(bar: u8, offset: u64, value: u32) -> Result<()>;
        write64(bar: u8, offset: u64, value: u64) -> Result<()>;
        allocate(length_bytes: u64, align_bytes: u64) -> Result<DmaBuffer>;
        release(buffer: DmaBuffer) -> ();
        copy_in(iova: u64, bytes: &[u8]) -> Result<()>;
        copy_out(iova: u64, bytes: &mut [u8]) -> Result<()>;
        load32(iova: u64) -> Result<u32>;
        load64(iova: u64) -> Result<u64>;
        store32(iova: u64, value: u32) -> Result<()>;
        store64(iova: u64, value: u64) -> Result<()>;
        config_read32(offset: u16) -> Result<u32>;
        config_write32(offset: u16, value: u32) -> Result<()>;
        config_write16(offset: u16, value: u16) -> Result<()>;
        enable_vectors(count: u16) -> Result<()>;
        wait_event(vector: u16, timeout: Duration) -> Result<bool>;
        pause() -> Result<()>;
    }
}
