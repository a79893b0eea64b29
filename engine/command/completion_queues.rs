//! Changes of completion queues: moderation of their events, and another ring under traffic.

use super::objects::busy;
use super::tables::usable;
use super::{Halt, Progress, halt, missing};
use crate::context::completion_queue::Moderation;
use crate::context::page_list::PageList;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::numbers::Cqn;
use crate::pending::Waiter;
use crate::planted::planted;
use rnic_abi::limits;
use rnic_pcie::Cause;

impl Engine {
    /// An event that is held back comes with the command.
    pub(super) fn modify_cq(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        moderation: Moderation,
        cause: Cause,
    ) -> Result<Answer, Halt> {
        if self.completion_queues.get(cqn).is_none() {
            return Err(missing(cqn.0));
        }
        let mut context = self.load_cq(host, cqn, cause, Waiter::Command).map_err(|stop| halt(stop, cqn.0))?;
        context.moderation = moderation;
        if self.completion_queues.get(cqn).is_some_and(|cq| cq.held_until_ns.is_some()) {
            self.fire_now(host, cqn, &mut context, cause);
        }
        self.store_cq(host, cqn, context);
        Ok(Answer::Done)
    }

    /// Entries to come stand in the new ring. The answer waits until no line of the old ring's list is under way.
    pub(super) fn resize_cq(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        log_entries: u8,
        pages: &PageList,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let cq = self.completion_queues.get(cqn).ok_or_else(|| missing(cqn.0))?;
        let owner = Owner::CompletionQueue(cqn.0);
        if progress.first_index.is_none() {
            if log_entries > limits::MAX_LOG_CQ_ENTRIES {
                return Err(CommandError::range(cqn.0).into());
            }
            if cq.failed {
                return Err(busy(cqn.0));
            }
            let size = self.front_end.completion_bytes() as u64;
            usable(pages, size << log_entries, size, cqn.0)?;
            let mut context = self.load_cq(host, cqn, cause, Waiter::Command).map_err(|stop| halt(stop, cqn.0))?;
            context.first_index = if planted("indices_begin_anew") { 0 } else { context.producer };
            (context.pages, context.log_entries) = (*pages, log_entries);
            progress.first_index = Some(context.producer);
            progress.barrier = Some(self.pending.newest());
            self.store_cq(host, cqn, context);
            self.contexts.forget_lines(owner);
        }
        let newest = progress.barrier.flatten();
        if newest.is_some_and(|newest| self.pending.lines_until(owner, newest)) {
            return Err(Halt::Blocked);
        }
        self.contexts.forget_lines(owner);
        Ok(Answer::FirstIndex(progress.first_index.unwrap_or(0)))
    }
}
