//! The read reply: a READ is accepted whole, remembered, and left with the queue pair; the transmit side reads the bytes
//! when the port has room for them.

use super::fault::Fault;
use crate::context::queue_pair::QpContext;
use crate::context::rd_atomic::{Answered, AnsweredRead, RdAtomicContext};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::{Key, Qpn};
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::reliability::reply::{ReadReply, Reply};
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::Psn;

/// A READ whose key allows its whole range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedRead {
    pub address: u64,
    pub rkey: Key,
    pub length_bytes: u32,
}

impl Engine {
    /// What is remembered of the peer's READs and atomics, if it may have one more outstanding.
    pub(crate) fn rd_atomic_resource(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        psn: Psn,
    ) -> Result<Result<RdAtomicContext, Fault>, Stop> {
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        let outstanding = self.queue_pairs.get(qpn).map_or(0, |qp| qp.replies.fresh());
        if outstanding >= usize::from(context.responder.max_dest_rd_atomic) && !planted("more_reads_than_agreed") {
            return Ok(Err(Fault::InvalidRequest(Diagnostic::RdAtomicLimit)));
        }
        match self.load_rd_atomic(host, qpn, cause, Waiter::Inbound(qpn)) {
            Ok(remembered) => Ok(Ok(remembered)),
            Err(Stop::Blocked) => Err(Stop::Blocked),
            Err(Stop::Broken(Diagnostic::TableMissing)) => Ok(Err(Fault::InvalidRequest(Diagnostic::TableMissing))),
            Err(Stop::Broken(diagnostic)) => Ok(Err(Fault::LocalOperation(diagnostic))),
            Err(Stop::Refused(_)) => Ok(Err(Fault::LocalOperation(Diagnostic::ContextFault))),
        }
    }

    /// The READ counts as a message from here on; it takes a PSN for each of its responses.
    pub(crate) fn accept_read(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        read: &AcceptedRead,
        psn: Psn,
        mut remembered: RdAtomicContext,
    ) {
        self.counters.rx_read_requests += 1;
        self.counters.executed_messages += 1;
        let AcceptedRead { address, rkey, length_bytes } = *read;
        let packets = context.packets_of(length_bytes);
        let answered = AnsweredRead { first_psn: psn, address, rkey, length_bytes };
        remembered.remember(Answered::Read(answered), context.responder.max_dest_rd_atomic);
        self.store_rd_atomic(host, qpn, remembered);
        context.responder.message_arrived(packets);
        let reply = ReadReply::new(psn, packets, address, length_bytes, rkey, context.pdn, context.responder.msn);
        self.reply(host, qpn, Reply::Read(reply));
    }

    /// Leaves an answer with the queue pair. It acknowledges whatever was owed before it.
    pub(crate) fn reply(&mut self, host: &mut Host, qpn: Qpn, reply: Reply) {
        self.note_response_generation(host, qpn);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.owed = None;
        qp.replies.push(reply);
        self.queue_reply(qpn);
    }

    /// A READ whose answer cannot go on: the peer is refused at the packet that it misses.
    pub(crate) fn reply_refused(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn, stop: Stop) {
        let fault = match stop {
            Stop::Refused(refusal) => Fault::RemoteAccess(self.remote_refusal(refusal)),
            Stop::Broken(diagnostic) => Fault::LocalOperation(diagnostic),
            Stop::Blocked => return,
        };
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.replies.clear();
        }
        self.responder_fault(host, qpn, context, psn, fault, false);
        self.store_qp(host, qpn, *context);
    }
}
