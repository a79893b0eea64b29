//! How QEMU's `-netdev stream` puts frames on a socket: a length of four bytes, most significant first, then the frame.

use rnic_wire::Frame;
use rnic_wire::frame::CAPACITY;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

const LENGTH_BYTES: usize = 4;
/// What is read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// Frames that wait for a peer that does not read.
const WAITING: usize = 256;

/// Why the stream means nothing from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame is announced with {length} bytes, 1 to {CAPACITY} can be")]
pub struct BadLength {
    pub length: u32,
}

/// Bytes in, frames out.
#[derive(Debug)]
pub struct Deframer {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Deframer {
    pub fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0 }
    }

    pub fn has_room(&self) -> bool {
        self.end - self.start < self.buffer.len()
    }

    /// Reads once. Zero bytes are the end of the stream.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let count = from.read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// The next whole frame; false if there is none yet.
    pub fn next(&mut self, frame: &mut Frame) -> Result<bool, BadLength> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(false) };
        let length = u32::from_be_bytes(*length);
        if length == 0 || length as usize > CAPACITY {
            return Err(BadLength { length });
        }
        let Some(bytes) = rest.get(..length as usize) else { return Ok(false) };
        self.start += LENGTH_BYTES + bytes.len();
        Ok(frame.set_bytes(bytes))
    }
}

/// Frames in, bytes out: so many wait, then the newest are lost.
#[derive(Debug, Default)]
pub struct Framer {
    waiting: VecDeque<Frame>,
    spare: Vec<Frame>,
    /// Bytes of the first that have left, its length included.
    sent: usize,
}

impl Framer {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the frame and leaves another buffer; false if there is no room.
    pub fn push(&mut self, frame: &mut Frame) -> bool {
        if self.waiting.len() >= WAITING {
            return false;
        }
        // On its way out of the process a frame has its ICRC.
        frame.seal();
        let empty = self.spare.pop().unwrap_or_default();
        self.waiting.push_back(std::mem::replace(frame, empty));
        true
    }

    /// Writes what the socket takes. True if something left.
    pub fn flush(&mut self, to: &mut impl Write) -> io::Result<bool> {
        let mut any = false;
        while let Some(frame) = self.waiting.front() {
            let length = (frame.length() as u32).to_be_bytes();
            let (head, body) = match self.sent.checked_sub(LENGTH_BYTES) {
                None => (&length[self.sent..], frame.bytes()),
                Some(sent) => (&[][..], &frame.bytes()[sent..]),
            };
            match to.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    any = true;
                    self.sent += count;
                    if self.sent == LENGTH_BYTES + frame.length() {
                        self.sent = 0;
                        self.spare.extend(self.waiting.pop_front());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of so many.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            let (piece, rest) = self.0.split_at(count);
            into[..count].copy_from_slice(piece);
            self.0 = rest;
            Ok(count)
        }
    }

    /// Takes so many bytes at a time, and then none for once.
    struct Narrow(Vec<u8>, usize, bool);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = self.1.min(bytes.len());
            self.0.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_pass_whatever_the_pieces() {
        let frames: Vec<Vec<u8>> = [1usize, 14, 60, 9216, 3, 1514].map(|length| vec![length as u8; length]).into();
        for piece in [1, 3, 4, 5, 1000, 1 << 20] {
            let mut framer = Framer::default();
            for bytes in &frames {
                let mut frame = Frame::new();
                assert!(frame.set_bytes(bytes) && framer.push(&mut frame));
            }
            let mut out = Narrow(Vec::new(), piece, false);
            while !framer.is_empty() {
                framer.flush(&mut out).expect("written");
            }
            let expected = frames.iter().flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat());
            assert_eq!(out.0, expected.collect::<Vec<u8>>());
            let (mut input, mut deframer, mut frame) = (Pieces(&out.0, piece), Deframer::new(), Frame::new());
            let mut found = Vec::new();
            while deframer.fill(&mut input).expect("read") > 0 {
                while deframer.next(&mut frame).expect("a sound stream") {
                    found.push(frame.bytes().to_vec());
                }
            }
            assert!(found == frames, "pieces of {piece}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_stream() {
        for length in [0u32, 9217, u32::MAX] {
            let mut deframer = Deframer::new();
            deframer.fill(&mut &length.to_be_bytes()[..]).expect("read");
            assert_eq!(deframer.next(&mut Frame::new()), Err(BadLength { length }));
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut framer, mut frame) = (Framer::default(), Frame::new());
        let mut taken = 0;
        while frame.set_bytes(&[0; 60]) && framer.push(&mut frame) {
            taken += 1;
        }
        assert_eq!(taken, WAITING);
    }
}
