//! Shared receive queues: a message takes the next posted receive of a queue that several queue pairs use.
//!
//! In: a queue pair whose message needs a receive. Out: a slot that is the queue pair's until its completion. Whether
//! there is one is decided on indices; which slot it is says the index ring, of which a line is read ahead.

use crate::context::queue_pair::QpState;
use crate::context::shared_receive_queue::SrqContext;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::EventRecord;
use crate::host::Host;
use crate::host_access::HostWrite;
use crate::numbers::{Qpn, Srqn};
use crate::pending::{Awaited, Stop, Waiter};
use crate::planted::planted;
use crate::queues::INDEX_LINE;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaRange, Origin, Submitted};

/// Bytes of an entry of the index ring.
const INDEX_BYTES: usize = 2;

impl Engine {
    pub(crate) fn shared_receive_doorbell(
        &mut self,
        host: &mut Host,
        access: &HostWrite,
        page: u32,
        srqn: Srqn,
        producer: u16,
    ) {
        access.count(host, Origin::new(Class::RecvDoorbell, Cause::Maintenance));
        if let Err(diagnostic) = self.accept_shared_doorbell(page, srqn, producer) {
            self.refuse_doorbell(host, diagnostic, srqn.0, page, producer);
        }
    }

    fn accept_shared_doorbell(&mut self, page: u32, srqn: Srqn, producer: u16) -> Result<(), Diagnostic> {
        let srq = self.shared_receive_queues.get_mut(srqn).ok_or(Diagnostic::DoorbellNoQueue)?;
        if srq.doorbell_page != page {
            return Err(Diagnostic::DoorbellForeignPage);
        }
        if u32::from(producer.wrapping_sub(srq.producer)) > srq.slots.entries() {
            return Err(Diagnostic::DoorbellBeyondRing);
        }
        srq.producer = producer;
        Ok(())
    }

    /// A receive is posted for this queue pair, or it has one in hand. Of what is of no use the next step tells.
    pub(crate) fn receive_ready(&mut self, host: &mut Host, qpn: Qpn, cause: Cause) -> Result<bool, Stop> {
        let Some(qp) = self.queue_pairs.get(qpn) else { return Ok(false) };
        let Some(srqn) = qp.srqn.filter(|_| qp.taken.is_none()) else { return Ok(qp.has_receive()) };
        let Some(srq) = self.shared_receive_queues.get(srqn) else { return Ok(false) };
        if srq.failed.is_some() || !srq.returned.is_empty() {
            return Ok(true);
        }
        let consumer = match self.load_srq(host, srqn, cause, Waiter::Inbound(qpn)) {
            Ok(context) => context.consumer,
            Err(Stop::Blocked) => return Err(Stop::Blocked),
            Err(_) => {
                self.shared_queue_fails(host, srqn, Diagnostic::ContextFault);
                return Ok(true);
            }
        };
        Ok(self.shared_receive_queues.get(srqn).is_some_and(|srq| srq.producer != consumer))
    }

