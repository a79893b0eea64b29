//! Shared receive queues: create, modify, query, destroy.

use super::objects::{busy, exists};
use super::tables::{Extent, has_entry, usable};
use super::{Halt, Progress, halt, missing};
use crate::context::shared_receive_queue::SrqContext;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::NewSrq;
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::numbers::Srqn;
use crate::pending::Waiter;
use crate::queues::{Ring, SharedReceiveQueue};
use arrayvec::ArrayVec;
use rnic_abi::limits;
use rnic_pcie::Cause;
use std::collections::{BTreeSet, VecDeque};

/// Bytes of an entry of the index ring.
const INDEX_BYTES: u16 = 2;
/// Its alignment: entries are read in lines.
const LINE_BYTES: u64 = 64;

impl Engine {
    pub(super) fn create_srq(
        &mut self,
        host: &mut Host,
        new: &NewSrq,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let number = new.srqn.0;
        if new.log_slots > limits::MAX_LOG_SRQ_SLOTS || u32::from(new.limit) > 1 << new.log_slots {
            return Err(CommandError::range(number).into());
        }
        has_entry(&self.contexts.shared_receive_queue_table, number)?;
        if self.shared_receive_queues.get(new.srqn).is_some() {
            return Err(exists(number));
        }
        self.check_doorbell_page(new.doorbell_page)?;
        if let Some(xrc) = new.xrc
            && self.completion_queues.get(xrc.cqn).is_none()
        {
            return Err(missing(xrc.cqn.0));
        }
        let slots = Ring { pages: new.wqe_pages, log_entries: new.log_slots, entry_bytes: new.stride_bytes };
        let indices = Ring { pages: new.index_pages, log_entries: new.log_slots, entry_bytes: INDEX_BYTES };
        usable(&slots.pages, slots.bytes(), new.stride_bytes.into(), number)?;
        usable(&indices.pages, indices.bytes(), LINE_BYTES, number)?;
        let extents = [
            Extent { owner: Owner::SharedReceiveQueue(number), pages: slots.pages, bytes: slots.bytes() },
            Extent { owner: Owner::SharedIndices(number), pages: indices.pages, bytes: indices.bytes() },
        ];
        self.warm(host, &extents, cause, progress)?;
        self.store_srq(host, new.srqn, SrqContext { consumer: 0, limit: new.limit });
        let srq = SharedReceiveQueue {
            doorbell_page: new.doorbell_page,
            pdn: new.pdn,
            privileged: new.privileged,
            xrc: new.xrc,
            slots,
            indices,
            producer: 0,
            line: ArrayVec::new(),
            line_position: 0,
            fetching: false,
            waiting: BTreeSet::new(),
            returned: VecDeque::new(),
            queue_pairs: 0,
            leaving: false,
            failed: None,
        };
        self.shared_receive_queues.insert(new.srqn, srq);
        if let Some(xrc) = new.xrc {
            self.count_cq_user(xrc.cqn, true);
        }
        Ok(Answer::Done)
    }

    /// Arms the limit; a queue that is below it already says so at once.
    pub(super) fn modify_srq(&mut self, host: &mut Host, srqn: Srqn, limit: u16, cause: Cause) -> Result<Answer, Halt> {
        let srq = self.shared_receive_queues.get(srqn).ok_or_else(|| missing(srqn.0))?;
        if u32::from(limit) > srq.slots.entries() {
            return Err(CommandError::range(srqn.0).into());
        }
        let mut context = self.load_srq(host, srqn, cause, Waiter::Command).map_err(|stop| halt(stop, srqn.0))?;
        context.limit = limit;
        self.note_limit(host, srqn, &mut context);
        self.store_srq(host, srqn, context);
        Ok(Answer::Done)
    }

    pub(super) fn query_srq(&mut self, host: &mut Host, srqn: Srqn, cause: Cause) -> Result<Answer, Halt> {
        if self.shared_receive_queues.get(srqn).is_none() {
            return Err(missing(srqn.0));
        }
        let context = self.load_srq(host, srqn, cause, Waiter::Command).map_err(|stop| halt(stop, srqn.0))?;
        let available = self.shared_receive_queues.get(srqn).map_or(0, |srq| srq.available(context.consumer));
        Ok(Answer::SharedReceiveQueue { limit: context.limit, available, consumer: context.consumer })
    }

    pub(super) fn destroy_srq(&mut self, srqn: Srqn) -> Result<Answer, Halt> {
        let srq = self.shared_receive_queues.get_mut(srqn).ok_or_else(|| missing(srqn.0))?;
        if srq.queue_pairs > 0 {
            return Err(busy(srqn.0));
        }
        srq.leaving = true;
        if self.pending.reads_of_srq(srqn) || self.targets_read(srqn) {
            return Err(Halt::Blocked);
        }
        if let Some(xrc) = self.shared_receive_queues.remove(srqn).and_then(|srq| srq.xrc) {
            self.count_cq_user(xrc.cqn, false);
            self.forget_targets(srqn);
        }
        self.contexts.shared_receive_queues.remove(srqn.0);
        self.contexts.in_hand.take_srq(srqn);
        self.contexts.forget_lines(Owner::SharedReceiveQueue(srqn.0));
        self.contexts.forget_lines(Owner::SharedIndices(srqn.0));
        Ok(Answer::Done)
    }
}
