//! Queue pairs: create, query, destroy.

use super::objects::exists;
use super::tables::{Extent, has_entry, usable};
use super::{Halt, Progress, halt, missing};
use crate::context::queue_pair::{QpContext, Service};
use crate::context::rd_atomic::RdAtomicContext;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::{NewQp, QpChange};
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::numbers::{Cqn, Qpn, Srqn};
use crate::pending::Waiter;
use crate::queues::{AtomicRead, QueuePair, Ring, TransmitState};
use rnic_abi::command::{GSI_QPN, MULTICAST_QPN};
use rnic_abi::{CommandStatus, Diagnostic, limits};
use rnic_pcie::Cause;

impl Engine {
    pub(super) fn create_qp(
        &mut self,
        host: &mut Host,
        new: &NewQp,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let number = new.qpn.0;
        // 0 and 1 are the management datagrams' by specification, and the last number is the multicast groups'.
        let in_range = (GSI_QPN..MULTICAST_QPN).contains(&number)
            && (number == GSI_QPN) == (new.service == Service::Gsi)
            && new.log_sq_slots <= limits::MAX_LOG_SQ_SLOTS
            && new.log_rq_entries <= limits::MAX_LOG_RQ_ENTRIES;
        if !in_range {
            return Err(CommandError::range(number).into());
        }
        has_entry(&self.contexts.queue_pair_table, number)?;
        if self.queue_pairs.get(new.qpn).is_some() {
            return Err(exists(number));
        }
        self.check_doorbell_page(new.doorbell_page)?;
        self.check_queues(new)?;
        let slot_bytes = self.front_end.send_slot_bytes() as u16;
        let sq = Ring { pages: new.sq_pages, log_entries: new.log_sq_slots, entry_bytes: slot_bytes };
        let rq = Ring { pages: new.rq_pages, log_entries: new.log_rq_entries, entry_bytes: new.rq_stride_bytes };
        if new.service.has_send_queue() {
            usable(&sq.pages, sq.bytes(), slot_bytes.into(), number)?;
        }
        if new.srqn.is_none() && new.service.has_receive_queue() {
            usable(&rq.pages, rq.bytes(), new.rq_stride_bytes.into(), number)?;
        }
        let extents = [
            Extent { owner: Owner::SendQueue(number), pages: sq.pages, bytes: sq.bytes() },
            Extent { owner: Owner::ReceiveQueue(number), pages: rq.pages, bytes: rq.bytes() },
        ];
        self.warm(host, &extents, cause, progress)?;
        self.store_qp(host, new.qpn, QpContext::new(new.service, new.pdn, self.config.port_mtu_bytes));
        self.serials = self.serials.wrapping_add(1);
        let qp = QueuePair { serial: self.serials, ..QueuePair::new(new, sq, rq) };
        self.queue_pairs.insert(new.qpn, qp);
        self.forget_rd_atomic(host, new.qpn);
        self.count_users(new.send_cqn, new.receive_cqn, true);
        self.count_srq_user(new.srqn, true);
        Ok(Answer::Done)
    }

    /// The queues that it is to use exist, and are such as it can use.
    fn check_queues(&self, new: &NewQp) -> Result<(), Halt> {
        let used = [(new.service.has_send_queue(), new.send_cqn), (new.service.has_receive_queue(), new.receive_cqn)];
        for (_, cqn) in used.into_iter().filter(|(used, _)| *used) {
            if self.completion_queues.get(cqn).is_none() {
                return Err(missing(cqn.0));
            }
        }
        let Some(srqn) = new.srqn else { return Ok(()) };
        let srq = self.shared_receive_queues.get(srqn).ok_or_else(|| missing(srqn.0))?;
        if srq.xrc.is_some() {
            let status = CommandStatus::BAD_PARAMETER;
            return Err(CommandError::new(status, Diagnostic::XrcQueue, srqn.0).into());
        }
        Ok(())
    }

    /// Nothing is remembered of READs and atomics, if there is memory to remember them in.
    pub(super) fn forget_rd_atomic(&mut self, host: &mut Host, qpn: Qpn) {
        let reliable = self.queue_pairs.get(qpn).is_some_and(|qp| qp.service.is_reliable());
        if reliable && self.remembers_rd_atomic(qpn) {
            self.store_rd_atomic(host, qpn, RdAtomicContext::default());
        }
    }

    fn count_users(&mut self, send: Cqn, receive: Cqn, more: bool) {
        self.count_cq_user(send, more);
        self.count_cq_user(receive, more);
    }

    /// A queue pair, or an XRC shared receive queue, completes there, or no more.
    pub(super) fn count_cq_user(&mut self, cqn: Cqn, more: bool) {
        if let Some(cq) = self.completion_queues.get_mut(cqn) {
            cq.users = if more { cq.users + 1 } else { cq.users.saturating_sub(1) };
        }
    }

