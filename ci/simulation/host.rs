//! One host of the fabric: a driver over its adapter, its memory, its completion queues.

use crate::adapter::{Adapter, Handle};
use crate::message::{POOL_BYTES, pool};
use crate::plan::Plan;
use crate::random::Random;
use rnic_abi::command::*;
use rnic_engine::EngineConfig;
use rnic_shim::backing::DmaBuffer;
use rnic_shim::backings::in_process::{InProcess, ModelHost};
use rnic_shim::verbs::*;
use rnic_switch::{NeverSleeps, Switch};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Filled with [`CANARY`] and never touched again.
const GUARD_BYTES: u64 = 4096;
const CANARY: u8 = 0xa5;
const VLAN_ID: u16 = 77;

/// Memory that an adapter may reach under a key.
#[derive(Debug)]
pub struct Region {
    pub buffer: DmaBuffer,
    pub memory: MemoryRegion,
    pub layout: MrLayout,
    access: u32,
}

/// A completion queue and what is known of its event.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    pub cqn: Cqn,
    pub log_entries: u8,
    /// Solicited only, or any.
    pub armed: Option<bool>,
    /// An entry came since the arm that must raise the event.
    pub due: bool,
}

pub struct Host {
    pub device: Device,
    pub adapter: Rc<RefCell<Adapter>>,
    pub gid: [u8; 16],
    pub mac: [u8; 6],
    pub pd: Pdn,
    pub other_pd: Pdn,
    pub source: Region,
    /// In the other protection domain, and without rights for anyone else.
    pub foreign: Region,
    pub shut: Region,
    pub queues: Vec<Queue>,
    guards: Vec<DmaBuffer>,
    pub counted: Counted,
}

/// What the driver has done and seen, to be compared with the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub send_doorbells: u64,
    pub receive_doorbells: u64,
    pub arms: u64,
    pub completions: u64,
    /// Completions that may have been written between the last look and the reset of their queue pair.
    pub unseen_most: u64,
    pub events: u64,
    /// Packets with a payload that left, and that were placed at least or at most.
    pub gathered: u64,
    pub placed_least: u64,
    pub placed_most: u64,
    /// Atomics that were executed at least, and that came.
    pub atomics_least: u64,
    pub atomics_most: u64,
    pub atomic_writes_least: u64,
    pub atomic_writes_most: u64,
    pub flushes_least: u64,
    pub flushes_most: u64,
    pub receives_least: u64,
    pub receives_most: u64,
}

/// What a peer may do with the bytes that a host sends.
const READ_AND_FLUSH: u32 = ACCESS_REMOTE_READ | ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT;
/// What it may do with the memory that it works on; windows may show it.
const WORKED_ON: u32 =
    ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC | ACCESS_MW_BIND;

pub fn gid_of(host: usize, ipv6: bool) -> [u8; 16] {
    let number = host as u8 + 1;
    if ipv6 {
        [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, number]
    } else {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, number]
    }
}

/// The VLAN of all of them, if they are in one.
pub fn vlan_of(plan: &Plan) -> Option<u16> {
    plan.vlan.then_some(VLAN_ID)
}

impl Host {
    pub fn open(number: usize, plan: &Plan, switch: &Switch, memory_bytes: u64, random: &mut Random) -> Result<Self> {
        let mac = [2, 0, 0, 0, 1, number as u8 + 1];
        let port = switch
            .port(&format!("host{number}"), Arc::new(NeverSleeps))
            .map_err(|error| VerbsError::Missing { what: format!("switch port: {error}") })?;
        let config = EngineConfig { mac, ..plan.engine.clone() };
        // While the driver brings the hardware up, memory answers at once.
        let adapter = Adapter::new(config, port, crate::plan::Memory::default(), random.fork());
        let adapter = Rc::new(RefCell::new(adapter));
        let model = ModelHost { memory_bytes, ..ModelHost::default() };
        let backing = InProcess::open(Handle(Rc::clone(&adapter)), model)?;
        let options = OpenOptions { vectors: 0, log_async_eq_entries: 8, ..OpenOptions::default() };
        let mut device = Device::open(Box::new(backing), options)?;
        let gid = gid_of(number, plan.ipv6);
        device.set_gid(0, gid, mac, vlan_of(plan))?;
        let (pd, other_pd) = (device.allocate_pd()?, device.allocate_pd()?);
        let mut guards = Vec::new();
        let source =
            region(&mut device, pd, POOL_BYTES as u64, READ_AND_FLUSH | ACCESS_MW_BIND, MrLayout::List, &mut guards)?;
        device.backing().copy_in(source.buffer.iova, pool(number))?;
        let all = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | READ_AND_FLUSH;
        let foreign = region(&mut device, other_pd, 4096, all, MrLayout::Contiguous, &mut guards)?;
        let shut = region(&mut device, pd, 4096, ACCESS_LOCAL_WRITE, MrLayout::Contiguous, &mut guards)?;
        let (queues, counted) = (Vec::new(), Counted::default());
        Ok(Self { device, adapter, gid, mac, pd, other_pd, source, foreign, shut, queues, guards, counted })
    }

