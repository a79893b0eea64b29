//! One message of a program: what it carries, where it goes, and what must become of it.

use crate::operations::{Family, Fault, Operation};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

/// Bytes that every host has to send from.
pub const POOL_BYTES: usize = (1 << 20) + (128 << 10);
/// How far one host's bytes are shifted against the next one's.
const SHIFT: usize = 4099;
const HOSTS: usize = 8;

/// The bytes a host sends from; they never change.
pub fn pool(host: usize) -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    let pattern = PATTERN.get_or_init(|| {
        let mut random = crate::random::Random::new(0x7061_7474_6572_6e21);
        let words = (POOL_BYTES + SHIFT * HOSTS).div_ceil(8);
        std::iter::repeat_with(|| random.draw().to_le_bytes()).take(words).flatten().collect()
    });
    &pattern[host * SHIFT..][..POOL_BYTES]
}

/// What an atomic does to its word, and what the program knows of it beforehand: nobody else touches that word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWork {
    /// Which of the flow's words; an ATOMIC_WRITE has nothing but that and what it leaves.
    pub word: usize,
    pub compare: u64,
    pub swap_or_add: u64,
    pub before: u64,
    pub after: u64,
}

/// A message from its posting to the end of whoever waits for it.
#[derive(Debug)]
pub struct Message {
    /// Counted for each direction from its connection on; the work request's `wr_id`.
    pub number: u64,
    pub operation: &'static Operation,
    pub length: u32,
    /// Where in the sender's pool the bytes are; of a READ, in the receiver's.
    pub pieces: Vec<(u32, u32)>,
    /// Offset in the receiver's region, and what the packets say of it.
    pub at: u32,
    pub address: u64,
    pub rkey: u32,
    pub immediate: u32,
    pub signaled: bool,
    pub solicited: bool,
    pub inline: bool,
    pub first_psn: u32,
    /// PSNs that it takes.
    pub packets: u32,
    /// Where in the sender's landing region a READ or an atomic puts what it brings.
    pub landing: u32,
    pub atomic: Option<AtomicWork>,
    pub fence: bool,
    /// Packets of a READ that a request has begun with, in the order of sending.
    pub starts: RefCell<Vec<u32>>,
    pub fault: Option<&'static Fault>,
    /// Its place in the receiver's region is its own while it is outstanding.
    pub placed: bool,
    /// No later message of the program writes where this one does.
    pub alone: Cell<bool>,
    /// It goes through a window, or a fast region.
    pub view: bool,
    /// The shared receive queue that its receive comes from, or that it names.
    pub queue: Option<usize>,
    /// The receiver's key that it takes out of use.
    pub invalidates: Option<u32>,
}

impl Message {
    /// A work request that sends nothing.
    pub fn without_packets(
        number: u64,
        operation: &'static Operation,
        key: u32,
        first_psn: u32,
        fault: Option<&'static Fault>,
    ) -> Self {
        Self {
            number,
            operation,
            length: 0,
            pieces: Vec::new(),
            at: 0,
            address: 0,
            rkey: 0,
            immediate: key,
            signaled: true,
            solicited: false,
            inline: false,
            first_psn,
            packets: 0,
            landing: 0,
            atomic: None,
            fence: false,
            starts: RefCell::default(),
            fault,
            placed: false,
            alone: Cell::new(false),
            view: false,
            queue: None,
            invalidates: None,
        }
    }

    /// Into the region that the whole direction writes.
    pub fn writes(&self) -> bool {
        self.operation.family == Family::Write && self.length > 0 && !self.view
    }

    /// Into the region behind a view.
    pub fn writes_through_view(&self) -> bool {
        self.operation.family == Family::Write && self.length > 0 && self.view
    }

    pub fn overlaps(&self, at: u32, length: u32) -> bool {
        self.writes() && at < self.at + self.length && self.at < at + length
    }

    /// Whether this packet of it finds a receive, or cannot be taken: of a SEND the first, of a WRITE the last.
    pub fn takes_receive(&self, packet: u32) -> bool {
        match self.operation.family {
            Family::Send => packet == 0,
            _ => self.operation.immediate && packet + 1 == self.packets,
        }
    }

    /// Bytes that come back.
    pub fn brought(&self) -> u32 {
        match self.operation.family {
            Family::Read => self.length,
            Family::Atomic => 8,
            Family::Send | Family::Write | Family::AtomicWrite | Family::Flush | Family::Local => 0,
        }
    }

    /// Of a FLUSH, as its header has it: everybody finds what was written, it survives, or both.
    pub fn placement(&self) -> u32 {
        1 + self.immediate % 3
    }

