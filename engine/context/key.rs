//! Memory keys: an entry of the memory protection table. A region names memory; a window shows peers a part of one.

use super::image::{Image, Reader, Writer};
use super::page_list::PageList;
use crate::numbers::Pdn;
use crate::planted::planted;
use rnic_abi::command::{
    ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_PERSISTENT, ACCESS_INVALIDATE, ACCESS_LOCAL_WRITE, ACCESS_MW_BIND,
    ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, ACCESS_ZERO_BASED,
};
use rnic_abi::limits::KEY_CONTEXT_BYTES;

/// Through which queue pairs a window may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// All of its domain; bound anew at will.
    One,
    /// The one that bound it.
    TwoA,
    /// The one that bound it, which is of its domain.
    TwoB,
}

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Registered by command.
    Region,
    /// Registered by work requests.
    FastRegion { max_pages: u32 },
    /// `region` is the table index of what it is bound to, `queue_pair` the serial number of who bound it.
    Window { window: WindowType, region: u32, queue_pair: u32 },
}

/// A key: what it names, while it is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyContext {
    /// The driver's byte of the key: a key with another byte is not valid.
    pub variant: u8,
    /// Registered or bound, and not invalidated since.
    pub valid: bool,
    pub kind: KeyKind,
    pub pdn: Pdn,
    pub access: u32,
    pub start: u64,
    pub length_bytes: u64,
    pub pages: PageList,
    /// Bytes of the page list's memory before the first byte.
    pub lead: u64,
}

/// Who uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub pdn: Pdn,
    /// The queue pair's serial number.
    pub queue_pair: u32,
}

/// What an access needs to be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    LocalRead,
    LocalWrite,
    RemoteWrite,
    RemoteRead,
    RemoteAtomic,
    /// With all of these `ACCESS_*` bits.
    Flush(u32),
}

/// Why a key does not allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such key, or another variant of it.
    Invalid,
    /// The range lies outside the region.
    Range,
    /// The right is not granted.
    Right,
    /// The region belongs to another protection domain.
    Pd,
}

impl KeyContext {
    /// Checks an access and gives its offset from the first page's start.
    pub fn check(&self, variant: u8, user: User, address: u64, length: u64, right: Right) -> Result<u64, Refusal> {
        if (self.variant != variant && !planted("key_byte_unchecked")) || !self.valid {
            return Err(Refusal::Invalid);
        }
        let window = matches!(self.kind, KeyKind::Window { .. });
        if window && matches!(right, Right::LocalRead | Right::LocalWrite) {
            return Err(Refusal::Invalid);
        }
        if !self.is_for(user) {
            return Err(Refusal::Pd);
        }
        let granted = match right {
            Right::LocalRead => true,
            Right::LocalWrite => self.access & ACCESS_LOCAL_WRITE != 0,
            Right::RemoteWrite => self.access & ACCESS_REMOTE_WRITE != 0,
            Right::RemoteRead => self.access & ACCESS_REMOTE_READ != 0,
            Right::RemoteAtomic => self.access & ACCESS_REMOTE_ATOMIC != 0,
            Right::Flush(bits) => self.access & bits == bits || planted("flush_rights_unchecked"),
        };
        if !granted && !planted("key_rights_unchecked") {
            return Err(Refusal::Right);
        }
        let offset = address.checked_sub(self.base()).ok_or(Refusal::Range)?;
        match offset.checked_add(length) {
            Some(end)
                if end <= self.length_bytes + u64::from(planted("key_end_off_by_one"))
                    || planted("key_range_unchecked") =>
            {
                Ok(offset + self.lead)
            }
            _ => Err(Refusal::Range),
        }
    }

    /// The protection domain is the user's, or the queue pair is the one that bound the window.
    fn is_for(&self, user: User) -> bool {
        let domain = self.pdn == user.pdn || planted("protection_domain_unchecked");
        match self.kind {
            KeyKind::Region | KeyKind::FastRegion { .. } | KeyKind::Window { window: WindowType::One, .. } => domain,
            KeyKind::Window { window, queue_pair, .. } => {
                let bound = queue_pair == user.queue_pair || planted("windows_used_through_any_queue_pair");
                bound && (domain || window == WindowType::TwoA)
            }
        }
    }

