//! How a transfer becomes transaction layer packets: counts and bytes on the link, in closed form.
//!
//! In comes an address, a length and the link's settings; out go numbers of MRd, MWr and CplD and the bytes they
//! take on the link. A request ends at a 4 KiB boundary, carries at most MPS (a write) or asks for at most MRRS
//! (a read), both measured in whole DWs; a completion carries at most MPS and, unless it is the last of its
//! request, ends on a read completion boundary. [`list`] writes the same packets out one by one.
//!
//! Bytes on the link are the header, 8 bytes of framing, sequence number and LCRC a packet, and the enabled bytes
//! of the payload: the padding of a partial DW is left out, as the published bandwidth formulas do.

pub mod list;
mod settings;
#[cfg(test)]
mod tests;

use crate::{DmaRange, Tlps, WireBytes};
pub use settings::LinkSettings;
use std::ops::AddAssign;

/// Framing (2), sequence number (2) and LCRC (4) of each packet.
pub const FRAMING_BYTES: u32 = 8;
/// A three-DW header: completions, and requests below 4 GiB.
pub const HEADER_3DW_BYTES: u32 = 12;
/// A four-DW header: requests from 4 GiB on.
pub const HEADER_4DW_BYTES: u32 = 16;
/// Bytes on the link of a completion, beside its payload.
pub const COMPLETION_OVERHEAD_BYTES: u32 = HEADER_3DW_BYTES + FRAMING_BYTES;

const PAGE_BYTES: u64 = 4096;
const PAGE_SHIFT: u32 = 12;
const FOUR_GIB: u64 = 1 << 32;

/// Bytes on the link of a request, beside its payload.
pub const fn request_overhead_bytes(address: u64) -> u32 {
    FRAMING_BYTES + if address < FOUR_GIB { HEADER_3DW_BYTES } else { HEADER_4DW_BYTES }
}

/// How finely the completer cuts its completions. Both are legal on a real link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionPolicy {
    /// As few as MPS allows.
    #[default]
    Coarse,
    /// One at every read completion boundary.
    EachBoundary,
}

/// Packets and link bytes of one or more transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub tlps: Tlps,
    pub wire_bytes: WireBytes,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.tlps.mrd = self.tlps.mrd.saturating_add(other.tlps.mrd);
        self.tlps.mwr = self.tlps.mwr.saturating_add(other.tlps.mwr);
        self.tlps.cpld = self.tlps.cpld.saturating_add(other.tlps.cpld);
        self.wire_bytes.down += other.wire_bytes.down;
        self.wire_bytes.up += other.wire_bytes.up;
    }
}

/// Splits transfers under one set of link settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splitter {
    mps_shift: u32,
    mrrs_shift: u32,
    rcb_bytes: u64,
    policy: CompletionPolicy,
}

impl Splitter {
    /// Settings that no link can have are brought to the nearest that one can.
    pub fn new(settings: LinkSettings) -> Self {
        Self::with_policy(settings, CompletionPolicy::Coarse)
    }

    pub fn with_policy(settings: LinkSettings, policy: CompletionPolicy) -> Self {
        let settings = settings.legalised();
        Self {
            mps_shift: settings.mps_bytes.trailing_zeros(),
            mrrs_shift: settings.mrrs_bytes.trailing_zeros(),
            rcb_bytes: u64::from(settings.rcb_bytes),
            policy,
        }
    }

    /// Memory writes from the device.
    pub fn device_write(&self, range: DmaRange) -> Traffic {
        let (count, bytes) = self.writes(range.iova.0, range.length_bytes);
        Traffic { tlps: Tlps { mwr: count, ..Tlps::default() }, wire_bytes: WireBytes { down: 0, up: bytes } }
    }

    /// Memory reads from the device, and their completions with data.
    pub fn device_read(&self, range: DmaRange) -> Traffic {
        let read = self.reads(range.iova.0, range.length_bytes);
        Traffic {
            tlps: Tlps { mrd: read.requests, mwr: 0, cpld: read.completions },
            wire_bytes: WireBytes { down: read.completion_bytes, up: read.request_bytes },
        }
    }

    /// A write by the host to a BAR, at the address on the bus.
    pub fn host_write(&self, address: u64, length_bytes: u32) -> Traffic {
        let (count, bytes) = self.writes(address, length_bytes);
        Traffic { tlps: Tlps { mwr: count, ..Tlps::default() }, wire_bytes: WireBytes { down: bytes, up: 0 } }
    }

