//! Segmentation: which bytes of which message the next packet carries.
//!
//! In: the context and the replay buffer. Out: a [`Segment`]: a packet of the message that holds `send_psn`, or
//! the first packet of the next message.

use crate::context::queue_pair::{QpContext, Service};
use crate::engine::Engine;
use crate::front_end::{Operation, TakesReceive};
use crate::numbers::Qpn;
use crate::wqe_pool::{FetchedWqe, WqeId};
use rnic_pcie::Cause;
use rnic_wire::{Opcode, Psn};

/// One packet to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub wqe: WqeId,
    /// Ring index of the work request.
    pub slot_index: u16,
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
    /// The first PSN behind it: a READ takes those of its responses.
    pub next_psn: Psn,
    /// It has a response of its own: a READ, an atomic, an ATOMIC_WRITE, a FLUSH.
    pub awaits_response: bool,
    /// Of a message that the peer has promised no receive for: its first packet asks for an answer.
    pub question: bool,
    /// When it takes a receive of the peer.
    pub takes_receive: TakesReceive,
    /// It has no packets.
    pub local: bool,
    /// Nothing of it leaves before earlier READs and atomics have ended.
    pub fence: bool,
    /// 0 for a packet that leaves for the first time.
    pub attempt: u16,
}

impl Segment {
    /// Why whatever is done for this packet is done.
    pub fn cause(&self, qpn: Qpn) -> Cause {
        Cause::Send { qpn: qpn.0, index: self.slot_index, count: 1, attempt: self.attempt }
    }
}

/// A message as segmentation sees it.
struct Outgoing<'a> {
    id: WqeId,
    wqe: &'a FetchedWqe,
    first_psn: Psn,
    /// It has no replay entry yet.
    fresh: bool,
    question: bool,
}

impl Engine {
    /// The next packet, or `None` when there is nothing (more) to send.
    pub(crate) fn next_segment(&mut self, qpn: Qpn, context: &QpContext) -> Option<Segment> {
        let psn = context.requester.send_psn;
        let sends = context.state.sends();
        let qp = self.queue_pairs.get_mut(qpn)?;
        if let Some(entry) = qp.replay.find(psn) {
            let wqe = self.wqes.get(entry.wqe)?;
            return Outgoing { id: entry.wqe, wqe, first_psn: entry.first_psn, fresh: false, question: entry.question }
                .cut(context);
        }
        let id = *qp.waiting.front().filter(|_| sends)?;
        let wqe = self.wqes.get(id)?;
        Outgoing { id, wqe, first_psn: psn, fresh: true, question: false }.cut(context)
    }
}

impl Outgoing<'_> {
    /// The packet that carries `send_psn`.
    fn cut(&self, context: &QpContext) -> Option<Segment> {
        let work = self.wqe.work.as_ref().ok()?;
        let psn = context.requester.send_psn;
        let mtu = context.path_mtu_bytes();
        let packets = context.packets_of(work.length_bytes);
        let number = psn.distance_from(self.first_psn);
        let offset = u64::from(number) * u64::from(mtu);
        let (first, last) = (number == 0, number + 1 == packets);
        let again = psn.is_before(context.requester.fresh_psn);
        let awaits_response = work.operation.awaits_response();
        // A request that is answered is one packet; that of a READ, wherever in the answer it begins.
        let (first, last) = (first || awaits_response, last || awaits_response);
        Some(Segment {
            wqe: self.id,
            slot_index: self.wqe.slot_index,
            psn,
            opcode: of_service(context.service, opcode(work.operation, first, last)),
            first_psn: self.first_psn,
            packets,
            offset,
            length_bytes: match (awaits_response, last) {
                (true, _) if work.operation == Operation::AtomicWrite => work.length_bytes,
                (true, _) => 0,
                (false, true) => (u64::from(work.length_bytes) - offset) as u32,
                (false, false) => mtu,
            },
            first,
            last,
            fresh_message: self.fresh,
            next_psn: if awaits_response { self.first_psn.add(packets) } else { psn.next() },
            awaits_response,
            question: self.question,
            takes_receive: work.operation.takes_receive(),
            local: work.operation.is_local(),
            fence: work.fence,
            attempt: if again { context.requester.attempt.max(1) } else { 0 },
        })
    }
}

/// The upper three bits of an opcode name the transport, the others the operation.
pub(super) const fn of_service(service: Service, rc: Opcode) -> Opcode {
    match service {
        Service::Rc => rc,
        Service::Uc => Opcode(rc.0 | Opcode::UC_SEND_FIRST.0),
        Service::Ud | Service::Gsi => Opcode(rc.0 | 0x60),
        Service::XrcInitiator | Service::XrcTarget => Opcode(rc.0 | Opcode::XRC_SEND_FIRST.0),
    }
}

/// The opcode of a reliable connection.
fn opcode(operation: Operation, first: bool, last: bool) -> Opcode {
    match (operation, first, last) {
        (Operation::Send, true, true) => Opcode::RC_SEND_ONLY,
        (Operation::SendImm, true, true) => Opcode::RC_SEND_ONLY_IMM,
        (Operation::SendInv, true, true) => Opcode::RC_SEND_ONLY_INVALIDATE,
        (Operation::SendInv, false, true) => Opcode::RC_SEND_LAST_INVALIDATE,
        (Operation::Send | Operation::SendImm | Operation::SendInv, true, false) => Opcode::RC_SEND_FIRST,
        (Operation::Send | Operation::SendImm | Operation::SendInv, false, false) => Opcode::RC_SEND_MIDDLE,
        (Operation::Send, false, true) => Opcode::RC_SEND_LAST,
        (Operation::SendImm, false, true) => Opcode::RC_SEND_LAST_IMM,
        (Operation::Write, true, true) => Opcode::RC_WRITE_ONLY,
        (Operation::WriteImm, true, true) => Opcode::RC_WRITE_ONLY_IMM,
        (Operation::Write | Operation::WriteImm, true, false) => Opcode::RC_WRITE_FIRST,
        (Operation::Write | Operation::WriteImm, false, false) => Opcode::RC_WRITE_MIDDLE,
        (Operation::Write, false, true) => Opcode::RC_WRITE_LAST,
        (Operation::WriteImm, false, true) => Opcode::RC_WRITE_LAST_IMM,
        // Nothing that leaves.
        (Operation::LocalInv | Operation::RegisterMr | Operation::BindMw, ..) => Opcode::RC_SEND_ONLY,
        (Operation::Read, ..) => Opcode::RC_READ_REQUEST,
        (Operation::CompareSwap, ..) => Opcode::RC_COMPARE_SWAP,
        (Operation::FetchAdd, ..) => Opcode::RC_FETCH_ADD,
        (Operation::AtomicWrite, ..) => Opcode::RC_ATOMIC_WRITE,
        (Operation::Flush, ..) => Opcode::RC_FLUSH,
    }
}
