//! The engine's state, its inputs and its outputs.

use crate::blocks::{BlockLog, BlockTouch};
use crate::command::CommandQueue;
use crate::config::EngineConfig;
use crate::congestion::rate_limiter::RateLimiterTable;
use crate::context::Contexts;
use crate::context::queue_pair::QpState;
use crate::counters::Counters;
use crate::diagnostics::{DiagnosticRecord, Diagnostics};
use crate::front_end::native::Native;
use crate::front_end::{EventRecord, FrontEnd, Input, RegisterView};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Awaited, Pending, Stop, Waiter};
use crate::queues::{ArmRequest, CompletionQueue, EventQueue, Numbered, QueuePair, WqePool};
use crate::reliability::timer::TimerTable;
use crate::tx::gather::Gathering;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaFault, DmaPort, DmaTag, HostAccess, Observed, Origin};
use rnic_wire::Frame;
use std::collections::VecDeque;

/// Completions that wait for a read: beyond this the engine takes no more frames.
const WAITING_COMPLETIONS: usize = 4096;

/// A write by the host to a BAR, after write combining.
#[derive(Clone, Copy, Debug)]
pub struct HostWrite<'a> {
    pub bar: u8,
    pub offset: u64,
    pub data: &'a [u8],
    /// How it was seen to arrive.
    pub observed: Observed,
    /// Part of a 64-byte line that did not arrive whole.
    pub torn: bool,
}

impl HostWrite<'_> {
    pub(crate) fn count(&self, host: &mut Host, origin: Origin) {
        let access = HostAccess::Write { address: self.offset, bytes: self.data.len() as u32 };
        host.port.count(origin, self.bar, access, self.observed);
    }
}

