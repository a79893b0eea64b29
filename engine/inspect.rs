//! The objects of a live adapter as tools beside it see them.
//!
//! Looking changes nothing: no cache entry becomes newer, nothing is fetched. A context that is not in its cache shows as
//! absent. Lists are given in pages, so that one look is short whatever the driver has created.

use crate::context::completion_queue::CqContext;
use crate::context::gid::GidEntry;
use crate::context::key::KeyContext;
use crate::context::queue_pair::{QpContext, QpState, Service};
use crate::context::shared_receive_queue::SrqContext;
use crate::engine::Engine;
use crate::numbers::{Cqn, Qpn};
use crate::queues::{CompletionQueue, EventQueue, QueuePair, Ring, SharedReceiveQueue, TransmitState};
use rnic_abi::limits::NO_OBJECT;

/// A ring in host memory with the indices of both sides, free-running modulo 2^16 or 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingView {
    pub entries: u32,
    pub entry_bytes: u16,
    /// What the driver has announced, or the device has written.
    pub producer: u32,
    /// The next entry that the device reads; equal to `consumer` where it reads entry by entry.
    pub fetch: u32,
    pub consumer: u32,
}

#[derive(Clone, Debug)]
pub struct QueuePairView {
    pub qpn: u32,
    pub service: Service,
    pub state: QpState,
    pub pdn: u32,
    pub doorbell_page: u32,
    /// None where there is no such queue; of an XRC target its current request's.
    pub send_cqn: Option<u32>,
    pub receive_cqn: Option<u32>,
    /// Where its receives come from, if not from a ring of its own.
    pub srqn: Option<u32>,
    /// Of an XRC target.
    pub xrc_domain: Option<u32>,
    pub privileged: bool,
    /// It retransmits selectively; so many packets are kept ahead of a gap.
    pub selective: Option<usize>,
    pub send_queue: RingView,
    pub receive_queue: RingView,
    /// Work requests that were read and not begun.
    pub waiting_sends: usize,
    /// Messages that are not acknowledged.
    pub unacknowledged_messages: usize,
    /// READs and atomics of the peer that are being answered.
    pub waiting_replies: usize,
    pub inbound_frames: usize,
    /// What its sending is held to.
    pub limited_bits_per_second: Option<u64>,
    pub transmit: &'static str,
    /// Timers that run, with the time at which they are due.
    pub timers: Vec<(&'static str, u64)>,
    /// PSNs, path and retries; absent while the context is in host memory alone.
    pub context: Option<QpContext>,
}

#[derive(Clone, Debug)]
pub struct CompletionQueueView {
    pub cqn: u32,
    pub eqn: Option<u32>,
    pub doorbell_page: u32,
    pub queue_pairs: u32,
    pub waiting: usize,
    pub failed: bool,
    pub context: Option<CqContext>,
}

#[derive(Clone, Debug)]
pub struct EventQueueView {
    pub eqn: u32,
    pub vector: Option<u16>,
    pub ring: RingView,
    pub armed: bool,
    pub completion_queues: u32,
    pub waiting: usize,
}

#[derive(Clone, Debug)]
pub struct SharedReceiveQueueView {
    pub srqn: u32,
    /// Domain and completion queue of an XRC queue.
    pub xrc: Option<(u32, u32)>,
    pub pdn: u32,
    pub doorbell_page: u32,
    pub queue_pairs: u32,
    pub slots: u32,
    pub slot_bytes: u16,
    /// Positions of the index ring that are posted, free-running.
    pub producer: u16,
    /// Receives that came back from queue pairs.
    pub returned: usize,
    /// The rule that ended it.
    pub failed: Option<&'static str>,
    pub context: Option<SrqContext>,
}

/// A memory key by its index.
#[derive(Clone, Debug)]
pub struct KeyView {
    pub index: u32,
    pub context: Option<KeyContext>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheView {
    pub name: &'static str,
    pub used: usize,
    pub capacity: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandQueueView {
    pub commands: u64,
    pub completions: u64,
    pub slots: u32,
    pub producer: u16,
    pub consumer: u16,
    /// A command is being read or waits for host memory.
    pub busy: bool,
}

/// What there is one of.
#[derive(Clone, Debug)]
pub struct AdapterView {
    pub enabled: bool,
    pub fatal: bool,
    pub link_up: bool,
    pub strict: bool,
    pub command_queue: Option<CommandQueueView>,
    /// Queue pairs, completion queues, event queues, shared receive queues, keys.
    pub object_counts: [usize; 5],
    pub caches: Vec<CacheView>,
    pub gids: Vec<(u16, GidEntry)>,
    /// Multicast groups with their queue pairs.
    pub groups: Vec<([u8; 16], Vec<u32>)>,
    pub timers: usize,
    pub next_timer_ns: Option<u64>,
    /// Queue pairs with something to send, with an answer to send, with a packet whose payload has come late.
    pub scheduled: [usize; 3],
    pub parked_frames: usize,
    /// Of queue pairs that retransmit selectively: packets that came ahead of a gap.
    pub ahead_frames: usize,
    pub waiting_completions: usize,
}

impl Ring {
    const fn view(&self, producer: u32, fetch: u32, consumer: u32) -> RingView {
        RingView { entries: self.entries(), entry_bytes: self.entry_bytes, producer, fetch, consumer }
    }
}

impl Engine {
    pub fn inspect(&self) -> AdapterView {
        let contexts = &self.contexts;
        let cache = |name, used, capacity| CacheView { name, used, capacity };
        AdapterView {
            enabled: self.enabled,
            fatal: self.fatal,
            link_up: self.link_up,
            strict: self.config.strict,
            command_queue: self.enabled.then(|| self.commands.view()),
            object_counts: self.object_counts(),
            caches: vec![
                cache("queue_pairs", contexts.queue_pairs.len(), contexts.queue_pairs.capacity()),
                cache("completion_queues", contexts.completion_queues.len(), contexts.completion_queues.capacity()),
                cache(
                    "shared_receive_queues",
                    contexts.shared_receive_queues.len(),
                    contexts.shared_receive_queues.capacity(),
                ),
                cache("keys", contexts.keys.len(), contexts.keys.capacity()),
                cache("rd_atomic", contexts.rd_atomic.len(), contexts.rd_atomic.capacity()),
                cache("translations", contexts.translations.used(), contexts.translations.capacity()),
            ],
            gids: contexts.gids.indexed().map(|(index, entry)| (index, *entry)).collect(),
            groups: self
                .multicast
                .groups()
                .map(|(group, members)| (*group, members.iter().map(|qpn| qpn.0).collect()))
                .collect(),
            timers: self.timers.len(),
            next_timer_ns: self.timers.next_ns(),
            scheduled: [self.ready.len(), self.responses.len() + self.replying.len(), self.staged.len()],
            parked_frames: self.parked_frames,
            ahead_frames: self.ahead_frames,
            waiting_completions: self.waiting_completions,
        }
    }

    /// Up to `limit` queue pairs from number `from` on.
    pub fn inspect_queue_pairs(&self, from: u32, limit: usize) -> Vec<QueuePairView> {
        let queue_pairs = self.queue_pairs.iter().skip_while(|(qpn, _)| *qpn < from).take(limit);
        let rate = |qpn| self.rate_limits.bits_per_second(Qpn(qpn));
        queue_pairs.map(|(qpn, qp)| qp.view(qpn, rate(qpn), self.contexts.queue_pairs.peek(qpn).copied())).collect()
    }

    pub fn inspect_completion_queues(&self, from: u32, limit: usize) -> Vec<CompletionQueueView> {
        let queues = self.completion_queues.iter().skip_while(|(cqn, _)| *cqn < from).take(limit);
        queues.map(|(cqn, cq)| cq.view(cqn, self.contexts.completion_queues.peek(cqn).copied())).collect()
    }

    pub fn inspect_event_queues(&self, from: u32, limit: usize) -> Vec<EventQueueView> {
        let queues = self.event_queues.iter().skip_while(|(eqn, _)| *eqn < from).take(limit);
        queues.map(|(eqn, eq)| eq.view(eqn)).collect()
    }

    pub fn inspect_shared_receive_queues(&self, from: u32, limit: usize) -> Vec<SharedReceiveQueueView> {
        let queues = self.shared_receive_queues.iter().skip_while(|(srqn, _)| *srqn < from).take(limit);
        queues.map(|(srqn, srq)| srq.view(srqn, self.contexts.shared_receive_queues.peek(srqn).copied())).collect()
    }

    pub fn inspect_keys(&self, from: u32, limit: usize) -> Vec<KeyView> {
        let words = self.keys_present.iter().enumerate().skip(from as usize / 64).filter(|(_, word)| **word != 0);
        let indices = words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (at as u32) * 64 + bit)
        });
        let keys = indices.filter(|index| *index >= from).take(limit);
        keys.map(|index| KeyView { index, context: self.contexts.keys.peek(index).copied() }).collect()
    }
}

