//! From the function's DMA addresses to guest RAM: maps that come and go while the device runs.
//!
//! A map's bytes are reached through a mapping of the client's file, or by messages to the client where it sent
//! none. A transfer may span maps; how the client sliced its memory shows nowhere. Nothing here counts or orders
//! anything: the link does.

#[cfg(test)]
mod tests;

use crate::guest_region::{GuestFiles, GuestRegion, RegionError};
use crate::lost_memory::lost_so_far;
use crate::planted::planted;
use crate::{DmaFault, DmaRange, Iova, guest_copy};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use vm_memory::VolatileSlice;

/// The most maps at a time, as the client is told.
pub const MAX_MAPS: usize = 65_535;

/// What the device may do with a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub read: bool,
    pub write: bool,
}

impl Permissions {
    pub const READ_WRITE: Self = Self { read: true, write: true };
    pub const READ_ONLY: Self = Self { read: true, write: false };

    fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
        }
    }
}

/// Which way a transfer goes, seen from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// How a map's bytes are reached.
#[derive(Clone, Debug)]
pub enum Backing {
    /// A mapping of the client's memory; the map starts `offset` bytes into it.
    Mapped { region: Arc<GuestRegion>, offset: u64 },
    /// By messages to the client.
    Message,
}

/// Why a map was refused. The client's own tables are not changed by that.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("a map of no bytes at {iova:#x}")]
    Empty { iova: u64 },
    #[error("a map at {iova:#x} of {length_bytes:#x} bytes ends after the address space")]
    BeyondAddressSpace { iova: u64, length_bytes: u64 },
    #[error("a map at {iova:#x} of {length_bytes:#x} bytes overlaps the one at {other:#x}")]
    Overlap { iova: u64, length_bytes: u64, other: u64 },
    #[error("offset {offset:#x} and length {length_bytes:#x} end after the region's {size_bytes:#x} bytes")]
    BeyondRegion { offset: u64, length_bytes: u64, size_bytes: u64 },
    #[error("{MAX_MAPS} maps exist already")]
    TooManyMaps,
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// A stretch of a transfer that is reached in one way.
#[derive(Clone, Debug)]
pub(crate) enum Piece<'a> {
    Mapped(VolatileSlice<'a>),
    Message { length_bytes: u64 },
}

impl Piece<'_> {
    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            Piece::Mapped(slice) => slice.len() as u64,
            Piece::Message { length_bytes } => *length_bytes,
        }
    }
}

/// How a whole transfer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Mapped,
    /// At least a part goes by message.
    Message,
}

#[derive(Clone, Debug)]
struct Map {
    start: u64,
    /// The last byte, so that a map may end where the address space does. Before `start` in a free slot.
    last: u64,
    permissions: Permissions,
    backing: Backing,
}

impl Map {
    const FREE: Self =
        Self { start: 1, last: 0, permissions: Permissions { read: false, write: false }, backing: Backing::Message };

    fn holds(&self, iova: u64) -> bool {
        self.start <= iova && iova <= self.last
    }
}

/// The maps of one function.
#[derive(Debug, Default)]
pub struct DmaWindow {
    slots: Vec<Map>,
    free: Vec<u32>,
    by_start: BTreeMap<u64, u32>,
    /// The slot that the latest lookup found: most lookups find it again.
    latest: Cell<u32>,
    files: GuestFiles,
}

