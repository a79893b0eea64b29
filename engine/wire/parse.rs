//! Taking a packet apart: bytes to values, or the reason why not.
//!
//! In: any bytes, and whether their ICRC is to be checked. Out: the headers and the payload without pad and ICRC, or
//! the [`Drop`]. Nothing is copied but the header values. What is ignored: reserved bits, the UDP checksum (the ICRC
//! covers the same bytes), "don't fragment", and Ethernet padding behind the packet.

use crate::classify::split_link;
use crate::drop::Drop;
use crate::ethernet::{self, EtherType};
use crate::header::Header;
use crate::icrc::{self, Encapsulation};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::opcode::{Headers, OpcodeDescription};
use crate::planted::planted;
use crate::roce::{Extension, Network, RoceHeaders};
use crate::udp::{self, Udp};
use crate::{bth, bth::Bth, cnp, vlan};
use zerocopy::FromBytes;

/// Whether a packet's ICRC is computed and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcCheck {
    Verify,
    /// For frames whose ICRC is [`crate::IcrcState::Deferred`].
    Trusted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedPacket<'a> {
    pub headers: RoceHeaders,
    /// The opcode's row of the table.
    pub description: &'static OpcodeDescription,
    /// Without pad and ICRC; the pad count is in `headers.bth`.
    pub payload: &'a [u8],
}

#[inline]
pub fn parse(frame: &[u8], check: IcrcCheck) -> Result<ParsedPacket<'_>, Drop> {
    let runt = Drop::RuntFrame { length: frame.len() };
    let (link, ether_type, packet) = split_link(frame)?;
    let (network, ip_length, datagram) = parse_network(ether_type, packet, runt)?;
    let (udp, transport) = Udp::parse(datagram).ok_or(runt)?;
    if udp.dest_port != udp::ROCE_PORT {
        return Err(Drop::NotRocePort { dest_port: udp.dest_port });
    }
    let tag_length = if link.vlan.is_some() { size_of::<vlan::Layout>() } else { 0 };
    let may_be_padded = frame.len() <= ethernet::MINIMUM_FRAME + tag_length;
    let transport_length = checked_lengths(ip_length, &udp, datagram.len(), may_be_padded)?;
    let (transport, icrc_field) = transport[..transport_length].split_at(transport_length - icrc::LENGTH);

    let (layout, extension_and_payload) = bth::Layout::ref_from_prefix(transport).map_err(|_| runt)?;
    let version = layout.transport_version();
    if version != 0 && !planted("transport_version_unchecked") {
        return Err(Drop::BadTransportVersion { version });
    }
    if check == IcrcCheck::Verify {
        verify_icrc(&network, &packet[..packet.len() - datagram.len() + 8 + transport.len()], icrc_field)?;
    }
    let bth = Bth::from_layout(layout);
    let (description, extension, payload) = parse_extension(&bth, extension_and_payload)?;
    let headers = RoceHeaders { link, network, udp_source_port: udp.source_port, bth, extension };
    Ok(ParsedPacket { headers, description, payload })
}

/// The IP header, the bytes that it claims for UDP, and the bytes that are there.
#[inline(always)]
fn parse_network(ether_type: EtherType, packet: &[u8], runt: Drop) -> Result<(Network, usize, &[u8]), Drop> {
    let (network, protocol, length, rest) = match ether_type {
        EtherType::IPV4 => {
            let (layout, rest) = ipv4::Layout::ref_from_prefix(packet).map_err(|_| runt)?;
            layout.check()?;
            let Ipv4 { traffic_class, total_length, identification, ttl, protocol, source, dest } =
                Ipv4::from_layout(layout);
            // A total length below the header's own leaves nothing for UDP, which is then found too short.
            let length = usize::from(total_length).saturating_sub(size_of::<ipv4::Layout>());
            (Network::V4 { source, dest, traffic_class, ttl, identification }, protocol, length, rest)
        }
        EtherType::IPV6 => {
            let (layout, rest) = ipv6::Layout::ref_from_prefix(packet).map_err(|_| runt)?;
            layout.check()?;
            let Ipv6 { traffic_class, flow_label, payload_length, next_header, hop_limit, source, dest } =
                Ipv6::from_layout(layout);
            let length = usize::from(payload_length);
            (Network::V6 { source, dest, traffic_class, flow_label, hop_limit }, next_header, length, rest)
        }
        EtherType(ether_type) => return Err(Drop::NotIp { ether_type }),
    };
    match protocol {
        udp::PROTOCOL => Ok((network, length, rest)),
        protocol => Err(Drop::NotUdp { protocol }),
    }
}

