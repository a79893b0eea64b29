//! Opening a device: identify it, hand over the command ring, enable, ask its limits, hand over context tables,
//! connect vectors and create the event queue for asynchronous events.

use super::command::CommandQueue;
use super::completion_queue::CompletionQueue;
use super::error::check_limit;
use super::event_queue::EventQueue;
use super::numbers::Numbers;
use super::queue_pair::QueuePair;
use super::shared_receive::{LOG_SRQS, SharedReceiveQueue};
use super::{Cqn, Eqn, Pdn, Qpn, Result, Srqn, VerbsError};
use crate::backing::{Backing, DmaBuffer};
use crate::verbs::page_list;
use rnic_abi::command::*;
use rnic_abi::doorbell::DOORBELL_PAGE_BYTES;
use rnic_abi::limits::MAX_LOG_COMMAND_SLOTS;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, VERSION_MAJOR};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// What the driver asks of a device when it opens it.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    pub log_command_slots: u8,
    /// Sizes of the context tables, at most the device's own limits.
    pub log_qps: u8,
    pub log_cqs: u8,
    pub log_keys: u8,
    /// The lowest index of the keys that are handed out.
    pub first_key_index: u32,
    /// MSI-X vectors to connect, at most the device's; 0 leaves MSI-X off.
    pub vectors: u16,
    pub log_async_eq_entries: u8,
    /// How long a command, or a change of CONTROL, may take.
    pub command_limit: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            log_command_slots: 4,
            log_qps: 8,
            log_cqs: 8,
            log_keys: 10,
            first_key_index: 1,
            vectors: 2,
            log_async_eq_entries: 6,
            command_limit: Duration::from_secs(10),
        }
    }
}

/// An open device and all its objects.
pub struct Device {
    pub(crate) backing: Box<dyn Backing>,
    pub(crate) commands: CommandQueue,
    pub(crate) limits: DeviceLimits,
    pub(crate) tables: Vec<DmaBuffer>,
    pub(crate) vectors: u16,
    pub(crate) qpns: Numbers,
    pub(crate) cqns: Numbers,
    pub(crate) eqns: Numbers,
    pub(crate) srqns: Numbers,
    pub(crate) key_indices: Numbers,
    pub(crate) pdns: Numbers,
    /// The driver's own byte of the next key, so that a stale key is not valid by accident.
    pub(crate) next_key_byte: u8,
    pub(crate) queue_pairs: HashMap<Qpn, QueuePair>,
    pub(crate) completion_queues: HashMap<Cqn, CompletionQueue>,
    pub(crate) event_queues: BTreeMap<Eqn, EventQueue>,
    pub(crate) shared_receive_queues: BTreeMap<Srqn, SharedReceiveQueue>,
    /// Their table is handed over with the first one.
    pub(crate) srq_table_is_set: bool,
    /// Which of the two lines of each form the next doorbell of a page uses.
    pub(crate) line_turn: BTreeMap<u32, u8>,
    options: OpenOptions,
}

/// The event queue of asynchronous events.
pub const ASYNC_EQN: Eqn = Eqn(0);

impl Device {
    pub const ASYNC_EQN: Eqn = ASYNC_EQN;

    pub fn open(mut backing: Box<dyn Backing>, options: OpenOptions) -> Result<Self> {
        check_limit("log of command slots", options.log_command_slots.into(), MAX_LOG_COMMAND_SLOTS.into())?;
        identify(backing.as_mut())?;
        backing.write32(BAR_REGISTERS, REG_LAST_DIAGNOSTIC.into(), 0)?;
        set_enabled(backing.as_mut(), false, options.command_limit)?;
        let mut commands = CommandQueue::create(backing.as_mut(), options.log_command_slots, options.command_limit)?;
        set_enabled(backing.as_mut(), true, options.command_limit)?;
        let answer = commands.execute(backing.as_mut(), CommandOpcode::QUERY_DEVICE, &[])?;
        let (limits, _) = DeviceLimits::read_from_prefix(&answer)
            .map_err(|_| VerbsError::CommandAnswer { what: "limits that are too short".into() })?;
        let vectors = options.vectors.min(limits.vectors.get());
        if vectors > 0 {
            backing.enable_vectors(vectors)?;
        }
        let log_keys = options.log_keys.min(limits.log_keys);
        let mut device = Self {
            backing,
            commands,
            limits,
            tables: Vec::new(),
            vectors,
            qpns: Numbers::new("QPN", 2, 1 << options.log_qps.min(limits.log_qps).min(24)),
            cqns: Numbers::new("CQN", 1, 1 << options.log_cqs.min(limits.log_cqs).min(24)),
            srqns: Numbers::new("SRQN", 1, 1 << LOG_SRQS.min(limits.log_srqs)),
            eqns: Numbers::new("EQN", 0, limits.max_eqs.get().into()),
            key_indices: Numbers::new("key index", options.first_key_index, 1 << log_keys.min(24)),
            pdns: Numbers::new("PD number", 1, 1 << 24),
            next_key_byte: 0x5a,
            queue_pairs: HashMap::new(),
            completion_queues: HashMap::new(),
            event_queues: BTreeMap::new(),
            shared_receive_queues: BTreeMap::new(),
            srq_table_is_set: false,
            line_turn: BTreeMap::new(),
            options,
        };
        device.begin()?;
        Ok(device)
    }

