//! The Ethernet header: 14 bytes, no frame check sequence.
//!
//! In and out: destination, source, EtherType. A VLAN tag is a header of its own ([`crate::vlan`]) behind it.

use crate::header::Header;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Shortest frame on an Ethernet, without its check sequence; shorter ones may arrive padded to it.
pub const MINIMUM_FRAME: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const ARP: Self = Self(0x0806);
    pub const VLAN: Self = Self(0x8100);
    pub const IPV6: Self = Self(0x86dd);
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub dest_mac: [u8; 6],
    pub source_mac: [u8; 6],
    pub ether_type: U16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    pub dest_mac: [u8; 6],
    pub source_mac: [u8; 6],
    pub ether_type: EtherType,
}

impl Header for Ethernet {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { dest_mac: self.dest_mac, source_mac: self.source_mac, ether_type: self.ether_type.0.into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self {
            dest_mac: layout.dest_mac,
            source_mac: layout.source_mac,
            ether_type: EtherType(layout.ether_type.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Ethernet,
        bytes: [0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x86, 0xdd],
        layout: Layout {
            dest_mac: [0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2],
            source_mac: [0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32],
            ether_type: U16::new(0x86dd),
        },
        value: Ethernet {
            dest_mac: [0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2],
            source_mac: [0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32],
            ether_type: EtherType::IPV6,
        },
    }
}
