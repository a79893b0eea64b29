//! Acknowledgements, matched by PSN against the replay buffer.
//!
//! In: PSN, syndrome and MSN of an ACK or NAK. Out: entries retired and completed, the timer restarted or
//! disarmed, and for a NAK the way back or the end. Retiring goes by PSN; the MSN has to agree.

use super::replay_buffer::ReplayEntry;
use super::timer::Timer;
use crate::blocks::Block;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{CompletionKind, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use rnic_abi::Diagnostic;
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
        let half = &context.requester;
        let outstanding = psn.compare(half.unacked_psn) >= 0 && psn.compare(half.fresh_psn) < 0;
        if !outstanding {
            self.counters.ghost_acks += 1;
            return;
        }
        match syndrome {
            Syndrome::Ack { .. } => self.advance(host, qpn, context, psn.add(1), msn),
            Syndrome::RnrNak { timer } => {
                self.advance(host, qpn, context, psn, msn);
                self.receiver_not_ready(host, qpn, context, psn, timer);
            }
            Syndrome::Nak { code } => {
                self.advance(host, qpn, context, psn, msn);
                self.refused(host, qpn, context, psn, code);
            }
            // A class that the specification reserves says nothing.
            Syndrome::Reserved(_) => {}
        }
    }

    /// Everything before `next` has arrived.
    fn advance(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, next: Psn, msn: Msn) {
        if next.compare(context.requester.unacked_psn) > 0 {
            context.requester.unacked_psn = next;
            context.requester.retries_left = context.requester.retry_cnt;
            context.requester.rnr_retries_left = context.requester.rnr_retry;
            if context.requester.send_psn.compare(next) < 0 {
                context.requester.send_psn = next;
            }
            if context.requester.send_psn == context.requester.fresh_psn {
                context.requester.attempt = 0;
            }
            self.retire(host, qpn, context, next, msn);
            self.restart_or_disarm(host, qpn, context);
            self.note_drained(host, qpn, context);
            if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                qp.rnr_until_ns = None;
            }
            self.schedule(qpn);
        }
        self.fail_if_oldest(host, qpn, context);
    }

    fn restart_or_disarm(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext) {
        if context.requester.unacked_psn == context.requester.fresh_psn {
            self.stop_retry_timer(host, qpn);
        } else {
            self.start_retry_timer(host, qpn, context);
        }
    }

    /// Retires every message whose last packet is before `next`.
    fn retire(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, next: Psn, msn: Msn) {
        while let Some(entry) = self.retire_one(qpn, next) {
            self.blocks.touch(host.now_ns, Block::ReplayBuffer, qpn.0);
            self.check_msn(host, qpn, &entry, msn);
            self.complete_send(host, qpn, context, entry.wqe, Status::Success, None);
        }
    }

    fn retire_one(&mut self, qpn: Qpn, next: Psn) -> Option<ReplayEntry> {
        let replay = &mut self.queue_pairs.get_mut(qpn)?.replay;
        let done = replay.front()?.last_psn().compare(next) < 0;
        if done { replay.pop_front() } else { None }
    }

    /// The MSN counts completed messages: it must have reached this one. Where it has not, the PSN decides.
    fn check_msn(&mut self, host: &mut Host, qpn: Qpn, entry: &ReplayEntry, msn: Msn) {
        if msn.compare(entry.message) < 0 {
            self.counters.msn_mismatch += 1;
            self.diagnose(host.now_ns, Diagnostic::MsnDisagrees, qpn.0, msn.get().into());
        }
    }

    fn receiver_not_ready(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn, timer: RnrTimer) {
        self.counters.rcvd_rnr_err += 1;
        let half = &mut context.requester;
        if half.rnr_retry != RNR_RETRY_INFINITE {
            if half.rnr_retries_left == 0 {
                self.counters.retry_rnr_exceeded_err += 1;
                return self.fail_oldest(host, qpn, context, Status::RnrRetryExceeded, Diagnostic::RnrRetryExceeded);
            }
            half.rnr_retries_left -= 1;
        }
        let until = host.now_ns.saturating_add(timer.delay_ns());
        self.go_back(qpn, context, psn);
        self.stop_retry_timer(host, qpn);
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.rnr_until_ns = Some(until);
        }
        self.timers.arm(until, Timer::Rnr(qpn));
    }

    fn refused(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn, code: NakCode) {
        let (status, diagnostic) = match code {
            NakCode::PSN_SEQUENCE_ERROR => return self.sequence_refused(host, qpn, context, psn),
            NakCode::INVALID_REQUEST => (Status::RemoteInvalidRequest, Diagnostic::RemoteInvalidRequest),
            NakCode::REMOTE_ACCESS_ERROR => (Status::RemoteAccess, Diagnostic::RemoteAccessError),
            NakCode::REMOTE_OPERATIONAL_ERROR => (Status::RemoteOperation, Diagnostic::RemoteOperationalError),
            // Nothing that a reliable connection knows.
            _ => return,
        };
        self.fail_oldest(host, qpn, context, status, diagnostic);
    }

    fn sequence_refused(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, psn: Psn) {
        self.counters.rcvd_seq_err += 1;
        if context.requester.retries_left == 0 {
            self.counters.retry_exceeded_err += 1;
            return self.fail_oldest(host, qpn, context, Status::RetryExceeded, Diagnostic::RetryExceeded);
        }
        context.requester.retries_left -= 1;
        self.go_back(qpn, context, psn);
        self.start_retry_timer(host, qpn, context);
    }

    /// Completes a send work request that has left the queue.
    pub(crate) fn complete_send(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        wqe: u32,
        status: Status,
        diagnostic: Option<Diagnostic>,
    ) {
        let Some(wqe) = self.wqes.remove(wqe) else { return };
        context.requester.sq_consumer = wqe.slot_index.wrapping_add(wqe.slots);
        let (kind, signaled, length_bytes) = match &wqe.work {
            Ok(work) => (CompletionKind::Sent(work.operation), work.signaled, work.length_bytes),
            Err(_) => (CompletionKind::Unknown, true, 0),
        };
        if status == Status::Success && !signaled && !context.signal_all {
            return;
        }
        self.send_completion(host, qpn, context, wqe.slot_index, kind, status, length_bytes, diagnostic);
    }
}
