//! The Internet checksum, completed for a driver that left it to the device, and verified for one that asks.

/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// The sum of 16-bit words in network order, not yet folded.
fn sum(bytes: &[u8]) -> u64 {
    // Eight bytes at a time in this machine's order: the folded sum of swapped words is the swapped sum.
    let mut chunks = bytes.chunks_exact(8);
    let wide: u128 =
        chunks.by_ref().map(|chunk| u128::from(u64::from_ne_bytes(chunk.try_into().unwrap_or_default()))).sum();
    let mut native = 0u64;
    let mut rest = wide;
    while rest > 0 {
        native += (rest & 0xffff) as u64;
        rest >>= 16;
    }
    for pair in chunks.remainder().chunks(2) {
        native += u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    u64::from(u16::from_be(fold(native)))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Completes the checksum at `start + offset` over everything from `start` on: the place holds the sum of the pseudo
/// header. False, with nothing changed, if the place is not in the frame.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let place = start.saturating_add(offset);
    if place.checked_add(2).is_none_or(|end| end > frame.len()) {
        return false;
    }
    let complement = !fold(sum(&frame[start..]));
    // A sum of zero is sent as ones: in UDP zero means that there is none, elsewhere both are the same number.
    let written = if complement == 0 { 0xffff } else { complement };
    frame[place..place + 2].copy_from_slice(&written.to_be_bytes());
    true
}

/// The frame is TCP or UDP, not a fragment, whole, and its checksum is right.
pub fn is_right(frame: &[u8]) -> bool {
    segment_of(frame).is_some_and(|segment| {
        let pseudo_header = u64::from(segment.protocol) + segment.bytes.len() as u64;
        fold(sum(segment.addresses) + pseudo_header + sum(segment.bytes)) == 0xffff
    })
}

struct Segment<'a> {
    protocol: u8,
    /// Source and destination address.
    addresses: &'a [u8],
    bytes: &'a [u8],
}

fn segment_of(frame: &[u8]) -> Option<Segment<'_>> {
    let tag_bytes = if frame.get(12..14)? == [0x81, 0x00] { TAG_BYTES } else { 0 };
    let ether_type = frame.get(12 + tag_bytes..14 + tag_bytes)?;
    let packet = frame.get(ETHERNET_BYTES + tag_bytes..)?;
    let word = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let segment = match ether_type {
        [0x08, 0x00] => {
            let header_bytes = usize::from(packet.first()? & 0xf) * 4;
            let is_fragment = word(6)? & 0x3fff != 0;
            if is_fragment || header_bytes < 20 {
                return None;
            }
            Segment {
                protocol: *packet.get(9)?,
                addresses: packet.get(12..20)?,
                bytes: packet.get(header_bytes..word(2)?)?,
            }
        }
        [0x86, 0xdd] => {
            Segment { protocol: *packet.get(6)?, addresses: packet.get(8..40)?, bytes: packet.get(40..40 + word(4)?)? }
        }
        _ => return None,
    };
    // A UDP checksum of zero says nothing.
    let place = match segment.protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let given = segment.bytes.get(place..place + 2)?;
    (segment.protocol == TCP || given != [0, 0]).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word by word, as RFC 1071 says it.
    fn plainly(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    /// A UDP datagram from Linux, captured: 10.0.0.1:1025 to 10.0.0.2:53, "abc".
    fn datagram() -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
        frame.extend([0x45, 0, 0, 31, 0, 1, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x04, 0x01, 0x00, 0x35, 0, 11, 0, 0, b'a', b'b', b'c']);
        frame
    }

    #[test]
    fn the_sum_is_that_of_rfc_1071_at_every_length() {
        let bytes: Vec<u8> = (0..100u32).map(|index| (index * 151 + 17) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(fold(sum(&bytes[..length])), plainly(&bytes[..length]), "{length} bytes");
        }
        assert_eq!(fold(sum(&[0xff; 64])), 0xffff);
        // The example of RFC 1071, section 3.
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    #[test]
    fn what_is_completed_is_right_and_what_is_spoilt_is_not() {
        let mut frame = datagram();
        // The driver leaves the sum of the pseudo header: addresses, protocol, length.
        let pseudo = plainly(&[10, 0, 0, 1, 10, 0, 0, 2, 0, UDP, 0, 11]);
        frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
        assert!(!is_right(&frame));
        assert!(complete(&mut frame, 34, 6));
        // 0x0a00+1+0x0a00+2+0x11+0xb + 0x401+0x35+0xb + 0x6162+0x6300 = 0xdcc2.
        assert_eq!(frame[40..42], (!0xdcc2u16).to_be_bytes());
        assert!(is_right(&frame));
        frame.extend([0; 15]);
        assert!(is_right(&frame), "what pads a frame does not count");
        for at in 26..45 {
            let mut spoilt = frame.clone();
            spoilt[at] ^= 0x10;
            // A length of its own, the UDP header's, is summed but not used.
            assert!(!is_right(&spoilt), "byte {at}");
        }
    }

    #[test]
    fn what_cannot_be_judged_is_not_right() {
        let mut frame = datagram();
        assert!(!is_right(&frame), "no checksum was given");
        frame[20] = 0x20;
        assert!(!is_right(&frame), "a fragment");
        for length in 0..frame.len() {
            assert!(!is_right(&frame[..length]));
        }
        assert!(!complete(&mut frame, 44, 0));
        assert!(!complete(&mut frame, usize::MAX, 1));
        assert!(complete(&mut frame, 43, 0));
    }
}
