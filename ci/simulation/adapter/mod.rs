//! One adapter of the fabric: engine, link, configuration space and switch port, as a device has them, with the time
//! as an argument and host memory that answers when the plan says so.

use crate::plan::Memory;
use crate::random::Random;
use rnic_abi::doorbell::{DB_SEND_LINE_0, DB_SEND_LINE_1, DB_SEND_WQE_0, DB_SEND_WQE_1, DOORBELL_PAGE_BYTES};
use rnic_abi::registers::{BAR_DOORBELLS, BAR_REGISTERS};
use rnic_engine::{Engine, EngineConfig, HostWrite};
use rnic_pcie::config_space::{ConfigDescription, ConfigSpace};
use rnic_pcie::write_combine::{LineOffsets, WriteCombiner, Writes};
use rnic_pcie::{Cause, Class, DmaFault, DmaPort, DmaTag, Link, Observed, Origin, Revocation, Verdict};
use rnic_switch::Port;
use rnic_wire::{Frame, IcrcState, is_roce};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

const LINE_TIMEOUT_NS: u64 = 1_000_000;

mod handle;

pub use handle::Handle;

/// What the read policy tells of what it did.
#[derive(Debug, Default)]
struct Decisions {
    held: u64,
    faults: Vec<Origin>,
    /// Queue pairs that are destroyed, and reads that name one of them all the same.
    destroyed: BTreeSet<u32>,
    strays: Vec<Origin>,
}

impl Decisions {
    fn note_stray(&mut self, origin: Origin) {
        let (Cause::Send { qpn, .. } | Cause::Receive { qpn_or_srqn: qpn, .. } | Cause::Packet { qpn, .. }) =
            origin.cause
        else {
            return;
        };
        if self.destroyed.contains(&qpn) {
            self.strays.push(origin);
        }
    }
}

pub struct Adapter {
    pub engine: Engine,
    pub link: Link,
    pub port: Port,
    config: ConfigSpace,
    combiner: WriteCombiner,
    now_ns: u64,
    memory: Memory,
    random: Random,
    decisions: Arc<Mutex<Decisions>>,
    seen_held: u64,
    releases: BTreeMap<DmaTag, u64>,
    pub held_reads: u64,
    pub failed_reads: u64,
    /// Doorbells and other posted stores that the driver made.
    pub stores: u64,
}

impl Adapter {
    pub fn new(config: EngineConfig, port: Port, memory: Memory, mut random: Random) -> Self {
        let doorbell_bytes = u64::from(config.doorbell_pages) * u64::from(DOORBELL_PAGE_BYTES);
        let space = ConfigSpace::new(&ConfigDescription::rnic(config.mac, config.vectors, doorbell_bytes));
        let lines = [DB_SEND_LINE_0, DB_SEND_LINE_1, DB_SEND_WQE_0, DB_SEND_WQE_1].map(|offset| offset as u16);
        let mut adapter = Self {
            link: Link::new(space.link_settings(), config.vectors),
            engine: Engine::new(config),
            port,
            config: space,
            combiner: WriteCombiner::new(LineOffsets::new(DOORBELL_PAGE_BYTES.into(), &lines), LINE_TIMEOUT_NS),
            now_ns: 0,
            memory: Memory::default(),
            random: random.fork(),
            decisions: Arc::default(),
            seen_held: 0,
            releases: BTreeMap::new(),
            held_reads: 0,
            failed_reads: 0,
            stores: 0,
        };
        adapter.set_memory(memory);
        adapter
    }

    /// From now on host memory answers like this. What is held comes back in its time.
    pub fn set_memory(&mut self, memory: Memory) {
        self.memory = memory;
        let (mut random, decisions) = (self.random.fork(), Arc::clone(&self.decisions));
        self.link.set_read_policy(Some(Box::new(move |origin, _| {
            let mut decisions = decisions.lock().unwrap_or_else(PoisonError::into_inner);
            decisions.note_stray(origin);
            if memory.hold == 0 && memory.faults == 0 {
                return Verdict::Now;
            }
            // Only what fails queue pairs: a command ring that does not answer is another story.
            let share = match origin.class {
                Class::PayloadRead | Class::WqeFetch => memory.faults,
                // They are few, and of several kinds.
                Class::RecvWqeFetch => 10 * memory.faults,
                _ => 0,
            };
            if random.per_million(share) {
                decisions.faults.push(origin);
                return Verdict::Fault(DmaFault::CompleterAbort);
            }
            if random.per_million(memory.hold) {
                decisions.held += 1;
                return Verdict::Hold;
            }
            Verdict::Now
        })));
    }

    /// What the reads were for that were refused since the last call.
    pub fn take_faults(&mut self) -> Vec<Origin> {
        let faults = std::mem::take(&mut self.decisions.lock().unwrap_or_else(PoisonError::into_inner).faults);
        self.failed_reads += faults.len() as u64;
        faults
    }

    /// From now on there is no such queue pair, or there is one again.
    pub fn note_destroyed(&mut self, qpn: u32, destroyed: bool) {
        let numbers = &mut self.decisions.lock().unwrap_or_else(PoisonError::into_inner).destroyed;
        if destroyed {
            numbers.insert(qpn);
        } else {
            numbers.remove(&qpn);
        }
    }

