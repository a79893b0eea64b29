//! The 802.1Q tag: the 4 bytes that follow EtherType 0x8100.
//!
//! In and out: the tag control information (priority, drop eligibility, VLAN id) and the EtherType of what is tagged.

use crate::ethernet::EtherType;
use crate::header::Header;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub tci: U16,
    pub ether_type: U16,
}

/// Tag control information, as it stands in the tag: priority 3 bits, drop eligible 1 bit, VLAN id 12 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    pub tci: u16,
}

impl Vlan {
    pub const fn new(priority: u8, vlan_id: u16) -> Self {
        Self { tci: ((priority as u16 & 7) << 13) | (vlan_id & 0xfff) }
    }

    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }

    pub const fn vlan_id(self) -> u16 {
        self.tci & 0xfff
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    pub vlan: Vlan,
    pub ether_type: EtherType,
}

impl Header for VlanTag {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { tci: self.vlan.tci.into(), ether_type: self.ether_type.0.into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self { vlan: Vlan { tci: layout.tci.get() }, ether_type: EtherType(layout.ether_type.get()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        VlanTag,
        bytes: [0xc1, 0x23, 0x08, 0x00],
        layout: Layout { tci: U16::new(0xc123), ether_type: U16::new(0x0800) },
        value: VlanTag { vlan: Vlan::new(6, 0x123), ether_type: EtherType::IPV4 },
    }

    #[test]
    fn priority_and_id_come_back() {
        let vlan = Vlan::new(6, 0x123);
        assert_eq!((vlan.priority(), vlan.vlan_id()), (6, 0x123));
    }
}
