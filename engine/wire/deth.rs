//! The datagram extended transport header: 8 bytes.
//!
//! In and out: the queue key that admits a datagram, and the queue pair that sent it.

use crate::header::{Header, low_24};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub queue_key: U32,
    /// Reserved 8 bits, QP number 24 bits.
    pub source_qp: U32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    pub queue_key: u32,
    /// 24 bits.
    pub source_qp: u32,
}

impl Header for Deth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { queue_key: self.queue_key.into(), source_qp: low_24(self.source_qp).into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self { queue_key: layout.queue_key.get(), source_qp: low_24(layout.source_qp.get()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Deth,
        bytes: [0x11, 0x22, 0x33, 0x44, 0x00, 0xab, 0xcd, 0xef],
        layout: Layout { queue_key: U32::new(0x1122_3344), source_qp: U32::new(0xab_cdef) },
        value: Deth { queue_key: 0x1122_3344, source_qp: 0xab_cdef },
    }
}
