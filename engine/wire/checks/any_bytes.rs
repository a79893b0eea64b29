//! Any bytes may arrive: the parser never panics, and what it accepts is what emission writes, bit for bit, but for
//! the bits that the wire format tells a receiver to ignore.
//!
//! The body takes a frame's bytes. The corpus runs first, then frames made by spoiling good ones, whose checksums are
//! sometimes made right again so that the parser is reached behind them.

use super::vectors;
use crate::planted::with_planted;
use crate::search;
use crate::{Frame, IcrcCheck, IcrcState, cnp, emit, icrc, ipv4, is_roce, opcode, parse};
use proptest::prelude::*;
use zerocopy::FromBytes;

fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut spoilt = Frame::new();
    prop_assert!(spoilt.set_bytes(bytes));
    spoilt.icrc = IcrcState::Deferred;
    spoilt.seal(); // whatever became of a frame whose ICRC is due
    let verified = parse(bytes, IcrcCheck::Verify);
    let Ok(packet) = parse(bytes, IcrcCheck::Trusted) else {
        prop_assert!(verified.is_err(), "a check more cannot accept more");
        return Ok(());
    };
    prop_assert!(is_roce(bytes), "what the parser accepts is classified as RoCE");
    let mut frame = Frame::new();
    let range = emit(&packet.headers, packet.payload.len(), &mut frame);
    let (payload_end, length) = (range.end, frame.length());
    let payload_start = range.start;
    frame.bytes_mut()[range].copy_from_slice(packet.payload);

    prop_assert!(length <= bytes.len());
    let mut heard = bytes[..length].to_vec();
    let pad_bytes = length - icrc::LENGTH - payload_end;
    prop_assert_eq!(pad_bytes, usize::from(packet.headers.bth.pad_bytes));
    let mut again = frame.bytes().to_vec();
    forget_ignored(&mut heard, packet.description, payload_start);
    forget_ignored(&mut again, packet.description, payload_start);
    for bytes in [&mut heard, &mut again] {
        bytes[payload_end..].fill(0); // pad and ICRC
    }
    prop_assert_eq!(heard, again);
    frame.seal();
    prop_assert!(parse(frame.bytes(), IcrcCheck::Verify).is_ok());
    Ok(())
}

/// Clears what a receiver ignores: don't fragment (and with it the header checksum, itself checked by the parser), the
/// UDP checksum and reserved bits.
fn forget_ignored(frame: &mut [u8], description: &opcode::OpcodeDescription, payload_start: usize) {
    use opcode::Headers;
    let extension_length = description.extension_length;
    let bth = payload_start - extension_length - 12;
    let network = if frame[12..14] == [0x81, 0x00] { 18 } else { 14 };
    if frame[network] >> 4 == 4 {
        frame[network + 6] &= !0xc0;
        frame[network + 10..network + 12].fill(0);
    }
    frame[bth - 2..bth].fill(0);
    frame[bth + 4] &= 0xc0;
    frame[bth + 8] &= 0x80;
    let mut offset = bth + 12;
    let present = description.headers;
    if present.contains(Headers::XRCETH) {
        frame[offset] = 0;
        offset += 4;
    }
    if present.contains(Headers::DETH) {
        frame[offset + 4] = 0;
    }
    if present.contains(Headers::FETH) {
        frame[offset..offset + 3].fill(0);
        frame[offset + 3] &= 0x3f;
    }
    if present.contains(Headers::CNP_RESERVED) {
        frame[offset..offset + size_of::<cnp::Layout>()].fill(0);
    }
}

/// Makes checksum and ICRC right where there are any.
fn repair(frame: &mut [u8]) {
    if let Some(Ok((layout, _))) = frame.get_mut(14..).map(ipv4::Layout::mut_from_prefix) {
        layout.set_checksum();
    }
    icrc::write(frame);
}

/// A good packet with some bytes replaced, cut or prolonged.
fn spoilt() -> impl Strategy<Value = Vec<u8>> {
    let names: Vec<&str> = vectors::roce_v2().collect();
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let lengths = (any::<bool>(), 0usize..40, any::<bool>());
    (prop::sample::select(names), any::<u8>(), changes, lengths, any::<bool>()).prop_map(
        |(name, opcode, changes, (cut, by, agree), repaired)| {
            let mut frame = vectors::as_frame(name);
            let udp = if frame[12] == 0x86 { 54 } else { 34 };
            frame[udp + 8] = if opcode & 1 == 0 { opcode >> 1 } else { frame[udp + 8] };
            for (index, value) in changes {
                let at = index.index(frame.len());
                frame[at] = value;
            }
            if cut {
                frame.truncate(frame.len().saturating_sub(by * 4));
            }
            if agree && frame.len() > udp + 8 {
                agree_on_length(&mut frame, udp);
            }
            if repaired {
                repair(&mut frame);
            }
            frame
        },
    )
}

/// Makes the lengths in IP and UDP those of the frame.
fn agree_on_length(frame: &mut [u8], udp: usize) {
    let udp_length = (frame.len() - udp) as u16;
    frame[udp + 4..udp + 6].copy_from_slice(&udp_length.to_be_bytes());
    let (at, ip_length) = if udp == 54 { (18, udp_length) } else { (16, udp_length + 20) };
    frame[at..at + 2].copy_from_slice(&ip_length.to_be_bytes());
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => proptest::collection::vec(any::<u8>(), 0..200), 6 => spoilt()]
}

#[test]
fn the_corpus_and_a_search_find_nothing() {
    search::finds_nothing(env!("CARGO_MANIFEST_DIR"), "any_bytes", &frames(), body);
}

#[test]
fn the_search_finds_a_pad_that_is_not_checked() {
    with_planted("pad_unchecked", || search::finds("pad_unchecked", &frames(), body));
}
