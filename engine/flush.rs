//! The error state: what fails, what is flushed, in which order.
//!
//! The failing work request completes with its status, then everything behind it with FLUSH_ERR, sends and
//! receives each in their order. Nothing here needs the queue pair's context, so that a queue pair whose context
//! is lost ends like any other. A batch is flushed in a step; a timer that is due at once brings the next.

use crate::context::queue_pair::{QpContext, QpState};
use crate::engine::Engine;
use crate::front_end::{Completion, CompletionKind, EventRecord, Status};
use crate::host::Host;
use crate::numbers::{Cqn, Qpn};
use crate::pending::Stop;
use crate::planted::planted;
use crate::queues::Arrived;
use crate::reliability::timer::Timer;
use crate::wqe_pool::WqeId;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;

/// Completions of one queue pair that are flushed in one step.
const BATCH: usize = 256;

impl Engine {
    /// Fires a failure that waited until its message is the oldest.
    pub(crate) fn fail_if_oldest(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let Some(failing) = qp.failing else { return };
        if context.requester.unacked_psn.is_after(failing.psn) {
            // A resend that could not be built was not needed: the peer had the packet.
            qp.failing = None;
            return;
        }
        let oldest = qp.replay.front().map(|entry| entry.wqe).or_else(|| qp.waiting.front().copied());
        if oldest == Some(failing.wqe) {
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
        if let Some(wqe) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.pop_oldest()) {
            self.complete_send(host, qpn, wqe, status, Some(diagnostic));
        }
        if context.service.is_reliable() || planted("failed_send_ends_the_queue_pair") {
            self.enter_error(host, qpn, context, EventRecord::QpFatal { qpn: qpn.0, diagnostic });
        } else {
            self.enter_send_queue_error(host, qpn, context);
        }
    }

    /// SQE: what is behind the failed send is flushed, and nobody else is concerned. The completion tells of it.
    fn enter_send_queue_error(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        context.state = QpState::Sqe;
        qp.state = QpState::Sqe;
        qp.recall_transmit();
        qp.deadlines.stop_all();
        qp.failing = None;
        qp.local_barrier = None;
        // The rest of a message that failed on its way is not sent, nor numbered.
        context.requester.unacked_psn = context.requester.send_psn;
        self.flush(host, qpn);
    }

    /// To the error state, with its event and everything flushed.
    pub(crate) fn enter_error(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, event: EventRecord) {
        context.state = QpState::Err;
        if self.stop_queue_pair(host, qpn) {
            self.async_event(host, event, Cause::Maintenance);
        }
    }

