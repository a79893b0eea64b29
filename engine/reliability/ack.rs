//! Acknowledgements, matched by PSN against the replay buffer.
//!
//! In: PSN, syndrome and MSN of an ACK or NAK. Out: entries retired and completed, the timer restarted or
//! disarmed, and for a NAK the way back or the end. Retiring goes by PSN; the MSN has to agree.

use super::replay_buffer::ReplayEntry;
use super::selective::{FIRST_GAP, FURTHER_GAP};
use super::timer::Timer;
use crate::blocks::Block;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Completion, CompletionKind, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::planted::planted;
use crate::wqe_pool::WqeId;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::{Msn, NakCode, Psn, RnrTimer, Syndrome};

/// `rnr_retry` 7 means without end.
const RNR_RETRY_INFINITE: u8 = 7;

impl Engine {
    pub(crate) fn acknowledged(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        syndrome: Syndrome,
        msn: Msn,
    ) {
        if !self.is_outstanding(context, psn) && !planted("ghost_acknowledgements_count") {
            self.counters.ghost_acks += 1;
            return;
        }
        if matches!(syndrome, FIRST_GAP | FURTHER_GAP) && self.is_selective(qpn) {
            return self.gap_reported(host, qpn, context, psn, syndrome, msn);
        }
        if msn.is_after(context.requester.message_count) {
            self.msn_disagrees(host, qpn, msn);
        }
        let whole = matches!(syndrome, Syndrome::Ack { .. }) && !planted("acknowledgement_short_by_one");
        let next = if whole { psn.next() } else { psn };
        let awaited = self.awaited_psn(qpn, context).filter(|_| !planted("passed_over_reads_complete"));
        if let Some(awaited) = awaited.filter(|awaited| next.is_after(*awaited)) {
            if !matches!(syndrome, Syndrome::Reserved(_)) {
                self.advance(host, qpn, context, awaited, msn);
                self.passed_over(host, qpn, context, awaited);
                if whole {
                    self.keep_acknowledgement(qpn, next, msn);
                }
            }
            return;
        }
        match syndrome {
            Syndrome::Ack { .. }
                if planted("acknowledgement_of_one_packet_only") && next != context.requester.unacked_psn.next() => {}
            Syndrome::Ack { .. } => {
                context.note_credits(syndrome);
                self.advance(host, qpn, context, next, msn);
            }
            Syndrome::RnrNak { timer } => {
                self.advance(host, qpn, context, psn, msn);
                self.receiver_not_ready(host, qpn, context, psn, timer);
            }
            Syndrome::Nak { code } => {
                if !planted("nak_acknowledges_nothing") {
                    let through = if planted("nak_acknowledges_its_own_packet") { psn.next() } else { psn };
                    self.advance(host, qpn, context, through, msn);
                }
                self.refused(host, qpn, context, psn, code);
            }
            // A class that the specification reserves says nothing.
            Syndrome::Reserved(_) => {}
        }
    }

    /// It answers something that has left and is not acknowledged.
    pub(crate) fn is_outstanding(&self, context: &QpContext, psn: Psn) -> bool {
        let half = &context.requester;
        !psn.is_before(half.unacked_psn) && psn.is_before(half.fresh_psn)
    }