impl DmaWindow {
    /// Adds a map. Where its memory allows no writing, neither does the map.
    pub fn map(
        &mut self,
        iova: u64,
        length_bytes: u64,
        mut permissions: Permissions,
        backing: Backing,
    ) -> Result<(), MapError> {
        let last = length_bytes.checked_sub(1).ok_or(MapError::Empty { iova })?;
        let last = iova.checked_add(last).ok_or(MapError::BeyondAddressSpace { iova, length_bytes })?;
        if let Some(other) = self.overlapping(iova, last) {
            return Err(MapError::Overlap { iova, length_bytes, other });
        }
        if let Backing::Mapped { region, offset } = &backing {
            if region.slice(*offset, length_bytes).is_none() {
                let size_bytes = region.size_bytes();
                return Err(MapError::BeyondRegion { offset: *offset, length_bytes, size_bytes });
            }
            permissions.write &= region.writable();
        }
        if self.by_start.len() >= MAX_MAPS {
            return Err(MapError::TooManyMaps);
        }
        let map = Map { start: iova, last, permissions, backing };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Map::FREE);
                (self.slots.len() - 1) as u32
            }
        };
        self.slots[slot as usize] = map;
        self.by_start.insert(iova, slot);
        Ok(())
    }

    /// Adds a map of a part of a file, which is mapped into this process once for all its maps.
    pub fn map_file(
        &mut self,
        iova: u64,
        length_bytes: u64,
        permissions: Permissions,
        file: File,
        offset: u64,
    ) -> Result<(), MapError> {
        let region = self.files.share(file, offset, length_bytes)?;
        self.map(iova, length_bytes, permissions, Backing::Mapped { region, offset })
    }

    /// Removes every map that lies wholly in the range, and says how many. A range need not equal a map, nor hold
    /// one; a map that it holds in part stays.
    pub fn unmap(&mut self, iova: u64, length_bytes: u64) -> usize {
        let Some(extent) = length_bytes.checked_sub(1) else { return 0 };
        self.unmap_through(iova, iova.saturating_add(extent))
    }

    pub fn unmap_all(&mut self) -> usize {
        let removed = self.unmap_through(0, u64::MAX);
        self.files.release_unused();
        removed
    }

    fn unmap_through(&mut self, start: u64, last: u64) -> usize {
        let contained: Vec<(u64, u32)> = self
            .by_start
            .range(start..=last)
            .map(|(&start, &slot)| (start, slot))
            .filter(|&(_, slot)| {
                planted("unmap removes what it only touches") || self.slots[slot as usize].last <= last
            })
            .collect();
        for &(start, slot) in &contained {
            self.by_start.remove(&start);
            self.slots[slot as usize] = Map::FREE;
            self.free.push(slot);
        }
        contained.len()
    }

    pub fn map_count(&self) -> usize {
        self.by_start.len()
    }

    /// Distinct files that are mapped.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The start of a map that shares a byte with the range.
    fn overlapping(&self, start: u64, last: u64) -> Option<u64> {
        let (&other, &slot) = self.by_start.range(..=last).next_back()?;
        (self.slots[slot as usize].last >= start).then_some(other)
    }

    #[inline]
    fn lookup(&self, iova: u64, access: Access) -> Result<&Map, DmaFault> {
        let latest = self.slots.get(self.latest.get() as usize).filter(|map| map.holds(iova));
        let map = match latest {
            Some(map) => map,
            None => self.search(iova).ok_or(DmaFault::UnsupportedRequest)?,
        };
        if map.permissions.allows(access) { Ok(map) } else { Err(DmaFault::UnsupportedRequest) }
    }

    #[cold]
    fn search(&self, iova: u64) -> Option<&Map> {
        let (_, &slot) = self.by_start.range(..=iova).next_back()?;
        let map = self.slots.get(slot as usize).filter(|map| map.holds(iova))?;
        self.latest.set(slot);
        Some(map)
    }

    /// The first stretch of a transfer that is reached in one way: at least a byte, at most `length_bytes`.
    #[inline]
    pub(crate) fn piece(&self, iova: u64, length_bytes: u64, access: Access) -> Result<Piece<'_>, DmaFault> {
        let map = self.lookup(iova, access)?;
        // In a map of the whole address space the distance to its end has no successor.
        let in_map = length_bytes.min((map.last - iova).saturating_add(1));
        match &map.backing {
            Backing::Mapped { region, .. } if region.is_lost() => Err(DmaFault::UnsupportedRequest),
            Backing::Mapped { region, offset } => {
                region.slice(offset + (iova - map.start), in_map).map(Piece::Mapped).ok_or(DmaFault::UnsupportedRequest)
            }
            Backing::Message => {
                Ok(Piece::Message { length_bytes: self.message_stretch(iova, in_map, length_bytes, access) })
            }
        }
    }

    /// Messages do not show where the client's maps meet: neighbours are one stretch.
    fn message_stretch(&self, iova: u64, in_map: u64, length_bytes: u64, access: Access) -> u64 {
        let mut stretch = in_map;
        while stretch < length_bytes {
            let next = iova.checked_add(stretch).map(|next| (next, self.lookup(next, access)));
            let Some((next, Ok(Map { last, backing: Backing::Message, .. }))) = next else { break };
            stretch = length_bytes.min(stretch + (last - next).saturating_add(1));
        }
        stretch
    }

    /// How a range is reached, or the fault where a byte of it is not.
    #[inline]
    pub(crate) fn reach(&self, range: DmaRange, access: Access) -> Result<Reach, DmaFault> {
        let mut reach = Reach::Mapped;
        let mut iova = range.iova.0;
        let mut left = u64::from(range.length_bytes);
        while left > 0 {
            let piece = self.piece(iova, left, access)?;
            if matches!(piece, Piece::Message { .. }) {
                reach = Reach::Message;
            }
            left -= piece.length_bytes();
            if left > 0 {
                iova = iova.checked_add(piece.length_bytes()).ok_or(DmaFault::UnsupportedRequest)?;
            }
        }
        Ok(reach)
    }

    /// Reads mapped memory. The bytes of a stretch reached by message are left alone and are a fault.
    #[inline]
    pub(crate) fn read_mapped(&self, iova: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let lost_before = lost_so_far();
        let mut done = 0;
        while done < into.len() {
            let at = iova.checked_add(done as u64).ok_or(DmaFault::UnsupportedRequest)?;
            let rest = &mut into[done..];
            match self.piece(at, rest.len() as u64, Access::Read)? {
                Piece::Mapped(slice) => {
                    guest_copy::read(&slice, rest);
                    done += slice.len();
                }
                Piece::Message { .. } => return Err(DmaFault::UnsupportedRequest),
            }
        }
        self.still_there(lost_before, iova, into.len(), Access::Read)
    }

    /// Memory that was lost under the copy gives a fault, like memory that was lost before.
    #[inline]
    fn still_there(&self, lost_before: u32, iova: u64, length: usize, access: Access) -> Result<(), DmaFault> {
        if lost_so_far() == lost_before {
            return Ok(());
        }
        self.reach(DmaRange { iova: Iova(iova), length_bytes: length as u32 }, access).map(drop)
    }

    /// Writes mapped memory, in ascending order.
    #[inline]
    pub(crate) fn write_mapped(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault> {
        let lost_before = lost_so_far();
        let mut done = 0;
        while done < from.len() {
            let at = iova.checked_add(done as u64).ok_or(DmaFault::UnsupportedRequest)?;
            let rest = &from[done..];
            match self.piece(at, rest.len() as u64, Access::Write)? {
                Piece::Mapped(slice) => {
                    guest_copy::write(rest, &slice);
                    done += slice.len();
                }
                Piece::Message { .. } => return Err(DmaFault::UnsupportedRequest),
            }
        }
        self.still_there(lost_before, iova, from.len(), Access::Write)
    }
}