    /// The error state without an event: the driver asked for it. False when it was in it already.
    pub(crate) fn stop_queue_pair(&mut self, host: &mut Host, qpn: Qpn) -> bool {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return false };
        if qp.state == QpState::Err {
            return false;
        }
        qp.state = QpState::Err;
        qp.recall_transmit();
        qp.deadlines.stop_all();
        qp.failing = None;
        if !qp.replies.is_empty() {
            // What is owed would acknowledge requests whose answers never leave.
            qp.owed = None;
            qp.replies.clear();
        }
        qp.local_barrier = None;
        self.forget_ahead(qpn);
        self.flush(host, qpn);
        true
    }

    /// A queue pair whose context is lost cannot go on: its oldest send fails, and its driver is told.
    pub(crate) fn queue_pair_broken(&mut self, host: &mut Host, qpn: Qpn, stop: Stop) {
        let diagnostic = match stop {
            Stop::Broken(diagnostic) => diagnostic,
            Stop::Blocked | Stop::Refused(_) => Diagnostic::ContextFault,
        };
        self.diagnose(host.now_ns, diagnostic, qpn.0, 0);
        self.doom(qpn, diagnostic, Some(Status::General));
    }

    /// To the error state at the end of the step, the oldest send with a status of its own if there is one.
    pub(crate) fn doom(&mut self, qpn: Qpn, diagnostic: Diagnostic, status: Option<Status>) {
        if self.queue_pairs.get(qpn).is_some_and(|qp| !matches!(qp.state, QpState::Err | QpState::Reset)) {
            self.doomed.push((qpn, diagnostic, status));
        }
    }

    pub(crate) fn end_doomed(&mut self, host: &mut Host) {
        while let Some((qpn, diagnostic, status)) = self.doomed.pop() {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            if matches!(qp.state, QpState::Err | QpState::Reset) {
                continue;
            }
            if let Some(status) = status
                && let Some(wqe) = qp.pop_oldest()
            {
                self.complete_send(host, qpn, wqe, status, Some(diagnostic));
            }
            self.stop_queue_pair(host, qpn);
            self.async_event(host, EventRecord::QpFatal { qpn: qpn.0, diagnostic }, Cause::Maintenance);
        }
    }

    /// Completes what is left of a queue pair in the error state as flushed, in order; in SQE of its send queue.
    pub(crate) fn flush(&mut self, host: &mut Host, qpn: Qpn) {
        for _ in 0..BATCH {
            let Some(state) = self.queue_pairs.get(qpn).filter(|qp| !qp.leaving).map(|qp| qp.state) else { return };
            if !matches!(state, QpState::Err | QpState::Sqe) {
                return;
            }
            if !self.flush_send(host, qpn) && (state == QpState::Sqe || !self.flush_receive(host, qpn)) {
                return;
            }
        }
        self.start_timer(qpn, Timer::Flush, host.now_ns.saturating_add(1));
    }

    /// One send; what was rung and not read is read for it. False when there is none, or it has to wait.
    fn flush_send(&mut self, host: &mut Host, qpn: Qpn) -> bool {
        let Some(cqn) = self.queue_pairs.get(qpn).map(|qp| qp.send_cqn) else { return false };
        if self.flush_waits(cqn, qpn) {
            return false;
        }
        let Some(wqe) = self.next_to_flush(host, qpn) else { return false };
        let status = if planted("flushed_as_success") { Status::Success } else { Status::Flushed };
        self.complete_send(host, qpn, wqe, status, Some(Diagnostic::Flushed));
        true
    }

    fn next_to_flush(&mut self, host: &mut Host, qpn: Qpn) -> Option<WqeId> {
        let fetched = self.queue_pairs.get_mut(qpn)?.pop_oldest();
        if fetched.is_some() || !self.fetch_once(host, qpn) {
            return fetched;
        }
        self.queue_pairs.get_mut(qpn)?.pop_oldest()
    }

    /// One receive, behind those whose messages have arrived. Its work request need not be read.
    fn flush_receive(&mut self, host: &mut Host, qpn: Qpn) -> bool {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return false };
        let shared = qp.srqn.is_some();
        if !qp.arrived.is_empty() || !(shared || qp.has_receive()) || planted("receives_not_flushed") {
            return false;
        }
        let (cqn, in_hand) = (qp.receive_cqn, qp.has_receive());
        if self.flush_waits(cqn, qpn) {
            return false;
        }
        if !in_hand {
            self.note_last_wqe(host, qpn);
            return false;
        }
        self.fail_receive(host, qpn, Status::Flushed, Diagnostic::Flushed);
        true
    }

    /// Completions wait before this queue for a read: it calls the queue pair when they are through.
    fn flush_waits(&mut self, cqn: Cqn, qpn: Qpn) -> bool {
        let Some(cq) = self.completion_queues.get_mut(cqn).filter(|cq| cq.blocked) else { return false };
        cq.flushing.insert(qpn);
        true
    }

    /// The receive work request in use, or the next one, ends with this status, behind those whose messages have
    /// arrived.
    pub(crate) fn fail_receive(&mut self, host: &mut Host, qpn: Qpn, status: Status, diagnostic: Diagnostic) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if !qp.has_receive() {
            return;
        }
        let index = qp.consume_receive();
        let completion = Completion {
            qpn,
            srqn: qp.srqn,
            wqe_index: index,
            kind: CompletionKind::Received { immediate: None, invalidated: None, by_write: false },
            status,
            length_bytes: 0,
            source_qpn: Qpn(0),
            datagram: None,
            solicited: false,
            diagnostic: Some(diagnostic),
        };
        let cause = Cause::Receive { qpn_or_srqn: qpn.0, index };
        let cqn = qp.receive_cqn;
        if qp.arrived.is_empty() {
            qp.receive_wqe = None;
            self.complete(host, cqn, completion, cause);
        } else {
            qp.arrived.push_back(Arrived { completion, cqn, cause, waits_for_wqe: false, waits_for_reads: None });
        }
    }
}
