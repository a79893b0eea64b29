//! Where a frame comes from and goes to: MAC and IP addresses, and nothing behind them.
//!
//! In: the bytes of a frame. Out: its addresses, and where its network header stands.
//! At most two VLAN tags are skipped. Forwarding sees a frame through this file only, so it cannot read past IP.

/// A MAC address as a number, in the low 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MacAddress(u64);

/// An IPv6 address as a number; an IPv4 address is `::ffff:a.b.c.d`, as in a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpAddress(u128);

/// The addresses forwarding and learning use.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub source_mac: MacAddress,
    pub destination_mac: MacAddress,
    /// Source and destination, if the frame carries IP.
    pub ip: Option<(IpAddress, IpAddress)>,
}

/// The network header of an IP frame, with at least its fixed part inside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkHeader {
    Ipv4 { offset: usize },
    Ipv6 { offset: usize },
}

const VLAN_TAG_LENGTH_BYTES: usize = 4;
const ETHERTYPE_OFFSET: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_CUSTOMER_TAG: u16 = 0x8100;
const ETHERTYPE_SERVICE_TAG: u16 = 0x88a8;
pub const IPV4_HEADER_LENGTH_BYTES: usize = 20;
pub const IPV6_HEADER_LENGTH_BYTES: usize = 40;

impl Addresses {
    /// None if the frame is too short to hold an Ethernet header.
    pub fn of(frame: &[u8]) -> Option<Self> {
        frame.get(..ETHERTYPE_OFFSET + 2)?;
        Some(Self {
            destination_mac: MacAddress::from_bytes(array(frame, 0)?),
            source_mac: MacAddress::from_bytes(array(frame, 6)?),
            ip: ip_addresses(frame),
        })
    }

    /// Whether the frame is meant for more than one station, or for all.
    pub fn is_group(&self) -> bool {
        self.destination_mac.is_group() || self.ip.is_some_and(|(_, destination)| destination.is_group())
    }
}

impl NetworkHeader {
    /// Finds the network header behind the Ethernet header and the VLAN tags. None for anything but IP, and for an IP
    /// header that is cut off or names another version.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let mut offset = ETHERTYPE_OFFSET;
        let mut ethertype = u16::from_be_bytes(array(frame, offset)?);
        for _ in 0..2 {
            if ethertype == ETHERTYPE_CUSTOMER_TAG || ethertype == ETHERTYPE_SERVICE_TAG {
                offset += VLAN_TAG_LENGTH_BYTES;
                ethertype = u16::from_be_bytes(array(frame, offset)?);
            }
        }
        offset += 2;
        let version = frame.get(offset)? >> 4;
        match (ethertype, version) {
            (ETHERTYPE_IPV4, 4) if has_ipv4_header(frame, offset) => Some(Self::Ipv4 { offset }),
            (ETHERTYPE_IPV6, 6) if frame.len() >= offset + IPV6_HEADER_LENGTH_BYTES => Some(Self::Ipv6 { offset }),
            _ => None,
        }
    }
}

fn has_ipv4_header(frame: &[u8], offset: usize) -> bool {
    let header_length_words = frame[offset] & 0xf;
    header_length_words >= 5 && frame.len() >= offset + IPV4_HEADER_LENGTH_BYTES
}

fn ip_addresses(frame: &[u8]) -> Option<(IpAddress, IpAddress)> {
    match NetworkHeader::of(frame)? {
        NetworkHeader::Ipv4 { offset } => {
            Some((IpAddress::from_ipv4(array(frame, offset + 12)?), IpAddress::from_ipv4(array(frame, offset + 16)?)))
        }
        NetworkHeader::Ipv6 { offset } => {
            Some((IpAddress::from_ipv6(array(frame, offset + 8)?), IpAddress::from_ipv6(array(frame, offset + 24)?)))
        }
    }
}

fn array<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..)?.first_chunk().copied()
}

impl MacAddress {
    pub fn from_bytes(bytes: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = bytes;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Broadcast is one of them.
    pub fn is_group(self) -> bool {
        self.0 >> 40 & 1 == 1
    }

    /// Whether one station can own it.
    pub fn is_station(self) -> bool {
        self.0 != 0 && !self.is_group()
    }
}

impl IpAddress {
    const IPV4_PREFIX: u128 = 0xffff << 32;

    pub fn from_ipv4(bytes: [u8; 4]) -> Self {
        Self(Self::IPV4_PREFIX | u128::from(u32::from_be_bytes(bytes)))
    }

    pub fn from_ipv6(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    fn ipv4(self) -> Option<u32> {
        (self.0 >> 32 == Self::IPV4_PREFIX >> 32).then_some(self.0 as u32)
    }

    /// Multicast, and IPv4's limited broadcast.
    pub fn is_group(self) -> bool {
        match self.ipv4() {
            Some(address) => address >> 28 == 0xe || address == u32::MAX,
            None => self.0 >> 120 == 0xff,
        }
    }

    /// Whether one station can own it: not a group, not the unspecified address, not a loopback address.
    pub fn is_station(self) -> bool {
        let reserved = match self.ipv4() {
            Some(address) => address == 0 || address >> 24 == 127,
            None => self.0 <= 1,
        };
        !reserved && !self.is_group()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_no_single_owner_are_told_apart() {
        for (address, station, group) in [
            ([10, 0, 0, 1], true, false),
            ([0, 0, 0, 0], false, false),
            ([127, 0, 0, 1], false, false),
            ([224, 0, 0, 1], false, true),
            ([239, 255, 255, 255], false, true),
            ([255, 255, 255, 255], false, true),
        ] {
            let ip = IpAddress::from_ipv4(address);
            assert_eq!((ip.is_station(), ip.is_group()), (station, group), "{address:?}");
        }
        let mut ip = [0; 16];
        assert!(!IpAddress::from_ipv6(ip).is_station());
        ip[15] = 1;
        assert!(!IpAddress::from_ipv6(ip).is_station());
        ip[0] = 0xfe;
        assert!(IpAddress::from_ipv6(ip).is_station());
        ip[0] = 0xff;
        assert!(IpAddress::from_ipv6(ip).is_group());
        assert!(MacAddress::from_bytes([0xff; 6]).is_group());
        assert!(!MacAddress::from_bytes([0; 6]).is_station());
        assert!(MacAddress::from_bytes([2, 0, 0, 0, 0, 1]).is_station());
    }

    #[test]
    fn a_network_header_is_found_behind_two_tags_at_most_and_only_when_whole() {
        for tags in 0..4 {
            let mut frame = vec![0u8; 12];
            for tag in 0..tags {
                frame.extend(if tag == 0 { [0x88, 0xa8, 0, 1] } else { [0x81, 0, 0, 1] });
            }
            frame.extend([0x08, 0x00, 0x45]);
            frame.resize(frame.len() + 19, 0);
            let offset = 14 + 4 * tags;
            assert_eq!(NetworkHeader::of(&frame), (tags <= 2).then_some(NetworkHeader::Ipv4 { offset }));
            for length in 0..frame.len() {
                assert_eq!(NetworkHeader::of(&frame[..length]), None);
            }
        }
        let mut frame = [vec![0u8; 12], vec![0x86, 0xdd, 0x60], vec![0; 39]].concat();
        assert_eq!(NetworkHeader::of(&frame), Some(NetworkHeader::Ipv6 { offset: 14 }));
        frame[14] = 0x45;
        assert_eq!(NetworkHeader::of(&frame), None, "the version must be the ethertype's");
    }
}
