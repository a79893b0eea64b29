//! One Ethernet frame in a buffer of its own, as it travels between adapters of one process.
//!
//! In: bytes from [`crate::emit`], from another frame or from outside. Out: the same bytes, and whether the ICRC among
//! them has been computed. Moving a frame moves a pointer and two words; the only allocation is in [`Frame::new`].

use crate::icrc;
use core::fmt;

/// Bytes of a frame's buffer: path MTU 4096 and an Ethernet MTU of 9000 with a VLAN tag both fit.
pub const CAPACITY: usize = 9216;

/// What is known of the ICRC field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcState {
    /// The field holds what the sender put there; a receiver checks it.
    Present,
    /// The field holds nothing yet. Only frames that never left the process say so, and a receiver trusts them.
    Deferred,
    /// The frame has no such field.
    NotRoce,
}

pub struct Frame {
    buffer: Box<[u8; CAPACITY]>,
    length: usize,
    pub icrc: IcrcState,
}

impl Frame {
    /// An empty frame.
    pub fn new() -> Self {
        let zeros = vec![0; CAPACITY].into_boxed_slice();
        let buffer = zeros.try_into().expect("the slice was made with CAPACITY bytes");
        Self { buffer, length: 0, icrc: IcrcState::NotRoce }
    }

    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.length]
    }

    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The whole buffer, for a frame that comes from outside; [`Frame::set_received`] then says how much of it came.
    #[inline(always)]
    pub fn buffer_mut(&mut self) -> &mut [u8; CAPACITY] {
        &mut self.buffer
    }

    /// Declares the first `length` bytes of the buffer a frame from outside: its ICRC, if it has one, is to be checked.
    /// A length beyond the buffer is cut.
    pub fn set_received(&mut self, length: usize) {
        self.length = length.min(CAPACITY);
        self.icrc = if crate::is_roce(self.bytes()) { IcrcState::Present } else { IcrcState::NotRoce };
    }

    /// Takes a frame from outside by copy; false, with nothing changed, when it does not fit.
    pub fn set_bytes(&mut self, bytes: &[u8]) -> bool {
        let Some(target) = self.buffer.get_mut(..bytes.len()) else { return false };
        target.copy_from_slice(bytes);
        self.set_received(bytes.len());
        true
    }

    #[inline]
    pub fn copy_from(&mut self, other: &Self) {
        self.buffer[..other.length].copy_from_slice(other.bytes());
        self.length = other.length;
        self.icrc = other.icrc;
    }

    /// What [`crate::emit`] leaves: headers written, payload and ICRC to follow.
    #[inline(always)]
    pub(crate) fn set_emitted(&mut self, length: usize) {
        self.length = length.min(CAPACITY);
        self.icrc = IcrcState::Deferred;
    }

    /// Computes a deferred ICRC. Other frames stay as they are.
    pub fn seal(&mut self) {
        if self.icrc == IcrcState::Deferred {
            let sealed = icrc::write(self.bytes_mut());
            self.icrc = if sealed { IcrcState::Present } else { IcrcState::NotRoce };
        }
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        copy.copy_from(self);
        copy
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Frame").field("icrc", &self.icrc).field("bytes", &self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::vectors;

    #[test]
    fn moving_is_cheap() {
        assert!(size_of::<Frame>() <= 3 * size_of::<usize>());
    }

    #[test]
    fn sealing_writes_the_icrc_once() {
        let sent = vectors::as_frame("D3");
        let mut frame = Frame::new();
        assert!(frame.set_bytes(&sent));
        assert_eq!(frame.icrc, IcrcState::Present);
        let end = frame.length();
        frame.bytes_mut()[end - 4..].fill(0);
        frame.icrc = IcrcState::Deferred;
        frame.seal();
        assert_eq!((frame.bytes(), frame.icrc), (&sent[..], IcrcState::Present));

        frame.bytes_mut()[end - 1] ^= 1;
        let corrupted = frame.bytes().to_vec();
        frame.seal();
        assert_eq!(frame.bytes(), corrupted, "a present ICRC is never repaired");
    }

    #[test]
    fn a_deferred_frame_spoilt_meanwhile_is_no_longer_roce() {
        let mut frame = Frame::new();
        assert!(frame.set_bytes(&vectors::as_frame("D3")));
        frame.icrc = IcrcState::Deferred;
        frame.bytes_mut()[12] = 0;
        frame.seal();
        assert_eq!(frame.icrc, IcrcState::NotRoce);
    }

    #[test]
    fn bytes_from_outside_are_classified_and_bounded() {
        let mut frame = Frame::new();
        assert!(!frame.set_bytes(&[0; CAPACITY + 1]));
        assert!(frame.set_bytes(&[0; CAPACITY]));
        assert_eq!((frame.length(), frame.icrc), (CAPACITY, IcrcState::NotRoce));
        frame.set_received(usize::MAX);
        assert_eq!(frame.length(), CAPACITY);
        let mut copy = Frame::new();
        frame.set_bytes(&vectors::as_frame("D1"));
        copy.copy_from(&frame);
        assert_eq!((copy.bytes(), copy.icrc), (frame.bytes(), frame.icrc));
        assert_eq!(frame.clone().bytes(), frame.bytes());
    }
}
