//! The IPv4 header without options: 20 bytes.
//!
//! In: bytes, judged by [`Layout::check`] (version, length, checksum, fragments). Out: the fields a RoCE packet needs.
//! Emission always sets "don't fragment" and computes the header checksum.

use crate::drop::Drop;
use crate::header::Header;
use core::net::Ipv4Addr;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const VERSION_AND_LENGTH: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments" and the fragment offset: any of them makes the packet a fragment.
const FRAGMENT: u16 = 0x3fff;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub version_and_length: u8,
    pub traffic_class: u8,
    pub total_length: U16,
    pub identification: U16,
    pub flags_and_offset: U16,
    pub ttl: u8,
    pub protocol: u8,
    pub checksum: U16,
    pub source: [u8; 4],
    pub dest: [u8; 4],
}

impl Layout {
    /// Why this header cannot lead to a RoCE packet, if it cannot.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Drop> {
        if self.version_and_length != VERSION_AND_LENGTH {
            return Err(match self.version_and_length {
                0x46..=0x4f => Drop::Ipv4Options { header_words: self.version_and_length & 0xf },
                version_and_length => Drop::BadIpv4Header { version_and_length },
            });
        }
        if self.flags_and_offset.get() & FRAGMENT != 0 {
            return Err(Drop::Ipv4Fragment { flags_and_offset: self.flags_and_offset.get() });
        }
        match self.sum() {
            0xffff => Ok(()),
            _ => Err(Drop::BadIpv4Checksum { found: self.checksum.get() }),
        }
    }

    /// One's complement sum of the header, in the byte order of this machine (the sum does not care which it is taken
    /// in): 0xffff when the checksum in it is right.
    #[inline(always)]
    fn sum(&self) -> u16 {
        let words: [u32; 5] = zerocopy::transmute!(*self);
        let sum: u64 = words.into_iter().map(u64::from).sum();
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// Writes the checksum that fits the other fields.
    #[inline(always)]
    pub fn set_checksum(&mut self) {
        self.checksum = 0.into();
        self.checksum = U16::from_bytes((!self.sum()).to_ne_bytes());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    pub traffic_class: u8,
    pub total_length: u16,
    pub identification: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub source: Ipv4Addr,
    pub dest: Ipv4Addr,
}

impl Header for Ipv4 {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        let mut layout = Layout {
            version_and_length: VERSION_AND_LENGTH,
            traffic_class: self.traffic_class,
            total_length: self.total_length.into(),
            identification: self.identification.into(),
            flags_and_offset: DONT_FRAGMENT.into(),
            ttl: self.ttl,
            protocol: self.protocol,
            checksum: 0.into(),
            source: self.source.octets(),
            dest: self.dest.octets(),
        };
        layout.set_checksum();
        layout
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self {
            traffic_class: layout.traffic_class,
            total_length: layout.total_length.get(),
            identification: layout.identification.get(),
            ttl: layout.ttl,
            protocol: layout.protocol,
            source: layout.source.into(),
            dest: layout.dest.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        version_and_length: 0x45,
        traffic_class: 0x02,
        total_length: U16::new(0x0034),
        identification: U16::new(1),
        flags_and_offset: U16::new(0x4000),
        ttl: 64,
        protocol: 17,
        checksum: U16::new(0x26b4),
        source: [10, 0, 0, 1],
        dest: [10, 0, 0, 2],
    };

    crate::checks::four_header_tests! {
        Ipv4,
        bytes: [0x45, 0x02, 0, 0x34, 0, 1, 0x40, 0, 0x40, 0x11, 0x26, 0xb4, 10, 0, 0, 1, 10, 0, 0, 2],
        layout: LAYOUT,
        value: Ipv4 {
            traffic_class: 2,
            total_length: 52,
            identification: 1,
            ttl: 64,
            protocol: 17,
            source: Ipv4Addr::new(10, 0, 0, 1),
            dest: Ipv4Addr::new(10, 0, 0, 2),
        },
    }

    #[test]
    fn each_fault_has_its_reason() {
        assert_eq!(LAYOUT.check(), Ok(()));
        assert_eq!(Layout { version_and_length: 0x46, ..LAYOUT }.check(), Err(Drop::Ipv4Options { header_words: 6 }));
        for version_and_length in [0x00, 0x44, 0x55, 0x65] {
            let layout = Layout { version_and_length, ..LAYOUT };
            assert_eq!(layout.check(), Err(Drop::BadIpv4Header { version_and_length }));
        }
        for flags_and_offset in [0x2000, 0x4001, 0x1fff] {
            let layout = Layout { flags_and_offset: flags_and_offset.into(), ..LAYOUT };
            assert_eq!(layout.check(), Err(Drop::Ipv4Fragment { flags_and_offset }));
        }
        assert_eq!(Layout { ttl: 63, ..LAYOUT }.check(), Err(Drop::BadIpv4Checksum { found: 0x26b4 }));
    }
}