    fn count_srq_user(&mut self, srqn: Option<Srqn>, more: bool) {
        if let Some(srq) = srqn.and_then(|srqn| self.shared_receive_queues.get_mut(srqn)) {
            srq.queue_pairs = if more { srq.queue_pairs + 1 } else { srq.queue_pairs.saturating_sub(1) };
        }
    }

    pub(super) fn query_qp(&mut self, host: &mut Host, qpn: Qpn, cause: Cause) -> Result<Answer, Halt> {
        if self.queue_pairs.get(qpn).is_none() {
            return Err(missing(qpn.0));
        }
        let context = self.load_qp(host, qpn, cause, Waiter::Command).map_err(|stop| halt(stop, qpn.0))?;
        let (requester, responder) = (&context.requester, &context.responder);
        let attributes = QpChange {
            qpn,
            mask: u32::MAX,
            state: Some(context.state),
            current_state: Some(context.state),
            path_mtu: context.path_mtu,
            port: 1,
            access: context.access,
            pkey_index: context.pkey_index,
            max_rd_atomic: requester.max_rd_atomic,
            max_dest_rd_atomic: responder.max_dest_rd_atomic,
            min_rnr_timer: responder.min_rnr_timer,
            timeout: requester.timeout,
            retry_cnt: requester.retry_cnt,
            rnr_retry: requester.rnr_retry,
            rq_psn: responder.expected_psn.get(),
            sq_psn: requester.send_psn.get(),
            dest_qpn: context.dest_qpn.0,
            qkey: context.qkey,
            av: context.av,
            sqd_notify: false,
        };
        let Some(qp) = self.queue_pairs.get(qpn) else { return Err(missing(qpn.0)) };
        Ok(Answer::QueuePair { attributes, sq_consumer: qp.sq_consumer, rq_consumer: qp.rq_consumer })
    }

    /// Nothing of the queue pair is begun any more; when the last read on its behalf is home, it is gone.
    pub(super) fn destroy_qp(&mut self, qpn: Qpn) -> Result<Answer, Halt> {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Err(missing(qpn.0)) };
        qp.leaving = true;
        self.drop_work(qpn);
        if self.pending.reads_of(qpn) || self.completions_wait(qpn) {
            return Err(Halt::Blocked);
        }
        let Some(qp) = self.queue_pairs.remove(qpn) else { return Err(missing(qpn.0)) };
        // An XRC target is no user of the queues that its requests named.
        if qp.xrc_domain.is_none() {
            self.count_users(qp.send_cqn, qp.receive_cqn, false);
            self.count_srq_user(qp.srqn, false);
        }
        self.multicast.detach_everywhere(qpn);
        self.contexts.queue_pairs.remove(qpn.0);
        self.contexts.rd_atomic.remove(qpn.0);
        self.contexts.forget_lines(Owner::SendQueue(qpn.0));
        self.contexts.forget_lines(Owner::ReceiveQueue(qpn.0));
        self.rate_limits.forget(qpn);
        Ok(Answer::Done)
    }

    /// Completions of the queue pair wait before a completion queue for a read: its number may be another one's when they
    /// are written.
    pub(super) fn completions_wait(&self, qpn: Qpn) -> bool {
        self.waiting_completions > 0
            && self.completion_queues.iter().any(|(_, cq)| cq.waiting.iter().any(|(waits, _)| waits.qpn == qpn))
    }

    /// Forgets all work of a queue pair, without completions, and takes it off every list.
    pub(super) fn drop_work(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        self.timers.forget(&mut qp.deadlines, qpn);
        qp.recall_transmit();
        (qp.transmit, qp.gathered, qp.failing) = (TransmitState::Idle, None, None);
        (qp.owed, qp.owed_queued, qp.sq_starved, qp.sqd_notify) = (None, false, false, false);
        (qp.cnp_due, qp.next_cnp_ns) = (false, 0);
        self.parked_frames -= qp.inbound.len();
        qp.inbound.clear();
        qp.inbound_blocked = false;
        (qp.receive_plan, qp.receive_wqe) = (None, None);
        self.forget_ahead(qpn);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.replies.clear();
        qp.local_barrier = None;
        (qp.replies.turn, qp.atomic) = (TransmitState::Idle, AtomicRead::Idle);
        self.return_receives(qpn);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.arrived.clear();
        while let Some(wqe) = qp.pop_oldest() {
            self.wqes.remove(wqe);
        }
        self.atomic_locks.forget(qpn);
        self.pending.forget_faults_of(qpn);
        self.contexts.in_hand.forget_queue_pair(qpn);
        let lists =
            [&mut self.ready, &mut self.responses, &mut self.staged, &mut self.replying, &mut self.wqes.starved];
        self.invalidating.retain(|listed| *listed != qpn);
        for list in lists {
            list.retain(|listed| *listed != qpn);
        }
    }
}
