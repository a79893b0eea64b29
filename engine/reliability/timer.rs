//! The table of deadlines: retry timers, RNR waits, rate-limited queues and flushes, all in one place.
//!
//! A deadline that moves later (every acknowledgement moves one) or is stopped costs nothing: the table keeps the
//! earlier entry, and whoever is called too early is put back with the deadline that holds now. A queue pair has
//! at most one entry of each kind.

use crate::blocks::Block;
use crate::context::queue_pair::{QpContext, Requester};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::planted::planted;
use std::collections::BTreeSet;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The oldest unacknowledged packet is overdue.
    Retry,
    /// The peer may have posted receives by now.
    Rnr,
    /// The rate limiter lets the queue pair send again.
    Rate,
    /// More work of a queue pair in the error state is to be flushed.
    Flush,
}

impl Timer {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Rnr => "rnr",
            Self::Rate => "rate",
            Self::Flush => "flush",
        }
    }
}

const KINDS: [Timer; 4] = [Timer::Retry, Timer::Rnr, Timer::Rate, Timer::Flush];

/// When something is due, and where it stands in the table: there or earlier.
#[derive(Clone, Copy, Debug, Default)]
struct Deadline {
    due_ns: Option<u64>,
    entry_ns: Option<u64>,
}

/// The deadlines of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct Deadlines([Deadline; KINDS.len()]);

impl Deadlines {
    pub fn due_ns(&self, timer: Timer) -> Option<u64> {
        self.0[timer as usize].due_ns
    }

    /// What runs, and when it is due.
    pub fn running(&self) -> impl Iterator<Item = (Timer, u64)> {
        KINDS.into_iter().filter_map(|timer| Some((timer, self.due_ns(timer)?)))
    }

    pub fn stop(&mut self, timer: Timer) {
        self.0[timer as usize].due_ns = None;
    }

    pub fn stop_all(&mut self) {
        self.0.iter_mut().for_each(|deadline| deadline.due_ns = None);
    }
}

#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    entries: BTreeSet<(u64, Qpn, Timer)>,
}

impl TimerTable {
    pub fn start(&mut self, deadlines: &mut Deadlines, qpn: Qpn, timer: Timer, due_ns: u64) {
        let deadline = &mut deadlines.0[timer as usize];
        deadline.due_ns = Some(due_ns);
        match deadline.entry_ns {
            Some(entry_ns) if entry_ns <= due_ns => return,
            Some(entry_ns) => {
                self.entries.remove(&(entry_ns, qpn, timer));
            }
            None => {}
        }
        self.entries.insert((due_ns, qpn, timer));
        deadline.entry_ns = Some(due_ns);
    }

    /// Forgets a queue pair.
    pub fn forget(&mut self, deadlines: &mut Deadlines, qpn: Qpn) {
        for timer in KINDS {
            let deadline = std::mem::take(&mut deadlines.0[timer as usize]);
            if let Some(entry_ns) = deadline.entry_ns {
                self.entries.remove(&(entry_ns, qpn, timer));
            }
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.entries.first().map(|(entry_ns, ..)| *entry_ns)
    }

    fn pop_due(&mut self, now_ns: u64) -> Option<(Qpn, Timer)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.entries.pop_first().map(|(_, qpn, timer)| (qpn, timer))
    }
}

/// The local ACK timeout; none for code 0.
pub(crate) fn ack_timeout_ns(requester: &Requester) -> Option<u64> {
    let base_ns = if planted("timeout_base_halved") { 2048 } else { 4096 };
    (requester.timeout > 0 || planted("timeout_0_expires")).then(|| base_ns << requester.timeout)
}

impl Engine {
    pub(crate) fn start_timer(&mut self, qpn: Qpn, timer: Timer, due_ns: u64) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            self.timers.start(&mut qp.deadlines, qpn, timer, due_ns);
        }
    }

    /// Starts the retry timer, or restarts it after progress.
    pub(crate) fn start_retry_timer(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext) {
        let Some(timeout_ns) = ack_timeout_ns(&context.requester) else { return };
        self.blocks.touch(host.now_ns, Block::RetryTimer, qpn.0);
        self.start_timer(qpn, Timer::Retry, host.now_ns.saturating_add(timeout_ns));
    }

    /// Starts the retry timer unless it runs.
    pub(crate) fn ensure_retry_timer(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext) {
        if self.queue_pairs.get(qpn).is_some_and(|qp| qp.deadlines.due_ns(Timer::Retry).is_none()) {
            self.start_retry_timer(host, qpn, context);
        }
    }

    pub(crate) fn stop_retry_timer(&mut self, host: &mut Host, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.deadlines.stop(Timer::Retry);
            self.blocks.touch(host.now_ns, Block::RetryTimer, qpn.0);
        }
    }

    pub(crate) fn run_timers(&mut self, host: &mut Host) {
        while let Some((qpn, timer)) = self.timers.pop_due(host.now_ns) {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            let deadline = &mut qp.deadlines.0[timer as usize];
            deadline.entry_ns = None;
            match deadline.due_ns {
                None => {}
                Some(due_ns) if due_ns > host.now_ns => self.timers.start(&mut qp.deadlines, qpn, timer, due_ns),
                Some(_) => {
                    deadline.due_ns = None;
                    self.timer_due(host, qpn, timer);
                }
            }
        }
    }

    fn timer_due(&mut self, host: &mut Host, qpn: Qpn, timer: Timer) {
        match timer {
            Timer::Retry => {
                self.counters.local_ack_timeout_err += 1;
                self.retry_timer_expired(host, qpn);
            }
            Timer::Rnr => self.schedule(qpn),
            Timer::Rate => {
                self.schedule(qpn);
                self.queue_reply(qpn);
            }
            Timer::Flush => self.flush(host, qpn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_has_one_entry_of_a_kind_whatever_is_started_and_stopped() {
        let (mut table, mut deadlines) = (TimerTable::default(), Deadlines::default());
        for step in 0..1000u64 {
            table.start(&mut deadlines, Qpn(1), Timer::Retry, 10_000 + step);
            deadlines.stop(Timer::Retry);
            table.start(&mut deadlines, Qpn(1), Timer::Retry, 9_000 - step);
        }
        assert_eq!((table.entries.len(), table.next_ns()), (1, Some(8_001)));
        table.forget(&mut deadlines, Qpn(1));
        assert_eq!((table.entries.len(), deadlines.due_ns(Timer::Retry)), (0, None));
    }
}
