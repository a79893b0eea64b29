//! Moderation: an event that is due is held back until there are enough entries, or long enough.
//!
//! In: an armed queue with the entry that it waits for. Out: its event, now or later. A queue has at most one deadline.

use crate::context::completion_queue::CqContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Cqn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use std::collections::BTreeSet;

/// Queues whose events are held back, by deadline.
#[derive(Debug, Default)]
pub(crate) struct Moderated {
    deadlines: BTreeSet<(u64, Cqn)>,
}

impl Moderated {
    pub fn next_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(due_ns, _)| *due_ns)
    }

    pub fn forget(&mut self, cqn: Cqn) {
        if !self.deadlines.is_empty() {
            self.deadlines.retain(|(_, held)| *held != cqn);
        }
    }

    fn pop_due(&mut self, now_ns: u64) -> Option<Cqn> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.deadlines.pop_first().map(|(_, cqn)| cqn)
    }
}

impl Engine {
    /// The event of an armed queue is due.
    pub(crate) fn fire(&mut self, host: &mut Host, cqn: Cqn, context: &mut CqContext, cause: Cause) {
        let Some(cq) = self.completion_queues.get_mut(cqn) else { return };
        let entries = context.producer.wrapping_sub(context.arm.consumer);
        let enough = entries >= context.moderation.count.into() && !planted("moderation_counts_nothing");
        if !context.moderation.is_on() || enough {
            return self.fire_now(host, cqn, context, cause);
        }
        if cq.held_until_ns.is_none() {
            let due_ns = host.now_ns.saturating_add(u64::from(context.moderation.period_us) * 1000);
            cq.held_until_ns = Some(due_ns);
            self.moderated.deadlines.insert((due_ns, cqn));
        }
    }

    /// Another entry has come while an event is held back.
    pub(crate) fn fire_held(&mut self, host: &mut Host, cqn: Cqn, context: &mut CqContext, cause: Cause) {
        if self.completion_queues.get(cqn).is_some_and(|cq| cq.held_until_ns.is_some()) {
            self.fire(host, cqn, context, cause);
        }
    }

    /// What was due has been polled: there is nothing to tell any more.
    pub(crate) fn forget_held(&mut self, cqn: Cqn) {
        if let Some(cq) = self.completion_queues.get_mut(cqn)
            && cq.held_until_ns.take().is_some()
        {
            self.moderated.forget(cqn);
        }
    }

    pub(crate) fn run_moderation(&mut self, host: &mut Host) {
        while let Some(cqn) = self.moderated.pop_due(host.now_ns) {
            self.release_held(host, cqn);
        }
    }

    /// An event that was held back long enough comes as soon as the queue's context is there.
    pub(crate) fn release_held(&mut self, host: &mut Host, cqn: Cqn) {
        let held_until_ns = self.completion_queues.get(cqn).filter(|cq| !cq.blocked).and_then(|cq| cq.held_until_ns);
        if held_until_ns.is_none_or(|due_ns| due_ns > host.now_ns) {
            return;
        }
        match self.load_cq(host, cqn, Cause::Maintenance, Waiter::Completion(cqn)) {
            Ok(mut context) => {
                self.fire_now(host, cqn, &mut context, Cause::Maintenance);
                self.store_cq(host, cqn, context);
            }
            Err(Stop::Blocked) => {}
            Err(_) => self.diagnose(host.now_ns, Diagnostic::ContextFault, cqn.0, 0),
        }
    }
}