    /// Memory that the peer may write.
    pub fn open_region(&mut self, length_bytes: u64, layout: MrLayout) -> Result<Region> {
        region(&mut self.device, self.pd, length_bytes, WORKED_ON, layout, &mut self.guards)
    }

    /// Takes the region's key away and makes another for the same memory.
    pub fn rekey(&mut self, region: Region) -> Result<Region> {
        let Region { buffer, memory, layout, access } = region;
        self.device.deregister_memory(memory)?;
        let memory = self.device.register_memory(self.pd, RegionSpec::of_buffer(buffer, access, layout))?;
        Ok(Region { buffer, memory, layout, access })
    }

    /// The adapter begins anew: its address, its domains, its completion queues and the host's own regions.
    pub fn restart(&mut self, vlan: Option<u16>) -> Result<()> {
        self.device.restart()?;
        self.device.set_gid(0, self.gid, self.mac, vlan)?;
        (self.pd, self.other_pd) = (self.device.allocate_pd()?, self.device.allocate_pd()?);
        for region in [&mut self.source, &mut self.shut] {
            renew(&mut self.device, self.pd, region)?;
        }
        renew(&mut self.device, self.other_pd, &mut self.foreign)?;
        for queue in &mut self.queues {
            let Queue { cqn, log_entries, .. } = *queue;
            let eqn = Some(Device::ASYNC_EQN);
            let spec = CqSpec { cqn: Some(cqn.0), log_entries, eqn, doorbell_page: 1 };
            self.device.create_completion_queue(spec)?;
            (queue.armed, queue.due) = (None, false);
        }
        Ok(())
    }

    /// A region of before the adapter began anew gets another key.
    pub fn renew(&mut self, region: &mut Region) -> Result<()> {
        renew(&mut self.device, self.pd, region)
    }

    pub fn read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.device.backing().copy_out(iova, bytes)?)
    }

    /// Whether nothing was written beside the regions, or into those that nobody may write.
    pub fn check_guards(&mut self) -> std::result::Result<(), String> {
        let mut bytes = vec![0; GUARD_BYTES as usize];
        for guard in self.guards.clone() {
            self.read(guard.iova, &mut bytes).map_err(|error| error.to_string())?;
            if let Some(at) = bytes.iter().position(|byte| *byte != CANARY) {
                return Err(format!("byte {at} of the guard at {:#x} was written", guard.iova));
            }
        }
        Ok(())
    }
}

fn renew(device: &mut Device, pd: Pdn, region: &mut Region) -> Result<()> {
    let memory = device.register_memory(pd, RegionSpec::of_buffer(region.buffer, region.access, region.layout))?;
    device.forget_memory(std::mem::replace(&mut region.memory, memory));
    Ok(())
}

fn region(
    device: &mut Device,
    pd: Pdn,
    length_bytes: u64,
    access: u32,
    layout: MrLayout,
    guards: &mut Vec<DmaBuffer>,
) -> Result<Region> {
    let buffer = device.backing().allocate(length_bytes, 4096)?;
    let guard = device.backing().allocate(GUARD_BYTES, 4096)?;
    device.backing().copy_in(guard.iova, &[CANARY; GUARD_BYTES as usize])?;
    guards.push(guard);
    let memory = device.register_memory(pd, RegionSpec::of_buffer(buffer, access, layout))?;
    Ok(Region { buffer, memory, layout, access })
}
