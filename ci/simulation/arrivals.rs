//! Completions of receives, each judged against the message that is on its way.

use crate::connection::*;
use crate::message::Message;
use crate::operations::Family;
use crate::run::{Checked, Simulation};
use rnic_abi::{CompletionOpcode, CompletionStatus};
use rnic_shim::verbs::*;
use std::rc::Rc;

impl Simulation {
    pub(crate) fn judge_receive(&mut self, number: usize, side: usize, completion: &WorkCompletion) -> Checked {
        let shared = self.connections[number].ends[1 - side].shared;
        let posted = match shared {
            Some(queue) => self.take_shared(queue, completion.wr_id)?,
            None => self.connections[number].flows[side].take_receive(completion.wr_id)?,
        };
        let connection = &mut self.connections[number];
        let flow = &mut connection.flows[side];
        let message = flow.arriving.front().cloned();
        let status = completion.status();
        if status == CompletionStatus::SUCCESS {
            if flow.receive_failed {
                return Err("an earlier receive has failed".into());
            }
            let Some(message) = message else { return Err("no message is on its way".into()) };
            flow.arriving.pop_front();
            return self.message_arrives(number, side, posted, &message, completion);
        }
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
        let arena = match receiver.shared {
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
        counted.receives_most += 1 + u64::from(receiver.shared.is_some());
        if write && message.writes() && message.alone.get() {
            self.check_written(number, side, message)?;
        } else if !write {
            self.check_bytes(sender.host, receiver.host, arena + u64::from(posted.at), message)?;
        }
        self.coverage.items(&[26, 72]);
        if message.invalidates.is_some() {
            self.coverage.item(37);
            self.view_closes(number, side)?;
        }
        Ok(())
    }
}