    /// A read by the host of a BAR, and its completion.
    pub fn host_read(&self, address: u64, length_bytes: u32) -> Traffic {
        let read = self.reads(address, length_bytes);
        Traffic {
            tlps: Tlps { mrd: read.requests, mwr: 0, cpld: read.completions },
            wire_bytes: WireBytes { down: read.request_bytes, up: read.completion_bytes },
        }
    }

    fn writes(&self, address: u64, length_bytes: u32) -> (u32, u64) {
        let mut count = 0;
        let mut bytes = 0;
        for (start, length) in halves(address, length_bytes) {
            let requests = requests(start, length, self.mps_shift);
            count += requests as u32;
            bytes += requests * u64::from(request_overhead_bytes(start)) + length;
        }
        (count, bytes)
    }

    fn reads(&self, address: u64, length_bytes: u32) -> Reads {
        let mut reads = Reads::default();
        for (start, length) in halves(address, length_bytes) {
            let requests = requests(start, length, self.mrrs_shift);
            let completions = self.completions(start, length);
            reads.requests += requests as u32;
            reads.completions += completions as u32;
            reads.request_bytes += requests * u64::from(request_overhead_bytes(start));
            reads.completion_bytes += completions * u64::from(COMPLETION_OVERHEAD_BYTES) + length;
        }
        reads
    }

    /// Completions of all requests of a read.
    fn completions(&self, address: u64, length: u64) -> u64 {
        let lead = address & 3;
        let first_page = length.min(PAGE_BYTES - (address & (PAGE_BYTES - 1)));
        let rest = length - first_page;
        let mut count = self.completions_in_page((address & (PAGE_BYTES - 1)) - lead, first_page + lead);
        if rest > 0 {
            // From the second page on every request starts on a page's multiple of MRRS.
            let whole_pages = rest >> PAGE_SHIFT;
            count += whole_pages * self.completions_in_page(0, PAGE_BYTES);
            count += self.completions_in_page(0, rest & (PAGE_BYTES - 1));
        }
        count
    }

    /// Completions of the requests of a read that stays in one page and starts on a DW, `start` bytes into the page.
    fn completions_in_page(&self, start: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        // All requests but the last ask for MRRS and lie alike to the read completion boundaries.
        let full_requests = (length - 1) >> self.mrrs_shift;
        let tail = length - (full_requests << self.mrrs_shift);
        let mut count = self.completions_of_request(start, tail);
        if full_requests > 0 {
            count += full_requests * self.completions_of_request(start, 1 << self.mrrs_shift);
        }
        count
    }

    fn completions_of_request(&self, start: u64, length: u64) -> u64 {
        let end = start + length;
        match self.policy {
            CompletionPolicy::Coarse => {
                let mps = 1u64 << self.mps_shift;
                if length <= mps {
                    return 1;
                }
                let first_end = (start + mps) & !(self.rcb_bytes - 1);
                1 + pieces(end - first_end, self.mps_shift)
            }
            CompletionPolicy::EachBoundary => {
                let shift = self.rcb_bytes.trailing_zeros();
                ((end - 1) >> shift) - (start >> shift) + 1
            }
        }
    }
}

#[derive(Default)]
struct Reads {
    requests: u32,
    completions: u32,
    request_bytes: u64,
    completion_bytes: u64,
}

/// The parts of a transfer below and from 4 GiB on, whose headers differ in size; empty parts are left out, and so
/// is what lies past the end of the address space.
fn halves(address: u64, length_bytes: u32) -> impl Iterator<Item = (u64, u64)> {
    let length = u64::from(length_bytes).min((u64::MAX - address).saturating_add(1));
    let below = if address < FOUR_GIB { length.min(FOUR_GIB - address) } else { 0 };
    let above = length - below;
    [(address, below), (address.max(FOUR_GIB), above)].into_iter().filter(|&(_, length)| length > 0)
}

/// Requests of at most `1 << shift` bytes of whole DWs, none across a page.
fn requests(address: u64, length: u64, shift: u32) -> u64 {
    let lead = address & 3;
    let first_page = length.min(PAGE_BYTES - (address & (PAGE_BYTES - 1)));
    let rest = length - first_page;
    let whole_pages = rest >> PAGE_SHIFT;
    pieces(first_page + lead, shift) + (whole_pages << (PAGE_SHIFT - shift)) + pieces(rest & (PAGE_BYTES - 1), shift)
}

const fn pieces(length: u64, shift: u32) -> u64 {
    (length + (1 << shift) - 1) >> shift
}
