//! Which QEMU will do: its version line and its list of devices decide.

use std::fmt;

/// The oldest version that is supported. Before 11.1 a message DMA carried its data four bytes off.
pub const OLDEST: Version = Version { major: 11, minor: 1, micro: 0 };
/// The device that makes QEMU a vfio-user client.
pub const DEVICE: &str = "vfio-user-pci";

/// A QEMU version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub micro: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

impl Version {
    /// From the first line of `-version`: `QEMU emulator version 11.1.3 (Debian …)`.
    pub fn parse(text: &str) -> Option<Version> {
        let rest = text.split_once("QEMU emulator version ")?.1;
        let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut parts = number.split('.').map(str::parse);
        let mut next = || parts.next().and_then(Result::ok);
        Some(Version { major: next()?, minor: next()?, micro: next().unwrap_or(0) })
    }
}

/// The version, if these outputs of `-version` and `-device help` are those of a QEMU that will do; else the reason.
pub fn judge(version_text: &str, device_help: &str) -> Result<Version, String> {
    let version = Version::parse(version_text).ok_or_else(|| {
        format!("its version cannot be read from {:?}", version_text.lines().next().unwrap_or_default())
    })?;
    if version < OLDEST {
        return Err(format!("it is version {version}, and {OLDEST} or newer is needed"));
    }
    if !device_help.contains(&format!("\"{DEVICE}\"")) {
        return Err(format!("it has no device {DEVICE}"));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "name \"vfio-pci\", bus PCI\nname \"vfio-user-pci\", bus PCI, desc \"VFIO over socket\"\n";

    #[test]
    fn new_ones_pass_and_others_are_refused_with_the_reason() {
        let passed = judge("QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)\nCopyright", HELP);
        assert_eq!(passed, Ok(Version { major: 11, minor: 1, micro: 3 }));
        assert_eq!(judge("QEMU emulator version 12.0", HELP), Ok(Version { major: 12, minor: 0, micro: 0 }));
        assert!(judge("QEMU emulator version 11.1.0-rc1", HELP).is_ok());
        let old = judge("QEMU emulator version 10.0.13 (Debian)", HELP).expect_err("too old");
        assert_eq!(old, "it is version 10.0.13, and 11.1.0 or newer is needed");
        let without = judge("QEMU emulator version 11.1.3", "name \"vfio-pci\"").expect_err("no device");
        assert!(without.contains("vfio-user-pci"), "{without}");
        assert!(judge("emacs 30.1", HELP).expect_err("no QEMU").contains("cannot be read"));
        assert!(judge("QEMU emulator version 99999999999999", HELP).is_err());
    }
}
