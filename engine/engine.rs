//! The engine's state, its inputs and its outputs.

use crate::blocks::BlockLog;
use crate::command::CommandQueue;
use crate::completion::moderation::Moderated;
use crate::config::EngineConfig;
use crate::congestion::notification_point::NotificationPoint;
use crate::congestion::rate_limiter::RateLimiterTable;
use crate::context::Contexts;
use crate::context::multicast::MulticastTable;
use crate::counters::Counters;
use crate::diagnostics::{DiagnosticRecord, Diagnostics};
use crate::front_end::native::Native;
use crate::front_end::{EventRecord, FrontEnd, Status};
use crate::host::Host;
use crate::numbered::Numbered;
use crate::numbers::{Cqn, Qpn};
use crate::pending::{Awaited, Pending, Waiter};
use crate::queues::{CompletionQueue, EventQueue, QueuePair, SharedReceiveQueue, TransmitState};
use crate::reliability::timer::TimerTable;
use crate::rx::atomic_reply::AtomicLocks;
use crate::wqe_pool::WqePool;
use rnic_abi::Diagnostic;
use rnic_abi::diagnostic::Severity;
use rnic_pcie::{Cause, DmaFault, DmaPort, DmaTag};
use rnic_wire::Frame;
use std::collections::VecDeque;

/// Completions that wait for a read: beyond this the engine takes no more frames.
const WAITING_COMPLETIONS: usize = 4096;

/// The adapter's port, as drivers number it.
const PORT: u8 = 1;

/// One adapter.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) front_end: Box<dyn FrontEnd>,
    pub(crate) enabled: bool,
    pub(crate) fatal: bool,
    pub(crate) link_up: bool,
    /// The doorbell line of which a piece was diagnosed last.
    pub(crate) torn_line: Option<u64>,
    pub(crate) commands: CommandQueue,
    pub(crate) contexts: Contexts,
    pub(crate) keys_present: Vec<u64>,
    pub(crate) queue_pairs: Numbered<QueuePair>,
    /// Queue pairs that were ever created.
    pub(crate) serials: u32,
    pub(crate) completion_queues: Numbered<CompletionQueue>,
    pub(crate) event_queues: Numbered<EventQueue>,
    pub(crate) shared_receive_queues: Numbered<SharedReceiveQueue>,
    pub(crate) wqes: WqePool,
    pub(crate) pending: Pending,
    pub(crate) ready: VecDeque<Qpn>,
    pub(crate) responses: VecDeque<Qpn>,
    /// Queue pairs whose packet's payload has come late and waits to leave.
    pub(crate) staged: VecDeque<Qpn>,
    /// Queue pairs with READs or atomics to answer; they take turns with those that have requests to send.
    pub(crate) replying: VecDeque<Qpn>,
    reply_next: bool,
    pub(crate) multicast: MulticastTable,
    pub(crate) atomic_locks: AtomicLocks,
    /// Queue pairs that have invalidated a key and wait for reads.
    pub(crate) invalidating: Vec<Qpn>,
    /// Queue pairs that go to the error state when the present step is done.
    pub(crate) doomed: Vec<(Qpn, Diagnostic, Option<Status>)>,
    /// Completion queues that fail when the present step is done.
    pub(crate) lost_queues: Vec<Cqn>,
    pub(crate) parked_frames: usize,
    /// Frames that came ahead of a gap and are kept.
    pub(crate) ahead_frames: usize,
    pub(crate) waiting_completions: usize,
    pub(crate) timers: TimerTable,
    pub(crate) moderated: Moderated,
    pub(crate) rate_limits: RateLimiterTable,
    pub(crate) notifications: NotificationPoint,
    pub(crate) counters: Counters,
    pub(crate) diagnostics: Diagnostics,
    /// The warning that stops a strict device when the present step is done.
    pub(crate) strict_stop: Option<Diagnostic>,
    /// What the driver has written to its mark register and nobody has taken.
    pub(crate) marked: Option<u64>,
    /// Whose frame was built latest.
    pub(crate) last_sender: Qpn,
    pub(crate) blocks: BlockLog,
}

impl Engine {
    /// An adapter with the native interface.
    pub fn new(config: EngineConfig) -> Self {
        Self::with_front_end(config, Box::<Native>::default())
    }

