//! The table of deadlines: retry timers, RNR waits and rate-limited queues, all in one place.
//!
//! A deadline that moves later (every acknowledgement moves one) costs nothing: the table keeps the earlier entry,
//! and whoever is called too early is put back with the deadline that holds now.

use crate::blocks::Block;
use crate::context::queue_pair::{QpContext, Requester};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The oldest unacknowledged packet is overdue.
    Retry(Qpn),
    /// The peer may have posted receives by now.
    Rnr(Qpn),
    /// The rate limiter lets the queue pair send again.
    Rate(Qpn),
}

#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    deadlines: BinaryHeap<Reverse<(u64, Timer)>>,
}

impl TimerTable {
    pub fn arm(&mut self, deadline_ns: u64, timer: Timer) {
        self.deadlines.push(Reverse((deadline_ns, timer)));
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    pub fn pop_due(&mut self, now_ns: u64) -> Option<Timer> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.deadlines.pop().map(|Reverse((_, timer))| timer)
    }
}

/// The local ACK timeout; none for code 0.
pub(crate) fn ack_timeout_ns(requester: &Requester) -> Option<u64> {
    (requester.timeout > 0).then(|| 4096 << requester.timeout)
}

impl Engine {
    /// Starts the retry timer, or restarts it after progress.
    pub(crate) fn start_retry_timer(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext) {
        let Some(timeout) = ack_timeout_ns(&context.requester) else { return };
        let deadline = host.now_ns.saturating_add(timeout);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let was = qp.retry_deadline_ns.replace(deadline);
        self.blocks.touch(host.now_ns, Block::RetryTimer, qpn.0);
        if was.is_none() {
            self.timers.arm(deadline, Timer::Retry(qpn));
        }
    }

    /// Starts the retry timer unless it runs.
    pub(crate) fn ensure_retry_timer(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext) {
        if self.queue_pairs.get(qpn).is_some_and(|qp| qp.retry_deadline_ns.is_none()) {
            self.start_retry_timer(host, qpn, context);
        }
    }

    pub(crate) fn stop_retry_timer(&mut self, host: &mut Host, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.retry_deadline_ns = None;
            self.blocks.touch(host.now_ns, Block::RetryTimer, qpn.0);
        }
    }

    pub(crate) fn run_timers(&mut self, host: &mut Host) {
        while let Some(timer) = self.timers.pop_due(host.now_ns) {
            match timer {
                Timer::Retry(qpn) => self.retry_timer_due(host, qpn),
                Timer::Rnr(qpn) => self.rnr_timer_due(host, qpn),
                Timer::Rate(qpn) => self.schedule(qpn),
            }
        }
    }

    fn retry_timer_due(&mut self, host: &mut Host, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        match qp.retry_deadline_ns {
            None => {}
            Some(deadline) if deadline > host.now_ns => self.timers.arm(deadline, Timer::Retry(qpn)),
            Some(_) => {
                qp.retry_deadline_ns = None;
                self.counters.local_ack_timeout_err += 1;
                self.retry_timer_expired(host, qpn);
            }
        }
    }

    fn rnr_timer_due(&mut self, host: &mut Host, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        match qp.rnr_until_ns {
            None => {}
            Some(until) if until > host.now_ns => self.timers.arm(until, Timer::Rnr(qpn)),
            Some(_) => {
                qp.rnr_until_ns = None;
                self.schedule(qpn);
            }
        }
    }
}