    /// The address of the first byte, as work requests and peers name it.
    pub const fn base(&self) -> u64 {
        if self.access & ACCESS_ZERO_BASED == 0 { self.start } else { 0 }
    }

    /// Bytes of a list's first page before the byte that is named `start`.
    pub const fn lead_of(start: u64, pages: &PageList) -> u64 {
        if pages.levels == 0 { 0 } else { start & (pages.page_bytes() - 1) }
    }

    /// The table index of the region whose page list is walked.
    pub const fn list_owner(&self, index: u32) -> u32 {
        match self.kind {
            KeyKind::Window { region, .. } => region,
            KeyKind::Region | KeyKind::FastRegion { .. } => index,
        }
    }
}

impl Image for KeyContext {
    const BYTES: usize = KEY_CONTEXT_BYTES as usize;

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.variant);
        out.u8(self.valid.into());
        let (kind, first, second) = kind_fields(self.kind);
        out.u8(kind);
        out.u8(self.pages.page_shift);
        out.u8(self.pages.levels);
        out.u32(self.pdn.0);
        out.u32(self.access);
        out.u64(self.start);
        out.u64(self.length_bytes);
        out.u64(self.pages.root);
        out.u64(self.lead);
        out.u32(first);
        out.u32(second);
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        let (variant, valid, kind) = (bytes.u8()?, bytes.flag()?, bytes.u8()?);
        let (page_shift, levels) = (bytes.u8()?, bytes.u8()?);
        let (pdn, access, start) = (Pdn(bytes.u32()?), bytes.u32()?, bytes.u64()?);
        let (length_bytes, root, lead) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let kind = kind_of(kind, bytes.u32()?, bytes.u32()?)?;
        let pages = PageList::new(root, page_shift, levels)?;
        let context = Self { variant, valid, kind, pdn, access, start, length_bytes, pages, lead };
        context.sound().then_some(context)
    }
}

/// A kind as its image holds it.
const fn kind_fields(kind: KeyKind) -> (u8, u32, u32) {
    match kind {
        KeyKind::Region => (0, 0, 0),
        KeyKind::FastRegion { max_pages } => (1, max_pages, 0),
        KeyKind::Window { window: WindowType::One, region, queue_pair } => (2, region, queue_pair),
        KeyKind::Window { window: WindowType::TwoA, region, queue_pair } => (3, region, queue_pair),
        KeyKind::Window { window: WindowType::TwoB, region, queue_pair } => (4, region, queue_pair),
    }
}

fn kind_of(code: u8, first: u32, second: u32) -> Option<KeyKind> {
    let window = match code {
        0 => return Some(KeyKind::Region),
        1 => return Some(KeyKind::FastRegion { max_pages: first }),
        2 => WindowType::One,
        3 => WindowType::TwoA,
        4 => WindowType::TwoB,
        _ => return None,
    };
    Some(KeyKind::Window { window, region: first, queue_pair: second })
}

/// What is wrong with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionFault {
    UnknownRight,
    NeedsLocalWrite,
    Wraps,
}

/// Rights that a region may have.
const REGION_RIGHTS: u32 = ACCESS_LOCAL_WRITE
    | ACCESS_REMOTE_WRITE
    | ACCESS_REMOTE_READ
    | ACCESS_REMOTE_ATOMIC
    | ACCESS_INVALIDATE
    | ACCESS_MW_BIND
    | ACCESS_ZERO_BASED
    | FLUSH_RIGHTS;

/// Rights to make sure of what was written.
pub const FLUSH_RIGHTS: u32 = ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT;

impl KeyContext {
    /// Why a region cannot be what it says.
    pub fn fault(&self) -> Option<RegionFault> {
        if self.access & !REGION_RIGHTS != 0 {
            return Some(RegionFault::UnknownRight);
        }
        let needs_local = self.access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) != 0;
        if needs_local && self.access & ACCESS_LOCAL_WRITE == 0 {
            return Some(RegionFault::NeedsLocalWrite);
        }
        (!self.sound()).then_some(RegionFault::Wraps)
    }

    /// Neither the region nor its pages wrap around.
    pub fn sound(&self) -> bool {
        self.base().checked_add(self.length_bytes).is_some() && self.pages.covers(self.lead, self.length_bytes)
    }
}
