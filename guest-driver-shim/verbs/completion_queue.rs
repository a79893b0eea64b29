//! Completion queues: creation, destruction, and the ring's own arithmetic.

use super::error::check_limit;
use super::page_list;
use super::{Cqn, Device, Eqn, Qpn, Result, VerbsError};
use crate::backing::{Backing, DmaBuffer};
use rnic_abi::CommandOpcode;
use rnic_abi::command::CreateCq;
use rnic_abi::completion::{CQE_BYTES, CQE_PHASE};
use rnic_abi::limits::NO_OBJECT;
use zerocopy::IntoBytes;

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
    pub ring: DmaBuffer,
    pub record: DmaBuffer,
    pub log_entries: u8,
    pub eqn: Option<Eqn>,
    pub doorbell_page: u32,
    /// Free-running modulo 2^32.
    pub consumer: u32,
    /// Sequence of the next arm; it advances after each event.
    pub arm_sequence: u8,
}

impl CompletionQueue {
    /// Where the entry of an index stands.
    pub fn entry_iova(&self, index: u32) -> u64 {
        let position = index & ((1 << self.log_entries) - 1);
        self.ring.iova + u64::from(position) * u64::from(CQE_BYTES)
    }

    /// Whether the entry of an index has been written in this pass.
    pub fn is_written(&self, backing: &mut dyn Backing, index: u32) -> Result<bool> {
        let phase = backing.load32(self.entry_iova(index) + u64::from(CQE_BYTES) - 4)? & CQE_PHASE;
        Ok(phase == phase_of(index, self.log_entries))
    }

    pub fn into_buffers(self) -> impl Iterator<Item = DmaBuffer> {
        [self.ring, self.record].into_iter()
    }
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
        let queue = CompletionQueue { ring, record, log_entries, eqn, doorbell_page, consumer: 0, arm_sequence: 1 };
        self.completion_queues.insert(Cqn(cqn), queue);
        Ok(Cqn(cqn))
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
        for ahead in 0..1u32 << queue.log_entries {
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
