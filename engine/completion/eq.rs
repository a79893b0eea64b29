//! Events, of many completion queues and of the adapter itself, into event queues; an armed queue raises its
//! vector behind the entry.

use crate::blocks::Block;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::EventRecord;
use crate::host::Host;
use crate::host_access::HostWrite;
use crate::numbers::Eqn;
use crate::pending::{Stop, Waiter};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaRange, Iova, Origin};

/// The largest event of any front end.
const ENTRY_BYTES: usize = 64;
/// Where events of the adapter and of queue pairs go.
pub(crate) const ASYNC_EQ: Eqn = Eqn(0);

impl Engine {
    pub(crate) fn async_event(&mut self, host: &mut Host, event: EventRecord, cause: Cause) {
        self.post_event(host, ASYNC_EQ, event, cause);
    }

    pub(crate) fn post_event(&mut self, host: &mut Host, eqn: Eqn, event: EventRecord, cause: Cause) {
        let Some(eq) = self.event_queues.get_mut(eqn) else {
            self.counters.eqe_lost += 1;
            return;
        };
        // A queue that is full loses the event anyway: the line before it is no longer than the queue.
        if eq.waiting.len() >= eq.ring.entries() as usize {
            self.counters.eqe_lost += 1;
            return self.diagnose(host.now_ns, Diagnostic::EqOverrun, eqn.0, 0);
        }
        eq.waiting.push_back((event, cause));
        if !eq.blocked {
            self.drain_events(host, eqn);
        }
    }

    pub(crate) fn drain_events(&mut self, host: &mut Host, eqn: Eqn) {
        loop {
            let Some(eq) = self.event_queues.get_mut(eqn) else { return };
            eq.blocked = false;
            let Some((event, cause)) = eq.waiting.front().copied() else { return };
            match self.write_event(host, eqn, &event, cause) {
                Ok(()) => {}
                Err(Stop::Blocked) => {
                    if let Some(eq) = self.event_queues.get_mut(eqn) {
                        eq.blocked = true;
                    }
                    return;
                }
                Err(Stop::Broken(diagnostic)) => {
                    self.counters.eqe_lost += 1;
                    self.diagnose(host.now_ns, diagnostic, eqn.0, 0);
                }
                Err(Stop::Refused(_)) => {}
            }
            if let Some(eq) = self.event_queues.get_mut(eqn) {
                eq.waiting.pop_front();
            }
        }
    }

    fn write_event(&mut self, host: &mut Host, eqn: Eqn, event: &EventRecord, cause: Cause) -> Result<(), Stop> {
        const GONE: Stop = Stop::Broken(Diagnostic::EventRingFault);
        let eq = self.event_queues.get(eqn).ok_or(GONE)?;
        let (ring, producer) = (eq.ring, eq.producer);
        if producer.wrapping_sub(eq.consumer) >= ring.entries() {
            return Err(Stop::Broken(Diagnostic::EqOverrun));
        }
        // A completion's event is the completion's; one of nobody's operation is its own.
        let cause = match cause {
            Cause::Maintenance => Cause::Event { eqn: eqn.0, index: producer },
            of_completion => of_completion,
        };
        let owner = Owner::EventQueue(eqn.0);
        let offset = ring.offset(producer);
        let (iova, _) = self.translate(host, owner, &ring.pages, offset, cause, Waiter::Event(eqn))?;
        let size = self.front_end.event_bytes();
        let mut entry = [0; ENTRY_BYTES];
        let entry = &mut entry[..size];
        let phase = producer >> ring.log_entries & 1 == 0;
        self.front_end.encode_event(event, phase, entry);
        self.blocks.touch(host.now_ns, Block::EventArbitration, eqn.0);
        let vector = self.take_vector(host, eqn);
        let origin = Origin::new(Class::Event, cause);
        let written = host.port.event(origin, DmaRange::new(iova, size as u32), entry, vector);
        let eq = self.event_queues.get_mut(eqn).ok_or(GONE)?;
        if written.is_err() {
            eq.armed |= vector.is_some();
            return Err(GONE);
        }
        eq.producer = producer.wrapping_add(1);
        Ok(())
    }

    /// The vector to raise, once an update.
    fn take_vector(&mut self, host: &mut Host, eqn: Eqn) -> Option<u16> {
        let eq = self.event_queues.get_mut(eqn)?;
        let vector = eq.vector.filter(|_| std::mem::take(&mut eq.armed))?;
        if !host.port.vector_usable(vector) {
            self.diagnose(host.now_ns, Diagnostic::VectorUnusable, eqn.0, vector.into());
        }
        Some(vector)
    }

    pub(crate) fn update_eq(
        &mut self,
        host: &mut Host,
        access: &HostWrite,
        page: u32,
        eqn: Eqn,
        consumer: u32,
        arm: bool,
    ) {
        access.count(host, Origin::new(Class::EqUpdate, Cause::Maintenance));
        if page != 0 {
            return self.diagnose(host.now_ns, Diagnostic::EqUpdateForeign, eqn.0, page.into());
        }
        let Some(eq) = self.event_queues.get_mut(eqn) else {
            return self.diagnose(host.now_ns, Diagnostic::DoorbellNoQueue, eqn.0, consumer.into());
        };
        if eq.producer.wrapping_sub(consumer) > eq.ring.entries() {
            return self.diagnose(host.now_ns, Diagnostic::EqConsumerAhead, eqn.0, consumer.into());
        }
        eq.consumer = consumer;
        eq.armed = arm;
        let unseen = eq.producer != consumer;
        if arm && unseen {
            // Entries that came between the driver's look and its update must not wait for the next one.
            let cause = Cause::Event { eqn: eqn.0, index: consumer };
            if let Some(vector) = self.take_vector(host, eqn) {
                let origin = Origin::new(Class::Event, cause);
                let _ = host.port.event(origin, DmaRange::new(Iova(0), 0), &[], Some(vector));
            }
        }
    }
}
