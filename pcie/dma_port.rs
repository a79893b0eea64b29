//! `DmaPort`: the only way from a device's logic to host memory, and where each transfer is counted.
//!
//! Reads are split transactions, as on PCIe: submitted with an origin, they answer at once (mapped memory) or
//! later by tag, in any order between tags. Writes are posted: never awaited, visible in submission order
//! whichever way they travel; reads do not pass the writes before them.

use crate::{Class, Observed, Origin};
use std::fmt;

/// An address in the function's DMA space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

impl Iova {
    /// The address `bytes` further on, or `None` past the end of the address space.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A contiguous piece of DMA space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRange {
    pub iova: Iova,
    pub length_bytes: u32,
}

impl DmaRange {
    pub const fn new(iova: Iova, length_bytes: u32) -> Self {
        Self { iova, length_bytes }
    }
}

/// Names one read in flight; never used twice in the life of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DmaTag(pub u64);

/// How a submitted read was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The bytes are in the buffer.
    Ready,
    /// The bytes come later as an input, `handle_dma_completion`, under this tag.
    Pending(DmaTag),
}

/// Why a transfer was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DmaFault {
    /// No map covers the address, or bus mastering is off.
    #[error("unsupported request: the address is not mapped for this access, or bus mastering is off")]
    UnsupportedRequest,
    /// The completer refused.
    #[error("completer abort")]
    CompleterAbort,
    /// The completer answered with poisoned data.
    #[error("poisoned data")]
    Poisoned,
    /// The read was called back by a reset, an unmap or a disconnect.
    #[error("revoked by a reset, an unmap or a disconnect")]
    Revoked,
}

/// A host access to a BAR, as the link counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// A posted write of so many bytes.
    Write { address: u64, bytes: u32 },
    /// A read and its completion.
    Read { address: u64, bytes: u32 },
}

/// The device's side of its PCIe link.
pub trait DmaPort {
    /// Reads the ranges, in order, into `into` (whose length is their sum). A fault known at once is the error;
    /// one that is known later arrives with the completion.
    fn read(&mut self, origin: Origin, ranges: &[DmaRange], into: &mut [u8]) -> Result<Submitted, DmaFault>;

    /// Writes `from` to the ranges, in ascending order, the last aligned word stored last.
    fn write(&mut self, origin: Origin, ranges: &[DmaRange], from: &[u8]) -> Result<(), DmaFault>;

    /// An event: the entry is written (an empty range is none), then the vector's MSI-X message follows it. One crossing.
    fn event(&mut self, origin: Origin, entry: DmaRange, from: &[u8], vector: Option<u16>) -> Result<(), DmaFault>;

    /// Counts a host access that the device's logic has understood. `access.address` is the offset in the BAR
    /// `bar`; the port adds the BAR's address to know the size of the header.
    fn count(&mut self, origin: Origin, bar: u8, access: HostAccess, observed: Observed);

    /// The vector's MSI-X message could be delivered now (enabled, not masked, a receiver set).
    fn vector_usable(&self, vector: u16) -> bool;

    /// Crossings of a class that the function's link has counted since it exists.
    fn crossings(&self, class: Class) -> u64;

    /// There is room for more posted writes and reads. When there is not, the device's logic is not run.
    fn has_room(&self) -> bool;
}
