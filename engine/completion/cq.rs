//! CQ storage: entries go into the ring in host memory, in order, and never over one that was not polled.

use crate::blocks::Block;
use crate::context::completion_queue::CqContext;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::{Completion, EventRecord, Status};
use crate::host::Host;
use crate::numbers::{Cqn, Qpn};
use crate::pending::{Awaited, Stop, Waiter};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaRange, Iova, Origin, Submitted};

/// The largest completion of any front end.
const ENTRY_BYTES: usize = 64;

impl Engine {
    /// Delivers what waits, until the line is empty or a read is in flight.
    pub(crate) fn drain_completions(&mut self, host: &mut Host, cqn: Cqn) {
        loop {
            let Some(cq) = self.completion_queues.get_mut_at(cqn.index()) else { return };
            let waited = usize::from(cq.blocked);
            cq.blocked = false;
            if waited > 0 {
                self.waiting_completions = self.waiting_completions.saturating_sub(cq.waiting.len());
            }
            let Some((completion, cause)) = cq.waiting.front().copied() else {
                return self.serve_arm_request(host, cqn);
            };
            match self.deliver(host, cqn, &completion, cause) {
                Ok(()) => {}
                Err(Stop::Blocked) => return self.block_completions(cqn),
                Err(stop) => self.completion_queue_broken(host, cqn, stop),
            }
            if let Some(cq) = self.completion_queues.get_mut_at(cqn.index()) {
                cq.waiting.pop_front();
            }
        }
    }

    fn block_completions(&mut self, cqn: Cqn) {
        if let Some(cq) = self.completion_queues.get_mut_at(cqn.index()) {
            cq.blocked = true;
            self.waiting_completions += cq.waiting.len();
        }
    }

    fn deliver(&mut self, host: &mut Host, cqn: Cqn, completion: &Completion, cause: Cause) -> Result<(), Stop> {
        let waiter = Waiter::Completion(cqn);
        let mut context = self.load_cq(host, cqn, cause, waiter)?;
        if context.failed {
            self.counters.cqe_lost += 1;
            return Ok(());
        }
        if context.looks_full() {
            self.read_consumer_record(host, cqn, &mut context, cause)?;
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
        if let Some(cq) = self.completion_queues.get_mut_at(cqn.index()) {
            cq.record_read = false;
        }
        let notable = completion.solicited || completion.status != Status::Success;
        self.fire_if_armed(host, cqn, &mut context, notable, cause);
        self.store_cq(host, cqn, context);
        Ok(())
    }

    /// A queue that looks full is asked for its consumer index, once; if it is full then, it is overrun.
    fn read_consumer_record(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        context: &mut CqContext,
        cause: Cause,
    ) -> Result<(), Stop> {
        const OVERRUN: Stop = Stop::Broken(Diagnostic::CqOverrun);
        if self.completion_queues.get_at(cqn.index()).is_some_and(|cq| cq.record_read) {
            return Err(OVERRUN);
        }
        let mut record = [0; 8];
        let range = [DmaRange::new(Iova(context.consumer_record), 8)];
        match host.port.read(Origin::new(Class::RecordFetch, cause), &range, &mut record) {
            Ok(Submitted::Ready) => {
                context.consumer = sane_consumer(context, self.front_end.decode_record(&record));
                self.store_cq(host, cqn, *context);
                if context.looks_full() { Err(OVERRUN) } else { Ok(()) }
            }
            Ok(Submitted::Pending(tag)) => {
                self.pending.insert(tag, Awaited::Record { cqn });
                Err(Stop::Blocked)
            }
            Err(_) => Err(Stop::Broken(Diagnostic::CqRingFault)),
        }
    }

    /// A consumer record that was in flight is back.
    pub(crate) fn record_arrived(&mut self, host: &mut Host, cqn: Cqn, bytes: Option<&[u8]>) {
        if let Some(cq) = self.completion_queues.get_mut_at(cqn.index()) {
            cq.record_read = true;
        }
        if let Some(record) = bytes.and_then(|bytes| bytes.first_chunk())
            && let Ok(mut context) = self.load_cq(host, cqn, Cause::Maintenance, Waiter::Completion(cqn))
        {
            context.consumer = sane_consumer(&context, self.front_end.decode_record(record));
            self.store_cq(host, cqn, context);
        }
        self.drain_completions(host, cqn);
    }

    /// Overrun, or its memory does not answer: the queue is of no use any more, nor are its queue pairs.
    fn completion_queue_broken(&mut self, host: &mut Host, cqn: Cqn, stop: Stop) {
        let diagnostic = match stop {
            Stop::Broken(diagnostic) => diagnostic,
            Stop::Blocked | Stop::Refused(_) => Diagnostic::ContextFault,
        };
        self.diagnose(host.now_ns, diagnostic, cqn.0, 0);
        self.counters.cqe_lost += 1;
        if let Ok(mut context) = self.load_cq(host, cqn, Cause::Maintenance, Waiter::Completion(cqn)) {
            if context.failed {
                return;
            }
            context.failed = true;
            self.store_cq(host, cqn, context);
        }
        let event = EventRecord::CqError { cqn: cqn.0, diagnostic };
        if let Some(eqn) = self.completion_queues.get_at(cqn.index()).and_then(|cq| cq.eqn) {
            self.post_event(host, eqn, event, Cause::Maintenance);
        }
        let users = |qp: &crate::queues::QueuePair| qp.send_cqn == cqn || qp.receive_cqn == cqn;
        let doomed: Vec<_> = self.queue_pairs.indices().map(Qpn).collect();
        let doomed = doomed.into_iter().filter(|qpn| self.queue_pairs.get(*qpn).is_some_and(users));
        let doomed: Vec<_> = doomed.map(|qpn| (qpn, diagnostic)).collect();
        self.doomed.extend(doomed);
    }
}

/// A consumer index that lies outside what is in the queue says nothing.
fn sane_consumer(context: &CqContext, consumer: u32) -> u32 {
    let in_queue = context.producer.wrapping_sub(consumer) <= context.entries();
    if in_queue { consumer } else { context.consumer }
}
