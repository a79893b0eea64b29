//! A split virtqueue as its device sees it: from the available ring to a chain, and from a finished chain to the used ring.
//!
//! In: notifications, answers to reads. Out: validated chains, used entries, interrupts. Every read may be answered
//! later, so each call goes on where the last one stopped; nothing the driver writes is believed, and no call does more
//! than one chain's work. Chains are taken on demand: what the driver made available and nobody asked for stays in its
//! ring.

use super::chain::{Chain, DESCRIPTOR_BYTES, Descriptor};
use super::fetch::Fetch;
use super::{NO_VECTOR, NetFault, QUEUE_SIZE_MAX};
use crate::planted::planted;
use rnic_pcie::{Cause, Class, DmaFault, DmaPort, DmaRange, DmaTag, Iova, Origin};
use std::collections::VecDeque;
use std::mem::offset_of;
use virtio_bindings::virtio_ring::{
    VRING_AVAIL_ALIGN_SIZE, VRING_AVAIL_F_NO_INTERRUPT, VRING_DESC_ALIGN_SIZE, VRING_USED_ALIGN_SIZE, vring_avail,
    vring_used, vring_used_elem,
};

/// Entries of the available ring that one read brings.
const HEADS: u16 = 32;
/// The offsets of both rings' entries.
const AVAILABLE_ENTRIES: u64 = size_of::<vring_avail>() as u64;
const USED_ENTRIES: u64 = size_of::<vring_used>() as u64;
const USED_ENTRY_BYTES: usize = size_of::<vring_used_elem>();

/// What the driver says of a queue before it enables it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    pub vector: u16,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { size: QUEUE_SIZE_MAX, descriptors: 0, available: 0, used: 0, vector: NO_VECTOR }
    }
}

/// A queue as it is looked at from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtqueueView {
    pub number: u16,
    pub name: &'static str,
    pub enabled: bool,
    pub settings: QueueSettings,
    /// Of the available ring: as last read, and of the next entry to be read.
    pub available_index: u16,
    pub taken_index: u16,
    pub used_index: u16,
}

/// Where the way from the available ring to a chain has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Idle,
    /// Flags and index of the available ring are being read.
    Index,
    /// So many of its entries are.
    Heads {
        count: u16,
    },
    /// The descriptor at this place is, after so many of the chain.
    Descriptor {
        at: u16,
        taken: u16,
    },
    /// An indirect table is.
    Table {
        range: DmaRange,
    },
}

#[derive(Debug)]
pub struct Virtqueue {
    number: u16,
    pub settings: QueueSettings,
    enabled: bool,
    indirect_allowed: bool,
    /// The driver said that there is something new.
    look: bool,
    /// The available index: as last read, and of the next entry to be read.
    seen: u16,
    taken: u16,
    heads: VecDeque<u16>,
    /// The available ring's place of the first of `heads`.
    head_index: u16,
    walk: Walk,
    fetch: Fetch,
    chain: Chain,
    spare: Vec<Chain>,
    /// Finished chains that the used ring does not have yet: head and bytes written.
    finished: Vec<(u16, u32)>,
    used_index: u16,
    used_bytes: Vec<u8>,
    /// The used ring has something new of which the driver may want to be told.
    signal_due: bool,
    flags: Fetch,
    flags_asked: bool,
}

impl Virtqueue {
    /// A queue whose chains are read at most so far.
    pub fn new(number: u16, payload_bytes: usize) -> Self {
        let table_bytes = usize::from(QUEUE_SIZE_MAX) * DESCRIPTOR_BYTES;
        Self {
            number,
            settings: QueueSettings::default(),
            enabled: false,
            indirect_allowed: false,
            look: false,
            seen: 0,
            taken: 0,
            heads: VecDeque::with_capacity(HEADS.into()),
            head_index: 0,
            walk: Walk::Idle,
            fetch: Fetch::new(payload_bytes.max(table_bytes)),
            chain: Chain::default(),
            spare: Vec::new(),
            finished: Vec::with_capacity(QUEUE_SIZE_MAX.into()),
            used_index: 0,
            used_bytes: Vec::new(),
            signal_due: false,
            flags: Fetch::new(2),
            flags_asked: false,
        }
    }