fn existing(cqn: Cqn) -> Option<u32> {
    (cqn.0 != NO_OBJECT).then_some(cqn.0)
}

impl QueuePair {
    fn view(&self, qpn: u32, limited_bits_per_second: Option<u64>, context: Option<QpContext>) -> QueuePairView {
        let receives = self.rq.view(self.rq_producer.into(), self.rq_consumer.into(), self.rq_consumer.into());
        QueuePairView {
            qpn,
            service: self.service,
            state: self.state,
            pdn: self.pdn.0,
            doorbell_page: self.doorbell_page,
            send_cqn: existing(self.send_cqn),
            receive_cqn: existing(self.receive_cqn),
            srqn: self.srqn.map(|srqn| srqn.0),
            xrc_domain: self.xrc_domain.map(|domain| domain.0),
            privileged: self.privileged,
            selective: self.selective.as_ref().map(|selective| selective.ahead.len()),
            send_queue: self.sq.view(self.sq_producer.into(), self.sq_fetch.into(), self.sq_consumer.into()),
            receive_queue: receives,
            waiting_sends: self.waiting.len(),
            unacknowledged_messages: self.replay.len(),
            waiting_replies: self.replies.len(),
            inbound_frames: self.inbound.len(),
            limited_bits_per_second,
            transmit: match self.transmit {
                TransmitState::Idle => "idle",
                TransmitState::Ready => "ready",
                TransmitState::Blocked => "blocked",
                TransmitState::Gathering => "gathering",
            },
            timers: self.deadlines.running().map(|(timer, due_ns)| (timer.name(), due_ns)).collect(),
            context,
        }
    }
}

