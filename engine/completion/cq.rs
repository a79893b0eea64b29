//! CQ storage: entries go into the ring in host memory, in order, and never over one that was not polled.

use super::eq::ASYNC_EQ;
use crate::blocks::Block;
use crate::context::completion_queue::CqContext;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::{Completion, EventRecord, Status};
use crate::host::Host;
use crate::numbers::{Cqn, Qpn};
use crate::pending::{Awaited, Stop, Waiter};
use crate::planted::planted;
use crate::queues::RecordRead;
use crate::reliability::timer::Timer;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaRange, Iova, Origin, Submitted};

/// The largest completion of any front end.
const ENTRY_BYTES: usize = 64;

impl Engine {
    /// Delivers what waits, until the line is empty or a read is in flight.
    pub(crate) fn drain_completions(&mut self, host: &mut Host, cqn: Cqn) {
        loop {
            let Some(cq) = self.completion_queues.get_mut(cqn) else { return };
            if std::mem::take(&mut cq.blocked) {
                self.waiting_completions -= cq.waiting.len();
            }
            let Some((completion, cause)) = cq.waiting.front().copied() else {
                return self.line_empty(host, cqn);
            };
            match self.deliver(host, cqn, &completion, cause) {
                Ok(()) => {
                    if let Some(cq) = self.completion_queues.get_mut(cqn) {
                        cq.waiting.pop_front();
                    }
                }
                Err(Stop::Blocked) => return self.block_completions(cqn),
                Err(stop) => self.completion_queue_fails(host, cqn, stop),
            }
        }
    }

    /// Nothing waits any more: an arm is served, and queue pairs that were flushing go on.
    fn line_empty(&mut self, host: &mut Host, cqn: Cqn) {
        self.serve_arm_request(host, cqn);
        self.release_held(host, cqn);
        let flushing = self.completion_queues.get_mut(cqn).map(|cq| std::mem::take(&mut cq.flushing));
        for qpn in flushing.into_iter().flatten() {
            self.start_timer(qpn, Timer::Flush, host.now_ns.saturating_add(1));
        }
    }

    fn block_completions(&mut self, cqn: Cqn) {
        if let Some(cq) = self.completion_queues.get_mut(cqn) {
            cq.blocked = true;
            self.waiting_completions += cq.waiting.len();
        }
    }

    fn deliver(&mut self, host: &mut Host, cqn: Cqn, completion: &Completion, cause: Cause) -> Result<(), Stop> {
        let waiter = Waiter::Completion(cqn);
        let mut context = self.load_cq(host, cqn, cause, waiter)?;
        if context.looks_full() {
            self.read_consumer_record(host, cqn, &mut context, cause)?;
        } else {
            self.forget_record(cqn);
        }
        let size = self.front_end.completion_bytes();
        let (offset, phase) = context.next_entry(size);
        let owner = Owner::CompletionQueue(cqn.0);
        let (iova, _) = self.translate(host, owner, &context.pages, offset, cause, waiter)?;
        let mut entry = [0; ENTRY_BYTES];
        let entry = &mut entry[..size];
        self.front_end.encode_completion(completion, host.now_ns, phase, entry);
        let origin = Origin::new(Class::CqeWrite, cause);
        let range = [DmaRange::new(iova, size as u32)];
        host.port.write(origin, &range, entry).map_err(|_| Stop::Broken(Diagnostic::CqRingFault))?;
        self.blocks.touch(host.now_ns, Block::CqStorage, cqn.0);
        context.producer = context.producer.wrapping_add(1);
        let failed = completion.status != Status::Success && !planted("failures_not_solicited");
        let notable = completion.solicited || failed;
        self.fire_if_armed(host, cqn, &mut context, notable, cause);
        self.store_cq(host, cqn, context);
        Ok(())
    }

    /// A record that arrived when an arm had already said more would be an old one by the time it is needed.
    fn forget_record(&mut self, cqn: Cqn) {
        if let Some(cq) = self.completion_queues.get_mut(cqn)
            && matches!(cq.record, RecordRead::Arrived(_))
            && !planted("old_records_used")
        {
            cq.record = RecordRead::Idle;
        }
    }

