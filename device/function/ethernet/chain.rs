//! A descriptor chain: the buffers that a driver lends for one frame or one command.

use super::NetFault;
use rnic_pcie::{DmaRange, Iova};
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE, vring_desc};

/// Size of a descriptor in memory.
pub const DESCRIPTOR_BYTES: usize = size_of::<vring_desc>();

/// A descriptor as the driver wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    pub address: u64,
    pub length_bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    /// From its bytes; what is missing is zero.
    pub fn parse(bytes: &[u8]) -> Self {
        let at = |offset: usize| bytes.get(offset..).unwrap_or_default();
        Self {
            address: u64::from_le_bytes(
                at(std::mem::offset_of!(vring_desc, addr)).first_chunk().copied().unwrap_or_default(),
            ),
            length_bytes: u32::from_le_bytes(
                at(std::mem::offset_of!(vring_desc, len)).first_chunk().copied().unwrap_or_default(),
            ),
            flags: u16::from_le_bytes(
                at(std::mem::offset_of!(vring_desc, flags)).first_chunk().copied().unwrap_or_default(),
            ),
            next: u16::from_le_bytes(
                at(std::mem::offset_of!(vring_desc, next)).first_chunk().copied().unwrap_or_default(),
            ),
        }
    }

    fn has(&self, flag: u32) -> bool {
        u32::from(self.flags) & flag != 0
    }

    pub fn next(&self) -> Option<u16> {
        self.has(VRING_DESC_F_NEXT).then_some(self.next)
    }

    pub fn is_writable(&self) -> bool {
        self.has(VRING_DESC_F_WRITE)
    }

    pub fn is_indirect(&self) -> bool {
        self.has(VRING_DESC_F_INDIRECT)
    }
}

/// A chain, validated: first what the device reads, then what it writes.
#[derive(Debug, Default)]
pub struct Chain {
    /// Its first descriptor, by which the driver knows it.
    pub head: u16,
    /// Its place in the available ring.
    pub index: u16,
    pub readable: Vec<DmaRange>,
    pub writable: Vec<DmaRange>,
    pub readable_bytes: u64,
    pub writable_bytes: u64,
}

impl Chain {
    /// Makes it a chain without buffers, of this head.
    pub fn begin(&mut self, head: u16, index: u16) {
        self.readable.clear();
        self.writable.clear();
        (self.head, self.index, self.readable_bytes, self.writable_bytes) = (head, index, 0, 0);
    }

    /// Adds a descriptor's buffer. One of no bytes is none.
    pub fn add(&mut self, queue: u16, descriptor: &Descriptor) -> Result<(), NetFault> {
        let range = DmaRange::new(Iova(descriptor.address), descriptor.length_bytes);
        let length_bytes = u64::from(descriptor.length_bytes);
        if length_bytes == 0 {
            return Ok(());
        }
        if descriptor.is_writable() {
            self.writable.push(range);
            self.writable_bytes += length_bytes;
        } else if self.writable.is_empty() {
            self.readable.push(range);
            self.readable_bytes += length_bytes;
        } else {
            return Err(NetFault::ReadableAfterWritable { queue, head: self.head });
        }
        Ok(())
    }
}
