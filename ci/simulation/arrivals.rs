//! Completions of receives, each judged against the message that is on its way.

use crate::connection::*;
use crate::message::Message;
use crate::operations::Family;
use crate::run::{Checked, Simulation};
use crate::shared::queue_of;
use rnic_abi::{CompletionOpcode, CompletionStatus};
use rnic_shim::verbs::*;
use std::rc::Rc;

impl Simulation {
    pub(crate) fn judge_receive(&mut self, number: usize, side: usize, completion: &WorkCompletion) -> Checked {
        let connection = &mut self.connections[number];
        let own = connection.ends[1 - side].shared;
        let extended = connection.extended;
        let posted = match (own, extended) {
            (Some(queue), _) => self.take_shared(queue, completion.wr_id)?,
            (None, true) => self.take_shared(queue_of(completion.wr_id), completion.wr_id)?,
            (None, false) => connection.flows[side].take_receive(completion.wr_id)?,
        };
        let place = if extended { self.next_of(number, side, completion.wr_id) } else { Some(0) };
        let connection = &mut self.connections[number];
        let flow = &mut connection.flows[side];
        let message = place.and_then(|place| flow.arriving.get(place).cloned());
        let status = completion.status();
        if status == CompletionStatus::SUCCESS {
            let Some(message) = message else { return Err("no message is on its way".into()) };
            let before = extended && flow.failed_at.is_some_and(|failed| message.number < failed);
            if flow.receive_failed && !before {
                return Err("an earlier receive has failed".into());
            }
            place.and_then(|place| flow.arriving.remove(place));
            return self.message_arrives(number, side, posted, &message, completion);
        }
        flow.failed_at = flow.failed_at.or(message.as_ref().map(|message| message.number));
        let expected = message.as_ref().and_then(|message| message.fault).and_then(|fault| fault.receive_status);
        let flushed = status == CompletionStatus::WR_FLUSH_ERR;
        let known = flow.receive_failed || connection.doom.is_some() || connection.phase != Phase::Running;
        // Whatever fails on this side flushes the receives, too: its own sends may have run out of patience.
        let reverse_failed = connection.may_have_failed(1 - side, self.now_ns);
        let flow = &mut connection.flows[side];
        if flushed && (known || reverse_failed) {
            flow.receive_failed = true;
            self.coverage.items(&[73, 74]);
            return Ok(());
        }
        if expected == Some(status) && !flow.receive_failed {
            flow.receive_failed = true;
            return Ok(());
        }
        let excused = connection.is_excused();
        connection.flows[side].receive_failed = true;
        if excused { Ok(()) } else { Err("it has no reason for it".into()) }
    }

    /// Each queue's messages complete in their order, and those of two queues that share a completion queue.
    fn next_of(&self, number: usize, side: usize, wr_id: u64) -> Option<usize> {
        let cqn_of = |queue: usize| self.shared.get(queue).and_then(|queue| queue.cqn);
        let cqn = cqn_of(queue_of(wr_id));
        let arriving = &self.connections[number].flows[side].arriving;
        arriving.iter().position(|message| message.queue.and_then(cqn_of) == cqn)
    }

    fn message_arrives(
        &mut self,
        number: usize,
        side: usize,
        posted: Posted,
        message: &Rc<Message>,
        completion: &WorkCompletion,
    ) -> Checked {
        let connection = &self.connections[number];
        let (sender, receiver) = (connection.ends[side], connection.ends[1 - side]);
        if message.queue.is_some_and(|queue| queue != queue_of(completion.wr_id)) {
            return Err(format!("a receive of queue {}, and it names {:?}", queue_of(completion.wr_id), message.queue));
        }
        let arena = match message.queue {
            Some(queue) => self.shared[queue].arena.buffer.iova,
            None => connection.flows[side].arena.buffer.iova,
        };
        let operation = message.operation;
        let write = operation.family == Family::Write;
        let opcode = if write { CompletionOpcode::RECV_RDMA_WITH_IMM } else { CompletionOpcode::RECV };
        let immediate = operation.immediate.then_some(message.immediate);
        let (length, solicited) = (completion.byte_len, completion.solicited);
        let found =
            (completion.opcode, length, completion.immediate, completion.invalidated, completion.src_qpn, solicited);
        let right = (opcode.0, message.length, immediate, message.invalidates, sender.qpn.0, message.solicited);
        if found != right {
            return Err(format!("it says {found:x?}, and message {} is {right:x?}", message.number));
        }
        if let Some(fault) = message.fault.filter(|_| !connection.is_excused()) {
            return Err(format!("message {} must not arrive: {}", message.number, fault.name));
        }
        let counted = &mut self.hosts[receiver.host].counted;
        counted.receives_least += 1;
        // Of a shared queue its place in the index ring, too.
        counted.receives_most += 1 + u64::from(message.queue.is_some());
        if write && message.writes() && message.alone.get() {
            self.check_written(number, side, message)?;
        } else if !write {
            self.check_bytes(sender.host, receiver.host, arena + u64::from(posted.at), message)?;
        }
        self.coverage.items(&[26, 72]);
        if message.queue.is_none() && posted.number < self.connections[number].flows[side].early {
            self.coverage.item(79);
        }
        if message.invalidates.is_some() {
            self.coverage.item(37);
            self.view_closes(number, side)?;
        }
        Ok(())
    }
}
