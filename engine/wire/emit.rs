//! Building a packet: values to bytes.
//!
//! In: the headers' values, and how long the payload will be. Out: a frame with every header, length, checksum and pad
//! byte in place, its ICRC deferred, and the range that the caller fills with the payload.

use crate::frame::{CAPACITY, Frame};
use crate::header::Header;
use crate::opcode::{Headers, OpcodeDescription};
use crate::roce::{Extension, Network, RoceHeaders};
use crate::{bth, cnp, ethernet, icrc, ipv4, ipv6, udp, vlan};
use crate::{ethernet::EtherType, ethernet::Ethernet, ipv4::Ipv4, ipv6::Ipv6, udp::Udp, vlan::VlanTag};
use core::ops::Range;

/// Writes the headers of a packet of `payload_length` bytes. The payload goes into the returned range of
/// [`Frame::bytes_mut`]; the pad count in `headers.bth` is not read.
///
/// # Panics
///
/// If the opcode is not in the table or the payload exceeds [`payload_room`]: both are the caller's to know.
#[inline]
pub fn emit(headers: &RoceHeaders, payload_length: usize, frame: &mut Frame) -> Range<usize> {
    let description = description(headers);
    let start = payload_offset(headers, description);
    let pad_bytes = payload_length.wrapping_neg() & 3;
    assert!(payload_length <= CAPACITY - start - 3 - icrc::LENGTH, "{payload_length} bytes of payload do not fit");
    let udp_length = udp_and_bth_length(description) + payload_length + pad_bytes + icrc::LENGTH;

    let buffer = frame.buffer_mut();
    let written = write_headers(headers, description, pad_bytes, udp_length, buffer);
    debug_assert_eq!(written, Some(start));
    let payload = start..start + payload_length;
    let end = payload.end + pad_bytes + icrc::LENGTH;
    // At most 3 pad bytes, and the ICRC's place.
    buffer[payload.end..end].fill(0);
    frame.set_emitted(end);
    payload
}

/// The longest payload that a frame has room for behind these headers.
pub fn payload_room(headers: &RoceHeaders) -> usize {
    CAPACITY - payload_offset(headers, description(headers)) - 3 - icrc::LENGTH
}

/// The length of the frame that [`emit`] builds, without the Ethernet's check sequence.
pub fn frame_length(headers: &RoceHeaders, payload_length: usize) -> usize {
    payload_offset(headers, description(headers)) + payload_length.next_multiple_of(4) + icrc::LENGTH
}

#[inline(always)]
fn description(headers: &RoceHeaders) -> &'static OpcodeDescription {
    let opcode = headers.bth.opcode;
    opcode.description().unwrap_or_else(|| panic!("opcode {:#04x} is not in the table", opcode.0))
}

#[inline(always)]
fn udp_and_bth_length(description: &OpcodeDescription) -> usize {
    size_of::<udp::Layout>() + size_of::<bth::Layout>() + description.extension_length
}

#[inline(always)]
fn payload_offset(headers: &RoceHeaders, description: &OpcodeDescription) -> usize {
    let tag = if headers.link.vlan.is_some() { size_of::<vlan::Layout>() } else { 0 };
    let network = match headers.network {
        Network::V4 { .. } => size_of::<ipv4::Layout>(),
        Network::V6 { .. } => size_of::<ipv6::Layout>(),
    };
    size_of::<ethernet::Layout>() + tag + network + udp_and_bth_length(description)
}

/// The number of bytes written; `None` if they did not fit, which the longest headers do by far.
#[inline(always)]
fn write_headers(
    headers: &RoceHeaders,
    description: &OpcodeDescription,
    pad_bytes: usize,
    udp_length: usize,
    buffer: &mut [u8; CAPACITY],
) -> Option<usize> {
    let rest = write_link(headers, buffer)?;
    let rest = write_network(&headers.network, udp_length, rest)?;
    let udp = Udp {
        source_port: headers.udp_source_port,
        dest_port: udp::ROCE_PORT,
        length: udp_length as u16, // a frame's capacity fits
    };
    let rest = udp.emit(rest)?;
    let rest = bth::Bth { pad_bytes: pad_bytes as u8, ..headers.bth }.emit(rest)?;
    let rest = write_extension(&headers.extension, description.headers, rest)?;
    Some(CAPACITY - rest.len())
}

#[inline(always)]
fn write_link<'a>(headers: &RoceHeaders, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let link = &headers.link;
    let network_type = match headers.network {
        Network::V4 { .. } => EtherType::IPV4,
        Network::V6 { .. } => EtherType::IPV6,
    };
    let ether_type = if link.vlan.is_some() { EtherType::VLAN } else { network_type };
    let rest = Ethernet { dest_mac: link.dest_mac, source_mac: link.source_mac, ether_type }.emit(buffer)?;
    match link.vlan {
        Some(vlan) => VlanTag { vlan, ether_type: network_type }.emit(rest),
        None => Some(rest),
    }
}

#[inline(always)]
fn write_network<'a>(network: &Network, udp_length: usize, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
    match *network {
        Network::V4 { source, dest, traffic_class, ttl, identification } => Ipv4 {
            traffic_class,
            total_length: (size_of::<ipv4::Layout>() + udp_length) as u16,
            identification,
            ttl,
            protocol: udp::PROTOCOL,
            source,
            dest,
        }
        .emit(buffer),
        Network::V6 { source, dest, traffic_class, flow_label, hop_limit } => Ipv6 {
            traffic_class,
            flow_label,
            payload_length: udp_length as u16,
            next_header: udp::PROTOCOL,
            hop_limit,
            source,
            dest,
        }
        .emit(buffer),
    }
}

#[inline(always)]
fn write_extension<'a>(extension: &Extension, present: Headers, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let mut rest = buffer;
    if present == Headers::NONE {
        return Some(rest);
    }
    macro_rules! write_if_present {
        ($($header:ident $value:expr),* $(,)?) => {
            $(if present.contains(Headers::$header) {
                rest = $value.emit(rest)?;
            })*
        };
    }
    write_if_present!(
        XRCETH extension.xrceth,
        DETH extension.deth,
        FETH extension.feth,
        RETH extension.reth,
        AETH extension.aeth,
        ATOMIC_ETH extension.atomic_eth,
        ATOMIC_ACK_ETH extension.atomic_ack,
        IMMDT extension.immdt,
        IETH extension.ieth,
        CNP_RESERVED cnp::CnpReserved,
    );
    Some(rest)
}