    /// Disables the device, which resets it, and gives the backing back.
    pub fn close(mut self) -> Result<Box<dyn Backing>> {
        self.abandon()?;
        self.commands.release(self.backing.as_mut());
        Ok(self.backing)
    }

    /// Begins anew, as after a reset of the function: the device is reset, everything that was created is gone and every
    /// number free again. Regions and keys of before are of no use; [`Device::forget_memory`] takes what a region held.
    pub fn restart(&mut self) -> Result<()> {
        self.abandon()?;
        let numbers =
            [&mut self.qpns, &mut self.cqns, &mut self.srqns, &mut self.eqns, &mut self.key_indices, &mut self.pdns];
        numbers.into_iter().for_each(Numbers::free_all);
        self.line_turn.clear();
        self.srq_table_is_set = false;
        let (slots, limit) = (self.options.log_command_slots, self.options.command_limit);
        let commands = CommandQueue::create(self.backing.as_mut(), slots, limit)?;
        std::mem::replace(&mut self.commands, commands).release(self.backing.as_mut());
        set_enabled(self.backing.as_mut(), true, limit)?;
        if self.vectors > 0 {
            self.backing.enable_vectors(self.vectors)?;
        }
        self.begin()
    }

    /// What every open device has: its tables, and the event queue of asynchronous events.
    fn begin(&mut self) -> Result<()> {
        self.set_tables()?;
        let vector = (self.vectors > 0).then_some(0);
        self.create_event_queue(Some(ASYNC_EQN), vector, self.options.log_async_eq_entries).map(drop)
    }

    /// Disables the device and gives back all memory that it was told of, but for the command ring.
    fn abandon(&mut self) -> Result<()> {
        set_enabled(self.backing.as_mut(), false, self.options.command_limit)?;
        let queues = self.queue_pairs.drain().flat_map(|(_, qp)| qp.into_buffers());
        let queues = queues.chain(self.completion_queues.drain().flat_map(|(_, cq)| cq.into_buffers()));
        let shared = std::mem::take(&mut self.shared_receive_queues);
        let queues = queues.chain(shared.into_values().flat_map(SharedReceiveQueue::into_buffers));
        let event_queues = std::mem::take(&mut self.event_queues);
        for buffer in queues.chain(event_queues.into_values().map(|eq| eq.ring)).chain(self.tables.drain(..)) {
            self.backing.release(buffer);
        }
        Ok(())
    }

    /// What QUERY_DEVICE answered when the device was opened.
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// MSI-X vectors that are connected.
    pub fn vectors(&self) -> u16 {
        self.vectors
    }

    pub fn backing(&mut self) -> &mut dyn Backing {
        self.backing.as_mut()
    }

    /// The port's MAC address.
    pub fn mac(&mut self) -> Result<[u8; 6]> {
        let value = self.backing.read64(BAR_REGISTERS, REG_MAC.into())?.to_le_bytes();
        Ok([value[0], value[1], value[2], value[3], value[4], value[5]])
    }

    pub fn port_mtu_bytes(&mut self) -> Result<u32> {
        Ok(self.backing.read32(BAR_REGISTERS, REG_PORT_MTU.into())?)
    }

    pub fn features(&mut self) -> Result<u64> {
        Ok(self.backing.read64(BAR_REGISTERS, REG_FEATURES.into())?)
    }

    pub fn status(&mut self) -> Result<u32> {
        Ok(self.backing.read32(BAR_REGISTERS, REG_STATUS.into())?)
    }

    /// Number and object of the last diagnostic; number 0 is none.
    pub fn last_diagnostic(&mut self) -> Result<(u32, u32)> {
        let number = self.backing.read32(BAR_REGISTERS, REG_LAST_DIAGNOSTIC.into())?;
        Ok((number, self.backing.read32(BAR_REGISTERS, REG_LAST_DIAGNOSTIC_OBJECT.into())?))
    }

    /// Writes the MARK register: tools that watch the device see where the driver is.
    pub fn mark(&mut self, value: u64) -> Result<()> {
        Ok(self.backing.write64(BAR_REGISTERS, REG_MARK.into(), value)?)
    }

