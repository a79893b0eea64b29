//! The bare kernel inside a compressed one. QEMU starts it directly by its PVH note, which saves the guest the
//! decompression: one and a half seconds without hardware acceleration.
//!
//! In: a bzImage. Out: its ELF image. The boot protocol says where the payload lies; Debian compresses it with zstd and
//! appends its size in four bytes.

use std::io::Read;
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;

use crate::planted::planted;
use crate::{Error, Result};

const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PROTOCOL: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const LARGEST_BYTES: u64 = 512 << 20;

/// The ELF image in the bzImage `bytes`, which were read from `path`.
pub fn extract(bytes: &[u8], path: &Path) -> Result<Vec<u8>> {
    let refused = |reason: &str| Error::Kernel { path: path.to_path_buf(), reason: reason.to_owned() };
    let payload = payload(bytes).map_err(refused)?;
    let (packed, size) = payload.split_last_chunk::<4>().ok_or_else(|| refused("the payload is empty"))?;
    let expected = u64::from(u32::from_le_bytes(*size));
    if !packed.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(refused("the payload is no zstd stream"));
    }
    if expected > LARGEST_BYTES {
        return Err(refused("the payload claims more than 512 MiB"));
    }
    let decoder = StreamingDecoder::new(packed).map_err(|error| refused(&error.to_string()))?;
    let mut image = Vec::new();
    decoder.take(expected + 1).read_to_end(&mut image).map_err(|error| refused(&error.to_string()))?;
    if image.len() as u64 != expected && !planted("size_unchecked") {
        return Err(refused(&format!("it holds {} bytes, not {expected}", image.len())));
    }
    if !image.starts_with(b"\x7fELF") {
        return Err(refused("the payload is no ELF image"));
    }
    Ok(image)
}

fn payload(bytes: &[u8]) -> std::result::Result<&[u8], &'static str> {
    let word = |at: usize| -> Option<usize> {
        let word = bytes.get(at..at + 4)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*word)).ok()
    };
    if bytes.get(MAGIC..MAGIC + 4) != Some(b"HdrS".as_slice()) {
        return Err("it has no boot protocol header");
    }
    // Payload fields came with protocol 2.08.
    if word(PROTOCOL).unwrap_or(0) & 0xffff < 0x0208 {
        return Err("its boot protocol is older than 2.08");
    }
    let sectors = usize::from(*bytes.get(SETUP_SECTORS).ok_or("it is too short")?);
    let (offset, length) =
        (word(PAYLOAD_OFFSET).ok_or("it is too short")?, word(PAYLOAD_LENGTH).ok_or("it is too short")?);
    let start = (sectors + 1) * 512 + offset;
    let end = start.checked_add(length).ok_or("its payload leads out of the file")?;
    bytes.get(start..end).ok_or("its payload leads out of the file")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A bzImage with one setup sector and this payload.
    pub(crate) fn image(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0u8; 1024];
        bytes[SETUP_SECTORS] = 1;
        bytes[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        bytes[PROTOCOL..PROTOCOL + 2].copy_from_slice(&0x020f_u16.to_le_bytes());
        bytes[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A zstd frame with one raw block, by the format's description: magic, descriptor (single segment), size, block.
    pub(crate) fn packed(content: &[u8]) -> Vec<u8> {
        let length = content.len() as u8;
        let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, length];
        bytes.extend_from_slice(&(1 | u32::from(length) << 3).to_le_bytes()[..3]);
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(&u32::from(length).to_le_bytes());
        bytes
    }

    #[test]
    fn the_payload_comes_out() {
        let content = b"\x7fELF and the rest";
        assert_eq!(extract(&image(&packed(content)), Path::new("k")).expect("extracted"), content);
    }

    #[test]
    fn other_files_are_refused_without_a_panic() {
        let good = image(&packed(b"\x7fELF"));
        for length in 0..good.len() {
            assert!(matches!(extract(&good[..length], Path::new("k")), Err(Error::Kernel { .. })), "{length}");
        }
        let mut far = good.clone();
        far[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(extract(&far, Path::new("k")).is_err());
        let mut short = packed(b"\x7fELF");
        let at = short.len() - 4;
        short[at] = 9;
        assert!(extract(&image(&short), Path::new("k")).is_err(), "the size at the end does not fit");
        assert!(extract(&image(&packed(b"text")), Path::new("k")).is_err());
    }
}
