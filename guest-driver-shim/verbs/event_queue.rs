//! Event queues: creation, and taking events out of host memory.

use super::completion_queue::phase_of;
use super::error::check_limit;
use super::page_list;
use super::{Cqn, Device, Eqn, Result, VerbsError};
use crate::backing::DmaBuffer;
use rnic_abi::command::{CreateEq, NO_VECTOR};
use rnic_abi::doorbell::{DB_EQ_UPDATE, eq_update};
use rnic_abi::event::{EQE_BYTES, EQE_PHASE, Eqe};
use rnic_abi::{CommandOpcode, EventType};
use zerocopy::IntoBytes;

#[derive(Debug)]
pub(crate) struct EventQueue {
    pub ring: DmaBuffer,
    pub log_entries: u8,
    pub vector: Option<u16>,
    /// Free-running modulo 2^32.
    pub consumer: u32,
    /// The consumer index the device knows.
    pub told: u32,
    /// The next entry raises the vector.
    pub armed: bool,
}

impl EventQueue {
    fn entry_iova(&self) -> u64 {
        let position = self.consumer & ((1 << self.log_entries) - 1);
        self.ring.iova + u64::from(position) * u64::from(EQE_BYTES)
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub event_type: EventType,
    /// QPN, CQN or slot, by type.
    pub object: u32,
    /// A consumer index or the number of a diagnostic, by type.
    pub data: u32,
}

impl Device {
    /// Creates an event queue that raises `vector`, or none.
    pub fn create_event_queue(&mut self, eqn: Option<Eqn>, vector: Option<u16>, log_entries: u8) -> Result<Eqn> {
        check_limit("log of EQ entries", log_entries.into(), self.limits.log_eq_entries.into())?;
        let number = self.eqns.take(eqn.map(|eqn| eqn.0))?;
        let ring = self.backing.allocate(u64::from(EQE_BYTES) << log_entries, 4096)?;
        let body = CreateEq {
            eqn: number.into(),
            vector: vector.unwrap_or(NO_VECTOR).into(),
            log_entries,
            pages: page_list::contiguous(ring.iova),
            ..CreateEq::zeroed()
        };
        if let Err(error) = self.command(CommandOpcode::CREATE_EQ, body.as_bytes()) {
            self.eqns.give(number);
            self.backing.release(ring);
            return Err(error);
        }
        let queue = EventQueue { ring, log_entries, vector, consumer: 0, told: 0, armed: false };
        self.event_queues.insert(Eqn(number), queue);
        Ok(Eqn(number))
    }

    pub fn destroy_event_queue(&mut self, eqn: Eqn) -> Result<()> {
        self.command_on_object(CommandOpcode::DESTROY_EQ, eqn.0)?;
        self.eqns.give(eqn.0);
        if let Some(queue) = self.event_queues.remove(&eqn) {
            self.backing.release(queue.ring);
        }
        Ok(())
    }

    /// Takes the next event, if there is one. A completion event disarms its queue and advances its sequence.
    pub fn poll_event(&mut self, eqn: Eqn) -> Result<Option<Event>> {
        let queue = self.event_queues.get_mut(&eqn).ok_or_else(|| VerbsError::Missing { what: eqn.to_string() })?;
        let entry = queue.entry_iova();
        let phase = self.backing.load32(entry + u64::from(EQE_BYTES) - 4)? & EQE_PHASE;
        if phase != phase_of(queue.consumer, queue.log_entries) {
            return Ok(None);
        }
        let mut eqe = Eqe::zeroed();
        self.backing.copy_out(entry, eqe.as_mut_bytes())?;
        queue.consumer = queue.consumer.wrapping_add(1);
        let event = Event { event_type: EventType(eqe.event_type), object: eqe.object.get(), data: eqe.data.get() };
        let half = 1 << queue.log_entries >> 1;
        let (behind, armed) = (queue.consumer.wrapping_sub(queue.told), queue.armed);
        if event.event_type == EventType::COMPLETION
            && let Some(cq) = self.completion_queues.get_mut(&Cqn(event.object))
        {
            cq.arm_sequence = (cq.arm_sequence + 1) & 3;
        }
        if behind > half {
            // The device must learn of free entries before it runs out of them.
            self.update_event_queue(eqn, armed)?;
        }
        Ok(Some(event))
    }

    /// Tells the device what has been consumed and, with `arm`, asks for the vector at the next entry.
    pub fn update_event_queue(&mut self, eqn: Eqn, arm: bool) -> Result<()> {
        let queue = self.event_queues.get_mut(&eqn).ok_or_else(|| VerbsError::Missing { what: eqn.to_string() })?;
        queue.told = queue.consumer;
        queue.armed = arm;
        let value = eq_update(eqn.0, queue.consumer, arm);
        self.doorbell(0, DB_EQ_UPDATE, value)
    }
}