    /// Sets one entry of the port's GID table.
    pub fn set_gid(&mut self, index: u16, gid: [u8; 16], mac: [u8; 6], vlan_id: Option<u16>) -> Result<()> {
        let vlan_id = vlan_id.unwrap_or(NO_VLAN).into();
        let body = SetGid { index: index.into(), valid: 1, vlan_id, mac, gid, ..SetGid::zeroed() };
        self.command(CommandOpcode::SET_GID, body.as_bytes()).map(drop)
    }

    pub fn clear_gid(&mut self, index: u16) -> Result<()> {
        let body = SetGid { index: index.into(), vlan_id: NO_VLAN.into(), ..SetGid::zeroed() };
        self.command(CommandOpcode::SET_GID, body.as_bytes()).map(drop)
    }

    /// Makes the device write back and forget what it has cached; `FLUSH_*` bits.
    pub fn flush_caches(&mut self, mask: u32) -> Result<()> {
        let body = FlushCaches { mask: mask.into(), ..FlushCaches::zeroed() };
        self.command(CommandOpcode::FLUSH_CACHES, body.as_bytes()).map(drop)
    }

    pub fn allocate_pd(&mut self) -> Result<Pdn> {
        self.pdns.take(None).map(Pdn)
    }

    pub fn release_pd(&mut self, pd: Pdn) {
        self.pdns.give(pd.0);
    }

    pub(crate) fn command(&mut self, opcode: CommandOpcode, body: &[u8]) -> Result<[u8; super::command::ANSWER_BYTES]> {
        self.commands.execute(self.backing.as_mut(), opcode, body)
    }

    pub(crate) fn command_on_object(&mut self, opcode: CommandOpcode, number: u32) -> Result<()> {
        let body = ObjectNumber { number: number.into(), ..ObjectNumber::zeroed() };
        self.command(opcode, body.as_bytes()).map(drop)
    }

    /// Writes an 8-byte doorbell.
    pub(crate) fn doorbell(&mut self, page: u32, offset: u32, value: u64) -> Result<()> {
        let at = u64::from(page) * u64::from(DOORBELL_PAGE_BYTES) + u64::from(offset);
        Ok(self.backing.write64(BAR_DOORBELLS, at, value)?)
    }

    fn set_tables(&mut self) -> Result<()> {
        let limits = self.limits;
        let options = self.options;
        let tables = [
            (TABLE_QP, options.log_qps.min(limits.log_qps), limits.qp_context_bytes.get()),
            (TABLE_CQ, options.log_cqs.min(limits.log_cqs), limits.cq_context_bytes.get()),
            (TABLE_KEY, options.log_keys.min(limits.log_keys), limits.key_context_bytes.get()),
            (TABLE_RD_ATOMIC, options.log_qps.min(limits.log_qps), limits.rd_atomic_context_bytes.get()),
        ];
        for (kind, log_entries, entry_bytes) in tables {
            // A device that knows neither READ nor atomics.
            if entry_bytes == 0 {
                continue;
            }
            check_limit("log of table entries", log_entries.into(), 24)?;
            let table = self.backing.allocate(u64::from(entry_bytes) << log_entries, 4096)?;
            self.tables.push(table);
            let pages = page_list::contiguous(table.iova);
            let body = SetTable { kind, log_entries, pages, ..SetTable::zeroed() };
            self.command(CommandOpcode::SET_TABLE, body.as_bytes())?;
        }
        Ok(())
    }
}

fn identify(backing: &mut dyn Backing) -> Result<()> {
    let found = backing.read32(BAR_REGISTERS, REG_MAGIC.into())?;
    if found != MAGIC {
        return Err(VerbsError::Magic { found });
    }
    let version = backing.read32(BAR_REGISTERS, REG_VERSION.into())?;
    match (version >> 16) as u16 {
        VERSION_MAJOR => Ok(()),
        major => Err(VerbsError::Version { major, minor: version as u16 }),
    }
}

/// Writes CONTROL and waits until STATUS agrees.
fn set_enabled(backing: &mut dyn Backing, enabled: bool, limit: Duration) -> Result<()> {
    let control = if enabled { CONTROL_ENABLE } else { 0 };
    backing.write32(BAR_REGISTERS, REG_CONTROL.into(), control)?;
    let start = Instant::now();
    while (backing.read32(BAR_REGISTERS, REG_STATUS.into())? & STATUS_ENABLED != 0) != enabled {
        if start.elapsed() > limit {
            let what = if enabled { "enabling the device" } else { "disabling the device" };
            let diagnostic = backing.read32(BAR_REGISTERS, REG_LAST_DIAGNOSTIC.into())?;
            return Err(VerbsError::Timeout { what: what.into(), limit, diagnostic });
        }
        backing.pause()?;
    }
    Ok(())
}
