//! What a frame is, told from its first headers, before anything is judged.
//!
//! In: any bytes. Out: the link headers and what they carry; and whether the frame is for the RDMA function.

use crate::drop::Drop;
use crate::ethernet::{EtherType, Ethernet};
use crate::header::Header;
use crate::roce::LinkHeaders;
use crate::udp::{self, Udp};
use crate::vlan::VlanTag;
use crate::{ipv4, ipv6};
use zerocopy::FromBytes;

/// The Ethernet header and its VLAN tag, and what they carry.
#[inline(always)]
pub(crate) fn split_link(frame: &[u8]) -> Result<(LinkHeaders, EtherType, &[u8]), Drop> {
    let runt = Drop::RuntFrame { length: frame.len() };
    let (ethernet, rest) = Ethernet::parse(frame).ok_or(runt)?;
    let link = LinkHeaders { source_mac: ethernet.source_mac, dest_mac: ethernet.dest_mac, vlan: None };
    if ethernet.ether_type != EtherType::VLAN {
        return Ok((link, ethernet.ether_type, rest));
    }
    let (tag, rest) = VlanTag::parse(rest).ok_or(runt)?;
    Ok((LinkHeaders { vlan: Some(tag.vlan), ..link }, tag.ether_type, rest))
}

/// Whether a frame is for the RDMA function: UDP to RoCEv2's port. Looks at no length and no checksum.
#[inline]
pub fn is_roce(frame: &[u8]) -> bool {
    let Ok((_, ether_type, packet)) = split_link(frame) else { return false };
    let (protocol, udp_offset) = match ether_type {
        EtherType::IPV4 => {
            let Ok((layout, _)) = ipv4::Layout::ref_from_prefix(packet) else { return false };
            // A later fragment has no UDP header.
            if layout.flags_and_offset.get() & 0x1fff != 0 {
                return false;
            }
            (layout.protocol, usize::from(layout.version_and_length & 0xf) * 4)
        }
        EtherType::IPV6 => {
            let Ok((layout, _)) = ipv6::Layout::ref_from_prefix(packet) else { return false };
            (layout.next_header, size_of::<ipv6::Layout>())
        }
        _ => return false,
    };
    let udp = packet.get(udp_offset..).and_then(Udp::parse);
    protocol == udp::PROTOCOL && udp.is_some_and(|(udp, _)| udp.dest_port == udp::ROCE_PORT)
}
