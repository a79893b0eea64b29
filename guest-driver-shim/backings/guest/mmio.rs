//! A BAR mapped into this process: aligned volatile accesses, each store after everything written to memory before.

use crate::backing::{BackingError, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::ptr::NonNull;

/// A mapped BAR, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mmio {
    bar: u8,
    pointer: NonNull<u8>,
    length: usize,
}

impl Mmio {
    pub fn map(bar: u8, file: &File) -> Result<Self> {
        let what = || format!("mapping BAR {bar}");
        let length = file.metadata().map_err(BackingError::io(what()))?.len() as usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that Rust knows of.
        let pointer = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let pointer = pointer.map_err(BackingError::errno(what()))?;
        let pointer = NonNull::new(pointer.cast()).ok_or_else(|| BackingError::Missing { what: what() })?;
        Ok(Self { bar, pointer, length })
    }

    fn at<T>(&self, offset: u64) -> Result<*mut T> {
        let length_bytes = size_of::<T>() as u64;
        let end = offset.checked_add(length_bytes).filter(|end| *end <= self.length as u64);
        match end {
            Some(_) if offset.is_multiple_of(length_bytes) => {
                // SAFETY: offset lies within the mapping, so the result stays in it.
                Ok(unsafe { self.pointer.as_ptr().add(offset as usize) }.cast())
            }
            _ => Err(BackingError::BarAccess { bar: self.bar, offset, length_bytes }),
        }
    }

    pub fn read32(&self, offset: u64) -> Result<u32> {
        // SAFETY: at() has checked range and alignment; the mapping lives as long as self.
        Ok(u32::from_le(unsafe { self.at::<u32>(offset)?.read_volatile() }))
    }

    pub fn read64(&self, offset: u64) -> Result<u64> {
        // SAFETY: at() has checked range and alignment; the mapping lives as long as self.
        Ok(u64::from_le(unsafe { self.at::<u64>(offset)?.read_volatile() }))
    }

    pub fn write32(&self, offset: u64, value: u32) -> Result<()> {
        let pointer = self.at::<u32>(offset)?;
        store_fence();
        // SAFETY: at() has checked range and alignment; the mapping lives as long as self.
        unsafe { pointer.write_volatile(value.to_le()) };
        Ok(())
    }

    pub fn write64(&self, offset: u64, value: u64) -> Result<()> {
        let pointer = self.at::<u64>(offset)?;
        store_fence();
        // SAFETY: at() has checked range and alignment; the mapping lives as long as self.
        unsafe { pointer.write_volatile(value.to_le()) };
        Ok(())
    }

    /// Eight ascending stores with one fence before them and one behind, which empties the write-combining buffer.
    pub fn write_line(&self, offset: u64, line: &[u8; 64]) -> Result<()> {
        let first = self.at::<[u64; 8]>(offset)?.cast::<u64>();
        store_fence();
        for (index, word) in line.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            // SAFETY: at() has checked all 64 bytes and their alignment; index is below 8.
            unsafe { first.add(index).write_volatile(word) };
        }
        store_fence();
        Ok(())
    }
}

/// Everything stored before is visible before anything stored after, write-combining memory included.
fn store_fence() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SFENCE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

impl Drop for Mmio {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this struct with this length, and nothing refers to it any more.
        if let Err(errno) = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.length) } {
            log::warn!("unmapping BAR {}: {errno}", self.bar);
        }
    }
}