    /// Everything before `next` has arrived.
    pub(crate) fn advance(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, next: Psn, msn: Msn) {
        if next.compare(context.requester.unacked_psn) > 0 {
            context.requester.unacked_psn = next;
            context.requester.response_gap = false;
            if !planted("retries_not_reloaded") {
                context.requester.retries_left = context.requester.retry_cnt;
                context.requester.rnr_retries_left = context.requester.rnr_retry;
            }
            if context.requester.send_psn.is_before(next) {
                // What was to be sent again has arrived.
                self.recall(qpn);
                context.requester.send_psn = self.first_to_send(qpn, context, next);
            }
            if context.requester.send_psn == context.requester.fresh_psn {
                context.requester.attempt = 0;
            }
            self.retire(host, qpn, next, msn);
            self.restart_or_disarm(host, qpn, context);
            self.note_drained(host, qpn);
            if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                qp.deadlines.stop(Timer::Rnr);
            }
            self.schedule(qpn);
        }
        self.fail_if_oldest(host, qpn, context);
    }

    fn recall(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.recall_transmit();
        }
    }

    /// The peer's receiver was not ready, and the time it asked for is not over.
    pub(crate) fn waits_for_receiver(&self, qpn: Qpn) -> bool {
        self.queue_pairs.get(qpn).is_some_and(|qp| qp.deadlines.due_ns(Timer::Rnr).is_some())
    }

    fn restart_or_disarm(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext) {
        if context.requester.unacked_psn == context.requester.fresh_psn {
            if !planted("timer_runs_when_idle") {
                self.stop_retry_timer(host, qpn);
            }
        } else {
            self.start_retry_timer(host, qpn, context);
        }
    }

    /// Retires every message whose last packet is before `next`.
    pub(crate) fn retire(&mut self, host: &mut Host, qpn: Qpn, next: Psn, msn: Msn) {
        while let Some(entry) = self.retire_one(qpn, next) {
            self.blocks.touch(host.now_ns, Block::ReplayBuffer, qpn.0);
            // The MSN counts completed messages: it must have reached this one.
            if msn.is_before(entry.message) {
                self.msn_disagrees(host, qpn, msn);
            }
            self.complete_send(host, qpn, entry.wqe, Status::Success, None);
        }
    }

    fn retire_one(&mut self, qpn: Qpn, next: Psn) -> Option<ReplayEntry> {
        let replay = &mut self.queue_pairs.get_mut(qpn)?.replay;
        let done = replay.front()?.last_psn().is_before(next);
        if done { replay.pop_front() } else { None }
    }

    /// Where the MSN and the PSN disagree the PSN decides.
    fn msn_disagrees(&mut self, host: &mut Host, qpn: Qpn, msn: Msn) {
        self.counters.msn_mismatch += 1;
        self.diagnose(host.now_ns, Diagnostic::MsnDisagrees, qpn.0, msn.get().into());
    }

    fn receiver_not_ready(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn, timer: RnrTimer) {
        self.counters.rcvd_rnr_err += 1;
        if self.waits_for_receiver(qpn) {
            return;
        }
        let half = &mut context.requester;
        if half.rnr_retry != RNR_RETRY_INFINITE || planted("rnr_retry_7_is_finite") {
            if half.rnr_retries_left == 0 {
                self.counters.retry_rnr_exceeded_err += 1;
                self.diagnose(host.now_ns, Diagnostic::RnrRetryExceeded, qpn.0, psn.get().into());
                return self.fail_oldest(host, qpn, context, Status::RnrRetryExceeded, Diagnostic::RnrRetryExceeded);
            }
            half.rnr_retries_left -= u8::from(!planted("rnr_retries_uncounted"));
        }
        let delay_ns = if planted("receiver_not_awaited") { 1 } else { timer.delay_ns() };
        let until = host.now_ns.saturating_add(delay_ns);
        self.go_back(qpn, context, psn);
        self.stop_retry_timer(host, qpn);
        self.start_timer(qpn, Timer::Rnr, until);
    }

    fn refused(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn, code: NakCode) {
        let (status, diagnostic) = match code {
            NakCode::PSN_SEQUENCE_ERROR => return self.sequence_refused(host, qpn, context, psn),
            NakCode::INVALID_REQUEST => (Status::RemoteInvalidRequest, Diagnostic::RemoteInvalidRequest),
            NakCode::REMOTE_ACCESS_ERROR if planted("access_error_as_operation_error") => {
                (Status::RemoteOperation, Diagnostic::RemoteAccessError)
            }
            NakCode::REMOTE_ACCESS_ERROR => (Status::RemoteAccess, Diagnostic::RemoteAccessError),
            NakCode::REMOTE_OPERATIONAL_ERROR => (Status::RemoteOperation, Diagnostic::RemoteOperationalError),
            // Nothing that a reliable connection knows.
            _ => return,
        };
        self.diagnose(host.now_ns, diagnostic, qpn.0, psn.get().into());
        self.fail_oldest(host, qpn, context, status, diagnostic);
    }

    fn sequence_refused(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn) {
        self.counters.rcvd_seq_err += 1;
        if self.waits_for_receiver(qpn) {
            return;
        }
        if context.requester.retries_left == 0 {
            return self.retries_exceeded(host, qpn, context);
        }
        context.requester.retries_left -= u8::from(!planted("sequence_naks_uncounted"));
        // Whoever says so keeps nothing of what is behind.
        self.send_all_again(qpn, context, psn);
        self.go_back(qpn, context, psn);
        self.start_retry_timer(host, qpn, context);
    }

    /// Completes a send work request that has left the queue: in silence, or with an entry.
    pub(crate) fn complete_send(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        wqe: WqeId,
        status: Status,
        diagnostic: Option<Diagnostic>,
    ) {
        let Some(wqe) = self.wqes.remove(wqe) else { return };
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.sq_consumer = wqe.slot_index.wrapping_add(wqe.slots);
        self.counters.finished_sends += 1;
        let (kind, signaled, length_bytes) = match &wqe.work {
            Ok(work) => (CompletionKind::Sent(work.operation), work.signaled, work.length_bytes),
            Err(_) => (CompletionKind::Unknown, true, 0),
        };
        if status == Status::Success && !signaled && !qp.signal_all && !planted("unsignaled_requests_complete") {
            return;
        }
        if status != Status::Success && !signaled && planted("unsignaled_failures_in_silence") {
            return;
        }
        let completion = Completion {
            qpn,
            srqn: None,
            wqe_index: wqe.slot_index,
            kind,
            status,
            length_bytes,
            source_qpn: qpn,
            datagram: None,
            solicited: false,
            diagnostic,
        };
        let cqn = qp.send_cqn;
        let cause = Cause::Send { qpn: qpn.0, index: wqe.slot_index, count: 1, attempt: 0 };
        self.complete(host, cqn, completion, cause);
    }
}
