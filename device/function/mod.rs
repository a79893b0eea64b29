//! The functions of an adapter: each has one socket, one configuration space, one life.
//!
//! In: what a vfio-user client asks (`backend`). Out, of the RNIC, function 0: the engine's inputs, through the write
//! combiner and the link. [`ethernet`] is function 1; [`pci_interface`] is what both have.

mod backend;
mod doorbell_lines;
pub mod ethernet;
pub mod marks;
mod pci_interface;
mod sharing;

pub use ethernet::EthernetFunction;

use pci_interface::PciInterface;
use rnic_engine::{Engine, EngineConfig, HostWrite};
use rnic_pcie::config_space::{ConfigDescription, ConfigEffects, ConfigSpace};
use rnic_pcie::write_combine::{WriteCombiner, Writes};
use rnic_pcie::{Link, LinkSettings, Revocation};
pub(crate) use sharing::{QUESTION, SharingCheck};

/// A line that has not become whole after this time is flushed in pieces: a processor's write-combining buffer
/// does not keep stores for ever either. Long enough for a virtual processor that loses its turn between two stores
/// on a busy machine; a store elsewhere or a read flushes at once.
const COMBINE_TIMEOUT_NS: u64 = 100_000_000;

/// The RNIC function.
pub struct RdmaFunction {
    pub engine: Engine,
    pub link: Link,
    pub(crate) pci: PciInterface,
    combiner: WriteCombiner,
    now_ns: u64,
    /// Changes at every reset: whoever waits for something of before need not wait any more.
    resets: u64,
    /// Messages to the client that a reset or bus mastering switched off has called back.
    revoked: bool,
    marks: marks::Marks,
}

impl RdmaFunction {
    pub fn new(config: EngineConfig) -> Self {
        Self::with_link(config, LinkSettings::AFTER_RESET)
    }

    /// The same on a link of another generation or width; the rest of the settings is the host's to program.
    pub fn with_link(config: EngineConfig, link: LinkSettings) -> Self {
        let doorbell_bytes = u64::from(config.doorbell_pages) * u64::from(rnic_abi::doorbell::DOORBELL_PAGE_BYTES);
        let description =
            ConfigDescription { link, ..ConfigDescription::rnic(config.mac, config.vectors, doorbell_bytes) };
        let (pci, link) = PciInterface::new(&description);
        let mut function = Self {
            link,
            pci,
            combiner: WriteCombiner::new(doorbell_lines::offsets(), COMBINE_TIMEOUT_NS),
            engine: Engine::new(config),
            now_ns: 0,
            resets: 0,
            revoked: false,
            marks: marks::Marks::default(),
        };
        function.tick();
        function
    }

    /// Reads the clock: once a step, not once a packet.
    pub fn tick(&mut self) -> u64 {
        self.now_ns = crate::clock::now_ns();
        self.link.set_time(self.now_ns);
        self.now_ns
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub fn config(&self) -> &ConfigSpace {
        self.pci.config()
    }

    /// What the driver has marked.
    pub fn marks(&self) -> &marks::Marks {
        &self.marks
    }

    /// Adds to new marks what the Ethernet function has counted.
    pub fn complete_marks(&mut self, ethernet: &Link) {
        self.marks.complete(ethernet.ledger());
    }

    /// The ledger and the operations that have ended.
    pub fn reading(&self) -> marks::Reading {
        marks::Reading::of(&self.link, self.engine.counters())
    }

    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// True once after DMA in flight was called back: the connection then forgets its own.
    pub fn take_revoked(&mut self) -> bool {
        std::mem::take(&mut self.revoked)
    }

    /// Whether guest memory is shared, once that is known.
    pub fn memory_is_shared(&self) -> Option<bool> {
        self.pci.sharing.verdict()
    }

    /// Stop, revoke, discard: what a reset of any kind, a disconnect, and bus mastering switched off have in common.
    fn quiesce(&mut self) {
        self.link.revoke_all(Revocation::Discard);
        self.engine.handle_reset();
        self.combiner.discard();
        self.pci.sharing.not_asked();
        self.resets += 1;
        self.revoked = true;
    }

    /// A reset of the whole function.
    fn reset_all(&mut self) {
        self.quiesce();
        self.pci.reset(&mut self.link);
    }

    fn apply_effects(&mut self, effects: ConfigEffects) {
        if effects.flr {
            self.quiesce();
            self.pci.function_level_reset(&mut self.link);
        } else if effects.bus_master_changed == Some(false) && self.engine.is_enabled() {
            self.quiesce();
        }
        self.pci.apply(&mut self.link);
    }

    fn deliver_writes(&mut self, bar: u8, writes: &Writes) {
        for write in writes {
            let access =
                HostWrite { bar, offset: write.offset, data: &write.data, observed: write.observed, torn: write.torn };
            self.engine.handle_write(self.now_ns, &mut self.link, &access);
        }
    }

    /// Stores of a line that never became whole.
    pub fn expire_line(&mut self) {
        if self.combiner.deadline_ns().is_some_and(|deadline| deadline <= self.now_ns) {
            let writes = self.combiner.expire(self.now_ns);
            self.deliver_writes(rnic_abi::registers::BAR_DOORBELLS, &writes);
        }
    }

    /// Hands completions of pending reads to the engine.
    pub fn deliver_completions(&mut self) -> bool {
        let mut any = false;
        while let Some((tag, result)) = self.link.next_completion() {
            let result = result.as_deref().map_err(|fault| *fault);
            self.engine.handle_dma_completion(self.now_ns, &mut self.link, tag, result);
            any = true;
        }
        any
    }

    /// When time alone will give this function something to do.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        [self.engine.poll_timeout(), self.combiner.deadline_ns(), self.pci.sharing.deadline_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn run_timers(&mut self) {
        if self.engine.poll_timeout().is_some_and(|deadline| deadline <= self.now_ns) {
            self.engine.handle_timeout(self.now_ns, &mut self.link);
        }
        self.expire_line();
    }
}
