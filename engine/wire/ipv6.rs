//! The IPv6 header: 40 bytes. Extension headers are not followed: UDP comes next, or the packet is not RoCE.
//!
//! In and out: traffic class, flow label, hop limit, addresses, and the length of what follows.

use crate::drop::Drop;
use crate::header::Header;
use core::net::Ipv6Addr;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const FLOW_LABEL_MASK: u32 = 0xf_ffff;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    /// Version 4 bits, traffic class 8 bits, flow label 20 bits.
    pub version_class_flow: U32,
    pub payload_length: U16,
    pub next_header: u8,
    pub hop_limit: u8,
    pub source: [u8; 16],
    pub dest: [u8; 16],
}

impl Layout {
    #[inline(always)]
    pub fn check(&self) -> Result<(), Drop> {
        match (self.version_class_flow.get() >> 28) as u8 {
            6 => Ok(()),
            version => Err(Drop::BadIpv6Header { version }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    pub traffic_class: u8,
    pub flow_label: u32,
    pub payload_length: u16,
    pub next_header: u8,
    pub hop_limit: u8,
    pub source: Ipv6Addr,
    pub dest: Ipv6Addr,
}

impl Header for Ipv6 {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        let class = u32::from(self.traffic_class) << 20;
        Layout {
            version_class_flow: (6 << 28 | class | self.flow_label & FLOW_LABEL_MASK).into(),
            payload_length: self.payload_length.into(),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            source: self.source.octets(),
            dest: self.dest.octets(),
        }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        let word = layout.version_class_flow.get();
        Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & FLOW_LABEL_MASK,
            payload_length: layout.payload_length.get(),
            next_header: layout.next_header,
            hop_limit: layout.hop_limit,
            source: layout.source.into(),
            dest: layout.dest.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const DEST: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    const LAYOUT: Layout = Layout {
        version_class_flow: U32::new(0x602a_bcde),
        payload_length: U16::new(0x34),
        next_header: 17,
        hop_limit: 64,
        source: SOURCE,
        dest: DEST,
    };

    crate::checks::four_header_tests! {
        Ipv6,
        bytes: [
            0x60, 0x2a, 0xbc, 0xde, 0, 0x34, 0x11, 0x40, //
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        ],
        layout: LAYOUT,
        value: Ipv6 {
            traffic_class: 2,
            flow_label: 0xabcde,
            payload_length: 52,
            next_header: 17,
            hop_limit: 64,
            source: SOURCE.into(),
            dest: DEST.into(),
        },
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(LAYOUT.check(), Ok(()));
        let layout = Layout { version_class_flow: 0x4500_0000.into(), ..LAYOUT };
        assert_eq!(layout.check(), Err(Drop::BadIpv6Header { version: 4 }));
    }
}
