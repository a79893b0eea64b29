//! Completion queues: creation, destruction, and the ring's own arithmetic.

use super::error::check_limit;
use super::page_list;
use super::{Cqn, Device, Eqn, Qpn, Result, VerbsError};
use crate::backing::{Backing, DmaBuffer};
use rnic_abi::CommandOpcode;
use rnic_abi::command::{CqPosition, CreateCq, ModifyCq, ResizeCq};
use rnic_abi::completion::{CQE_BYTES, CQE_PHASE};
use rnic_abi::limits::NO_OBJECT;
use std::collections::VecDeque;
use zerocopy::{FromBytes, IntoBytes};

/// A completion queue as it is created.
#[derive(Clone, Copy, Debug)]
pub struct CqSpec {
    /// The number it shall have, or the lowest free one.
    pub cqn: Option<u32>,
    pub log_entries: u8,
    /// Where its events go.
    pub eqn: Option<Eqn>,
    pub doorbell_page: u32,
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// The rings in which entries may stand that are not polled, oldest first; more than one after a resize.
    rings: VecDeque<CqRing>,
    pub record: DmaBuffer,
    pub eqn: Option<Eqn>,
    pub doorbell_page: u32,
    /// Free-running modulo 2^32.
    pub consumer: u32,
    /// Sequence of the next arm; it advances after each event.
    pub arm_sequence: u8,
}

impl CompletionQueue {
    /// The ring in which the entry of an index stands.
    fn ring_of(&self, index: u32) -> &CqRing {
        // Indices wrap: the newest ring whose first index is not ahead of this one.
        let begun = |ring: &&CqRing| index.wrapping_sub(ring.first_index).cast_signed() >= 0;
        self.rings.iter().rev().find(begun).unwrap_or(&self.rings[0])
    }

    /// Where the entry of an index stands.
    pub fn entry_iova(&self, index: u32) -> u64 {
        let ring = self.ring_of(index);
        let position = index.wrapping_sub(ring.first_index) & ((1 << ring.log_entries) - 1);
        ring.buffer.iova + u64::from(position) * u64::from(CQE_BYTES)
    }

    /// Whether the entry of an index has been written in this pass.
    pub fn is_written(&self, backing: &mut dyn Backing, index: u32) -> Result<bool> {
        let ring = self.ring_of(index);
        let phase = backing.load32(self.entry_iova(index) + u64::from(CQE_BYTES) - 4)? & CQE_PHASE;
        Ok(phase == phase_of(index.wrapping_sub(ring.first_index), ring.log_entries))
    }

    /// Most entries that can stand unpolled.
    fn entries(&self) -> u32 {
        self.rings.iter().map(|ring| 1 << ring.log_entries).sum()
    }

    /// The rings that were polled to their end.
    pub fn take_spent_rings(&mut self) -> Vec<DmaBuffer> {
        let mut spent = Vec::new();
        while self.rings.len() > 1 && self.consumer.wrapping_sub(self.rings[1].first_index).cast_signed() >= 0 {
            spent.extend(self.rings.pop_front().map(|ring| ring.buffer));
        }
        spent
    }

    pub fn into_buffers(self) -> impl Iterator<Item = DmaBuffer> {
        self.rings.into_iter().map(|ring| ring.buffer).chain([self.record])
    }
}

/// A ring with the index of its first entry.
#[derive(Debug)]
struct CqRing {
    buffer: DmaBuffer,
    log_entries: u8,
    first_index: u32,
}

/// The phase of an index: 1 in the first pass over the ring, then alternating.
pub(crate) fn phase_of(index: u32, log_entries: u8) -> u32 {
    !(index >> log_entries) & CQE_PHASE
}

