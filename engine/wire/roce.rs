//! A RoCEv2 packet as values: what [`crate::emit`] writes and [`crate::parse`] reads, with the same type for both.
//!
//! Lengths and checksums are not part of it: they follow from the payload. Which of the extension headers are on the
//! wire follows from the opcode.

use crate::gid::Gid;
use crate::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Reth, Vlan, XrcEth};
use core::net::{Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoceHeaders {
    pub link: LinkHeaders,
    pub network: Network,
    pub udp_source_port: u16,
    pub bth: Bth,
    pub extension: Extension,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHeaders {
    pub source_mac: [u8; 6],
    pub dest_mac: [u8; 6],
    pub vlan: Option<Vlan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    V4 { source: Ipv4Addr, dest: Ipv4Addr, traffic_class: u8, ttl: u8, identification: u16 },
    V6 { source: Ipv6Addr, dest: Ipv6Addr, traffic_class: u8, flow_label: u32, hop_limit: u8 },
}

/// Every header that can follow the BTH. Those that the opcode does not call for are ignored when a packet is built
/// and have their defaults when one was parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extension {
    pub xrceth: XrcEth,
    pub deth: Deth,
    pub feth: Feth,
    pub reth: Reth,
    pub aeth: Aeth,
    pub atomic_eth: AtomicEth,
    pub atomic_ack: AtomicAckEth,
    pub immdt: ImmDt,
    pub ieth: Ieth,
}

/// The two ECN bits of the traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    NotCapable,
    Ect1,
    Ect0,
    CongestionExperienced,
}

impl Network {
    #[inline(always)]
    pub fn source_gid(&self) -> Gid {
        match self {
            Self::V4 { source, .. } => (*source).into(),
            Self::V6 { source, .. } => (*source).into(),
        }
    }

    #[inline(always)]
    pub fn dest_gid(&self) -> Gid {
        match self {
            Self::V4 { dest, .. } => (*dest).into(),
            Self::V6 { dest, .. } => (*dest).into(),
        }
    }

    /// DSCP 6 bits, ECN 2 bits.
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        match self {
            Self::V4 { traffic_class, .. } | Self::V6 { traffic_class, .. } => *traffic_class,
        }
    }

    #[inline(always)]
    pub fn ecn(&self) -> Ecn {
        match self.traffic_class() & 3 {
            0b00 => Ecn::NotCapable,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::CongestionExperienced,
        }
    }
}
