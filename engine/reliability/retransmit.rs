//! Going back: to the oldest unacknowledged packet after a timeout, to the packet that a NAK names.

use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::Status;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::reliability::timer::Timer;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::Psn;

impl Engine {
    /// The retry timer has expired: send the oldest unacknowledged packet again, or give up.
    pub(crate) fn retry_timer_expired(&mut self, host: &mut Host, qpn: Qpn) {
        let mut context = match self.load_qp(host, qpn, Cause::Maintenance, Waiter::Timeout(qpn)) {
            Ok(context) => context,
            Err(Stop::Blocked) => return,
            Err(stop) => return self.queue_pair_broken(host, qpn, stop),
        };
        if self.queue_pairs.get(qpn).is_some_and(|qp| qp.deadlines.due_ns(Timer::Retry).is_some()) {
            // An acknowledgement came while the context was being fetched.
            return;
        }
        let outstanding = context.requester.unacked_psn != context.requester.fresh_psn;
        if !context.state.requests_outstanding() || !outstanding {
            return;
        }
        if context.requester.retries_left == 0
            && !(planted("retry_cnt_7_is_infinite") && context.requester.retry_cnt == 7)
        {
            self.retries_exceeded(host, qpn, &mut context);
        } else {
            context.requester.retries_left =
                context.requester.retries_left.saturating_sub(u8::from(!planted("timeouts_uncounted")));
            context.requester.response_gap = false;
            let unacked = context.requester.unacked_psn;
            let from = if planted("timeout_skips_the_oldest") { unacked.next() } else { unacked };
            self.probe(qpn, &context);
            self.go_back(qpn, &mut context, from);
            self.start_retry_timer(host, qpn, &context);
        }
        self.store_qp(host, qpn, context);
    }

    pub(crate) fn retries_exceeded(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        self.counters.retry_exceeded_err += 1;
        self.diagnose(host.now_ns, Diagnostic::RetryExceeded, qpn.0, context.requester.unacked_psn.get().into());
        self.fail_oldest(host, qpn, context, Status::RetryExceeded, Diagnostic::RetryExceeded);
    }

    /// The next packet to leave is `psn` again, and everything after it; selectively, what is after it and missing.
    pub(crate) fn go_back(&mut self, qpn: Qpn, context: &mut QpContext, psn: Psn) {
        context.requester.attempt = context.requester.attempt.saturating_add(1);
        context.requester.send_psn = psn;
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.recall_transmit();
            if let Some(selective) = qp.selective.as_mut() {
                context.requester.send_psn = selective.begin_with(psn);
            }
        }
        self.schedule(qpn);
    }
}