    pub fn reset(&mut self) {
        self.settings = QueueSettings::default();
        (self.enabled, self.look, self.signal_due, self.flags_asked) = (false, false, false, false);
        (self.seen, self.taken, self.used_index, self.head_index) = (0, 0, 0, 0);
        self.heads.clear();
        self.finished.clear();
        self.walk = Walk::Idle;
        self.fetch.reset();
        self.flags.reset();
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn view(&self, name: &'static str) -> VirtqueueView {
        VirtqueueView {
            number: self.number,
            name,
            enabled: self.enabled,
            settings: self.settings,
            available_index: self.seen,
            taken_index: self.taken,
            used_index: self.used_index,
        }
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// The most bytes of a payload that [`Self::read_payload`] takes.
    pub fn payload_bytes(&self) -> usize {
        self.fetch.capacity_bytes()
    }

    /// Enables the queue, once its settings are such that it can be.
    pub fn enable(&mut self, indirect_allowed: bool) -> Result<(), NetFault> {
        let QueueSettings { size, descriptors, available, used, .. } = self.settings;
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(NetFault::QueueSize { queue: self.number, size });
        }
        let entries = u64::from(size);
        for (ring, address, align, bytes) in [
            ("descriptor table", descriptors, VRING_DESC_ALIGN_SIZE, entries * DESCRIPTOR_BYTES as u64),
            ("available ring", available, VRING_AVAIL_ALIGN_SIZE, AVAILABLE_ENTRIES + 2 * entries),
            ("used ring", used, VRING_USED_ALIGN_SIZE, USED_ENTRIES + entries * USED_ENTRY_BYTES as u64),
        ] {
            if !address.is_multiple_of(align.into()) || address.checked_add(bytes).is_none() {
                return Err(NetFault::QueueAddress { queue: self.number, ring, address: Iova(address) });
            }
        }
        self.indirect_allowed = indirect_allowed;
        self.enabled = true;
        Ok(())
    }

    /// The driver has made something available.
    pub fn notify(&mut self) {
        self.look = true;
    }

    /// An answer to a read of this queue; false if it is another's.
    pub fn answer(&mut self, tag: DmaTag, answer: Result<&[u8], DmaFault>) -> bool {
        self.fetch.answer(tag, answer) || self.flags.answer(tag, answer)
    }

    /// The next chain. `None`: there is none, or the way to it waits for an answer.
    pub fn next_chain(&mut self, port: &mut dyn DmaPort) -> Result<Option<Chain>, NetFault> {
        if !self.enabled {
            return Ok(None);
        }
        loop {
            let moved = match self.walk {
                Walk::Idle => self.begin()?,
                Walk::Index => self.read_index(port)?,
                Walk::Heads { count } => self.read_heads(port, count)?,
                Walk::Descriptor { at, taken } => match self.read_descriptor(port, at, taken)? {
                    Some(true) => return Ok(Some(self.take_chain())),
                    Some(false) => true,
                    None => false,
                },
                Walk::Table { range } => match self.read_table(port, range)? {
                    true => return Ok(Some(self.take_chain())),
                    false => false,
                },
            };
            if !moved {
                return Ok(None);
            }
        }
    }

    /// Decides what to read next; false if there is nothing.
    fn begin(&mut self) -> Result<bool, NetFault> {
        if let Some(head) = self.heads.pop_front() {
            if head >= self.settings.size {
                return Err(NetFault::HeadBeyondTable { queue: self.number, head });
            }
            self.chain.begin(head, self.head_index);
            self.head_index = self.head_index.wrapping_add(1);
            self.walk = Walk::Descriptor { at: head, taken: 0 };
        } else if self.taken != self.seen {
            // Up to the end of the ring, so that one read is one range.
            let to_end = self.settings.size - self.taken % self.settings.size;
            let count = self.seen.wrapping_sub(self.taken).min(to_end).min(HEADS);
            self.head_index = self.taken;
            self.walk = Walk::Heads { count };
        } else if std::mem::take(&mut self.look) {
            self.walk = Walk::Index;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn take_chain(&mut self) -> Chain {
        self.walk = Walk::Idle;
        let empty = self.spare.pop().unwrap_or_default();
        std::mem::replace(&mut self.chain, empty)
    }

    fn origin(&self, class: Class, index: u16) -> Origin {
        Origin::new(class, Cause::Net { queue: self.number, index })
    }

    fn dma(&self, what: &'static str) -> impl FnOnce(DmaFault) -> NetFault + use<> {
        let queue = self.number;
        move |fault| NetFault::Dma { queue, what, fault }
    }

    fn read_index(&mut self, port: &mut dyn DmaPort) -> Result<bool, NetFault> {
        let range = DmaRange::new(Iova(self.settings.available), AVAILABLE_ENTRIES as u32);
        let (origin, failed) = (self.origin(Class::NetAvailableFetch, self.taken), self.dma("the available ring"));
        let Some(bytes) = self.fetch.read(port, origin, &[range]).map_err(failed)? else { return Ok(false) };
        let index = word(bytes, offset_of!(vring_avail, idx));
        if index.wrapping_sub(self.taken) > self.settings.size && !planted("net_index_unchecked") {
            return Err(NetFault::AvailableIndex { queue: self.number, from: self.taken, to: index });
        }
        self.seen = index;
        self.walk = Walk::Idle;
        Ok(true)
    }

    fn read_heads(&mut self, port: &mut dyn DmaPort, count: u16) -> Result<bool, NetFault> {
        let place = self.settings.available + AVAILABLE_ENTRIES + 2 * u64::from(self.taken % self.settings.size);
        let range = DmaRange::new(Iova(place), 2 * u32::from(count));
        let (origin, failed) = (self.origin(Class::NetAvailableFetch, self.taken), self.dma("the available ring"));
        let Some(bytes) = self.fetch.read(port, origin, &[range]).map_err(failed)? else { return Ok(false) };
        self.heads.extend((0..usize::from(count)).map(|entry| word(bytes, 2 * entry)));
        self.taken = self.taken.wrapping_add(count);
        self.walk = Walk::Idle;
        Ok(true)
    }

    /// `Some(true)`: the chain is whole. `None`: the descriptor comes later.
    fn read_descriptor(&mut self, port: &mut dyn DmaPort, at: u16, taken: u16) -> Result<Option<bool>, NetFault> {
        let place = self.settings.descriptors + u64::from(at) * DESCRIPTOR_BYTES as u64;
        let range = DmaRange::new(Iova(place), DESCRIPTOR_BYTES as u32);
        let (origin, failed) = (self.origin(Class::NetDescriptorFetch, self.chain.index), self.dma("a descriptor"));
        let Some(bytes) = self.fetch.read(port, origin, &[range]).map_err(failed)? else { return Ok(None) };
        let descriptor = Descriptor::parse(bytes);
        let (queue, head) = (self.number, self.chain.head);
        if descriptor.is_indirect() {
            self.begin_table(&descriptor, taken)?;
            return Ok(Some(false));
        }
        self.chain.add(queue, &descriptor)?;
        let Some(next) = descriptor.next() else { return Ok(Some(true)) };
        let taken = taken + 1;
        if taken >= self.settings.size {
            return Err(NetFault::ChainTooLong { queue, head });
        }
        if next >= self.settings.size && !planted("net_next_unchecked") {
            return Err(NetFault::NextBeyondTable { queue, head, next });
        }
        self.walk = Walk::Descriptor { at: next, taken };
        Ok(Some(false))
    }

    /// An indirect table ends its chain and holds all of it that is left, at most as much as a queue's own table.
    fn begin_table(&mut self, descriptor: &Descriptor, taken: u16) -> Result<(), NetFault> {
        let length_bytes = descriptor.length_bytes;
        let entries = length_bytes as usize / DESCRIPTOR_BYTES;
        let whole = (length_bytes as usize).is_multiple_of(DESCRIPTOR_BYTES);
        let room = usize::from(QUEUE_SIZE_MAX - taken);
        if !self.indirect_allowed || descriptor.next().is_some() || entries == 0 || !whole || entries > room {
            return Err(NetFault::IndirectTable { queue: self.number, head: self.chain.head, length_bytes });
        }
        self.walk = Walk::Table { range: DmaRange::new(Iova(descriptor.address), length_bytes) };
        Ok(())
    }

    /// True: the chain is whole. False: the table comes later.
    fn read_table(&mut self, port: &mut dyn DmaPort, range: DmaRange) -> Result<bool, NetFault> {
        let (queue, head) = (self.number, self.chain.head);
        let (origin, failed) =
            (self.origin(Class::NetDescriptorFetch, self.chain.index), self.dma("an indirect table"));
        let Some(bytes) = self.fetch.read(port, origin, &[range]).map_err(failed)? else { return Ok(false) };
        let mut at = 0;
        for _ in 0..bytes.len() / DESCRIPTOR_BYTES {
            let descriptor = Descriptor::parse(bytes.get(at * DESCRIPTOR_BYTES..).unwrap_or_default());
            if descriptor.is_indirect() {
                return Err(NetFault::IndirectTable { queue, head, length_bytes: descriptor.length_bytes });
            }
            self.chain.add(queue, &descriptor)?;
            let Some(next) = descriptor.next() else { return Ok(true) };
            at = usize::from(next);
            if at >= bytes.len() / DESCRIPTOR_BYTES {
                return Err(NetFault::NextBeyondTable { queue, head, next });
            }
        }
        Err(NetFault::ChainTooLong { queue, head })
    }

    /// Reads what a chain brings; `None`: it comes later.
    pub fn read_payload(&mut self, port: &mut dyn DmaPort, chain: &Chain) -> Result<Option<&[u8]>, NetFault> {
        let (origin, failed) = (self.origin(Class::NetPayloadRead, chain.index), self.dma("a buffer"));
        self.fetch.read(port, origin, &chain.readable).map_err(failed)
    }

    /// Writes into chains' buffers.
    pub fn write_payload(
        &mut self,
        port: &mut dyn DmaPort,
        index: u16,
        ranges: &[DmaRange],
        from: &[u8],
    ) -> Result<(), NetFault> {
        port.write(self.origin(Class::NetPayloadWrite, index), ranges, from).map_err(self.dma("a buffer"))
    }

    /// Gives a chain back; [`Self::publish`] tells the driver.
    pub fn finish(&mut self, chain: Chain, written_bytes: u32) {
        self.finished.push((chain.head, written_bytes));
        if self.spare.len() < usize::from(HEADS) {
            self.spare.push(chain);
        }
    }

    /// How many more chains may be finished before the used ring must be told.
    pub fn room(&self) -> usize {
        usize::from(self.settings.size).saturating_sub(self.finished.len())
    }

    /// Writes finished chains into the used ring, then its index: one crossing.
    pub fn publish(&mut self, port: &mut dyn DmaPort) -> Result<(), NetFault> {
        if self.finished.is_empty() {
            return Ok(());
        }
        let (size, count) = (self.settings.size, self.finished.len() as u16);
        let first = self.used_index % size;
        let before_end = count.min(size - first);
        let entry = |place: u16| Iova(self.settings.used + USED_ENTRIES + u64::from(place) * USED_ENTRY_BYTES as u64);
        let index = Iova(self.settings.used + offset_of!(vring_used, idx) as u64);
        let ranges = [
            DmaRange::new(entry(first), u32::from(before_end) * USED_ENTRY_BYTES as u32),
            DmaRange::new(entry(0), u32::from(count - before_end) * USED_ENTRY_BYTES as u32),
            DmaRange::new(index, 2),
        ];
        self.used_bytes.clear();
        for (head, written_bytes) in self.finished.drain(..) {
            self.used_bytes.extend(u32::from(head).to_le_bytes());
            self.used_bytes.extend(written_bytes.to_le_bytes());
        }
        let origin = self.origin(Class::NetUsedWrite, self.used_index);
        self.used_index = self.used_index.wrapping_add(count);
        self.used_bytes.extend(self.used_index.to_le_bytes());
        self.signal_due = true;
        port.write(origin, &ranges, &self.used_bytes).map_err(self.dma("the used ring"))
    }

    /// Raises the queue's vector if there is something new and the driver wants to be told. True when a used buffer
    /// notification was due, vector or not. The flags are read after the index was written, so none is lost.
    pub fn signal(&mut self, port: &mut dyn DmaPort) -> Result<bool, NetFault> {
        let mut due = false;
        while self.flags_asked || std::mem::take(&mut self.signal_due) {
            self.flags_asked = true;
            let range = DmaRange::new(Iova(self.settings.available + offset_of!(vring_avail, flags) as u64), 2);
            let (origin, failed) = (self.origin(Class::NetAvailableFetch, self.taken), self.dma("the available ring"));
            let Some(bytes) = self.flags.read(port, origin, &[range]).map_err(failed)? else { break };
            let flags = word(bytes, 0);
            self.flags_asked = false;
            if u32::from(flags) & VRING_AVAIL_F_NO_INTERRUPT == 0 {
                due = true;
                self.raise(port);
            }
        }
        Ok(due)
    }

    fn raise(&self, port: &mut dyn DmaPort) {
        if self.settings.vector != NO_VECTOR {
            let nothing = DmaRange::new(Iova(0), 0);
            // A vector that cannot be delivered is counted by the port.
            let _ = port.event(self.origin(Class::NetEvent, self.used_index), nothing, &[], Some(self.settings.vector));
        }
    }
}

/// A little-endian word; what is missing is zero.
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default())
}