impl CompletionQueue {
    fn view(&self, cqn: u32, context: Option<CqContext>) -> CompletionQueueView {
        CompletionQueueView {
            cqn,
            eqn: self.eqn.map(|eqn| eqn.0),
            doorbell_page: self.doorbell_page,
            queue_pairs: self.users,
            waiting: self.waiting.len(),
            failed: self.failed,
            context,
        }
    }
}

impl SharedReceiveQueue {
    fn view(&self, srqn: u32, context: Option<SrqContext>) -> SharedReceiveQueueView {
        SharedReceiveQueueView {
            srqn,
            xrc: self.xrc.map(|xrc| (xrc.domain.0, xrc.cqn.0)),
            pdn: self.pdn.0,
            doorbell_page: self.doorbell_page,
            queue_pairs: self.queue_pairs,
            slots: self.slots.entries(),
            slot_bytes: self.slots.entry_bytes,
            producer: self.producer,
            returned: self.returned.len(),
            failed: self.failed.map(|diagnostic| diagnostic.rule().name),
            context,
        }
    }
}

impl EventQueue {
    fn view(&self, eqn: u32) -> EventQueueView {
        EventQueueView {
            eqn,
            vector: self.vector,
            ring: self.ring.view(self.producer, self.producer, self.consumer),
            armed: self.armed,
            completion_queues: self.completion_queues,
            waiting: self.waiting.len(),
        }
    }
}