    /// The host whose pool the bytes are from, of sender and receiver.
    pub fn source(&self, sender: usize, receiver: usize) -> usize {
        if self.operation.family == Family::Read { receiver } else { sender }
    }

    /// Whether `bytes` are those of the message from `offset` on.
    pub fn carries(&self, pool: &[u8], mut offset: usize, mut bytes: &[u8]) -> bool {
        for (from, length) in &self.pieces {
            let length = *length as usize;
            if offset >= length {
                offset -= length;
                continue;
            }
            let taken = bytes.len().min(length - offset);
            let from = *from as usize + offset;
            let (head, tail) = bytes.split_at(taken);
            if pool[from..from + taken] != *head {
                return false;
            }
            (bytes, offset) = (tail, 0);
            if bytes.is_empty() {
                return true;
            }
        }
        bytes.is_empty()
    }

    /// Its bytes from an offset on, as many as there is room for.
    pub fn copy_out(&self, pool: &[u8], mut offset: u32, mut into: &mut [u8]) {
        for (from, length) in &self.pieces {
            let Some(left) = length.checked_sub(offset).filter(|left| *left > 0) else {
                offset -= length;
                continue;
            };
            let taken = into.len().min(left as usize);
            let (head, tail) = into.split_at_mut(taken);
            head.copy_from_slice(&pool[(from + offset) as usize..][..taken]);
            (into, offset) = (tail, 0);
        }
    }

    /// The byte at an offset.
    pub fn byte(&self, pool: &[u8], mut offset: u32) -> Option<u8> {
        for (from, length) in &self.pieces {
            match offset.checked_sub(*length) {
                Some(rest) => offset = rest,
                None => return pool.get((from + offset) as usize).copied(),
            }
        }
        None
    }

    /// Puts the message where it goes.
    pub fn apply(&self, pool: &[u8], into: &mut [u8]) {
        let mut at = self.at as usize;
        for (from, length) in &self.pieces {
            let (from, length) = (*from as usize, *length as usize);
            into[at..at + length].copy_from_slice(&pool[from..from + length]);
            at += length;
        }
    }
}

/// Takes places in a ring of memory, oldest freed first or not at all.
#[derive(Clone, Debug, Default)]
pub struct Places {
    size: u32,
    cursor: u32,
    live: std::collections::VecDeque<(u32, u32)>,
}

impl Places {
    pub fn new(size: u32) -> Self {
        Self { size, ..Self::default() }
    }

    /// A place that no other one overlaps.
    pub fn take(&mut self, length: u32) -> Option<u32> {
        let at = if self.cursor + length > self.size { 0 } else { self.cursor };
        let free = |(from, held): &(u32, u32)| at + length <= *from || from + held <= at;
        if length > self.size || !self.live.iter().all(free) {
            return None;
        }
        self.live.push_back((at, length));
        self.cursor = at + length;
        Some(at)
    }

    /// Frees the oldest place.
    pub fn free(&mut self) {
        self.live.pop_front();
    }

    pub fn clear(&mut self) {
        self.live.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
        let mut places = Places::new(100);
        assert_eq!((places.take(60), places.take(50), places.take(30)), (Some(0), None, Some(60)));
        assert_eq!(places.take(20), None);
        places.free();
        assert_eq!((places.take(60), places.take(1)), (Some(0), None));
    }

    #[test]
    fn a_message_knows_its_bytes() {
        let pool = pool(1);
        let message = Message {
            number: 0,
            operation: &crate::operations::OPERATIONS[2],
            length: 30,
            pieces: vec![(100, 10), (5, 20)],
            at: 3,
            address: 0,
            rkey: 0,
            immediate: 0,
            signaled: true,
            solicited: false,
            inline: false,
            first_psn: 0,
            packets: 1,
            landing: 0,
            atomic: None,
            fence: false,
            starts: RefCell::default(),
            fault: None,
            placed: true,
            alone: Cell::new(true),
            view: false,
            queue: None,
            invalidates: None,
        };
        let mut memory = [0; 40];
        message.apply(pool, &mut memory);
        assert_eq!((&memory[3..13], &memory[13..33]), (&pool[100..110], &pool[5..25]));
        let mut part = [0; 12];
        message.copy_out(pool, 5, &mut part);
        assert_eq!(part, memory[8..20]);
        assert!(message.carries(pool, 5, &memory[8..33]) && message.carries(pool, 0, &[]));
        memory[20] ^= 1;
        assert!(!message.carries(pool, 5, &memory[8..33]));
        assert!(!message.carries(pool, 25, &memory[..6]), "longer than the message");
        assert_eq!((message.byte(pool, 10), message.byte(pool, 30)), (Some(pool[5]), None));
        assert!(message.overlaps(32, 1) && !message.overlaps(33, 1) && !message.overlaps(0, 3));
    }
}
