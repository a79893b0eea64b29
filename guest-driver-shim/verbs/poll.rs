//! Polling a completion queue: entries out of host memory, each back to the `wr_id` it was posted with.

use super::completion_queue::CompletionQueue;
use super::ring::Retired;
use super::{Cqn, DatagramOrigin, Device, Qpn, Result, Srqn, VerbsError};
use rnic_abi::completion::{
    CQE_SOLICITED, CQE_SRQ, CQE_WITH_IMM, CQE_WITH_INV, CompletionOpcode, CompletionStatus, Cqe,
};
use rnic_abi::limits::NO_OBJECT;
use serde::Serialize;
use zerocopy::IntoBytes;

/// A work completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkCompletion {
    pub wr_id: u64,
    pub qpn: u32,
    /// A `CompletionOpcode`.
    pub opcode: u8,
    /// A `CompletionStatus`.
    pub status: u8,
    pub byte_len: u32,
    pub immediate: Option<u32>,
    /// The key that the message took out of use.
    pub invalidated: Option<u32>,
    pub src_qpn: u32,
    /// Of a datagram that was received.
    pub datagram: Option<DatagramOrigin>,
    /// Number of the rule that explains a failure.
    pub vendor_err: u32,
    pub solicited: bool,
    /// The device's clock when the entry was written.
    pub time_ns: u64,
    /// Work requests of the same queue that this completion retired, this one included.
    pub retired: u16,
}

impl WorkCompletion {
    pub fn status(&self) -> CompletionStatus {
        CompletionStatus(self.status)
    }

    pub fn opcode(&self) -> CompletionOpcode {
        CompletionOpcode(self.opcode)
    }

    /// The rule that explains a failure.
    pub fn rule(&self) -> Option<&'static rnic_abi::diagnostic::Rule> {
        rnic_abi::diagnostic::rule(self.vendor_err)
    }
}

impl Device {
    /// Takes as many completions as are there and `completions` has room for; returns how many.
    pub fn poll(&mut self, cqn: Cqn, completions: &mut [WorkCompletion]) -> Result<usize> {
        let mut taken = 0;
        let mut outcome = Ok(());
        let before = self.completion_queue(cqn)?.consumer;
        while let Some(place) = completions.get_mut(taken) {
            match self.take_completion(cqn) {
                Ok(Some(Some(completion))) => {
                    *place = completion;
                    taken += 1;
                }
                // The completion of a queue pair that is gone.
                Ok(Some(None)) => {}
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let missing = || VerbsError::Missing { what: cqn.to_string() };
        let queue = self.completion_queues.get_mut(&cqn).ok_or_else(missing)?;
        let (consumer, record) = (queue.consumer, queue.record.iova);
        if consumer != before {
            let spent = queue.take_spent_rings();
            self.backing.store32(record, consumer)?;
            spent.into_iter().for_each(|ring| self.backing.release(ring));
        }
        outcome.map(|()| taken)
    }

    pub(crate) fn completion_queue(&self, cqn: Cqn) -> Result<&CompletionQueue> {
        self.completion_queues.get(&cqn).ok_or_else(|| VerbsError::Missing { what: cqn.to_string() })
    }

    fn take_completion(&mut self, cqn: Cqn) -> Result<Option<Option<WorkCompletion>>> {
        let missing = || VerbsError::Missing { what: cqn.to_string() };
        let queue = self.completion_queues.get_mut(&cqn).ok_or_else(missing)?;
        if !queue.is_written(self.backing.as_mut(), queue.consumer)? {
            return Ok(None);
        }
        let mut cqe = Cqe::zeroed();
        self.backing.copy_out(queue.entry_iova(queue.consumer), cqe.as_mut_bytes())?;
        queue.consumer = queue.consumer.wrapping_add(1);
        match cqe.qpn.get() {
            NO_OBJECT => {
                self.free_shared(&cqe);
                Ok(Some(None))
            }
            _ => self.resolve(&cqe).map(|completion| Some(Some(completion))),
        }
    }

    /// The slot of a completion from a shared receive queue is free again; what was posted there is the answer.
    fn free_shared(&mut self, cqe: &Cqe) -> Option<u64> {
        let shared = cqe.opcode & CompletionOpcode::RECV.0 != 0 && cqe.flags.get() & CQE_SRQ != 0;
        let srqn = Some(Srqn(cqe.srqn.get())).filter(|_| shared)?;
        self.shared_receive_queues.get_mut(&srqn)?.complete(cqe.wqe_index.get())
    }

    fn resolve(&mut self, cqe: &Cqe) -> Result<WorkCompletion> {
        let qpn = Qpn(cqe.qpn.get());
        let is_receive = cqe.opcode & CompletionOpcode::RECV.0 != 0;
        let stray = |what: &str| VerbsError::Device {
            what: format!("{:?} of {qpn} at ring index {}, {what}", CompletionOpcode(cqe.opcode), cqe.wqe_index),
        };
        let shared = is_receive && cqe.flags.get() & CQE_SRQ != 0;
        let retired = if shared {
            self.free_shared(cqe).map(|wr_id| Retired { wr_id, entries: 1 })
        } else {
            let qp = self.queue_pairs.get_mut(&qpn).ok_or_else(|| stray("which does not exist"))?;
            let ring = if is_receive { &mut qp.receive } else { &mut qp.send };
            ring.complete(cqe.wqe_index.get())
        };
        let retired = retired.ok_or_else(|| stray("where nothing is outstanding"))?;
        if is_receive && retired.entries != 1 {
            return Err(stray("but an earlier receive has not completed"));
        }
        let success = cqe.status == CompletionStatus::SUCCESS.0;
        let flags = if success { cqe.flags.get() } else { 0 };
        let valid = |value: u32| if success { value } else { 0 };
        Ok(WorkCompletion {
            wr_id: retired.wr_id,
            qpn: qpn.0,
            opcode: cqe.opcode,
            status: cqe.status,
            byte_len: valid(cqe.byte_len.get()),
            immediate: (flags & CQE_WITH_IMM != 0).then_some(cqe.immediate.get()),
            invalidated: (flags & CQE_WITH_INV != 0).then_some(cqe.immediate.get()),
            src_qpn: valid(cqe.src_qpn.get()),
            datagram: DatagramOrigin::of(cqe, flags),
            vendor_err: cqe.vendor_err.get(),
            solicited: flags & CQE_SOLICITED != 0,
            time_ns: if success { cqe.time_ns.get() } else { 0 },
            retired: retired.entries,
        })
    }
}
