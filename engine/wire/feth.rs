//! The flush extended transport header: 4 bytes, in front of the RETH of a FLUSH.
//!
//! In and out: how far the flush must reach (placement type, bits 0-3) and what it covers (selectivity, bits 4-5).

use crate::header::Header;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Placement types: what was written can be seen by everybody, and what was written outlives a loss of power.
pub const GLOBAL: u8 = 1 << 0;
pub const PERSISTENT: u8 = 1 << 1;
/// Selectivity: the range of the RETH, or all of its key's memory.
pub const RANGE: u8 = 0;
pub const REGION: u8 = 1;

const SELECTIVITY_SHIFT: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub bits: U32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth {
    /// 4 bits.
    pub placement_type: u8,
    /// 2 bits.
    pub selectivity: u8,
}

impl Header for Feth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        let selectivity = u32::from(self.selectivity & 0x3) << SELECTIVITY_SHIFT;
        Layout { bits: (selectivity | u32::from(self.placement_type & 0xf)).into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        let bits = layout.bits.get();
        Self { placement_type: (bits & 0xf) as u8, selectivity: (bits >> SELECTIVITY_SHIFT & 0x3) as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Feth,
        bytes: [0x00, 0x00, 0x00, 0x12],
        layout: Layout { bits: U32::new(0x12) },
        value: Feth { placement_type: 2, selectivity: 1 },
    }
}