    pub fn with_front_end(config: EngineConfig, front_end: Box<dyn FrontEnd>) -> Self {
        Self {
            contexts: Contexts::new(&config),
            wqes: WqePool::new(config.fetched_wqes),
            rate_limits: RateLimiterTable::new(config.congestion.clone()),
            config,
            front_end,
            enabled: false,
            fatal: false,
            link_up: true,
            torn_line: None,
            commands: CommandQueue::default(),
            keys_present: Vec::new(),
            queue_pairs: Numbered::default(),
            serials: 0,
            completion_queues: Numbered::default(),
            event_queues: Numbered::default(),
            shared_receive_queues: Numbered::default(),
            pending: Pending::default(),
            ready: VecDeque::new(),
            responses: VecDeque::new(),
            staged: VecDeque::new(),
            replying: VecDeque::new(),
            reply_next: false,
            multicast: MulticastTable::default(),
            atomic_locks: AtomicLocks::default(),
            invalidating: Vec::new(),
            doomed: Vec::new(),
            lost_queues: Vec::new(),
            parked_frames: 0,
            ahead_frames: 0,
            waiting_completions: 0,
            timers: TimerTable::default(),
            moderated: Moderated::default(),
            notifications: NotificationPoint::default(),
            counters: Counters::default(),
            diagnostics: Diagnostics::default(),
            strict_stop: None,
            marked: None,
            last_sender: Qpn(0),
            blocks: BlockLog::default(),
        }
    }

    // Inputs.

    /// A frame from the port. Its buffer comes back empty or used, whichever the engine has.
    pub fn handle_frame(&mut self, now_ns: u64, port: &mut dyn DmaPort, frame: &mut Frame) {
        let host = &mut Host { port, now_ns };
        if self.running() {
            self.receive_frame(host, frame);
            self.settle(host);
        }
    }

    /// A read that was pending has been answered.
    pub fn handle_dma_completion(
        &mut self,
        now_ns: u64,
        port: &mut dyn DmaPort,
        tag: DmaTag,
        result: Result<&[u8], DmaFault>,
    ) {
        let host = &mut Host { port, now_ns };
        let Some(awaited) = self.pending.remove(tag) else { return };
        let bytes = result.ok();
        match awaited {
            Awaited::Fill { fill, waiters } => self.filled(host, fill, &waiters, bytes),
            Awaited::Outdated { waiters } => waiters.into_iter().for_each(|waiter| self.resume(host, waiter)),
            Awaited::Command => self.command_arrived(host, bytes),
            Awaited::Wqes { qpn, index, slots } => self.wqes_arrived(host, qpn, index, slots, bytes),
            Awaited::ReceiveWqe { qpn, index } => self.receive_wqe_arrived(host, qpn, Some((index, bytes))),
            Awaited::SharedIndices { srqn, position, count } => {
                self.shared_indices_arrived(host, srqn, position, count, bytes);
            }
            Awaited::Gather(gathering) => self.gathered(host, gathering, bytes),
            Awaited::Reply(replying) => self.reply_gathered(replying, bytes),
            Awaited::Atomic { qpn } => self.atomic_arrived(host, qpn, bytes),
            Awaited::Record { cqn } => self.record_arrived(host, cqn, bytes),
        }
        // A command may have waited for reads to come home.
        self.resume_commands(host);
        if !self.invalidating.is_empty() {
            self.resume_invalidations(host);
        }
        self.settle(host);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now_ns: u64, port: &mut dyn DmaPort) {
        let host = &mut Host { port, now_ns };
        self.run_timers(host);
        self.run_moderation(host);
        self.settle(host);
    }

    /// Back to the state after power-on: nothing is written any more, late answers find nobody. Only the counters go on.
    pub fn handle_reset(&mut self) {
        let mut fresh = Self::new(self.config.clone());
        std::mem::swap(&mut fresh.front_end, &mut self.front_end);
        fresh.front_end.reset();
        fresh.link_up = self.link_up;
        fresh.counters = self.counters;
        std::mem::swap(&mut fresh.diagnostics, &mut self.diagnostics);
        std::mem::swap(&mut fresh.blocks, &mut self.blocks);
        *self = fresh;
    }

    /// The host has gone: what the last diagnostic was is not the next one's to read.
    pub fn forget_last_diagnostic(&mut self) {
        self.diagnostics.last = None;
    }

    /// The port's link came up or went down: the driver is told. What leaves or arrives meanwhile is the port's to lose.
    pub fn handle_link(&mut self, now_ns: u64, port: &mut dyn DmaPort, up: bool) {
        if self.link_up == up {
            return;
        }
        self.link_up = up;
        if self.running() {
            let host = &mut Host { port, now_ns };
            let event = if up { EventRecord::PortActive { port: PORT } } else { EventRecord::PortError { port: PORT } };
            self.async_event(host, event, Cause::Maintenance);
            self.settle(host);
        }
    }

    // Outputs.

