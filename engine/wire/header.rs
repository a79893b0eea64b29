//! What every header has: a fixed layout of bytes, and a value that it stands for.
//!
//! In: a slice that starts with the header. Out: the value and the rest of the slice, or `None` when it is too short.
//! Emission writes the value into the front of a slice and hands back the rest, so that headers follow each other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A header of fixed length. No value and no bytes can make these functions panic.
pub trait Header: Copy + Sized {
    /// The bytes as they stand on the wire; any bytes are valid.
    type Layout: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + 'static;

    const LENGTH: usize = size_of::<Self::Layout>();

    /// The value's bytes. Fields wider than their bits on the wire are cut, reserved bits are zero.
    fn to_layout(&self) -> Self::Layout;

    /// The bytes' value. Reserved bits are ignored.
    fn from_layout(layout: &Self::Layout) -> Self;

    #[inline(always)]
    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (layout, rest) = Self::Layout::ref_from_prefix(bytes).ok()?;
        Some((Self::from_layout(layout), rest))
    }

    /// Writes the header at the front of `bytes`; `None`, with nothing written, when it does not fit.
    #[inline(always)]
    fn emit<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (front, rest) = bytes.split_at_mut_checked(Self::LENGTH)?;
        self.to_layout().write_to(front).ok()?;
        Some(rest)
    }
}

/// A 24-bit big-endian field with the 8 bits above it.
#[inline(always)]
pub(crate) const fn low_24(word: u32) -> u32 {
    word & 0x00ff_ffff
}
