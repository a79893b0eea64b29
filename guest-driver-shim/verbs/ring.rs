//! Ring arithmetic of work queues: free-running 16-bit indices, who posted what, and what one completion retires.
//!
//! In: reservations and the indices that completions carry. Out: positions and `wr_id`s. Knows no memory.

use crate::planted::planted;

/// What was posted in the slots that begin at one index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Posted {
    wr_id: u64,
    slots: u16,
}

/// What is outstanding in one ring of a power of two slots.
#[derive(Debug)]
pub(crate) struct WorkRing {
    log_slots: u8,
    /// Index behind the newest entry, free-running modulo 2^16.
    producer: u16,
    /// Index of the oldest entry that has not completed.
    consumer: u16,
    /// By the position of an entry's first slot.
    posted: Vec<Posted>,
}

/// Entries that one completion retires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    /// Of the entry the completion names.
    pub wr_id: u64,
    /// Entries retired, the unsignaled ones before it included.
    pub entries: u16,
}

impl WorkRing {
    /// `log_slots` is at most 15, so that a full ring differs from an empty one.
    pub fn new(log_slots: u8) -> Self {
        let log_slots = log_slots.min(15);
        Self { log_slots, producer: 0, consumer: 0, posted: vec![Posted::default(); 1 << log_slots] }
    }

    pub fn slots(&self) -> u32 {
        1 << self.log_slots
    }

    pub fn producer(&self) -> u16 {
        self.producer
    }

    pub fn outstanding_slots(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer).into()
    }

    pub fn free_slots(&self) -> u32 {
        self.slots() - self.outstanding_slots()
    }

    /// Where an index stands in the ring.
    pub fn position(&self, index: u16) -> usize {
        usize::from(index) & ((1 << self.log_slots) - 1)
    }

    /// Takes slots for an entry and returns the index of the first; `None` when there are too few.
    pub fn reserve(&mut self, slots: u16, wr_id: u64) -> Option<u16> {
        if slots == 0 || u32::from(slots) > self.free_slots() {
            return None;
        }
        let first = self.producer;
        let position = self.position(first);
        *self.posted.get_mut(position)? = Posted { wr_id, slots };
        self.producer = first.wrapping_add(slots);
        Some(first)
    }

    /// Retires everything up to the entry whose first slot is `index`; `None` when no outstanding entry begins there.
    pub fn complete(&mut self, index: u16) -> Option<Retired> {
        let distance = index.wrapping_sub(self.consumer);
        let (mut walked, mut entries) = (0u16, 0);
        while u32::from(walked) < self.outstanding_slots() && walked <= distance {
            let posted = *self.posted.get(self.position(self.consumer.wrapping_add(walked)))?;
            entries += 1;
            if walked == distance || planted("ring-takes-the-oldest-entry") {
                self.consumer = index.wrapping_add(posted.slots);
                return Some(Retired { wr_id: posted.wr_id, entries });
            }
            walked = walked.checked_add(posted.slots.max(1))?;
        }
        None
    }

    /// Forgets everything, as a transition to RESET does.
    pub fn reset(&mut self) {
        (self.producer, self.consumer) = (0, 0);
    }
}