    /// A read for a queue pair that there is not.
    pub fn stray_read(&self) -> Option<Origin> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).strays.first().copied()
    }

    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.link.set_time(now_ns);
    }

    /// Timers, and reads that come back. True when something happened.
    pub fn run_time(&mut self) -> bool {
        let mut any = false;
        if self.engine.poll_timeout().is_some_and(|due| due <= self.now_ns) {
            self.engine.handle_timeout(self.now_ns, &mut self.link);
            any = true;
        }
        if self.combiner.deadline_ns().is_some_and(|due| due <= self.now_ns) {
            let writes = self.combiner.expire(self.now_ns);
            self.deliver(BAR_DOORBELLS, &writes);
        }
        let now_ns = self.now_ns;
        any | self.release_reads(|due| due <= now_ns)
    }

    /// Lets reads go that are due, in the order of their tags, and the engine have what came of it.
    fn release_reads(&mut self, is_due: impl Fn(u64) -> bool) -> bool {
        self.note_held();
        if self.releases.is_empty() {
            return self.deliver_completions();
        }
        let due: Vec<DmaTag> = self.releases.iter().filter(|(_, at)| is_due(**at)).map(|(tag, _)| *tag).collect();
        for tag in &due {
            self.releases.remove(tag);
            self.link.release(*tag);
        }
        self.deliver_completions() | !due.is_empty()
    }

    /// Reads that the policy has held back get the time of their return.
    pub fn note_held(&mut self) {
        let held = self.decisions.lock().unwrap_or_else(PoisonError::into_inner).held;
        if held == self.seen_held {
            return;
        }
        self.held_reads += held - self.seen_held;
        self.seen_held = held;
        for tag in self.link.held_tags() {
            let delay_ns = self.random.between(1, self.memory.hold_max_ns.max(1));
            self.releases.entry(tag).or_insert(self.now_ns + delay_ns);
        }
    }

    fn deliver_completions(&mut self) -> bool {
        let mut any = false;
        while let Some((tag, result)) = self.link.next_completion() {
            let result = result.as_deref().map_err(|fault| *fault);
            self.engine.handle_dma_completion(self.now_ns, &mut self.link, tag, result);
            any = true;
        }
        self.note_held();
        any
    }

    pub fn next_deadline_ns(&self) -> Option<u64> {
        let reads = self.releases.values().min().copied();
        let times = [self.engine.poll_timeout(), self.combiner.deadline_ns(), self.port.next_release_ns(), reads];
        times.into_iter().flatten().min()
    }

    /// The next frame for the engine, if it may have one.
    pub fn receive(&mut self, frame: &mut Frame) -> bool {
        self.engine.can_receive() && self.link.has_room() && self.port.receive(frame, self.now_ns)
    }

    pub fn handle(&mut self, frame: &mut Frame) {
        if frame.icrc != IcrcState::NotRoce || is_roce(frame.bytes()) {
            self.engine.handle_frame(self.now_ns, &mut self.link, frame);
            self.note_held();
        }
    }

    /// Frames that the engine found to be no packets, or damaged ones.
    pub fn refused_frames(&self) -> u64 {
        let counters = self.engine.counters();
        counters.rx_icrc_errors + counters.rx_dropped_frame
    }

    /// The next frame of the engine; asked only when the port has room.
    pub fn transmit(&mut self, frame: &mut Frame) -> bool {
        let sent = self.engine.has_output()
            && self.link.has_room()
            && self.engine.poll_transmit(self.now_ns, &mut self.link, frame);
        self.note_held();
        sent
    }

    fn deliver(&mut self, bar: u8, writes: &Writes) {
        for write in writes {
            let Observed { messages, bytes } = write.observed;
            let observed = Observed { messages, bytes };
            let access = HostWrite { bar, offset: write.offset, data: &write.data, observed, torn: write.torn };
            self.engine.handle_write(self.now_ns, &mut self.link, &access);
        }
        self.note_held();
    }

    fn store(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        self.stores += 1;
        if bar == BAR_DOORBELLS {
            if let Ok(writes) = self.combiner.push(offset, bytes, self.now_ns) {
                self.deliver(bar, &writes);
            }
            return;
        }
        let writes = self.combiner.flush();
        self.deliver(BAR_DOORBELLS, &writes);
        if bar == BAR_REGISTERS {
            let observed = Observed { messages: 1, bytes: bytes.len() as u32 };
            let access = HostWrite { bar, offset, data: bytes, observed, torn: false };
            let was_enabled = self.engine.is_enabled();
            self.engine.handle_write(self.now_ns, &mut self.link, &access);
            if was_enabled && !self.engine.is_enabled() {
                self.discard();
            }
        }
        self.note_held();
    }

    /// Nothing that is in flight arrives any more.
    fn discard(&mut self) {
        self.link.revoke_all(Revocation::Discard);
        self.releases.clear();
    }

    fn apply_config(&mut self) {
        self.link.set_settings(self.config.link_settings());
        self.link.set_bus_master(self.config.bus_master());
        self.link.set_msix_control(self.config.msix_control());
        for bar in 0..6 {
            self.link.set_bar_address(bar, self.config.bar_address(bar).unwrap_or(0));
        }
    }
}