    /// A queue that looks full is asked for its consumer index, once; if it is full then, it is overrun.
    fn read_consumer_record(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        context: &mut CqContext,
        cause: Cause,
    ) -> Result<(), Stop> {
        const FAULT: Stop = Stop::Broken(Diagnostic::CqRingFault);
        let cq = self.completion_queues.get_mut(cqn).ok_or(FAULT)?;
        let consumer = match cq.record {
            RecordRead::InFlight => return Err(Stop::Blocked),
            RecordRead::Arrived(consumer) => {
                cq.record = RecordRead::Idle;
                consumer.ok_or(FAULT)?
            }
            RecordRead::Idle => self.fetch_consumer_record(host, cqn, context, cause)?,
        };
        // An index outside what is in the queue says nothing.
        let known = context.producer.wrapping_sub(context.consumer);
        if context.producer.wrapping_sub(consumer) <= context.entries().max(known) {
            context.consumer = consumer;
        }
        self.store_cq(host, cqn, *context);
        if context.looks_full() && !planted("full_queue_overwritten") {
            Err(Stop::Broken(Diagnostic::CqOverrun))
        } else {
            Ok(())
        }
    }

    fn fetch_consumer_record(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        context: &CqContext,
        cause: Cause,
    ) -> Result<u32, Stop> {
        let mut record = [0; 8];
        let range = [DmaRange::new(Iova(context.consumer_record), 8)];
        match host.port.read(Origin::new(Class::RecordFetch, cause), &range, &mut record) {
            Ok(Submitted::Ready) => Ok(self.front_end.decode_record(&record)),
            Ok(Submitted::Pending(tag)) => {
                if let Some(cq) = self.completion_queues.get_mut(cqn) {
                    cq.record = RecordRead::InFlight;
                }
                self.pending.insert(tag, Awaited::Record { cqn });
                Err(Stop::Blocked)
            }
            Err(_) => Err(Stop::Broken(Diagnostic::CqRingFault)),
        }
    }

    /// A consumer record that was in flight is back.
    pub(crate) fn record_arrived(&mut self, host: &mut Host, cqn: Cqn, bytes: Option<&[u8]>) {
        let consumer = bytes.and_then(|bytes| bytes.first_chunk()).map(|record| self.front_end.decode_record(record));
        if let Some(cq) = self.completion_queues.get_mut(cqn) {
            cq.record = RecordRead::Arrived(consumer);
        }
        self.drain_completions(host, cqn);
    }

    /// Queues whose context could not be written back.
    pub(crate) fn end_lost_queues(&mut self, host: &mut Host) {
        while let Some(cqn) = self.lost_queues.pop() {
            if self.completion_queues.get(cqn).is_some_and(|cq| !cq.failed) {
                self.completion_queue_fails(host, cqn, Stop::Broken(Diagnostic::ContextFault));
                self.drain_completions(host, cqn);
            }
        }
    }

    /// Overrun, or its memory does not answer: the queue is of no use any more, nor are its queue pairs.
    fn completion_queue_fails(&mut self, host: &mut Host, cqn: Cqn, stop: Stop) {
        let diagnostic = match stop {
            Stop::Broken(diagnostic) => diagnostic,
            Stop::Blocked | Stop::Refused(_) => Diagnostic::ContextFault,
        };
        self.diagnose(host.now_ns, diagnostic, cqn.0, 0);
        let Some(cq) = self.completion_queues.get_mut(cqn) else { return };
        cq.failed = true;
        if std::mem::take(&mut cq.blocked) {
            self.waiting_completions -= cq.waiting.len();
        }
        self.counters.cqe_lost += cq.waiting.len() as u64;
        cq.waiting.clear();
        let eqn = cq.eqn.unwrap_or(ASYNC_EQ);
        self.post_event(host, eqn, EventRecord::CqError { cqn: cqn.0, diagnostic }, Cause::Maintenance);
        let users = self.queue_pairs.iter().filter(|(_, qp)| qp.send_cqn == cqn || qp.receive_cqn == cqn);
        let users: Vec<_> = users.map(|(qpn, _)| Qpn(qpn)).collect();
        for qpn in users {
            self.doom(qpn, diagnostic, None);
        }
    }
}
