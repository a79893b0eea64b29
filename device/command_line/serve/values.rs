//! Values of the configuration, each with its range: from a TOML file and from an option alike, so that a wrong one is
//! refused with the same sentence, beside its line or its option.

use rnic_wire::Gid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Integers with a range and, where it matters, with few values.
macro_rules! number {
    ($($(#[$doc:meta])* $name:ident($inner:ty) is $what:literal where |$value:ident| $holds:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $name(pub $inner);

        impl TryFrom<u64> for $name {
            type Error = String;

            fn try_from($value: u64) -> Result<Self, String> {
                match <$inner>::try_from($value) {
                    Ok(narrow) if $holds => Ok(Self(narrow)),
                    _ => Err(format!("{} is out of range: give {}", $value, $what)),
                }
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                value.0.into()
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let number = text.parse::<u64>().map_err(|_| format!("{text:?} is no number: give {}", $what))?;
                Self::try_from(number)
            }
        }
    )*};
}

number! {
    Mtu(u32) is "a path MTU of 256, 512, 1024, 2048 or 4096 bytes" where |n| matches!(n, 256 | 512 | 1024 | 2048 | 4096);
    Generation(u8) is "a PCIe generation from 1 to 5" where |n| (1..=5).contains(&n);
    Width(u8) is "1, 2, 4, 8, 12, 16 or 32 lanes" where |n| matches!(n, 1 | 2 | 4 | 8 | 12 | 16 | 32);
    Entries(u32) is "1 to 1048576 entries" where |n| (1..=1 << 20).contains(&n);
    Vectors(u16) is "1 to 2048 vectors" where |n| (1..=2048).contains(&n);
    DoorbellPages(u32) is "2 to 65536 pages, a power of two" where |n| (2..=65536).contains(&n) && n.is_power_of_two();
    RingFrames(u32) is "2 to 65536 frames, a power of two" where |n| (2..=65536).contains(&n) && n.is_power_of_two();
    Seconds(u32) is "1 to 86400 seconds" where |n| (1..=86400).contains(&n);
    Microseconds(u32) is "0 to 10000000 microseconds" where |n| n <= 10_000_000;
    Period(u32) is "1 to 10000000 microseconds" where |n| (1..=10_000_000).contains(&n);
    GainShift(u32) is "1 to 20, for a gain of 1/2 to 1/1048576" where |n| (1..=20).contains(&n);
    Stages(u32) is "1 to 1000 stages" where |n| (1..=1000).contains(&n);
    Frames(u32) is "1 to 65536 frames" where |n| (1..=65536).contains(&n);
    BitRate(u64) is "1000 to 1000000000000 bits per second" where |n| (1_000..=1_000_000_000_000).contains(&n);
    /// Room for one frame of the largest path MTU at least.
    QueueBytes(u64) is "8192 to 1073741824 bytes" where |n| (8192..=1 << 30).contains(&n);
    Threshold(u64) is "0 to 1073741824 bytes" where |n| n <= 1 << 30;
}

/// A probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

impl Share {
    pub fn probability(self) -> rnic_switch::Probability {
        rnic_switch::Probability::from_fraction(self.0).unwrap_or_default()
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(fraction: f64) -> Result<Self, String> {
        let known = rnic_switch::Probability::from_fraction(fraction);
        known.map(|_| Self(fraction)).ok_or_else(|| format!("{fraction} is no probability: give 0.0 to 1.0"))
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<f64>()
            .map_err(|_| format!("{text:?} is no number: give a probability from 0.0 to 1.0"))?
            .try_into()
    }
}

/// Values that are written as text: from and to a string by their own rules.
macro_rules! text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}

/// The name of an adapter: it becomes a file name and stands in command lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AdapterName(String);
text!(AdapterName);

impl AdapterName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AdapterName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        const LONGEST: usize = 32;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if name.is_empty() || name.len() > LONGEST || !plain || name.starts_with(['.', '-']) {
            return Err(format!(
                "{name:?} is no name for an adapter: 1 to {LONGEST} letters, digits, '.', '_' or '-', neither '.' nor '-' in front"
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for AdapterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A MAC address that an adapter can have: of one station, not of a group, and not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);
text!(Mac);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
        let bytes: Result<Vec<u8>, _> = parts.into_iter().collect();
        let bytes = bytes.ok().and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        match bytes {
            Some(bytes) if bytes[0] & 1 == 0 && bytes != [0; 6] => Ok(Self(bytes)),
            Some(_) => Err(format!("{text} is no address of one station: the lowest bit of its first byte is clear")),
            None => Err(format!("{text:?} is no MAC address: give six bytes as 02:00:00:00:00:01")),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

/// A GID, written as the IPv4 or IPv6 address that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(pub IpAddr);
text!(Address);

impl Address {
    pub fn gid(self) -> [u8; 16] {
        match self.0 {
            IpAddr::V4(address) => Gid::from_ipv4(address).0,
            IpAddr::V6(address) => Gid::from_ipv6(address).0,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address: IpAddr =
            text.parse().map_err(|_| format!("{text:?} is no IPv4 or IPv6 address: give for example 10.0.0.1"))?;
        if address.is_multicast() || address.is_unspecified() {
            return Err(format!("{text} is no address of one station: give for example 10.0.0.1"));
        }
        Ok(Self(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        assert_eq!("1024".parse(), Ok(Mtu(1024)));
        assert!("1500".parse::<Mtu>().is_err_and(|error| error.contains("4096")));
        assert!("x".parse::<Width>().is_err_and(|error| error.contains("no number")));
        assert!("3".parse::<Width>().is_err_and(|error| error.contains("12, 16 or 32")));
        assert!("300".parse::<Generation>().is_err());
        for wrong in ["1.5", "-0.1", "NaN", "much"] {
            assert!(wrong.parse::<Share>().is_err_and(|error| error.contains("0.0 to 1.0")), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_those_of_one_station() {
        assert_eq!("02:4C:86:02:22:ec".parse::<Mac>().map(|mac| mac.to_string()), Ok("02:4c:86:02:22:ec".into()));
        for wrong in ["03:00:00:00:00:01", "00:00:00:00:00:00", "02:00", "02-00-00-00-00-01", ""] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
        let gid = "10.0.0.1".parse::<Address>().map(Address::gid);
        assert_eq!(gid, Ok([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]));
        for wrong in ["224.0.0.1", "0.0.0.0", "::", "ff02::1", "10.0.0", "A"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_plain() {
        for wrong in ["", ".", "-A", "../A", "a b", "A/B", &"x".repeat(33)] {
            assert!(wrong.parse::<AdapterName>().is_err(), "{wrong}");
        }
        assert!("node-1.left_A".parse::<AdapterName>().is_ok());
    }
}
