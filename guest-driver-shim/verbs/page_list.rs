//! Describing memory to the device: a contiguous run, a list of pages, or a list of lists.

use super::{Result, VerbsError};
use crate::backing::{Backing, DmaBuffer};
use rnic_abi::PageListFields;

/// Page addresses in one inner list of a two-level list.
const LIST_ENTRIES: usize = 512;
const LIST_BYTES: u64 = 4096;
/// The shift of rings and tables, and of contiguous regions, where it says nothing.
pub(crate) const SMALLEST_SHIFT: u8 = 12;

/// A contiguous run.
pub(crate) fn contiguous(iova: u64) -> PageListFields {
    PageListFields { root: iova.into(), page_shift: SMALLEST_SHIFT, ..PageListFields::zeroed() }
}

/// A page list in DMA memory; it stays until what it describes is gone.
#[derive(Debug)]
pub(crate) struct PageList {
    pub fields: PageListFields,
    pub buffers: Vec<DmaBuffer>,
}

impl PageList {
    /// One level: the addresses side by side.
    pub fn one_level(backing: &mut dyn Backing, page_shift: u8, pages: &[u64]) -> Result<Self> {
        let list = write_list(backing, pages)?;
        Ok(Self { fields: fields(list.iova, page_shift, 1), buffers: vec![list] })
    }

    /// Two levels: the addresses in lists of 512, and a list of those.
    pub fn two_levels(backing: &mut dyn Backing, page_shift: u8, pages: &[u64]) -> Result<Self> {
        let mut buffers = Vec::new();
        for chunk in pages.chunks(LIST_ENTRIES) {
            buffers.push(write_list(backing, chunk)?);
        }
        let lists: Vec<u64> = buffers.iter().map(|list| list.iova).collect();
        let root = write_list(backing, &lists)?;
        buffers.push(root);
        Ok(Self { fields: fields(root.iova, page_shift, 2), buffers })
    }
}

fn fields(root: u64, page_shift: u8, levels: u8) -> PageListFields {
    PageListFields { root: root.into(), page_shift, levels, ..PageListFields::zeroed() }
}

fn write_list(backing: &mut dyn Backing, addresses: &[u64]) -> Result<DmaBuffer> {
    if addresses.is_empty() {
        return Err(VerbsError::Missing { what: "page in the list".into() });
    }
    let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
    // Whole lists, so that the device may read one at once.
    let list = backing.allocate((bytes.len() as u64).next_multiple_of(LIST_BYTES), LIST_BYTES)?;
    backing.copy_in(list.iova, &bytes)?;
    Ok(list)
}