/// The length of BTH through ICRC, which is at least 16 and within the frame. What stands behind the packet is the
/// padding of a frame that was too short for the Ethernet, or an error.
#[inline(always)]
fn checked_lengths(ip_length: usize, udp: &Udp, held: usize, may_be_padded: bool) -> Result<usize, Drop> {
    let udp_length = usize::from(udp.length);
    if ip_length != udp_length || held < udp_length || (held > udp_length && !may_be_padded) {
        return Err(Drop::LengthMismatch { ip_length, udp_length, frame_length: held });
    }
    match udp_length.checked_sub(size_of::<udp::Layout>()) {
        Some(length) if length >= size_of::<bth::Layout>() + icrc::LENGTH && length % 4 == 0 => Ok(length),
        _ => Err(Drop::BadPacketLength { udp_length }),
    }
}

#[inline(always)]
fn verify_icrc(network: &Network, packet: &[u8], field: &[u8]) -> Result<(), Drop> {
    let encapsulation = match network {
        Network::V4 { .. } => Encapsulation::Ipv4,
        Network::V6 { .. } => Encapsulation::Ipv6,
    };
    let computed = icrc::compute(encapsulation, packet).unwrap_or_default();
    let found = field.first_chunk().map_or(!computed, |bytes| u32::from_le_bytes(*bytes));
    if found == computed || planted("icrc_unchecked") { Ok(()) } else { Err(Drop::BadIcrc { found, computed }) }
}

/// The headers that the opcode calls for, then the payload without its pad.
#[inline(always)]
fn parse_extension<'a>(bth: &Bth, bytes: &'a [u8]) -> Result<(&'static OpcodeDescription, Extension, &'a [u8]), Drop> {
    let opcode = bth.opcode;
    let description = opcode.description().ok_or(Drop::UnknownOpcode { opcode })?;
    let (extension, rest) = read_extension(description.headers, bytes).ok_or(Drop::TruncatedHeaders {
        opcode,
        needed: description.extension_length,
        length: bytes.len(),
    })?;
    let pad_bytes = usize::from(bth.pad_bytes);
    if pad_bytes > rest.len() && !planted("pad_unchecked") {
        return Err(Drop::PadLongerThanPayload { pad_bytes: bth.pad_bytes, length: rest.len() });
    }
    Ok((description, extension, &rest[..rest.len() - pad_bytes]))
}

#[inline(always)]
fn read_extension(present: Headers, bytes: &[u8]) -> Option<(Extension, &[u8])> {
    let mut rest = bytes;
    let mut extension = Extension::default();
    if present == Headers::NONE {
        return Some((extension, rest));
    }
    macro_rules! read_if_present {
        ($($header:ident $field:expr),* $(,)?) => {
            $(if present.contains(Headers::$header) {
                ($field, rest) = Header::parse(rest)?;
            })*
        };
    }
    let mut reserved = cnp::CnpReserved;
    read_if_present!(
        XRCETH extension.xrceth,
        DETH extension.deth,
        FETH extension.feth,
        RETH extension.reth,
        AETH extension.aeth,
        ATOMIC_ETH extension.atomic_eth,
        ATOMIC_ACK_ETH extension.atomic_ack,
        IMMDT extension.immdt,
        IETH extension.ieth,
        CNP_RESERVED reserved,
    );
    let _ = reserved;
    Some((extension, rest))
}
