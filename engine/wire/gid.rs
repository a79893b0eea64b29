//! Global identifiers: the 16 bytes by which RoCEv2 names a port.
//!
//! An IPv6 address is its own GID; an IPv4 address a.b.c.d is `::ffff:a.b.c.d`. The form of the GID decides the IP
//! version of the packets that it sends.

use core::fmt;
use core::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// What an empty entry of a GID table holds.
    pub const ZERO: Self = Self([0; 16]);

    #[inline]
    pub const fn from_ipv4(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }

    #[inline]
    pub const fn from_ipv6(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }

    /// The link-local address of a port: fe80::/64 and the modified EUI-64 of its MAC address (RFC 4291, appendix A).
    pub const fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// The address of a GID of the form `::ffff:a.b.c.d`.
    #[inline]
    pub const fn to_ipv4(self) -> Option<Ipv4Addr> {
        self.to_ipv6().to_ipv4_mapped()
    }

    #[inline]
    pub const fn to_ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0))
    }

    /// The address that packets from and to this GID carry.
    pub const fn to_ip(self) -> IpAddr {
        match self.to_ipv4() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(self.to_ipv6()),
        }
    }

    pub const fn is_zero(self) -> bool {
        u128::from_ne_bytes(self.0) == 0
    }

    pub const fn is_multicast(self) -> bool {
        match self.to_ip() {
            IpAddr::V4(address) => address.is_multicast(),
            IpAddr::V6(address) => address.is_multicast(),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self::from_ipv4(address)
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self::from_ipv6(address)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ipv6().fmt(formatter)
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    /// Takes what `Display` writes, and a plain IPv4 address.
    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        text.parse::<IpAddr>().map(|address| match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_is_made_of_the_mac() {
        // RFC 2464, section 5, has this example.
        let gid = Gid::link_local([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(gid.to_string(), "fe80::3656:78ff:fe9a:bcde");
    }

    #[test]
    fn ipv4_addresses_are_mapped() {
        let gid = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!(gid.to_ipv4(), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(gid.to_string(), "::ffff:10.0.0.1");
        assert_eq!("10.0.0.1".parse(), Ok(gid));
        assert_eq!("::ffff:10.0.0.1".parse(), Ok(gid));
    }

    #[test]
    fn ipv6_addresses_stand_for_themselves() {
        let gid: Gid = "fe80::5054:ff:fe12:3456".parse().unwrap();
        assert_eq!(gid.to_ipv4(), None);
        assert_eq!(gid.to_string(), "fe80::5054:ff:fe12:3456");
        assert!(!gid.is_zero() && Gid::ZERO.is_zero());
    }

    #[test]
    fn multicast_in_both_versions() {
        assert!(Gid::from(Ipv4Addr::new(224, 0, 0, 5)).is_multicast());
        assert!("ff0e::ffff:e000:5".parse::<Gid>().unwrap().is_multicast());
        assert!(!Gid::from(Ipv4Addr::new(10, 0, 0, 1)).is_multicast());
    }
}
