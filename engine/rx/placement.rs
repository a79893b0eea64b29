//! ATOMIC_WRITE and FLUSH: what is placed at once, and what is made sure to be placed. Both are done once, remembered in
//! the place of a READ, and answered by a READ response that holds nothing.
//!
//! In: an authorized arrival. Out: the write of a word, or a read that pushes every earlier write before it; the answer.

use super::atomic_reply::BYTES;
use super::fault::Fault;
use super::key_check::Authorized;
use crate::context::queue_pair::QpContext;
use crate::context::rd_atomic::{Answered, RdAtomicContext};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::{Key, Pdn, Qpn};
use crate::pending::Stop;
use crate::planted::planted;
use crate::reliability::reply::{Again, ReadReply, Reply};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin};
use rnic_wire::{Msn, Psn};

const NO_ANSWER: Fault = Fault::LocalOperation(Diagnostic::PayloadFault);

impl Engine {
    /// Blocked means that an atomic has the word: the packet runs again when that has written it.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn execute_atomic_write(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        bytes: [u8; BYTES],
        psn: Psn,
        authorized: &Authorized,
        remembered: RdAtomicContext,
    ) -> Result<Result<(), Fault>, Stop> {
        let ranges = &authorized.0.ranges;
        if !self.atomic_locks.take(qpn, ranges) {
            return Err(Stop::Blocked);
        }
        let origin = Origin::new(Class::AtomicWrite, Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 });
        let written = host.port.write(origin, ranges, &bytes);
        self.atomic_locks.release(qpn);
        if written.is_err() {
            return Ok(Err(NO_ANSWER));
        }
        self.counters.rx_atomic_writes += 1;
        self.placed(host, qpn, context, psn, remembered);
        Ok(Ok(()))
    }

    /// Writes are posted: a read behind them comes back when they are in host memory, which is all that this device can
    /// know of its persistence as well. Blocked means that the read is on its way.
    pub(crate) fn execute_flush(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        authorized: &Authorized,
        remembered: RdAtomicContext,
    ) -> Result<Result<(), Fault>, Stop> {
        let ranges = &authorized.0.ranges;
        let origin = Origin::new(Class::FlushRead, Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 });
        let nothing = ranges.is_empty() || planted("flush_reads_nothing_back");
        if !nothing && self.read_word(host, qpn, ranges, origin)?.is_none() {
            return Ok(Err(NO_ANSWER));
        }
        self.counters.rx_flushes += 1;
        self.placed(host, qpn, context, psn, remembered);
        Ok(Ok(()))
    }

    fn placed(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        mut remembered: RdAtomicContext,
    ) {
        self.counters.executed_messages += 1;
        remembered.remember(Answered::Placed { psn }, context.responder.max_dest_rd_atomic);
        self.store_rd_atomic(host, qpn, remembered);
        context.responder.message_arrived(1);
        self.reply(host, qpn, Reply::Read(empty_answer(psn, context.responder.msn)));
    }

    /// A duplicate is answered again, and not executed again.
    pub(super) fn placed_again(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        psn: Psn,
    ) -> Result<bool, Stop> {
        let Some(remembered) = self.remembered(host, qpn, psn)? else { return Ok(false) };
        let Some(qp) = self.queue_pairs.get_mut(qpn).filter(|_| remembered.placed_at(psn)) else { return Ok(false) };
        let again = qp.replies.read_again(empty_answer(psn, context.responder.msn), context.path_mtu_bytes());
        self.queue_reply(qpn);
        Ok(again != Again::Refused)
    }
}

fn empty_answer(psn: Psn, msn: Msn) -> ReadReply {
    ReadReply::new(psn, 1, 0, 0, Key(0), Pdn(0), msn)
}
