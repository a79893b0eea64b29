//! The message's buffer in host memory: pages, canaries before and behind, and the bytes a seed gives.
//!
//! The pages of a listed region stand in memory in reverse order, so that a device which ignored the list would be
//! caught.

use crate::backing::{Backing, DmaBuffer};
use crate::verbs::{MrLayout, RegionSpec, Result, VerbsError};

/// What surrounds the message.
pub const CANARY: u8 = 0xa5;
const PAGE_SHIFT: u8 = 12;
const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// How much of it there is on each side, at least: a page, so that the message itself begins at one.
pub const GUARD_BYTES: u64 = PAGE_BYTES;

/// A buffer of whole pages.
#[derive(Debug)]
pub struct HostBuffer {
    memory: DmaBuffer,
    /// In the order of addresses.
    pages: Vec<u64>,
    layout: MrLayout,
    /// Of the first page as work requests name it: no IOVA.
    address: u64,
    message_bytes: u64,
}

impl HostBuffer {
    /// Allocates it, filled with canaries.
    pub fn new(backing: &mut dyn Backing, layout: MrLayout, address: u64, message_bytes: u64) -> Result<Self> {
        let bytes = (message_bytes + 2 * GUARD_BYTES).next_multiple_of(PAGE_BYTES);
        let memory = backing.allocate(bytes, PAGE_BYTES)?;
        let mut pages: Vec<u64> = (memory.iova..memory.iova + bytes).step_by(PAGE_BYTES as usize).collect();
        if layout != MrLayout::Contiguous {
            pages.reverse();
        }
        for page in &pages {
            backing.copy_in(*page, &[CANARY; PAGE_BYTES as usize])?;
        }
        Ok(Self { memory, pages, layout, address, message_bytes })
    }

    /// The region that is exactly the message.
    pub fn region(&self, access: u32) -> RegionSpec {
        let pages = match self.layout {
            MrLayout::Contiguous => vec![self.memory.iova + GUARD_BYTES],
            _ => {
                let lead = (self.address + GUARD_BYTES) % PAGE_BYTES;
                let pages = (lead + self.message_bytes).div_ceil(PAGE_BYTES).max(1);
                let pages = self.pages.iter().skip((GUARD_BYTES / PAGE_BYTES) as usize).take(pages as usize);
                pages.copied().collect()
            }
        };
        RegionSpec {
            start: self.address + GUARD_BYTES,
            length_bytes: self.message_bytes,
            access,
            layout: self.layout,
            page_shift: PAGE_SHIFT,
            pages,
        }
    }

    pub fn write_message(&self, backing: &mut dyn Backing, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (iova, room) = self.at(GUARD_BYTES + done as u64)?;
            let step = room.min(bytes.len() - done);
            backing.copy_in(iova, &bytes[done..done + step])?;
            done += step;
        }
        Ok(())
    }

    /// The message's bytes, and everything around it.
    pub fn read(&self, backing: &mut dyn Backing) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut all = vec![0; self.memory.length_bytes as usize];
        for (page, bytes) in self.pages.iter().zip(all.chunks_exact_mut(PAGE_BYTES as usize)) {
            backing.copy_out(*page, bytes)?;
        }
        let start = GUARD_BYTES as usize;
        let around_end = all.split_off(start + self.message_bytes as usize);
        let message = all.split_off(start);
        all.extend(around_end);
        Ok((message, all))
    }

    pub fn release(self, backing: &mut dyn Backing) {
        backing.release(self.memory);
    }

    fn at(&self, offset: u64) -> Result<(u64, usize)> {
        let within = offset % PAGE_BYTES;
        let page = self.pages.get((offset / PAGE_BYTES) as usize);
        let page =
            page.ok_or(VerbsError::RegionRange { offset, length_bytes: 0, region_bytes: self.memory.length_bytes })?;
        Ok((page + within, (PAGE_BYTES - within) as usize))
    }
}

/// A message's bytes: SplitMix64 over the seed, so that no page equals another.
pub fn payload(seed: u64, length_bytes: u32) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length_bytes as usize + 8);
    while bytes.len() < length_bytes as usize {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ word >> 31).to_le_bytes());
    }
    bytes.truncate(length_bytes as usize);
    bytes
}