impl Device {
    pub fn create_completion_queue(&mut self, spec: CqSpec) -> Result<Cqn> {
        check_limit("log of CQ entries", spec.log_entries.into(), self.limits.log_cq_entries.into())?;
        if let Some(eqn) = spec.eqn
            && !self.event_queues.contains_key(&eqn)
        {
            return Err(VerbsError::Missing { what: eqn.to_string() });
        }
        let cqn = self.cqns.take(spec.cqn)?;
        let ring = self.backing.allocate(u64::from(CQE_BYTES) << spec.log_entries, 4096)?;
        let record = self.backing.allocate(8, 64)?;
        let body = CreateCq {
            cqn: cqn.into(),
            eqn: spec.eqn.map_or(NO_OBJECT, |eqn| eqn.0).into(),
            doorbell_page: spec.doorbell_page.into(),
            log_entries: spec.log_entries,
            pages: page_list::contiguous(ring.iova),
            consumer_record: record.iova.into(),
            ..CreateCq::zeroed()
        };
        if let Err(error) = self.command(CommandOpcode::CREATE_CQ, body.as_bytes()) {
            self.cqns.give(cqn);
            self.backing.release(ring);
            self.backing.release(record);
            return Err(error);
        }
        let CqSpec { log_entries, eqn, doorbell_page, .. } = spec;
        let rings = VecDeque::from([CqRing { buffer: ring, log_entries, first_index: 0 }]);
        let queue = CompletionQueue { rings, record, eqn, doorbell_page, consumer: 0, arm_sequence: 1 };
        self.completion_queues.insert(Cqn(cqn), queue);
        Ok(Cqn(cqn))
    }

    /// Gives the queue another ring, under traffic; what was completed and not polled stays where it is until it is.
    pub fn resize_completion_queue(&mut self, cqn: Cqn, log_entries: u8) -> Result<()> {
        check_limit("log of CQ entries", log_entries.into(), self.limits.log_cq_entries.into())?;
        self.completion_queue(cqn)?;
        let buffer = self.backing.allocate(u64::from(CQE_BYTES) << log_entries, 4096)?;
        let pages = page_list::contiguous(buffer.iova);
        let body = ResizeCq { cqn: cqn.0.into(), log_entries, pages, ..ResizeCq::zeroed() };
        let answer = match self.command(CommandOpcode::RESIZE_CQ, body.as_bytes()) {
            Ok(answer) => answer,
            Err(error) => {
                self.backing.release(buffer);
                return Err(error);
            }
        };
        let (position, _) = CqPosition::read_from_prefix(&answer)
            .map_err(|_| VerbsError::CommandAnswer { what: "a short position of the new ring".into() })?;
        if let Some(queue) = self.completion_queues.get_mut(&cqn) {
            queue.rings.push_back(CqRing { buffer, log_entries, first_index: position.first_index.get() });
            let spent = queue.take_spent_rings();
            spent.into_iter().for_each(|ring| self.backing.release(ring));
        }
        Ok(())
    }

    /// Holds events back: until `count` entries are there, or for `period_us`.
    pub fn moderate_completion_queue(&mut self, cqn: Cqn, count: u16, period_us: u16) -> Result<()> {
        let (count, period_us) = (count.into(), period_us.into());
        let body = ModifyCq { cqn: cqn.0.into(), count, period_us, ..ModifyCq::zeroed() };
        self.command(CommandOpcode::MODIFY_CQ, body.as_bytes()).map(drop)
    }

    pub fn destroy_completion_queue(&mut self, cqn: Cqn) -> Result<()> {
        self.command_on_object(CommandOpcode::DESTROY_CQ, cqn.0)?;
        self.cqns.give(cqn.0);
        if let Some(queue) = self.completion_queues.remove(&cqn) {
            queue.into_buffers().for_each(|buffer| self.backing.release(buffer));
        }
        Ok(())
    }

    /// Takes the owner off completions that nobody has polled yet, so that the number may be used again.
    pub(crate) fn disown_completions(&mut self, cqn: Cqn, qpn: Qpn) -> Result<()> {
        let Some(queue) = self.completion_queues.get(&cqn) else { return Ok(()) };
        for ahead in 0..queue.entries() {
            let index = queue.consumer.wrapping_add(ahead);
            if !queue.is_written(self.backing.as_mut(), index)? {
                break;
            }
            let entry = queue.entry_iova(index);
            if self.backing.load32(entry)? == qpn.0 {
                self.backing.store32(entry, NO_OBJECT)?;
            }
        }
        Ok(())
    }
}
