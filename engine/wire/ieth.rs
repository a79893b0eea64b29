//! The invalidate extended transport header: 4 bytes.
//!
//! In and out: the remote key that a SEND WITH INVALIDATE takes out of use.

use crate::header::Header;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub remote_key: U32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ieth {
    pub remote_key: u32,
}

impl Header for Ieth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { remote_key: self.remote_key.into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self { remote_key: layout.remote_key.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Ieth,
        bytes: [0x44, 0x00, 0xab, 0xcd],
        layout: Layout { remote_key: U32::new(0x4400_abcd) },
        value: Ieth { remote_key: 0x4400_abcd },
    }
}
