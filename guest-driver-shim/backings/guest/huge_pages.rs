//! DMA memory of a user program: huge pages, whose 2 MiB are contiguous, at the addresses the kernel tells.
//!
//! In: how many bytes. Out: [`MappedMemory`] by physical address. Needs root, a reserve of huge pages (asked for when
//! there is none) and no IOMMU between device and memory.

use crate::backing::{BackingError, Result};
use crate::memory::{MappedMemory, Mapping};
use std::fs::File;
use std::os::unix::fs::FileExt;

const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
const RESERVE: &str = "/proc/sys/vm/nr_hugepages";
const PAGEMAP: &str = "/proc/self/pagemap";

pub(super) fn allocate(memory_bytes: u64) -> Result<MappedMemory> {
    let pages = memory_bytes.div_ceil(HUGE_PAGE_BYTES as u64);
    let mut first_error = None;
    let pieces = map_pages(pages).or_else(|error| {
        first_error = Some(error);
        reserve(pages)?;
        map_pages(pages)
    });
    Ok(MappedMemory::from_pieces(pieces?))
}

fn map_pages(pages: u64) -> Result<Vec<(u64, Mapping)>> {
    let pagemap = File::open(PAGEMAP).map_err(BackingError::io(format!("opening {PAGEMAP}")))?;
    let mut pieces = Vec::new();
    for _ in 0..pages {
        let mapping = Mapping::of_huge_page(HUGE_PAGE_BYTES)?;
        // Touched, so that the page is there and stays where it is.
        mapping.zero(0, HUGE_PAGE_BYTES);
        pieces.push((physical_address(&pagemap, mapping.address())?, mapping));
    }
    Ok(pieces)
}

/// Raises the reserve by what is missing; the kernel gives what it can.
fn reserve(pages: u64) -> Result<()> {
    let reserved: u64 = std::fs::read_to_string(RESERVE)
        .map_err(BackingError::io(format!("reading {RESERVE}")))?
        .trim()
        .parse()
        .unwrap_or(0);
    std::fs::write(RESERVE, (reserved + pages).to_string())
        .map_err(BackingError::io(format!("reserving {pages} huge pages in {RESERVE}")))
}

fn physical_address(pagemap: &File, address: usize) -> Result<u64> {
    let mut entry = [0; 8];
    pagemap
        .read_exact_at(&mut entry, (address / PAGE_BYTES * 8) as u64)
        .map_err(BackingError::io(format!("reading {PAGEMAP}")))?;
    physical_of_entry(u64::from_le_bytes(entry))
        .ok_or_else(|| BackingError::Missing { what: format!("physical address in {PAGEMAP}: root is needed") })
}

/// Bit 63 of an entry says that the page is present, bits 54:0 are its frame number; without privilege it is 0.
pub(super) fn physical_of_entry(entry: u64) -> Option<u64> {
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then(|| frame * PAGE_BYTES as u64)
}
