//! Memory regions: DMA memory under a key, with the rights of local and remote users.

use super::error::check_limit;
use super::page_list::{self, PageList, SMALLEST_SHIFT};
use super::{Device, Pdn, Result, Sge, VerbsError};
use crate::backing::{Backing, DmaBuffer};
use rnic_abi::CommandOpcode;
use rnic_abi::PageListFields;
use rnic_abi::command::*;
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

/// How a region's memory is described to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MrLayout {
    /// One run; the key's context holds its base.
    #[default]
    Contiguous,
    /// A list of page addresses.
    List,
    /// A list of lists.
    TwoLevel,
}

/// A region as it is registered.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// The address of the first byte as work requests and peers name it.
    pub start: u64,
    pub length_bytes: u64,
    /// `ACCESS_*` bits.
    pub access: u32,
    pub layout: MrLayout,
    pub page_shift: u8,
    /// With `Contiguous`, the first byte's IOVA alone; else the pages, the first of which holds the first byte at
    /// `start` modulo the page size.
    pub pages: Vec<u64>,
}

impl RegionSpec {
    /// All of a buffer, named by its own IOVAs.
    pub fn of_buffer(buffer: DmaBuffer, access: u32, layout: MrLayout) -> Self {
        let page_bytes = 1u64 << SMALLEST_SHIFT;
        let first = buffer.iova & !(page_bytes - 1);
        let end = buffer.iova.saturating_add(buffer.length_bytes);
        let pages = match layout {
            MrLayout::Contiguous => vec![buffer.iova],
            _ => (first..end).step_by(page_bytes as usize).collect(),
        };
        let DmaBuffer { iova: start, length_bytes } = buffer;
        Self { start, length_bytes, access, layout, page_shift: SMALLEST_SHIFT, pages }
    }
}

/// What may be changed of a region: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct RegionChange {
    pub pd: Option<Pdn>,
    /// `ACCESS_*` bits.
    pub access: Option<u32>,
    /// Start, length and pages; the access in it says nothing.
    pub translation: Option<RegionSpec>,
}

/// A registered region. Its lkey and rkey are the same number.
#[derive(Debug)]
pub struct MemoryRegion {
    pub key: u32,
    pub pd: Pdn,
    spec: RegionSpec,
    lists: Vec<DmaBuffer>,
}

/// The memory of a region as the device is told of it.
pub(crate) fn describe(backing: &mut dyn Backing, spec: &RegionSpec) -> Result<PageList> {
    check_limit("page shift", spec.page_shift.into(), 30)?;
    match (spec.layout, spec.pages.first()) {
        (_, None) => Err(VerbsError::Missing { what: "page in the region".into() }),
        (MrLayout::Contiguous, Some(first)) => {
            Ok(PageList { fields: page_list::contiguous(*first), buffers: Vec::new() })
        }
        (MrLayout::List, _) => PageList::one_level(backing, spec.page_shift, &spec.pages),
        (MrLayout::TwoLevel, _) => PageList::two_levels(backing, spec.page_shift, &spec.pages),
    }
}

impl Device {
    pub fn register_memory(&mut self, pd: Pdn, spec: RegionSpec) -> Result<MemoryRegion> {
        let list = describe(self.backing.as_mut(), &spec)?;
        let index = self.key_indices.take(None)?;
        let key = index << 8 | u32::from(self.next_key_byte);
        self.next_key_byte = self.next_key_byte.wrapping_add(1);
        let body = RegisterKey {
            key: key.into(),
            pdn: pd.0.into(),
            access: spec.access.into(),
            start: spec.start.into(),
            length_bytes: spec.length_bytes.into(),
            pages: list.fields,
            ..RegisterKey::zeroed()
        };
        if let Err(error) = self.command(CommandOpcode::REGISTER_KEY, body.as_bytes()) {
            self.key_indices.give(index);
            list.buffers.into_iter().for_each(|buffer| self.backing.release(buffer));
            return Err(error);
        }
        Ok(MemoryRegion { key, pd, spec, lists: list.buffers })
    }

