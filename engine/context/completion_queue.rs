//! Completion queue contexts.

use super::image::{Image, Reader, Writer};
use super::page_list::PageList;
use rnic_abi::limits::{CQ_CONTEXT_BYTES, MAX_LOG_CQ_ENTRIES};

/// What the next completion of a queue needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqContext {
    pub pages: PageList,
    pub log_entries: u8,
    /// Index of the entry that stands first in the ring: 0 until the queue is resized.
    pub first_index: u32,
    pub moderation: Moderation,
    /// Entries written, free-running.
    pub producer: u32,
    /// The driver's index as last heard of.
    pub consumer: u32,
    pub consumer_record: u64,
    pub arm: Arm,
}

/// How long events are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    pub count: u16,
    pub period_us: u16,
}

impl Moderation {
    pub const fn is_on(&self) -> bool {
        self.count > 1 && self.period_us > 0
    }
}

/// Whether the driver waits for an event, and for which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm {
    pub armed: bool,
    pub solicited_only: bool,
    /// The last sequence that armed; `None` before the first.
    pub sequence: Option<u8>,
    pub consumer: u32,
    /// The newest producer index at which a solicited or failed completion stands, plus one.
    pub last_solicited: Option<u32>,
}

impl CqContext {
    pub const fn entries(&self) -> u32 {
        1 << self.log_entries
    }

    /// Entries in the ring that are not polled, by the last known consumer index; those in a ring before it take no place.
    pub const fn used(&self) -> u32 {
        let (unpolled, written) =
            (self.producer.wrapping_sub(self.consumer), self.producer.wrapping_sub(self.first_index));
        if unpolled < written { unpolled } else { written }
    }

    /// The queue holds as many entries as it has slots, by the last known consumer index.
    pub const fn looks_full(&self) -> bool {
        self.used() >= self.entries()
    }

    /// Offset of the next entry, and its phase.
    pub const fn next_entry(&self, entry_bytes: usize) -> (u64, bool) {
        let number = self.producer.wrapping_sub(self.first_index);
        let slot = number & (self.entries() - 1);
        (slot as u64 * entry_bytes as u64, number >> self.log_entries & 1 == 0)
    }
}

fn optional(out: &mut Writer<'_>, value: Option<u32>) {
    out.u8(value.is_some().into());
    out.u32(value.unwrap_or(0));
}

impl Image for CqContext {
    const BYTES: usize = CQ_CONTEXT_BYTES as usize;

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.pages.page_shift);
        out.u8(self.pages.levels);
        out.u8(self.log_entries);
        out.u64(self.pages.root);
        out.u32(self.first_index);
        out.u16(self.moderation.count);
        out.u16(self.moderation.period_us);
        out.u32(self.producer);
        out.u32(self.consumer);
        out.u64(self.consumer_record);
        out.u8(self.arm.armed.into());
        out.u8(self.arm.solicited_only.into());
        optional(out, self.arm.sequence.map(u32::from));
        out.u32(self.arm.consumer);
        optional(out, self.arm.last_solicited);
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        let (page_shift, levels, log_entries) = (bytes.u8()?, bytes.u8()?, bytes.u8()?);
        let pages = PageList::new(bytes.u64()?, page_shift, levels)?;
        let (first_index, count, period_us) = (bytes.u32()?, bytes.u16()?, bytes.u16()?);
        let (producer, consumer, consumer_record) = (bytes.u32()?, bytes.u32()?, bytes.u64()?);
        let (armed, solicited_only) = (bytes.flag()?, bytes.flag()?);
        let sequence =
            if bytes.flag()? { Some(u8::try_from(bytes.u32()?).ok()?) } else { bytes.u32().map(|_| None)? };
        let arm_consumer = bytes.u32()?;
        let last_solicited = if bytes.flag()? { Some(bytes.u32()?) } else { bytes.u32().map(|_| None)? };
        let arm = Arm { armed, solicited_only, sequence, consumer: arm_consumer, last_solicited };
        let moderation = Moderation { count, period_us };
        let context = Self { pages, log_entries, first_index, moderation, producer, consumer, consumer_record, arm };
        let sound = log_entries <= MAX_LOG_CQ_ENTRIES
            && consumer_record % 8 == 0
            && context.used() <= context.entries()
            && sequence.is_none_or(|sequence| sequence < 4);
        sound.then_some(context)
    }
}
