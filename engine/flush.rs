//! The error state: what fails, what is flushed, in which order.
//!
//! The failing work request completes with its status, then everything behind it with FLUSH_ERR, sends and
//! receives each in their order.

use crate::context::queue_pair::{QpContext, QpState};
use crate::engine::Engine;
use crate::front_end::{Completion, CompletionKind, EventRecord, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;

impl Engine {
    /// Fires a failure that waited until its message is the oldest.
    pub(crate) fn fail_if_oldest(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let Some(failing) = qp.failing else { return };
        let oldest = if failing.begun { qp.replay.len() == 1 } else { qp.replay.is_empty() };
        if oldest {
            qp.failing = None;
            self.fail_oldest(host, qpn, context, failing.status, failing.diagnostic);
        }
    }

    /// The oldest send fails with a status; the queue pair goes to the error state.
    pub(crate) fn fail_oldest(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        status: Status,
        diagnostic: Diagnostic,
    ) {
        let oldest = self.queue_pairs.get_mut(qpn).and_then(|qp| {
            let begun = qp.replay.pop_front().map(|entry| entry.wqe);
            begun.or_else(|| qp.waiting.pop_front())
        });
        self.diagnose(host.now_ns, diagnostic, qpn.0, context.requester.unacked_psn.get().into());
        if let Some(wqe) = oldest {
            self.complete_send(host, qpn, context, wqe, status, Some(diagnostic));
        }
        self.enter_error(host, qpn, context, EventRecord::QpFatal { qpn: qpn.0, diagnostic });
    }

    /// To the error state, with its event and everything flushed.
    pub(crate) fn enter_error(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, event: EventRecord) {
        if context.state == QpState::Err {
            return;
        }
        self.set_error(host, qpn, context);
        self.async_event(host, qpn, event, Cause::Maintenance);
    }

    /// The error state without an event: the driver asked for it.
    pub(crate) fn set_error(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        context.state = QpState::Err;
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.state = QpState::Err;
            qp.quiesce_transmit();
            qp.failing = None;
        }
        self.flush_sends(host, qpn, context);
        self.flush_receives(host, qpn, context);
        // What was rung and not read is read now, to be flushed in its turn.
        self.fetch_work(host, qpn);
        self.schedule(qpn);
    }

    /// Completes everything fetched as flushed, in order.
    pub(crate) fn flush_sends(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        loop {
            let next = self.queue_pairs.get_mut(qpn).and_then(|qp| {
                let begun = qp.replay.pop_front().map(|entry| entry.wqe);
                begun.or_else(|| qp.waiting.pop_front())
            });
            let Some(wqe) = next else { return };
            self.complete_send(host, qpn, context, wqe, Status::Flushed, Some(Diagnostic::Flushed));
        }
    }

    /// Completes every posted receive as flushed. Their work requests need not be read.
    pub(crate) fn flush_receives(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let producer = qp.rq_producer;
        if qp.arrived.is_empty() {
            qp.receive_wqe = None;
        }
        while context.responder.rq_consumer != producer {
            let index = context.responder.rq_consumer;
            context.responder.rq_consumer = index.wrapping_add(1);
            self.receive_completion(host, qpn, context, index, Status::Flushed, Diagnostic::Flushed);
        }
    }

    /// A receive that ends without a message, behind those whose messages have arrived.
    pub(crate) fn receive_completion(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        index: u16,
        status: Status,
        diagnostic: Diagnostic,
    ) {
        let completion = Completion {
            qpn,
            wqe_index: index,
            kind: CompletionKind::Received { immediate: None, by_write: false },
            status,
            length_bytes: 0,
            source_qpn: context.dest_qpn,
            solicited: false,
            diagnostic: Some(diagnostic),
        };
        let cause = Cause::Receive { qpn_or_srqn: qpn.0, index };
        match self.queue_pairs.get_mut(qpn) {
            Some(qp) if !qp.arrived.is_empty() => {
                qp.arrived.push_back(crate::queues::Arrived { completion, cause, waits_for_wqe: false });
            }
            _ => self.complete(host, context.receive_cqn, completion, cause),
        }
    }

    /// A completion of the send queue.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn send_completion(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        index: u16,
        kind: CompletionKind,
        status: Status,
        length_bytes: u32,
        diagnostic: Option<Diagnostic>,
    ) {
        let completion = Completion {
            qpn,
            wqe_index: index,
            kind,
            status,
            length_bytes,
            source_qpn: qpn,
            solicited: false,
            diagnostic,
        };
        let cause = Cause::Send { qpn: qpn.0, index, count: 1, attempt: 0 };
        self.complete(host, context.send_cqn, completion, cause);
    }

    /// A queue pair whose context is lost cannot go on: it leaves the scheduler, and its driver is told.
    pub(crate) fn queue_pair_broken(&mut self, host: &mut Host, qpn: Qpn, stop: Stop) {
        let diagnostic = match stop {
            Stop::Broken(diagnostic) => diagnostic,
            Stop::Blocked | Stop::Refused(_) => Diagnostic::ContextFault,
        };
        self.diagnose(host.now_ns, diagnostic, qpn.0, 0);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.state = QpState::Err;
        qp.quiesce_transmit();
        let frames = qp.inbound.len();
        qp.inbound.clear();
        qp.inbound_blocked = false;
        let unfinished: Vec<_> = qp.drain_work().collect();
        self.parked_frames -= frames;
        for wqe in unfinished {
            self.wqes.remove(wqe);
        }
        self.async_event(host, qpn, EventRecord::QpFatal { qpn: qpn.0, diagnostic }, Cause::Maintenance);
    }
}