/// One adapter.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) front_end: Box<dyn FrontEnd>,
    pub(crate) enabled: bool,
    pub(crate) fatal: bool,
    pub(crate) link_up: bool,
    pub(crate) commands: CommandQueue,
    pub(crate) contexts: Contexts,
    pub(crate) keys_present: Vec<u64>,
    pub(crate) queue_pairs: Numbered<QueuePair>,
    pub(crate) completion_queues: Numbered<CompletionQueue>,
    pub(crate) event_queues: Numbered<EventQueue>,
    pub(crate) wqes: WqePool,
    pub(crate) pending: Pending,
    pub(crate) ready: VecDeque<Qpn>,
    pub(crate) responses: VecDeque<Qpn>,
    pub(crate) staged: VecDeque<Gathering>,
    /// Queue pairs that go to the error state when the present step is done.
    pub(crate) doomed: Vec<(Qpn, Diagnostic)>,
    pub(crate) parked_frames: usize,
    pub(crate) waiting_completions: usize,
    pub(crate) timers: TimerTable,
    pub(crate) rate_limits: RateLimiterTable,
    pub(crate) counters: Counters,
    pub(crate) diagnostics: Diagnostics,
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
            config,
            front_end,
            enabled: false,
            fatal: false,
            link_up: true,
            commands: CommandQueue::default(),
            keys_present: Vec::new(),
            queue_pairs: Numbered::default(),
            completion_queues: Numbered::default(),
            event_queues: Numbered::default(),
            pending: Pending::default(),
            ready: VecDeque::new(),
            responses: VecDeque::new(),
            staged: VecDeque::new(),
            doomed: Vec::new(),
            parked_frames: 0,
            waiting_completions: 0,
            timers: TimerTable::default(),
            rate_limits: RateLimiterTable::default(),
            counters: Counters::default(),
            diagnostics: Diagnostics::default(),
            blocks: BlockLog::default(),
        }
    }

    // Inputs.

    /// A posted write by the host.
    pub fn handle_write(&mut self, now_ns: u64, port: &mut dyn DmaPort, access: &HostWrite) {
        let host = &mut Host { port, now_ns };
        let view = self.register_view(now_ns);
        match self.front_end.write(access.bar, access.offset, access.data, &view) {
            Ok(input) => self.handle_input(host, access, input),
            Err(diagnostic) => {
                access.count(host, Origin::new(Class::RegisterWrite, Cause::Maintenance));
                self.diagnose(now_ns, diagnostic, access.offset as u32, access.data.len() as u64);
            }
        }
        self.settle(host);
    }

    /// A read by the host. What does not exist reads as zero.
    pub fn handle_read(&mut self, now_ns: u64, port: &mut dyn DmaPort, bar: u8, offset: u64, data: &mut [u8]) {
        let bytes = data.len() as u32;
        let origin = Origin::new(Class::RegisterRead, Cause::Maintenance);
        port.count(origin, bar, HostAccess::Read { address: offset, bytes }, Observed { messages: 1, bytes });
        let view = self.register_view(now_ns);
        if let Err(diagnostic) = self.front_end.read(bar, offset, data, &view) {
            self.diagnose(now_ns, diagnostic, offset as u32, bytes.into());
        }
    }

    /// A frame from the port. Its buffer comes back empty or used, whichever the engine has.
    pub fn handle_frame(&mut self, now_ns: u64, port: &mut dyn DmaPort, frame: &mut Frame) {
        let host = &mut Host { port, now_ns };
        if self.enabled {
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
            Awaited::Command => self.command_arrived(host, bytes),
            Awaited::Wqes { qpn, index } => self.wqes_arrived(host, qpn, index, bytes),
            Awaited::ReceiveWqe { qpn } => self.receive_wqe_arrived(host, qpn, Some(bytes)),
            Awaited::Gather(gathering) => self.gathered(host, *gathering, bytes),
            Awaited::Record { cqn } => self.record_arrived(host, cqn, bytes),
        }
        // A command may have waited for reads to come home.
        self.resume_commands(host);
        self.settle(host);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now_ns: u64, port: &mut dyn DmaPort) {
        let host = &mut Host { port, now_ns };
        self.run_timers(host);
        self.settle(host);
    }

    /// Back to the state after power-on: nothing is written any more, late answers find nobody.
    pub fn handle_reset(&mut self) {
        let config = self.config.clone();
        let (counters, diagnostics) = (self.counters, std::mem::take(&mut self.diagnostics));
        let blocks = std::mem::take(&mut self.blocks);
        // A stand-in, for the moment in which the engine is taken apart.
        let mut front_end: Box<dyn FrontEnd> = Box::new(Native::default());
        std::mem::swap(&mut front_end, &mut self.front_end);
        front_end.reset();
        *self = Self { counters, diagnostics, blocks, ..Self::with_front_end(config, front_end) };
    }

    /// The port's link came up or went down.
    pub fn handle_link(&mut self, up: bool) {
        self.link_up = up;
    }

    // Outputs.

    /// Fills `frame` with the next frame to send, if there is one. Called only when the port has room.
    pub fn poll_transmit(&mut self, now_ns: u64, port: &mut dyn DmaPort, frame: &mut Frame) -> bool {
        let host = &mut Host { port, now_ns };
        let sent = self.respond(host, frame) || self.transmit_staged(host, frame) || self.transmit_turn(host, frame);
        self.settle(host);
        sent
    }

    /// When `handle_timeout` wants to be called; early calls do no harm.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// The next diagnostic that nobody has read.
    pub fn poll_diagnostic(&mut self) -> Option<DiagnosticRecord> {
        self.diagnostics.pop()
    }

    /// False while inbound packets wait for host memory and no more can be kept: frames stay in the port.
    pub fn can_receive(&self) -> bool {
        self.parked_frames < self.config.parked_frames && self.waiting_completions < WAITING_COMPLETIONS
    }

    /// Something may be sent.
    pub fn has_output(&self) -> bool {
        !(self.ready.is_empty() && self.responses.is_empty() && self.staged.is_empty())
    }

    // Views.

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The driver's mark register.
    pub fn mark(&self) -> u64 {
        self.front_end.mark()
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Starts or stops the record of touched blocks; starting empties it.
    pub fn watch_blocks(&mut self, on: bool) {
        self.blocks.watch(on);
    }

    pub fn block_touches(&self) -> &[BlockTouch] {
        self.blocks.touches()
    }

    /// The addresses that the port answers to.
    pub fn owns_gid(&self, gid: &[u8; 16]) -> bool {
        self.contexts.gids.iter().any(|entry| entry.gid == *gid)
    }

    /// Queue pairs, completion queues, event queues and keys that exist.
    pub fn object_counts(&self) -> [usize; 4] {
        let keys = self.keys_present.iter().map(|word| word.count_ones() as usize).sum();
        [self.queue_pairs.len(), self.completion_queues.len(), self.event_queues.len(), keys]
    }

    /// A queue pair's state.
    pub fn queue_pair_state(&self, qpn: u32) -> Option<QpState> {
        self.queue_pairs.get(Qpn(qpn)).map(|qp| qp.state)
    }

    /// Holds a queue pair to a rate in bytes per second, or lets it go.
    pub fn set_rate_limit(&mut self, qpn: u32, bytes_per_second: Option<u64>) {
        self.rate_limits.set(Qpn(qpn), bytes_per_second);
    }

    // Inside.

    fn register_view(&self, now_ns: u64) -> RegisterView {
        let last = self.diagnostics.last;
        RegisterView {
            now_ns,
            enabled: self.enabled,
            fatal: self.fatal,
            link_up: self.link_up,
            mac: self.config.mac,
            doorbell_pages: self.config.doorbell_pages,
            vectors: self.config.vectors.into(),
            port_mtu_bytes: 4096,
            last_diagnostic: last.map_or(0, |(diagnostic, _)| diagnostic.number()),
            last_object: last.map_or(0, |(_, object)| object),
        }
    }

    fn handle_input(&mut self, host: &mut Host, access: &HostWrite, input: Input) {
        let register = Origin::new(Class::RegisterWrite, Cause::Maintenance);
        if !self.enabled && access.bar == rnic_abi::registers::BAR_DOORBELLS {
            access.count(host, register);
            return self.diagnose(host.now_ns, Diagnostic::DeviceDisabled, access.offset as u32, 0);
        }
        match input {
            Input::Send { page, qpn, producer, form } => self.send_doorbell(host, access, page, qpn, producer, form),
            Input::Receive { page, qpn, producer } => self.receive_doorbell(host, access, page, qpn, producer),
            Input::ArmCq { page, cqn, consumer, sequence, solicited_only } => {
                let request = ArmRequest { consumer, sequence, solicited_only };
                self.arm_doorbell(host, access, page, cqn, request);
            }
            Input::UpdateEq { page, eqn, consumer, arm } => self.update_eq(host, access, page, eqn, consumer, arm),
            Input::Commands { producer } => {
                access.count(host, register);
                self.command_doorbell(host, producer);
            }
            Input::Enable => {
                access.count(host, register);
                self.enable(host);
            }
            Input::Disable => {
                access.count(host, register);
                self.handle_reset();
            }
            Input::Register => {
                access.count(host, register);
                if access.offset == u64::from(rnic_abi::registers::REG_LAST_DIAGNOSTIC) && access.bar == 0 {
                    self.diagnostics.last = None;
                }
            }
        }
    }

    fn enable(&mut self, host: &mut Host) {
        match self.front_end.command_rings() {
            Ok(rings) => {
                self.commands = CommandQueue::new(rings);
                self.enabled = true;
            }
            Err(diagnostic) => self.diagnose(host.now_ns, diagnostic, 0, 0),
        }
    }

    /// Runs again what waited for a fill.
    pub(crate) fn resume(&mut self, host: &mut Host, waiter: Waiter) {
        match waiter {
            Waiter::Transmit(qpn) => {
                if let Some(qp) = self.queue_pairs.get_mut(qpn)
                    && qp.transmit == crate::queues::TransmitState::Blocked
                {
                    qp.transmit = crate::queues::TransmitState::Idle;
                    self.schedule(qpn);
                }
            }
            Waiter::WqeFetch(qpn) => self.fetch_work(host, qpn),
            Waiter::Respond(qpn) => self.requeue_response(qpn),
            Waiter::Timeout(qpn) => self.retry_timer_expired(host, qpn),
            Waiter::Inbound(qpn) => self.resume_inbound(host, qpn),
            Waiter::ReceiveWqe(qpn) => self.receive_wqe_arrived(host, qpn, None),
            Waiter::Completion(cqn) => self.drain_completions(host, cqn),
            Waiter::Event(eqn) => self.drain_events(host, eqn),
            Waiter::Command => self.resume_commands(host),
        }
    }

    /// The end of every step: queue pairs whose completion queue has failed go to the error state.
    fn settle(&mut self, host: &mut Host) {
        while let Some((qpn, diagnostic)) = self.doomed.pop() {
            if self.queue_pairs.get(qpn).is_none_or(|qp| qp.state == QpState::Err || qp.state == QpState::Reset) {
                continue;
            }
            match self.load_qp(host, qpn, Cause::Maintenance, Waiter::Timeout(qpn)) {
                Ok(mut context) => {
                    let event = EventRecord::QpFatal { qpn: qpn.0, diagnostic };
                    self.enter_error(host, qpn, &mut context, event);
                    self.store_qp(host, qpn, context);
                }
                Err(stop) => {
                    let stop = if stop == Stop::Blocked { Stop::Broken(diagnostic) } else { stop };
                    self.queue_pair_broken(host, qpn, stop);
                }
            }
        }
    }

    pub(crate) fn diagnose(&mut self, time_ns: u64, diagnostic: Diagnostic, object: u32, value: u64) {
        self.counters.diagnostics += 1;
        self.diagnostics.push(DiagnosticRecord { time_ns, diagnostic, object, value });
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
