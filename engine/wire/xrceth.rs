//! The XRC extended transport header: 4 bytes, right behind the BTH of an XRC request.
//!
//! In and out: the number of the shared receive queue that the request is for.

use crate::header::{Header, low_24};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    /// Reserved 8 bits, SRQ number 24 bits.
    pub srq_number: U32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XrcEth {
    /// 24 bits.
    pub srq_number: u32,
}

impl Header for XrcEth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { srq_number: low_24(self.srq_number).into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self { srq_number: low_24(layout.srq_number.get()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        XrcEth,
        bytes: [0x00, 0x12, 0x34, 0x56],
        layout: Layout { srq_number: U32::new(0x12_3456) },
        value: XrcEth { srq_number: 0x12_3456 },
    }
}
