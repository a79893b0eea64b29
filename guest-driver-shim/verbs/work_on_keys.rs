//! Keys that work requests give their memory: fast regions and memory windows.
//!
//! A key is allocated by a command and says nothing yet; REG_MR or BIND_MW, posted to a queue pair, says what memory it
//! names, under a number whose low byte the driver chooses anew each time.

use super::error::check_limit;
use super::memory_region::describe;
use super::{Device, Pdn, RegionSpec, Result};
use crate::backing::DmaBuffer;
use rnic_abi::command::{AllocateKey, KEY_FAST_REGION, KEY_WINDOW_1, KEY_WINDOW_2A, KEY_WINDOW_2B};
use rnic_abi::{BindSegment, CommandOpcode, PageListFields, RegisterSegment};
use zerocopy::IntoBytes;

/// Which way a window is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Bound anew at will, used through any queue pair of its domain.
    One,
    /// Used through the queue pair that bound it.
    TwoA,
    /// As 2A, and of the queue pair's protection domain.
    TwoB,
}

/// A key that work requests give its memory.
#[derive(Debug)]
pub struct WorkKey {
    /// The number of the newest bind or registration; before the first one the index alone.
    pub key: u32,
    pub pd: Pdn,
}

impl WorkKey {
    /// The number that the next bind or registration shall give it: stale ones are not valid by accident.
    pub fn next_number(&mut self) -> u32 {
        self.key = self.key & !0xff | (self.key.wrapping_add(1) & 0xff);
        self.key
    }
}

/// What a window shows. The number that it gets stands in the request's `immediate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// `ACCESS_*` rights of the remote side, and ACCESS_ZERO_BASED.
    pub access: u32,
    /// The region's key.
    pub lkey: u32,
    /// The region's address of the first byte.
    pub address: u64,
    pub length_bytes: u64,
}

impl Bind {
    pub(crate) fn segment(&self) -> BindSegment {
        BindSegment {
            access: self.access.into(),
            lkey: self.lkey.into(),
            address: self.address.into(),
            length_bytes: self.length_bytes.into(),
            reserved: 0.into(),
        }
    }
}

/// A region as REG_MR registers it; its page list stays in DMA memory until [`Device::release_registration`].
#[derive(Debug)]
pub struct Registration {
    access: u32,
    start: u64,
    length_bytes: u64,
    pages: PageListFields,
    lists: Vec<DmaBuffer>,
}

impl Registration {
    pub(crate) fn segment(&self) -> RegisterSegment {
        RegisterSegment {
            access: self.access.into(),
            start: self.start.into(),
            length_bytes: self.length_bytes.into(),
            pages: self.pages,
            ..RegisterSegment::zeroed()
        }
    }
}

impl Device {
    pub fn allocate_window(&mut self, pd: Pdn, window: WindowType) -> Result<WorkKey> {
        let kind = match window {
            WindowType::One => KEY_WINDOW_1,
            WindowType::TwoA => KEY_WINDOW_2A,
            WindowType::TwoB => KEY_WINDOW_2B,
        };
        self.allocate_key(pd, kind, 0)
    }

    /// A region for REG_MR of at most so many pages.
    pub fn allocate_fast_region(&mut self, pd: Pdn, max_pages: u32) -> Result<WorkKey> {
        let most = self.limits.max_fast_register_pages.get();
        check_limit("number of pages", max_pages.into(), most.into())?;
        self.allocate_key(pd, KEY_FAST_REGION, max_pages)
    }

    fn allocate_key(&mut self, pd: Pdn, kind: u8, max_pages: u32) -> Result<WorkKey> {
        let index = self.key_indices.take(None)?;
        let key = index << 8;
        let body = AllocateKey {
            key: key.into(),
            pdn: pd.0.into(),
            kind,
            max_pages: max_pages.into(),
            ..AllocateKey::zeroed()
        };
        if let Err(error) = self.command(CommandOpcode::ALLOCATE_KEY, body.as_bytes()) {
            self.key_indices.give(index);
            return Err(error);
        }
        Ok(WorkKey { key, pd })
    }

    /// Windows and fast regions end as regions do.
    pub fn release_key(&mut self, key: &WorkKey) -> Result<()> {
        self.command_on_object(CommandOpcode::DEREGISTER_KEY, key.key)?;
        self.key_indices.give(key.key >> 8);
        Ok(())
    }

    /// Describes memory for REG_MR.
    pub fn prepare_registration(&mut self, spec: &RegionSpec) -> Result<Registration> {
        let list = describe(self.backing.as_mut(), spec)?;
        let RegionSpec { access, start, length_bytes, .. } = *spec;
        Ok(Registration { access, start, length_bytes, pages: list.fields, lists: list.buffers })
    }

    /// When the region is invalid, or registered otherwise.
    pub fn release_registration(&mut self, registration: Registration) {
        registration.lists.into_iter().for_each(|list| self.backing.release(list));
    }
}
