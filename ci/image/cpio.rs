//! The archive format of an initial file system: "newc" cpio, written byte by byte, so that neither root nor a cpio
//! program nor a mounted file system is needed (device nodes are just numbers in a header).
//!
//! Each member is a header of 110 bytes in hexadecimal digits, its name with a zero, and its content, the last two
//! padded to four bytes; the archive ends with a member named `TRAILER!!!`. The kernel wants parents before children.

use std::collections::BTreeSet;
use std::io::Write;

use crate::{Error, Result};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMBOLIC_LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Writes an archive; parents are added as they are needed.
#[derive(Debug)]
pub struct CpioWriter<W: Write> {
    output: W,
    directories: BTreeSet<String>,
    names: BTreeSet<String>,
    next_inode: u32,
}

impl<W: Write> CpioWriter<W> {
    pub fn new(output: W) -> CpioWriter<W> {
        CpioWriter { output, directories: BTreeSet::new(), names: BTreeSet::new(), next_inode: 1 }
    }

    pub fn directory(&mut self, path: &str) -> Result<()> {
        self.parents(path)?;
        if self.directories.insert(path.to_owned()) {
            self.member(path, DIRECTORY | 0o755, (0, 0), &[])?;
        }
        Ok(())
    }

    /// A regular file with its permission bits.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> Result<()> {
        self.parents(path)?;
        self.member(path, REGULAR | (permissions & 0o7777), (0, 0), content)
    }

    pub fn symbolic_link(&mut self, path: &str, target: &str) -> Result<()> {
        self.parents(path)?;
        self.member(path, SYMBOLIC_LINK | 0o777, (0, 0), target.as_bytes())
    }

    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> Result<()> {
        self.parents(path)?;
        self.member(path, CHARACTER_DEVICE | 0o600, (major, minor), &[])
    }

    /// Ends the archive and returns what it was written to.
    pub fn finish(mut self) -> Result<W> {
        self.raw_member("TRAILER!!!", 0, 0, (0, 0), &[])?;
        self.output.flush().map_err(|error| refused("the trailer", &error.to_string()))?;
        Ok(self.output)
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        for (position, _) in path.match_indices('/') {
            let parent = &path[..position];
            if !parent.is_empty() && !self.directories.contains(parent) {
                self.directories.insert(parent.to_owned());
                self.member(parent, DIRECTORY | 0o755, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    fn member(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) -> Result<()> {
        let is_plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !is_plain || path.contains('\0') {
            return Err(refused(path, "it is no plain relative path"));
        }
        if !self.names.insert(path.to_owned()) {
            return Err(refused(path, "it is there already"));
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.raw_member(path, inode, mode, device, content)
    }

    fn raw_member(&mut self, path: &str, inode: u32, mode: u32, device: (u32, u32), content: &[u8]) -> Result<()> {
        let length = u32::try_from(content.len()).map_err(|_| refused(path, "it is larger than 4 GiB"))?;
        let links = if mode & 0o170_000 == DIRECTORY { 2 } else { 1 };
        let name_length = path.len() as u32 + 1;
        // Inode, mode, user, group, links, time, size, device and device number of the node, name length, checksum.
        let fields = [inode, mode, 0, 0, links, 0, length, 0, 0, device.0, device.1, name_length, 0];
        let mut head = String::from("070701");
        head.extend(fields.iter().map(|field| format!("{field:08X}")));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(path.as_bytes());
        bytes.push(0);
        pad(&mut bytes);
        let write = |output: &mut W| -> std::io::Result<()> {
            output.write_all(&bytes)?;
            output.write_all(content)?;
            output.write_all(&[0u8; 3][..(4 - content.len() % 4) % 4])
        };
        write(&mut self.output).map_err(|error| refused(path, &error.to_string()))
    }
}

fn pad(bytes: &mut Vec<u8>) {
    while !bytes.len().is_multiple_of(4) {
        bytes.push(0);
    }
}

fn refused(path: &str, reason: &str) -> Error {
    Error::Image { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_the_bytes_of_the_kernels_description() {
        let mut writer = CpioWriter::new(Vec::new());
        writer.file("init", 0o755, b"#!x\nq").expect("written");
        let bytes = writer.finish().expect("finished");
        let head = concat!(
            "070701", "00000001", "000081ED", "00000000", "00000000", "00000001", "00000000", "00000005", "00000000",
            "00000000", "00000000", "00000000", "00000005", "00000000"
        );
        let mut expected = head.as_bytes().to_vec();
        expected.extend_from_slice(b"init\0\0"); // 110 + 5 bytes, padded to 116
        expected.extend_from_slice(b"#!x\nq\0\0\0");
        assert_eq!(&bytes[..expected.len()], expected.as_slice());
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn parents_come_once_and_first() {
        let mut writer = CpioWriter::new(Vec::new());
        writer.file("a/b/c", 0o644, b"").expect("written");
        writer.symbolic_link("a/b/d", "c").expect("written");
        writer.directory("a").expect("there already");
        writer.character_device("dev/console", 5, 1).expect("written");
        let bytes = writer.finish().expect("finished");
        let text = String::from_utf8_lossy(&bytes);
        let positions =
            ["a\0", "a/b\0", "a/b/c\0", "a/b/d\0", "dev\0", "dev/console\0"].map(|name| text.find(name).expect(name));
        assert!(positions.is_sorted(), "{positions:?}");
        assert_eq!(text.matches("000041ED").count(), 3);
    }

    #[test]
    fn odd_names_and_doubles_are_refused() {
        let mut writer = CpioWriter::new(Vec::new());
        for path in ["", "/init", "a//b", "a/../b", "a/"] {
            assert!(matches!(writer.file(path, 0o644, b""), Err(Error::Image { .. })), "{path:?}");
        }
        writer.file("init", 0o755, b"").expect("written");
        assert!(writer.file("init", 0o755, b"").is_err());
    }
}
