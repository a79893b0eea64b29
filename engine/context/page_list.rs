//! Page lists: one description of memory for regions, rings and tables.

use rnic_pcie::Iova;

/// Entries of 8 bytes in one cache line of a list.
pub const ENTRIES_PER_LINE: u64 = 8;
/// Entries of an inner list of a two-level page list.
const INNER_ENTRIES: u64 = 512;

/// A contiguous run (levels 0), a list of pages (1), or a list of 4096-byte lists (2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageList {
    pub root: u64,
    pub page_shift: u8,
    pub levels: u8,
}

/// Where in a page list a byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub page_index: u64,
    pub offset: u64,
}

impl PageList {
    /// `None` where the fields are not a page list: shift, levels or alignment.
    pub fn new(root: u64, page_shift: u8, levels: u8) -> Option<Self> {
        let aligned = levels == 0 || root.is_multiple_of(64);
        ((12..=30).contains(&page_shift) && levels <= 2 && aligned).then_some(Self { root, page_shift, levels })
    }

    pub const fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// The page that holds byte `offset`, counted from the first page's start.
    pub const fn place(&self, offset: u64) -> Place {
        Place { page_index: offset >> self.page_shift, offset: offset & (self.page_bytes() - 1) }
    }

    /// Where the outer (or only) list's entry for a page stands.
    pub const fn outer_entry(&self, page_index: u64) -> Option<Iova> {
        let entry = if self.levels == 2 { page_index / INNER_ENTRIES } else { page_index };
        Iova(self.root).checked_add(entry * 8)
    }

    /// Where the inner list's entry for a page stands.
    pub const fn inner_entry(inner_list: u64, page_index: u64) -> Option<Iova> {
        Iova(inner_list).checked_add(page_index % INNER_ENTRIES * 8)
    }

    /// Whether `length` bytes from `offset` have addresses that do not wrap, as far as the list's shape tells.
    pub fn covers(&self, offset: u64, length: u64) -> bool {
        let Some(end) = offset.checked_add(length) else { return false };
        let last_page = end.saturating_sub(1) >> self.page_shift;
        match self.levels {
            0 => self.root.checked_add(end).is_some(),
            _ => self.outer_entry(last_page).and_then(|entry| entry.checked_add(8)).is_some(),
        }
    }
}
