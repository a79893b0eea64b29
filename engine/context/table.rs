//! A backing table: host memory that the driver handed over for the contexts of one kind.

use super::page_list::PageList;
use rnic_pcie::Iova;

/// Its page addresses are read once, when the table is set: a write-back must never wait for a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub log_entries: u8,
    entry_bytes: u64,
    page_shift: u8,
    /// One address for a contiguous run; otherwise one a page.
    pages: Vec<u64>,
    contiguous: bool,
}

impl Table {
    /// The table of a page list whose pages are `pages` (empty for a contiguous run).
    pub fn new(list: &PageList, log_entries: u8, entry_bytes: u16, pages: Vec<u64>) -> Self {
        let contiguous = list.levels == 0;
        let pages = if contiguous { vec![list.root] } else { pages };
        Self { log_entries, entry_bytes: entry_bytes.into(), page_shift: list.page_shift, pages, contiguous }
    }

    pub const fn bytes(log_entries: u8, entry_bytes: u16) -> u64 {
        (entry_bytes as u64) << log_entries
    }

    /// Where the entry stands; `None` for one beyond the table.
    pub fn entry(&self, index: u32) -> Option<Iova> {
        if u64::from(index) >> self.log_entries != 0 {
            return None;
        }
        let offset = u64::from(index) * self.entry_bytes;
        if self.contiguous {
            return Iova(*self.pages.first()?).checked_add(offset);
        }
        let page = self.pages.get((offset >> self.page_shift) as usize)?;
        Iova(*page).checked_add(offset & ((1 << self.page_shift) - 1))
    }

    pub const fn entry_bytes(&self) -> usize {
        self.entry_bytes as usize
    }
}