    /// Fills `frame` with the next frame to send, if there is one. Called only when the port has room.
    pub fn poll_transmit(&mut self, now_ns: u64, port: &mut dyn DmaPort, frame: &mut Frame) -> bool {
        if !self.running() {
            return false;
        }
        let host = &mut Host { port, now_ns };
        // A turn that ends in a refusal owes it.
        let sent = self.respond(host, frame)
            || self.transmit_staged(host, frame)
            || self.take_turns(host, frame)
            || self.respond(host, frame);
        self.settle(host);
        sent
    }

    /// When `handle_timeout` wants to be called; early calls do no harm.
    pub fn poll_timeout(&self) -> Option<u64> {
        let moderated = self.moderated.next_ns();
        self.timers.next_ns().into_iter().chain(moderated).min()
    }

    /// The next diagnostic that nobody has read.
    pub fn poll_diagnostic(&mut self) -> Option<DiagnosticRecord> {
        self.diagnostics.pop()
    }

    /// False while inbound packets wait for host memory and no more can be kept: frames stay in the port.
    pub fn can_receive(&self) -> bool {
        !self.running()
            || (self.parked_frames < self.config.parked_frames && self.waiting_completions < WAITING_COMPLETIONS)
    }

    /// Something may be sent.
    pub fn has_output(&self) -> bool {
        self.running()
            && !(self.ready.is_empty()
                && self.responses.is_empty()
                && self.staged.is_empty()
                && self.replying.is_empty())
    }

    // Inside.

    /// Answers of READs and requests share the port, a packet each in turn.
    fn take_turns(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        self.reply_next = !self.reply_next && !self.replying.is_empty();
        let replied = self.reply_next && self.reply_turn(host, frame);
        replied || self.transmit_turn(host, frame) || self.reply_turn(host, frame)
    }

    /// Enabled, and not stopped for good.
    pub(crate) const fn running(&self) -> bool {
        self.enabled && !self.fatal
    }

    /// Runs again what waited for a fill.
    pub(crate) fn resume(&mut self, host: &mut Host, waiter: Waiter) {
        match waiter {
            Waiter::Transmit(qpn) => {
                let qp = self.queue_pairs.get_mut(qpn);
                if let Some(qp) = qp.filter(|qp| qp.transmit == TransmitState::Blocked) {
                    qp.transmit = TransmitState::Idle;
                    self.schedule(qpn);
                }
            }
            Waiter::WqeFetch(qpn) => self.fetch_work(host, qpn),
            Waiter::Staged(qpn) => self.restage(qpn),
            Waiter::Respond(qpn) => self.resume_answers(qpn),
            Waiter::Timeout(qpn) => self.retry_timer_expired(host, qpn),
            Waiter::Inbound(qpn) => self.resume_inbound(host, qpn),
            Waiter::ReceiveWqe(qpn) => self.receive_wqe_arrived(host, qpn, None),
            Waiter::Completion(cqn) => self.drain_completions(host, cqn),
            Waiter::Event(eqn) => self.drain_events(host, eqn),
            Waiter::Command => self.resume_commands(host),
        }
    }

    /// The end of every step: queue pairs that are lost end, and room in the pool goes to who waited for it.
    pub(crate) fn settle(&mut self, host: &mut Host) {
        loop {
            self.stop_if_strict(host);
            self.end_lost_queues(host);
            self.end_doomed(host);
            self.feed_starved(host);
            self.resume_atomics(host);
            if self.doomed.is_empty() && self.lost_queues.is_empty() && self.atomic_locks.nobody_woken() {
                return;
            }
        }
    }

    pub(crate) fn diagnose(&mut self, time_ns: u64, diagnostic: Diagnostic, object: u32, value: u64) {
        self.counters.diagnostics += 1;
        // What stopped the device stays to be read, whatever it complains of behind.
        let keeps_last = self.fatal || self.strict_stop.is_some();
        self.diagnostics.push(time_ns, diagnostic, object, value, keeps_last);
        if self.config.strict && diagnostic.severity() == Severity::Warning && !self.fatal {
            self.strict_stop.get_or_insert(diagnostic);
        }
    }

    pub(crate) fn key_exists(&self, index: u32) -> bool {
        self.keys_present.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    pub(crate) fn set_key_exists(&mut self, index: u32, exists: bool) {
        let at = index as usize / 64;
        if self.keys_present.len() <= at {
            self.keys_present.resize(at + 1, 0);
        }
        let bit = 1 << (index % 64);
        if exists {
            self.keys_present[at] |= bit;
        } else {
            self.keys_present[at] &= !bit;
        }
    }
}
