//! The headers of the atomics: AtomicETH (28 bytes) in the request, AtomicAckETH (8 bytes) in the reply.
//!
//! In and out: the remote word, the operands, and the value that was there before.

use crate::header::Header;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub virtual_address: U64,
    pub remote_key: U32,
    pub swap_or_add: U64,
    pub compare: U64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct AckLayout {
    pub original: U64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    pub virtual_address: u64,
    pub remote_key: u32,
    pub swap_or_add: u64,
    pub compare: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicAckEth {
    pub original: u64,
}

impl Header for AtomicEth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout {
            virtual_address: self.virtual_address.into(),
            remote_key: self.remote_key.into(),
            swap_or_add: self.swap_or_add.into(),
            compare: self.compare.into(),
        }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self {
            virtual_address: layout.virtual_address.get(),
            remote_key: layout.remote_key.get(),
            swap_or_add: layout.swap_or_add.get(),
            compare: layout.compare.get(),
        }
    }
}

impl Header for AtomicAckEth {
    type Layout = AckLayout;

    #[inline(always)]
    fn to_layout(&self) -> AckLayout {
        AckLayout { original: self.original.into() }
    }

    #[inline(always)]
    fn from_layout(layout: &AckLayout) -> Self {
        Self { original: layout.original.get() }
    }
}

#[cfg(test)]
mod request_tests {
    use super::*;

    crate::checks::four_header_tests! {
        AtomicEth,
        bytes: [
            0, 0, 0x7f, 0, 0, 0x11, 0x22, 0x33, 0x44, 0, 0xab, 0xcd, //
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
        ],
        layout: Layout {
            virtual_address: U64::new(0x7f00_0011_2233),
            remote_key: U32::new(0x4400_abcd),
            swap_or_add: U64::new(0x0102_0304_0506_0708),
            compare: U64::new(0x090a_0b0c_0d0e_0f10),
        },
        value: AtomicEth {
            virtual_address: 0x7f00_0011_2233,
            remote_key: 0x4400_abcd,
            swap_or_add: 0x0102_0304_0506_0708,
            compare: 0x090a_0b0c_0d0e_0f10,
        },
    }
}

#[cfg(test)]
mod reply_tests {
    use super::*;

    crate::checks::four_header_tests! {
        AtomicAckEth,
        bytes: [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
        layout: AckLayout { original: U64::new(0x1122_3344_5566_7788) },
        value: AtomicAckEth { original: 0x1122_3344_5566_7788 },
    }
}
