//! Segmentation: which bytes of which message the next packet carries.
//!
//! In: the context and the replay buffer. Out: a [`Segment`]: a packet of the message that holds `send_psn`, or
//! the first packet of the next message.

use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::Operation;
use crate::numbers::Qpn;
use crate::queues::WqeId;
use rnic_wire::{Opcode, Psn};

/// One packet to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub wqe: WqeId,
    pub psn: Psn,
    pub opcode: Opcode,
    pub first_psn: Psn,
    /// Packets of the whole message.
    pub packets: u32,
    pub offset: u64,
    pub length_bytes: u32,
    pub first: bool,
    pub last: bool,
    /// The message has no replay entry yet.
    pub fresh_message: bool,
    /// 0 for a packet that leaves for the first time.
    pub attempt: u16,
}

impl Engine {
    /// The next packet, or `None` when there is nothing (more) to send.
    pub(crate) fn next_segment(&mut self, qpn: Qpn, context: &QpContext) -> Option<Segment> {
        let psn = context.requester.send_psn;
        let sends = context.state.sends();
        let qp = self.queue_pairs.get_mut(qpn)?;
        if let Some(entry) = qp.replay.find(psn) {
            let work = self.wqes.get(entry.wqe)?.work.as_ref().ok()?;
            let (operation, length) = (work.operation, work.length_bytes);
            return Some(cut(context, operation, length, entry.wqe, entry.first_psn, psn, false));
        }
        if !sends {
            return None;
        }
        let id = *qp.waiting.front()?;
        let work = self.wqes.get(id)?.work.as_ref().ok()?;
        Some(cut(context, work.operation, work.length_bytes, id, psn, psn, true))
    }
}

/// Packets of a message; one for an empty message.
pub(crate) fn packets_of(length_bytes: u32, path_mtu_bytes: u32) -> u32 {
    length_bytes.div_ceil(path_mtu_bytes).max(1)
}

fn cut(
    context: &QpContext,
    operation: Operation,
    length: u32,
    wqe: WqeId,
    first_psn: Psn,
    psn: Psn,
    fresh_message: bool,
) -> Segment {
    let mtu = context.path_mtu_bytes();
    let packets = packets_of(length, mtu);
    let number = psn.compare(first_psn) as u32;
    let offset = u64::from(number) * u64::from(mtu);
    let (first, last) = (number == 0, number + 1 == packets);
    let again = psn.compare(context.requester.fresh_psn) < 0;
    Segment {
        wqe,
        psn,
        opcode: opcode(operation, first, last),
        first_psn,
        packets,
        offset,
        length_bytes: if last { (u64::from(length) - offset) as u32 } else { mtu },
        first,
        last,
        fresh_message,
        attempt: if again { context.requester.attempt.max(1) } else { 0 },
    }
}

fn opcode(operation: Operation, first: bool, last: bool) -> Opcode {
    match (operation, first, last) {
        (Operation::Send, true, true) => Opcode::RC_SEND_ONLY,
        (Operation::SendImm, true, true) => Opcode::RC_SEND_ONLY_IMM,
        (Operation::Send | Operation::SendImm, true, false) => Opcode::RC_SEND_FIRST,
        (Operation::Send | Operation::SendImm, false, false) => Opcode::RC_SEND_MIDDLE,
        (Operation::Send, false, true) => Opcode::RC_SEND_LAST,
        (Operation::SendImm, false, true) => Opcode::RC_SEND_LAST_IMM,
        (Operation::Write, true, true) => Opcode::RC_WRITE_ONLY,
        (Operation::WriteImm, true, true) => Opcode::RC_WRITE_ONLY_IMM,
        (Operation::Write | Operation::WriteImm, true, false) => Opcode::RC_WRITE_FIRST,
        (Operation::Write | Operation::WriteImm, false, false) => Opcode::RC_WRITE_MIDDLE,
        (Operation::Write, false, true) => Opcode::RC_WRITE_LAST,
        (Operation::WriteImm, false, true) => Opcode::RC_WRITE_LAST_IMM,
    }
}
