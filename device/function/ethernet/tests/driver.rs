//! A driver: it negotiates, lays its queues out, makes buffers available and reads what was used.

use super::rig::{Answers, BASE, Rig};
use crate::function::ethernet::device::{FEATURES, QUEUES};
use crate::function::ethernet::registers::{NOTIFY, NOTIFY_STRIDE};

/// Each queue has so much of the memory: table, available ring, used ring.
const QUEUE_BYTES: u64 = 0x1000;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
/// Where buffers are.
pub const BUFFERS: u64 = BASE + 0x1_0000;
pub const SIZE: u16 = 16;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A buffer of the driver's: in the order of the chain.
#[derive(Clone, Debug)]
pub enum Buffer {
    Readable(Vec<u8>),
    Writable(usize),
}

pub struct Driver {
    pub rig: Rig,
    pub size: u16,
    available: [u16; QUEUES],
    used_seen: [u16; QUEUES],
    next_descriptor: [u16; QUEUES],
    next_buffer: u64,
}

pub fn table(queue: usize) -> u64 {
    BASE + queue as u64 * QUEUE_BYTES
}

pub fn available(queue: usize) -> u64 {
    table(queue) + AVAILABLE
}

pub fn used(queue: usize) -> u64 {
    table(queue) + USED
}

pub fn descriptor(address: u64, length: u32, flags: u16, next: u16) -> Vec<u8> {
    [address.to_le_bytes().as_slice(), &length.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat()
}

impl Driver {
    /// A driver that has brought its device up, with all that is offered.
    pub fn up(answers: Answers) -> Self {
        Self::with(answers, FEATURES, SIZE)
    }

    pub fn with(answers: Answers, features: u64, size: u16) -> Self {
        let mut driver = Self {
            rig: Rig::new(answers),
            size,
            available: [0; QUEUES],
            used_seen: [0; QUEUES],
            next_descriptor: [0; QUEUES],
            next_buffer: BUFFERS,
        };
        driver.bring_up(features);
        driver
    }

    pub fn bring_up(&mut self, features: u64) {
        let size = self.size;
        self.negotiate(features);
        for queue in 0..QUEUES {
            self.set_queue(queue, size, [table(queue), available(queue), used(queue)]);
        }
        self.rig.write_register(0x14, &[15]);
    }

    /// Reset to FEATURES_OK.
    pub fn negotiate(&mut self, features: u64) {
        let rig = &mut self.rig;
        for status in [0, 1, 3] {
            rig.write_register(0x14, &[status]);
        }
        rig.write_register(0x10, &0u16.to_le_bytes());
        for (select, word) in [(0u32, features as u32), (1, (features >> 32) as u32)] {
            rig.write_register(0x08, &select.to_le_bytes());
            rig.write_register(0x0c, &word.to_le_bytes());
        }
        rig.write_register(0x14, &[11]);
        (self.available, self.used_seen, self.next_descriptor) = Default::default();
    }

    pub fn set_queue(&mut self, queue: usize, size: u16, [table, available, used]: [u64; 3]) {
        let rig = &mut self.rig;
        rig.write_register(0x16, &(queue as u16).to_le_bytes());
        rig.write_register(0x18, &size.to_le_bytes());
        rig.write_register(0x1a, &(queue as u16 + 1).to_le_bytes());
        rig.write_register(0x20, &table.to_le_bytes());
        // As a driver of 32 bits does.
        rig.write_register(0x28, &(available as u32).to_le_bytes());
        rig.write_register(0x2c, &((available >> 32) as u32).to_le_bytes());
        rig.write_register(0x30, &used.to_le_bytes());
        rig.write_register(0x1c, &1u16.to_le_bytes());
    }

    pub fn write_descriptor(&self, queue: usize, at: u16, bytes: &[u8]) {
        self.rig.write_memory(table(queue) + 16 * u64::from(at), bytes);
    }

    /// Memory for so many bytes; it is never given twice.
    pub fn allocate(&mut self, length: usize) -> u64 {
        let address = self.next_buffer;
        self.next_buffer += length as u64 + 8;
        address
    }

    /// Lays a chain out; its head, and where each buffer is.
    pub fn lay_out(&mut self, queue: usize, buffers: &[Buffer], indirect: bool) -> (u16, Vec<u64>) {
        let first = self.next_descriptor[queue];
        let mut addresses = Vec::new();
        let mut entries = Vec::new();
        for (number, buffer) in buffers.iter().enumerate() {
            let (length, write) = match buffer {
                Buffer::Readable(bytes) => (bytes.len(), 0),
                Buffer::Writable(length) => (*length, WRITE),
            };
            let address = self.allocate(length);
            if let Buffer::Readable(bytes) = buffer {
                self.rig.write_memory(address, bytes);
            }
            addresses.push(address);
            let last = number + 1 == buffers.len();
            let place = if indirect { number as u16 + 1 } else { (first + number as u16 + 1) % self.size };
            entries.push(descriptor(address, length as u32, write | if last { 0 } else { NEXT }, place));
        }
        if indirect {
            let bytes = entries.concat();
            let address = self.allocate(bytes.len());
            self.rig.write_memory(address, &bytes);
            entries = vec![descriptor(address, bytes.len() as u32, INDIRECT, 0)];
        }
        for (number, entry) in entries.iter().enumerate() {
            self.write_descriptor(queue, (first + number as u16) % self.size, entry);
        }
        self.next_descriptor[queue] = (first + entries.len() as u16) % self.size;
        (first, addresses)
    }

    pub fn make_available(&mut self, queue: usize, head: u16) {
        let place = available(queue) + 4 + 2 * u64::from(self.available[queue] % self.size);
        self.rig.write_memory(place, &head.to_le_bytes());
        self.available[queue] = self.available[queue].wrapping_add(1);
        self.rig.write_memory(available(queue) + 2, &self.available[queue].to_le_bytes());
    }

    pub fn notify(&mut self, queue: usize) {
        self.rig.write_register(NOTIFY + NOTIFY_STRIDE * queue as u64, &(queue as u16).to_le_bytes());
    }

    /// Lends a chain and says so; where its buffers are.
    pub fn post(&mut self, queue: usize, buffers: &[Buffer]) -> (u16, Vec<u64>) {
        let (head, addresses) = self.lay_out(queue, buffers, false);
        self.make_available(queue, head);
        self.notify(queue);
        (head, addresses)
    }

    /// What has come back since the last look: heads and bytes written.
    pub fn used(&mut self, queue: usize) -> Vec<(u32, u32)> {
        let word = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let index = u16::from_le_bytes(self.rig.read_memory(used(queue) + 2, 2).try_into().expect("two bytes"));
        let mut found = Vec::new();
        while self.used_seen[queue] != index {
            let place = used(queue) + 4 + 8 * u64::from(self.used_seen[queue] % self.size);
            found.push((word(self.rig.read_memory(place, 4)), word(self.rig.read_memory(place + 4, 4))));
            self.used_seen[queue] = self.used_seen[queue].wrapping_add(1);
        }
        found
    }
}
