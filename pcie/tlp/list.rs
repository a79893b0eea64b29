//! The packets of a transfer, one by one: for the trace's detail view and as a check on the closed form.
//!
//! Nothing on the hot path comes here.

use super::{COMPLETION_OVERHEAD_BYTES, CompletionPolicy, LinkSettings, request_overhead_bytes};

const PAGE_BYTES: u64 = 4096;

/// The kinds of packet that a memory transfer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlpKind {
    MRd,
    MWr,
    CplD,
}

/// One packet, with the fields a reader of a bus analyser's listing looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlp {
    pub kind: TlpKind,
    /// Address of the first enabled byte.
    pub address: u64,
    /// Enabled bytes that it carries or asks for.
    pub bytes: u32,
    /// Completions: bytes owed to their request, these included. Zero elsewhere.
    pub byte_count: u32,
}

impl Tlp {
    /// The length field, before 1024 is encoded as 0.
    pub fn length_dw(&self) -> u32 {
        ((self.address & 3) as u32 + self.bytes).div_ceil(4)
    }

    /// Enabled bytes of the first DW, bit 0 the lowest address.
    pub fn first_be(&self) -> u8 {
        let lead = (self.address & 3) as u32;
        let in_first = self.bytes.min(4 - lead);
        (((1u32 << in_first) - 1) << lead) as u8
    }

    /// Enabled bytes of the last DW; 0 where there is only one.
    pub fn last_be(&self) -> u8 {
        if self.length_dw() < 2 {
            return 0;
        }
        match self.address.wrapping_add(u64::from(self.bytes)) & 3 {
            0 => 0b1111,
            partial => (1 << partial) - 1,
        }
    }

    /// Completions: the low seven bits of the address of their first enabled byte.
    pub fn lower_address(&self) -> u8 {
        (self.address & 0x7f) as u8
    }

    /// Bytes on the link.
    pub fn wire_bytes(&self) -> u32 {
        match self.kind {
            TlpKind::MRd => request_overhead_bytes(self.address),
            TlpKind::MWr => request_overhead_bytes(self.address) + self.bytes,
            TlpKind::CplD => COMPLETION_OVERHEAD_BYTES + self.bytes,
        }
    }
}

/// The memory writes of a transfer, in order.
pub fn writes(settings: LinkSettings, address: u64, length_bytes: u32) -> impl Iterator<Item = Tlp> {
    requests(TlpKind::MWr, address, length_bytes, settings.legalised().mps_bytes)
}

/// The memory reads of a transfer, in order, without their completions.
pub fn reads(settings: LinkSettings, address: u64, length_bytes: u32) -> impl Iterator<Item = Tlp> {
    requests(TlpKind::MRd, address, length_bytes, settings.legalised().mrrs_bytes)
}

/// The completions of one memory read.
pub fn completions(settings: LinkSettings, request: Tlp, policy: CompletionPolicy) -> impl Iterator<Item = Tlp> {
    let settings = settings.legalised();
    let boundary = u64::from(settings.rcb_bytes);
    let mps = u64::from(settings.mps_bytes);
    // A request stays in its page, so offsets in the page do for addresses, and cannot overflow.
    let page = request.address & !(PAGE_BYTES - 1);
    let mut offset = request.address & (PAGE_BYTES - 1);
    let end = offset + u64::from(request.bytes);
    std::iter::from_fn(move || {
        if offset >= end {
            return None;
        }
        let piece_end = match policy {
            CompletionPolicy::Coarse if end <= (offset & !3) + mps => end,
            CompletionPolicy::Coarse => ((offset & !3) + mps) & !(boundary - 1),
            CompletionPolicy::EachBoundary => end.min((offset + boundary) & !(boundary - 1)),
        };
        let completion = Tlp {
            kind: TlpKind::CplD,
            address: page + offset,
            bytes: (piece_end - offset) as u32,
            byte_count: (end - offset) as u32,
        };
        offset = piece_end;
        Some(completion)
    })
}

fn requests(kind: TlpKind, address: u64, length_bytes: u32, limit_bytes: u32) -> impl Iterator<Item = Tlp> {
    let mut address = address;
    let mut left = u64::from(length_bytes).min((u64::MAX - address).saturating_add(1));
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let to_page_end = PAGE_BYTES - (address & (PAGE_BYTES - 1));
        let bytes = left.min(to_page_end).min(u64::from(limit_bytes) - (address & 3));
        let request = Tlp { kind, address, bytes: bytes as u32, byte_count: 0 };
        address = address.wrapping_add(bytes);
        left -= bytes;
        Some(request)
    })
}