    /// Changes a region in place, under traffic; its key has a new low byte afterwards. On a refusal nothing has changed.
    pub fn reregister_memory(&mut self, region: &mut MemoryRegion, change: RegionChange) -> Result<()> {
        let RegionChange { pd, access, translation } = change;
        let mut changes = 0;
        changes |= if pd.is_some() { REREGISTER_PD } else { 0 };
        changes |= if access.is_some() { REREGISTER_ACCESS } else { 0 };
        changes |= if translation.is_some() { REREGISTER_TRANSLATION } else { 0 };
        let list = translation.as_ref().map(|spec| describe(self.backing.as_mut(), spec)).transpose()?;
        let key = region.key & !0xff | u32::from(self.next_key_byte);
        self.next_key_byte = self.next_key_byte.wrapping_add(1);
        let placed = translation.as_ref().unwrap_or(&region.spec);
        let body = RegisterKey {
            key: key.into(),
            pdn: pd.unwrap_or(region.pd).0.into(),
            access: access.unwrap_or(region.spec.access).into(),
            changes: changes.into(),
            start: placed.start.into(),
            length_bytes: placed.length_bytes.into(),
            pages: list.as_ref().map_or(PageListFields::zeroed(), |list| list.fields),
        };
        if let Err(error) = self.command(CommandOpcode::REREGISTER_KEY, body.as_bytes()) {
            list.into_iter().flat_map(|list| list.buffers).for_each(|buffer| self.backing.release(buffer));
            return Err(error);
        }
        region.key = key;
        region.pd = pd.unwrap_or(region.pd);
        if let (Some(spec), Some(list)) = (translation, list) {
            region.spec = RegionSpec { access: region.spec.access, ..spec };
            let old = std::mem::replace(&mut region.lists, list.buffers);
            old.into_iter().for_each(|buffer| self.backing.release(buffer));
        }
        region.spec.access = access.unwrap_or(region.spec.access);
        Ok(())
    }

    pub fn deregister_memory(&mut self, region: MemoryRegion) -> Result<()> {
        self.command_on_object(CommandOpcode::DEREGISTER_KEY, region.key)?;
        self.key_indices.give(region.key >> 8);
        self.forget_memory(region);
        Ok(())
    }

    /// The lists of a region that the device does not know any more, since its reset.
    pub fn forget_memory(&mut self, region: MemoryRegion) {
        region.lists.into_iter().for_each(|list| self.backing.release(list));
    }
}

impl MemoryRegion {
    pub fn start(&self) -> u64 {
        self.spec.start
    }

    pub fn length_bytes(&self) -> u64 {
        self.spec.length_bytes
    }

    /// A scatter-gather element of this region.
    pub fn sge(&self, offset: u64, length_bytes: u32) -> Sge {
        Sge { address: self.spec.start.wrapping_add(offset), length_bytes, lkey: self.key }
    }

    /// Writes the host's own bytes into the region, through its pages.
    pub fn copy_in(&self, device: &mut Device, offset: u64, bytes: &[u8]) -> Result<()> {
        self.for_each_run(offset, bytes.len(), |iova, range| Ok(device.backing.copy_in(iova, &bytes[range])?))
    }

    pub fn copy_out(&self, device: &mut Device, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let length = bytes.len();
        self.for_each_run(offset, length, |iova, range| Ok(device.backing.copy_out(iova, &mut bytes[range])?))
    }

    fn for_each_run(
        &self,
        offset: u64,
        length: usize,
        mut visit: impl FnMut(u64, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let region_bytes = self.spec.length_bytes;
        let outside = || VerbsError::RegionRange { offset, length_bytes: length as u64, region_bytes };
        if offset.checked_add(length as u64).is_none_or(|end| end > region_bytes) {
            return Err(outside());
        }
        let mut done = 0;
        while done < length {
            let (iova, room) = self.run_at(offset + done as u64).ok_or_else(outside)?;
            let step = room.min((length - done) as u64) as usize;
            visit(iova, done..done + step)?;
            done += step;
        }
        Ok(())
    }

    /// The IOVA of an offset and how many bytes follow it without a break.
    fn run_at(&self, offset: u64) -> Option<(u64, u64)> {
        if self.spec.layout == MrLayout::Contiguous {
            return Some((self.spec.pages.first()?.checked_add(offset)?, u64::MAX));
        }
        let page_bytes = 1u64 << self.spec.page_shift;
        let at = (self.spec.start & (page_bytes - 1)).checked_add(offset)?;
        let page = self.spec.pages.get(usize::try_from(at >> self.spec.page_shift).ok()?)?;
        let within = at & (page_bytes - 1);
        Some((page.checked_add(within)?, page_bytes - within))
    }
}
