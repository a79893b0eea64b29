//! Memory keys: an entry of the memory protection table.

use super::image::{Image, Reader, Writer};
use super::page_list::PageList;
use crate::numbers::Pdn;
use crate::planted::planted;
use rnic_abi::command::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use rnic_abi::limits::KEY_CONTEXT_BYTES;

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyContext {
    /// The driver's byte of the key: a key with another byte is not valid.
    pub variant: u8,
    /// Registered, and not invalidated since.
    pub valid: bool,
    pub pdn: Pdn,
    pub access: u32,
    pub start: u64,
    pub length_bytes: u64,
    pub pages: PageList,
}

/// What an access needs to be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    LocalRead,
    LocalWrite,
    RemoteWrite,
    RemoteRead,
    RemoteAtomic,
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
    pub fn check(&self, variant: u8, pdn: Pdn, address: u64, length: u64, right: Right) -> Result<u64, Refusal> {
        if (self.variant != variant && !planted("key_byte_unchecked")) || !self.valid {
            return Err(Refusal::Invalid);
        }
        if self.pdn != pdn && !planted("protection_domain_unchecked") {
            return Err(Refusal::Pd);
        }
        let granted = match right {
            Right::LocalRead => true,
            Right::LocalWrite => self.access & ACCESS_LOCAL_WRITE != 0,
            Right::RemoteWrite => self.access & ACCESS_REMOTE_WRITE != 0,
            Right::RemoteRead => self.access & ACCESS_REMOTE_READ != 0,
            Right::RemoteAtomic => self.access & ACCESS_REMOTE_ATOMIC != 0,
        };
        if !granted && !planted("key_rights_unchecked") {
            return Err(Refusal::Right);
        }
        let offset = address.checked_sub(self.start).ok_or(Refusal::Range)?;
        match offset.checked_add(length) {
            Some(end)
                if end <= self.length_bytes + u64::from(planted("key_end_off_by_one"))
                    || planted("key_range_unchecked") =>
            {
                Ok(offset + self.lead())
            }
            _ => Err(Refusal::Range),
        }
    }

    /// Bytes of the first page before the region's first byte.
    pub const fn lead(&self) -> u64 {
        if self.pages.levels == 0 { 0 } else { self.start & (self.pages.page_bytes() - 1) }
    }
}

impl Image for KeyContext {
    const BYTES: usize = KEY_CONTEXT_BYTES as usize;

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.variant);
        out.u8(self.valid.into());
        out.u8(self.pages.page_shift);
        out.u8(self.pages.levels);
        out.u32(self.pdn.0);
        out.u32(self.access);
        out.u64(self.start);
        out.u64(self.length_bytes);
        out.u64(self.pages.root);
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        let (variant, valid, page_shift, levels) = (bytes.u8()?, bytes.flag()?, bytes.u8()?, bytes.u8()?);
        let (pdn, access, start) = (Pdn(bytes.u32()?), bytes.u32()?, bytes.u64()?);
        let (length_bytes, root) = (bytes.u64()?, bytes.u64()?);
        let pages = PageList::new(root, page_shift, levels)?;
        let context = Self { variant, valid, pdn, access, start, length_bytes, pages };
        context.sound().then_some(context)
    }
}

impl KeyContext {
    /// Neither the region nor its pages wrap around.
    pub fn sound(&self) -> bool {
        self.start.checked_add(self.length_bytes).is_some() && self.pages.covers(self.lead(), self.length_bytes)
    }
}