    /// The next receive is this queue pair's from here on. A queue pair with a ring of its own has nothing to take.
    pub(crate) fn take_receive(&mut self, host: &mut Host, qpn: Qpn, cause: Cause) -> Result<(), Stop> {
        const GONE: Stop = Stop::Broken(Diagnostic::SrqFetchFault);
        let Some(qp) = self.queue_pairs.get(qpn) else { return Ok(()) };
        let Some(srqn) = qp.srqn.filter(|_| qp.taken.is_none()) else { return Ok(()) };
        let srq = self.shared_receive_queues.get_mut(srqn).ok_or(GONE)?;
        if let Some(diagnostic) = srq.failed {
            return Err(Stop::Broken(diagnostic));
        }
        let returned = if planted("taken_receives_lost") { None } else { srq.returned.pop_front() };
        let slot = match returned {
            Some(slot) => slot,
            None => self.take_posted(host, qpn, srqn, cause)?,
        };
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.taken = Some(slot);
        }
        Ok(())
    }

    fn take_posted(&mut self, host: &mut Host, qpn: Qpn, srqn: Srqn, cause: Cause) -> Result<u16, Stop> {
        let mut context = self.load_srq(host, srqn, cause, Waiter::Inbound(qpn))?;
        let slot = match self.posted_slot(host, qpn, srqn, context.consumer) {
            Ok(slot) => slot,
            Err(Stop::Blocked) => return Err(Stop::Blocked),
            Err(stop) => {
                let diagnostic = if let Stop::Broken(broken) = stop { broken } else { Diagnostic::SrqFetchFault };
                self.shared_queue_fails(host, srqn, diagnostic);
                return Err(Stop::Broken(diagnostic));
            }
        };
        if !planted("shared_receive_taken_twice") {
            context.consumer = context.consumer.wrapping_add(1);
        }
        self.note_limit(host, srqn, &mut context);
        self.store_srq(host, srqn, context);
        Ok(slot)
    }

    /// The slot at a position of the index ring.
    fn posted_slot(&mut self, host: &mut Host, qpn: Qpn, srqn: Srqn, position: u16) -> Result<u16, Stop> {
        loop {
            let srq = self.shared_receive_queues.get_mut(srqn).ok_or(Stop::Broken(Diagnostic::SrqFetchFault))?;
            if let Some(slot) = srq.read_ahead(position) {
                let exists = u32::from(slot) < srq.slots.entries() || planted("slot_numbers_unchecked");
                return if exists { Ok(slot) } else { Err(Stop::Broken(Diagnostic::SrqIndex)) };
            }
            if srq.fetching {
                srq.waiting.insert(qpn);
                return Err(Stop::Blocked);
            }
            self.read_indices(host, qpn, srqn, position)?;
        }
    }

    /// Reads entries of the index ring from this position to the line's end, as far as they are posted.
    fn read_indices(&mut self, host: &mut Host, qpn: Qpn, srqn: Srqn, position: u16) -> Result<(), Stop> {
        const FAULT: Stop = Stop::Broken(Diagnostic::SrqFetchFault);
        let srq = self.shared_receive_queues.get(srqn).ok_or(FAULT)?;
        let ring = srq.indices;
        let to_line_end = INDEX_LINE as u32 - u32::from(position) % INDEX_LINE as u32;
        let to_ring_end = ring.entries() - (u32::from(position) & (ring.entries() - 1));
        let posted = u32::from(srq.producer.wrapping_sub(position));
        let count = posted.min(to_line_end).min(to_ring_end).max(1) as u16;
        let owner = Owner::SharedIndices(srqn.0);
        let cause = Cause::Receive { qpn_or_srqn: qpn.0, index: position };
        let offset = ring.offset(position.into());
        let (iova, _) = self.translate(host, owner, &ring.pages, offset, cause, Waiter::Inbound(qpn))?;
        let mut bytes = [0; INDEX_LINE * INDEX_BYTES];
        let bytes = &mut bytes[..usize::from(count) * INDEX_BYTES];
        let range = [DmaRange::new(iova, bytes.len() as u32)];
        match host.port.read(Origin::new(Class::RecvWqeFetch, cause), &range, bytes) {
            Ok(Submitted::Ready) => {
                self.keep_indices(srqn, position, bytes);
                Ok(())
            }
            Ok(Submitted::Pending(tag)) => {
                if let Some(srq) = self.shared_receive_queues.get_mut(srqn) {
                    srq.fetching = true;
                    srq.waiting.insert(qpn);
                }
                self.pending.insert(tag, Awaited::SharedIndices { srqn, position, count });
                Err(Stop::Blocked)
            }
            Err(_) => Err(FAULT),
        }
    }

    fn keep_indices(&mut self, srqn: Srqn, position: u16, bytes: &[u8]) {
        let Some(srq) = self.shared_receive_queues.get_mut(srqn) else { return };
        srq.line.clear();
        srq.line_position = position;
        let entries = bytes.as_chunks::<INDEX_BYTES>().0.iter();
        srq.line.extend(entries.map(|entry| self.front_end.decode_shared_index(*entry)).take(INDEX_LINE));
    }

    /// A read of the index ring is back: those who waited for it run again.
    pub(crate) fn shared_indices_arrived(
        &mut self,
        host: &mut Host,
        srqn: Srqn,
        position: u16,
        count: u16,
        bytes: Option<&[u8]>,
    ) {
        match bytes.filter(|bytes| bytes.len() == usize::from(count) * INDEX_BYTES) {
            Some(bytes) => self.keep_indices(srqn, position, bytes),
            None => self.shared_queue_fails(host, srqn, Diagnostic::SrqFetchFault),
        }
        let Some(srq) = self.shared_receive_queues.get_mut(srqn) else { return };
        srq.fetching = false;
        for qpn in std::mem::take(&mut srq.waiting) {
            self.resume_inbound(host, qpn);
        }
    }

    /// Fewer receives than an armed limit: the driver is told, once.
    pub(crate) fn note_limit(&mut self, host: &mut Host, srqn: Srqn, context: &mut SrqContext) {
        let Some(srq) = self.shared_receive_queues.get(srqn) else { return };
        let available = srq.available(context.consumer);
        let below = available < context.limit || (available == context.limit && planted("limit_reached_early"));
        if context.limit > 0 && below {
            if !planted("limit_stays_armed") {
                context.limit = 0;
            }
            self.async_event(host, EventRecord::SrqLimitReached { srqn: srqn.0 }, Cause::Maintenance);
        }
    }

    /// The queue is of no use any more. Its queue pairs learn it when they need a receive.
    fn shared_queue_fails(&mut self, host: &mut Host, srqn: Srqn, diagnostic: Diagnostic) {
        let Some(srq) = self.shared_receive_queues.get_mut(srqn) else { return };
        if srq.failed.replace(diagnostic).is_none() {
            self.diagnose(host.now_ns, diagnostic, srqn.0, 0);
            self.async_event(host, EventRecord::SrqError { srqn: srqn.0, diagnostic }, Cause::Maintenance);
        }
    }

    /// What a queue pair has taken and will not complete goes back.
    pub(crate) fn return_receives(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        for arrived in &qp.arrived {
            let srqn = arrived.completion.srqn;
            if let Some(srq) = srqn.and_then(|srqn| self.shared_receive_queues.get_mut(srqn)) {
                srq.give_back(arrived.completion.wqe_index);
            }
        }
        let Some(srq) = qp.srqn.and_then(|srqn| self.shared_receive_queues.get_mut(srqn)) else { return };
        if let Some(slot) = qp.taken.take() {
            srq.give_back(slot);
        }
        srq.waiting.remove(&qpn);
    }

    /// A queue pair in the error state has nothing more in hand: its driver is told, once. Not of an XRC target, which
    /// belongs to no queue.
    pub(crate) fn note_last_wqe(&mut self, host: &mut Host, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let last = qp.srqn.is_some() && qp.xrc_domain.is_none() && qp.state == QpState::Err && !qp.last_wqe_told;
        if last && !planted("last_receive_in_silence") {
            qp.last_wqe_told = true;
            self.async_event(host, EventRecord::LastWqeReached { qpn: qpn.0 }, Cause::Maintenance);
        }
    }
}
