//! From the driver's buffer to a frame.

use super::checksum;
use super::header::{HEADER_BYTES, SentHeader};
use rnic_wire::Frame;

const ETHERNET_HEADER_BYTES: usize = 14;

/// Makes the frame of header and contents. False: what the driver gave is none.
pub fn build(bytes: &[u8], frame: &mut Frame) -> bool {
    let Some((header, contents)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return false };
    let header = SentHeader::parse(header);
    if header.is_segmented || contents.len() < ETHERNET_HEADER_BYTES || !frame.set_bytes(contents) {
        return false;
    }
    header.checksum.is_none_or(|(start, offset)| checksum::complete(frame.bytes_mut(), start, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_frame_is_not_built() {
        let mut frame = Frame::new();
        let with = |flags: u8, segmentation: u8, start: u16, length: usize| {
            let mut bytes = vec![flags, segmentation, 0, 0, 0, 0];
            bytes.extend(start.to_le_bytes());
            bytes.extend([6, 0, 0, 0]);
            bytes.resize(HEADER_BYTES + length, 0x5a);
            bytes
        };
        assert!(build(&with(0, 0, 0, 60), &mut frame));
        assert_eq!(frame.bytes(), [0x5a; 60]);
        assert!(build(&with(1, 0, 34, 60), &mut frame));
        assert_ne!(frame.bytes(), [0x5a; 60], "the checksum was completed");
        for (bytes, why) in [
            (with(0, 0, 0, 13), "shorter than its header"),
            (with(0, 1, 0, 60), "segmentation is not offered"),
            (with(1, 0, 60, 60), "the checksum lies outside"),
            (with(0, 0, 0, 9217), "longer than any frame"),
            (vec![0; 11], "shorter than the driver's header"),
        ] {
            assert!(!build(&bytes, &mut frame), "{why}");
        }
    }
}
