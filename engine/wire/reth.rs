//! The RDMA extended transport header: 16 bytes.
//!
//! In and out: the remote memory that a WRITE, READ, FLUSH or ATOMIC WRITE names.

use crate::header::Header;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest message: 2^31 bytes.
pub const MAXIMUM_DMA_LENGTH: u32 = 1 << 31;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub virtual_address: U64,
    pub remote_key: U32,
    pub dma_length: U32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    pub virtual_address: u64,
    pub remote_key: u32,
    /// As it came; whether it exceeds [`MAXIMUM_DMA_LENGTH`] is for the responder to judge.
    pub dma_length: u32,
}

impl Header for Reth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout {
            virtual_address: self.virtual_address.into(),
            remote_key: self.remote_key.into(),
            dma_length: self.dma_length.into(),
        }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self {
            virtual_address: layout.virtual_address.get(),
            remote_key: layout.remote_key.get(),
            dma_length: layout.dma_length.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Reth,
        bytes: [0, 0, 0x7f, 0, 0, 0x11, 0x22, 0x33, 0x44, 0, 0xab, 0xcd, 0, 0, 0x10, 0],
        layout: Layout {
            virtual_address: U64::new(0x7f00_0011_2233),
            remote_key: U32::new(0x4400_abcd),
            dma_length: U32::new(4096),
        },
        value: Reth { virtual_address: 0x7f00_0011_2233, remote_key: 0x4400_abcd, dma_length: 4096 },
    }
}
