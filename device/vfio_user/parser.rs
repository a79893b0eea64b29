//! Incremental framing: bytes from the socket go in, whole messages come out, in place.
//!
//! The buffer is as large as many small messages, grows for one large message to at most the cap, and shrinks
//! again. Framing is lost only by a size that no message can have; all else is for the commands to judge.

use super::message::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES};
use std::ops::Range;
use zerocopy::FromBytes;

/// What is read from the socket at once.
pub const INPUT_BUFFER_BYTES: usize = 256 << 10;

/// No message can have this size, so where the next one begins is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "message {message_id} (command {command}) says it is {size_bytes} bytes long; the shortest is {HEADER_BYTES}, \
     the longest {MAX_MESSAGE_BYTES}: framing is lost"
)]
pub struct BadSize {
    pub message_id: u16,
    pub command: u16,
    pub size_bytes: u32,
}

/// The bytes received and not yet consumed.
#[derive(Debug)]
pub struct InputBuffer {
    bytes: Vec<u8>,
    /// Where the first message that is not consumed begins.
    start: usize,
    /// Where the received bytes end.
    end: usize,
    /// How many bytes of the stream came before `start`.
    consumed_bytes: u64,
}

/// A header in the buffer, and where its message begins in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighted {
    pub stream_offset: u64,
    /// `None` while the header is incomplete.
    pub header: Option<Header>,
}

impl InputBuffer {
    pub fn new() -> Self {
        Self { bytes: vec![0; INPUT_BUFFER_BYTES], start: 0, end: 0, consumed_bytes: 0 }
    }

    /// The first message, if it is whole: its header and where its body stands.
    pub fn first(&self) -> Result<Option<(Header, Range<usize>)>, BadSize> {
        let Some(header) = self.header_at(self.start) else { return Ok(None) };
        let size = checked_size(&header)?;
        if self.end - self.start < size {
            return Ok(None);
        }
        Ok(Some((header, self.start + HEADER_BYTES..self.start + size)))
    }

    /// The bytes of a range that [`Self::first`] gave.
    pub fn body(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Where the first message begins in the stream.
    pub fn stream_offset(&self) -> u64 {
        self.consumed_bytes
    }

    /// Where the received bytes end in the stream.
    pub fn stream_end(&self) -> u64 {
        self.consumed_bytes + (self.end - self.start) as u64
    }

    /// Drops the first message. `size_bytes` is its header's.
    pub fn consume(&mut self, size_bytes: u32) {
        let size = (size_bytes as usize).min(self.end - self.start);
        self.start += size;
        self.consumed_bytes += size as u64;
    }

    /// Room for more bytes, never empty. Called when the first message is not whole.
    pub fn room(&mut self) -> &mut [u8] {
        self.move_to_front();
        let wanted = match self.header_at(0) {
            // A bad size is found by `first`; here it must only not make the buffer grow.
            Some(header) => checked_size(&header).unwrap_or(HEADER_BYTES),
            None => HEADER_BYTES,
        };
        let length = wanted.max(INPUT_BUFFER_BYTES).max(self.end + 1);
        if self.bytes.len() > length {
            self.bytes.truncate(length);
            self.bytes.shrink_to_fit();
        }
        self.bytes.resize(length, 0);
        &mut self.bytes[self.end..]
    }

    /// So many bytes of [`Self::room`] were filled.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// No byte waits, not even of an unfinished message.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// What the buffer holds on to.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Every message that has begun, in order, up to one whose header is incomplete or bad.
    pub fn sightings(&self) -> impl Iterator<Item = Sighted> + '_ {
        let mut next = Some(self.start);
        std::iter::from_fn(move || {
            let at = next.filter(|&at| at < self.end)?;
            let header = self.header_at(at);
            next = header.and_then(|header| Some(at + checked_size(&header).ok()?));
            Some(Sighted { stream_offset: self.consumed_bytes + (at - self.start) as u64, header })
        })
    }

    fn header_at(&self, at: usize) -> Option<Header> {
        let bytes = self.bytes.get(at..self.end)?;
        Header::read_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// What is moved is at most one unfinished message, so a byte moves at most once.
    fn move_to_front(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
}

impl Default for InputBuffer {
    fn default() -> Self {
        Self::new()
    }
}

fn checked_size(header: &Header) -> Result<usize, BadSize> {
    let size = header.size_bytes as usize;
    if (HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&size) {
        return Ok(size);
    }
    let Header { message_id, command, size_bytes, .. } = *header;
    Err(BadSize { message_id, command, size_bytes })
}
