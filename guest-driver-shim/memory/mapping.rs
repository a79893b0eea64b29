//! One shared mapping that the device accesses at the same time: words are atomic, bytes volatile.

use crate::backing::{BackingError, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Memory shared with the device, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    pointer: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory that every access reaches through atomics or volatile accesses by offset; it
// belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps part of a file, shared.
    pub fn of_file(file: impl AsFd, offset: u64, length: usize) -> Result<Self> {
        let what = || format!("mapping {length} bytes of a file at {offset:#x}");
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that Rust knows of.
        let pointer = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset)
        };
        Self::own(pointer.map_err(BackingError::errno(what()))?, length)
    }

    /// Maps one 2 MiB huge page, present and locked.
    pub fn of_huge_page(length: usize) -> Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::HUGETLB | MapFlags::HUGE_2MB | MapFlags::POPULATE | MapFlags::LOCKED;
        // SAFETY: as above, a new mapping.
        let pointer = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        Self::own(pointer.map_err(BackingError::errno("mapping a huge page of 2 MiB"))?, length)
    }

    fn own(pointer: *mut core::ffi::c_void, length: usize) -> Result<Self> {
        let pointer = NonNull::new(pointer.cast()).ok_or_else(|| BackingError::Missing { what: "mapping".into() })?;
        Ok(Self { pointer, length })
    }

    pub fn length_bytes(&self) -> u64 {
        self.length as u64
    }

    /// Where the mapping stands in this process: for /proc/self/pagemap.
    pub fn address(&self) -> usize {
        self.pointer.as_ptr() as usize
    }

    /// A pointer to `size` aligned bytes; `None` when they are not all inside.
    fn at(&self, offset: usize, size: usize) -> Option<*mut u8> {
        let end = offset.checked_add(size)?;
        if end > self.length {
            return None;
        }
        // SAFETY: offset is at most the mapping's length, so the result stays in the same mapping.
        Some(unsafe { self.pointer.as_ptr().add(offset) })
    }

    fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        let pointer = self.at(offset, 4).filter(|_| offset.is_multiple_of(4))?;
        // SAFETY: four aligned bytes of a mapping that lives as long as self; all accesses of this size are atomic.
        Some(unsafe { AtomicU32::from_ptr(pointer.cast()) })
    }

    fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        let pointer = self.at(offset, 8).filter(|_| offset.is_multiple_of(8))?;
        // SAFETY: eight aligned bytes of a mapping that lives as long as self; all accesses of this size are atomic.
        Some(unsafe { AtomicU64::from_ptr(pointer.cast()) })
    }

    pub fn load32(&self, offset: usize) -> Option<u32> {
        Some(u32::from_le(self.word32(offset)?.load(Ordering::Acquire)))
    }

    pub fn load64(&self, offset: usize) -> Option<u64> {
        Some(u64::from_le(self.word64(offset)?.load(Ordering::Acquire)))
    }

    pub fn store32(&self, offset: usize, value: u32) -> Option<()> {
        self.word32(offset)?.store(value.to_le(), Ordering::Release);
        Some(())
    }

    pub fn store64(&self, offset: usize, value: u64) -> Option<()> {
        self.word64(offset)?.store(value.to_le(), Ordering::Release);
        Some(())
    }

    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        self.at(offset, bytes.len())?;
        let (head, rest) = bytes.split_at(to_word(offset).min(bytes.len()));
        self.write_bytes(offset, head)?;
        let mut at = offset + head.len();
        let words = rest.chunks_exact(8);
        let tail = words.remainder();
        for word in words {
            self.word64(at)?.store(u64::from_ne_bytes(word.try_into().ok()?), Ordering::Relaxed);
            at += 8;
        }
        self.write_bytes(at, tail)
    }

    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Option<()> {
        self.at(offset, bytes.len())?;
        let (head, rest) = bytes.split_at_mut(to_word(offset).min(bytes.len()));
        self.read_bytes(offset, head)?;
        let mut at = offset + head.len();
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.word64(at)?.load(Ordering::Relaxed).to_ne_bytes());
            at += 8;
        }
        self.read_bytes(at, words.into_remainder())
    }

    pub fn zero(&self, offset: usize, length: usize) -> Option<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut done = 0;
        while done < length {
            let step = (length - done).min(ZEROS.len());
            self.copy_in(offset + done, &ZEROS[..step])?;
            done += step;
        }
        Some(())
    }

    fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        let pointer = self.at(offset, bytes.len())?;
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: at() has checked offset to offset + len; volatile, because the device accesses it too.
            unsafe { pointer.add(index).write_volatile(*byte) };
        }
        Some(())
    }

    fn read_bytes(&self, offset: usize, bytes: &mut [u8]) -> Option<()> {
        let pointer = self.at(offset, bytes.len())?;
        for (index, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: at() has checked offset to offset + len; volatile, because the device accesses it too.
            *byte = unsafe { pointer.add(index).read_volatile() };
        }
        Some(())
    }
}

/// Bytes up to the next 8-byte boundary.
fn to_word(offset: usize) -> usize {
    offset.wrapping_neg() % 8
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this struct with this length, and nothing refers to it any more.
        if let Err(errno) = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.length) } {
            log::warn!("unmapping {} bytes of DMA memory: {errno}", self.length);
        }
    }
}
