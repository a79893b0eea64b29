//! Event queues and completion queues.

use super::tables::{Extent, has_entry, usable};
use super::{Halt, Progress, missing};
use crate::context::completion_queue::{Arm, CqContext, Moderation};
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::{NewCq, NewEq};
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::numbers::{Cqn, Eqn};
use crate::queues::{CompletionQueue, EventQueue, RecordRead, Ring};
use rnic_abi::{CommandStatus, Diagnostic, limits};
use rnic_pcie::Cause;
use std::collections::{BTreeSet, VecDeque};

pub(super) fn exists(object: u32) -> Halt {
    CommandError::new(CommandStatus::EXISTS, Diagnostic::ObjectExists, object).into()
}

pub(super) fn busy(object: u32) -> Halt {
    CommandError::new(CommandStatus::BAD_STATE, Diagnostic::ObjectBusy, object).into()
}

impl Engine {
    pub(super) fn create_eq(
        &mut self,
        host: &mut Host,
        new: &NewEq,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let number = new.eqn.0;
        if number >= limits::MAX_EQS || new.log_entries > limits::MAX_LOG_EQ_ENTRIES {
            return Err(CommandError::range(number).into());
        }
        if self.event_queues.get(new.eqn).is_some() {
            return Err(exists(number));
        }
        if new.vector.is_some_and(|vector| vector >= self.config.vectors) {
            return Err(CommandError::new(CommandStatus::BAD_PARAMETER, Diagnostic::VectorRange, number).into());
        }
        let entry_bytes = self.front_end.event_bytes() as u16;
        let ring = Ring { pages: new.pages, log_entries: new.log_entries, entry_bytes };
        usable(&new.pages, ring.bytes(), entry_bytes.into(), number)?;
        let extent = Extent { owner: Owner::EventQueue(number), pages: new.pages, bytes: ring.bytes() };
        self.warm(host, &[extent], cause, progress)?;
        let eq = EventQueue {
            ring,
            vector: new.vector,
            producer: 0,
            consumer: 0,
            armed: false,
            completion_queues: 0,
            waiting: VecDeque::new(),
            blocked: false,
        };
        self.event_queues.insert(new.eqn, eq);
        Ok(Answer::Done)
    }

    pub(super) fn destroy_eq(&mut self, eqn: Eqn) -> Result<Answer, Halt> {
        let eq = self.event_queues.get(eqn).ok_or_else(|| missing(eqn.0))?;
        if eq.completion_queues > 0 {
            return Err(busy(eqn.0));
        }
        let owner = Owner::EventQueue(eqn.0);
        if self.pending.lines_of(owner) {
            return Err(Halt::Blocked);
        }
        self.event_queues.remove(eqn);
        self.contexts.forget_lines(owner);
        Ok(Answer::Done)
    }

    pub(super) fn create_cq(
        &mut self,
        host: &mut Host,
        new: &NewCq,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let number = new.cqn.0;
        if new.log_entries > limits::MAX_LOG_CQ_ENTRIES {
            return Err(CommandError::range(number).into());
        }
        has_entry(&self.contexts.completion_queue_table, number)?;
        if self.completion_queues.get(new.cqn).is_some() {
            return Err(exists(number));
        }
        self.check_doorbell_page(new.doorbell_page)?;
        if let Some(eqn) = new.eqn
            && self.event_queues.get(eqn).is_none()
        {
            return Err(missing(eqn.0));
        }
        let size = self.front_end.completion_bytes() as u64;
        let bytes = size << new.log_entries;
        usable(&new.pages, bytes, size, number)?;
        let extent = Extent { owner: Owner::CompletionQueue(number), pages: new.pages, bytes };
        self.warm(host, &[extent], cause, progress)?;
        let context = CqContext {
            pages: new.pages,
            log_entries: new.log_entries,
            first_index: 0,
            moderation: Moderation::default(),
            producer: 0,
            consumer: 0,
            consumer_record: new.consumer_record,
            arm: Arm::default(),
        };
        self.store_cq(host, new.cqn, context);
        let cq = CompletionQueue {
            eqn: new.eqn,
            doorbell_page: new.doorbell_page,
            users: 0,
            waiting: VecDeque::new(),
            blocked: false,
            failed: false,
            record: RecordRead::default(),
            flushing: BTreeSet::new(),
            arm_request: None,
            held_until_ns: None,
        };
        self.completion_queues.insert(new.cqn, cq);
        if let Some(eq) = new.eqn.and_then(|eqn| self.event_queues.get_mut(eqn)) {
            eq.completion_queues += 1;
        }
        Ok(Answer::Done)
    }

    pub(super) fn destroy_cq(&mut self, cqn: Cqn) -> Result<Answer, Halt> {
        let cq = self.completion_queues.get(cqn).ok_or_else(|| missing(cqn.0))?;
        if cq.users > 0 {
            return Err(busy(cqn.0));
        }
        if self.pending.reads_of_cq(cqn) {
            return Err(Halt::Blocked);
        }
        let Some(cq) = self.completion_queues.remove(cqn) else { return Err(missing(cqn.0)) };
        if cq.blocked {
            self.waiting_completions -= cq.waiting.len();
        }
        if let Some(eq) = cq.eqn.and_then(|eqn| self.event_queues.get_mut(eqn)) {
            eq.completion_queues -= 1;
        }
        self.moderated.forget(cqn);
        self.contexts.completion_queues.remove(cqn.0);
        self.contexts.forget_lines(Owner::CompletionQueue(cqn.0));
        Ok(Answer::Done)
    }

    pub(super) fn check_doorbell_page(&self, page: u32) -> Result<(), CommandError> {
        if page < self.config.doorbell_pages {
            return Ok(());
        }
        Err(CommandError::new(CommandStatus::BAD_PARAMETER, Diagnostic::DoorbellPageRange, page))
    }
}
