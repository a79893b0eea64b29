//! The invariant CRC: the 4 bytes at a packet's end that cover all that no router may change.
//!
//! In: a packet from its IP header (RoCEv1: its GRH) through its pad. Out: the value, stored little-endian behind it.
//! The CRC is Ethernet's (that of zlib), over 8 bytes of ones that stand for the missing LRH and the packet with every
//! field that changes under way read as ones. Only the headers are copied to be masked, never the payload.

use crate::classify::{is_roce, split_link};
use crate::header::Header;
use crate::{bth, ethernet::EtherType, ipv4, ipv6, udp};
use crc32fast::Hasher;

pub const LENGTH: usize = 4;

/// CRC of the 8 bytes of ones, in the finalised form that the hasher wants.
const AFTER_EIGHT_ONES: u32 = 0x2144_df1c;

const IPV4_LENGTH: usize = size_of::<ipv4::Layout>();
const IPV6_LENGTH: usize = size_of::<ipv6::Layout>();
const UDP_LENGTH: usize = size_of::<udp::Layout>();
const BTH_LENGTH: usize = size_of::<bth::Layout>();

/// What stands in front of the BTH, and thereby which bytes are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    Ipv4,
    Ipv6,
    /// A GRH and no UDP. Known to this routine alone, for the sake of captured packets.
    RoceV1,
}

impl Encapsulation {
    const fn bth_offset(self) -> usize {
        match self {
            Self::Ipv4 => IPV4_LENGTH + UDP_LENGTH,
            Self::Ipv6 => IPV6_LENGTH + UDP_LENGTH,
            Self::RoceV1 => IPV6_LENGTH,
        }
    }
}

/// The ICRC of `packet`, which starts with the IP header and ends with the pad; `None` if it is shorter than its headers.
#[inline]
pub fn compute(encapsulation: Encapsulation, packet: &[u8]) -> Option<u32> {
    match encapsulation {
        Encapsulation::Ipv4 => compute_masked::<{ IPV4_LENGTH + UDP_LENGTH + BTH_LENGTH }>(encapsulation, packet),
        Encapsulation::Ipv6 => compute_masked::<{ IPV6_LENGTH + UDP_LENGTH + BTH_LENGTH }>(encapsulation, packet),
        Encapsulation::RoceV1 => compute_masked::<{ IPV6_LENGTH + BTH_LENGTH }>(encapsulation, packet),
    }
}

#[inline(always)]
fn compute_masked<const HEADERS: usize>(encapsulation: Encapsulation, packet: &[u8]) -> Option<u32> {
    let (headers, rest) = packet.split_first_chunk::<HEADERS>()?;
    let mut masked = *headers;
    match encapsulation {
        Encapsulation::Ipv4 => {
            masked[1] = 0xff; // traffic class
            masked[8] = 0xff; // TTL
            masked[10..12].fill(0xff); // header checksum
        }
        Encapsulation::Ipv6 | Encapsulation::RoceV1 => {
            masked[0] |= 0x0f; // traffic class and flow label, up to byte 3
            masked[1..4].fill(0xff);
            masked[7] = 0xff; // hop limit
        }
    }
    let bth = encapsulation.bth_offset();
    if encapsulation != Encapsulation::RoceV1 {
        masked[bth - 2..bth].fill(0xff); // UDP checksum
    }
    masked[bth + 4] = 0xff; // FECN, BECN and reserved bits
    let mut hasher = Hasher::new_with_initial(AFTER_EIGHT_ONES);
    hasher.update(&masked);
    hasher.update(rest);
    Some(hasher.finalize())
}

/// Computes the ICRC of a whole RoCEv2 frame and stores it; false, with nothing changed, if the frame is none.
pub(crate) fn write(frame: &mut [u8]) -> bool {
    let Some((encapsulation, start, icrc)) = locate(frame) else { return false };
    let (packet, rest) = frame.split_at_mut(icrc);
    let Some(field) = rest.first_chunk_mut::<LENGTH>() else { return false };
    let Some(value) = compute(encapsulation, &packet[start..]) else { return false };
    *field = value.to_le_bytes();
    true
}

/// Where the IP header and the ICRC of a RoCEv2 frame start. What IP says of its length is trusted only so far as the
/// frame has bytes.
fn locate(frame: &[u8]) -> Option<(Encapsulation, usize, usize)> {
    if !is_roce(frame) {
        return None;
    }
    let (_, ether_type, packet) = split_link(frame).ok()?;
    let start = frame.len() - packet.len();
    let (encapsulation, length) = match ether_type {
        EtherType::IPV4 => (Encapsulation::Ipv4, usize::from(ipv4::Ipv4::parse(packet)?.0.total_length)),
        EtherType::IPV6 => {
            (Encapsulation::Ipv6, IPV6_LENGTH + usize::from(ipv6::Ipv6::parse(packet)?.0.payload_length))
        }
        _ => return None,
    };
    let icrc = (start + length).min(frame.len()).checked_sub(LENGTH)?;
    (icrc >= start).then_some((encapsulation, start, icrc))
}
