//! Why a frame was not taken for a RoCEv2 packet.
//!
//! In: what the parser met. Out: the reason with its values, and the name and index of the counter it belongs to.
//! A drop is silent on the wire: nobody is told, only a counter moves.

use crate::opcode::Opcode;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Drop {
    #[error("the frame ends after {length} bytes, inside its headers")]
    RuntFrame { length: usize },
    #[error("EtherType {ether_type:#06x} is not IP")]
    NotIp { ether_type: u16 },
    #[error("the IPv4 header starts with {version_and_length:#04x}, not with 0x45")]
    BadIpv4Header { version_and_length: u8 },
    #[error("the IPv4 header has options ({header_words} words)")]
    Ipv4Options { header_words: u8 },
    #[error("the IPv4 packet is a fragment (flags and offset {flags_and_offset:#06x})")]
    Ipv4Fragment { flags_and_offset: u16 },
    #[error("the IPv4 header checksum {found:#06x} does not fit the header")]
    BadIpv4Checksum { found: u16 },
    #[error("an IPv6 frame carries IP version {version}")]
    BadIpv6Header { version: u8 },
    #[error("IP protocol {protocol} is not UDP")]
    NotUdp { protocol: u8 },
    #[error("UDP port {dest_port} is not RoCEv2's 4791")]
    NotRocePort { dest_port: u16 },
    #[error("IP has {ip_length} bytes for UDP, UDP says {udp_length}, the frame holds {frame_length}")]
    LengthMismatch { ip_length: usize, udp_length: usize, frame_length: usize },
    #[error("UDP length {udp_length} leaves no room for BTH and ICRC, or is no multiple of 4")]
    BadPacketLength { udp_length: usize },
    #[error("transport header version {version} is not 0")]
    BadTransportVersion { version: u8 },
    #[error("the ICRC is {found:#010x}, computed {computed:#010x}")]
    BadIcrc { found: u32, computed: u32 },
    #[error("opcode {:#04x} is unknown", .opcode.0)]
    UnknownOpcode { opcode: Opcode },
    #[error("opcode {:#04x} needs {needed} bytes of headers, {length} are there", .opcode.0)]
    TruncatedHeaders { opcode: Opcode, needed: usize, length: usize },
    #[error("{pad_bytes} pad bytes in a payload of {length}")]
    PadLongerThanPayload { pad_bytes: u8, length: usize },
}

impl Drop {
    /// The counters' names, by [`Drop::counter_index`].
    pub const COUNTER_NAMES: [&'static str; 16] = [
        "rx_drop_runt_frame",
        "rx_drop_not_ip",
        "rx_drop_bad_ipv4_header",
        "rx_drop_ipv4_options",
        "rx_drop_ipv4_fragment",
        "rx_drop_bad_ipv4_checksum",
        "rx_drop_bad_ipv6_header",
        "rx_drop_not_udp",
        "rx_drop_not_roce_port",
        "rx_drop_length_mismatch",
        "rx_drop_bad_packet_length",
        "rx_drop_bad_transport_version",
        "rx_drop_bad_icrc",
        "rx_drop_unknown_opcode",
        "rx_drop_truncated_headers",
        "rx_drop_pad_longer_than_payload",
    ];

    /// Below `COUNTER_NAMES.len()`, so that an array of that length can count.
    pub const fn counter_index(&self) -> usize {
        match self {
            Self::RuntFrame { .. } => 0,
            Self::NotIp { .. } => 1,
            Self::BadIpv4Header { .. } => 2,
            Self::Ipv4Options { .. } => 3,
            Self::Ipv4Fragment { .. } => 4,
            Self::BadIpv4Checksum { .. } => 5,
            Self::BadIpv6Header { .. } => 6,
            Self::NotUdp { .. } => 7,
            Self::NotRocePort { .. } => 8,
            Self::LengthMismatch { .. } => 9,
            Self::BadPacketLength { .. } => 10,
            Self::BadTransportVersion { .. } => 11,
            Self::BadIcrc { .. } => 12,
            Self::UnknownOpcode { .. } => 13,
            Self::TruncatedHeaders { .. } => 14,
            Self::PadLongerThanPayload { .. } => 15,
        }
    }

    pub const fn counter_name(&self) -> &'static str {
        Self::COUNTER_NAMES[self.counter_index()]
    }
}
