//! The UDP header: 8 bytes, and the choice of its source port.
//!
//! In and out: ports and length. RoCEv2 sends checksum 0 and ignores the one received: the ICRC covers the same bytes.

use crate::header::Header;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const ROCE_PORT: u16 = 4791;
pub const PROTOCOL: u8 = 17;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub source_port: U16,
    pub dest_port: U16,
    pub length: U16,
    pub checksum: U16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    pub source_port: u16,
    pub dest_port: u16,
    pub length: u16,
}

impl Header for Udp {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout {
            source_port: self.source_port.into(),
            dest_port: self.dest_port.into(),
            length: self.length.into(),
            checksum: 0.into(),
        }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        Self { source_port: layout.source_port.get(), dest_port: layout.dest_port.get(), length: layout.length.get() }
    }
}

/// The source port of a flow: its label's 20 bits folded into the 14 bits of 0xc000..=0xffff.
pub const fn source_port(flow_label: u32) -> u16 {
    let low = (flow_label & 0x3fff) ^ ((flow_label & 0xf_c000) >> 14);
    low as u16 | 0xc000
}

/// The flow label of a connection that was given none. Both ends arrive at the same one.
pub const fn flow_label_from_qpns(local_qpn: u32, remote_qpn: u32) -> u32 {
    let product = local_qpn as u64 * remote_qpn as u64;
    let folded = product ^ (product >> 20);
    ((folded ^ (folded >> 40)) & 0xf_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Udp,
        bytes: [0xc0, 0xde, 0x12, 0xb7, 0x00, 0x20, 0x00, 0x00],
        layout: Layout {
            source_port: U16::new(0xc0de),
            dest_port: U16::new(4791),
            length: U16::new(32),
            checksum: U16::new(0),
        },
        value: Udp { source_port: 0xc0de, dest_port: ROCE_PORT, length: 32 },
    }

    #[test]
    fn source_ports_of_known_flows() {
        assert_eq!(source_port(0xabcde), 0xfcf4);
        assert_eq!(flow_label_from_qpns(0x11, 0x12), 0x132);
        assert_eq!(source_port(0x132), 0xc132);
        assert_eq!(flow_label_from_qpns(0xabcdef, 0x123456), 0xac3e3);
        assert_eq!(source_port(0xac3e3), 0xc3c8);
        assert_eq!(flow_label_from_qpns(0x12, 0x11), 0x132, "both ends choose the same label");
    }
}
