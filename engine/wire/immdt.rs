//! Immediate data: 4 bytes that the receiver finds in its completion.
//!
//! In and out: the 4 bytes as they stand on the wire, never swapped: to both hosts they are opaque.

use crate::header::Header;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub immediate: [u8; 4],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImmDt {
    pub immediate: [u8; 4],
}

impl Header for ImmDt {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { immediate: self.immediate }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self { immediate: layout.immediate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        ImmDt,
        bytes: [0xde, 0xad, 0xbe, 0xef],
        layout: Layout { immediate: [0xde, 0xad, 0xbe, 0xef] },
        value: ImmDt { immediate: [0xde, 0xad, 0xbe, 0xef] },
    }
}
