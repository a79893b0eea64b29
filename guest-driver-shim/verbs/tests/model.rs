//! A model of the hardware's host side: registers, the command ring, a log of what was stored where. It answers every
//! command with OK unless told otherwise; completions and events are written by the tests themselves.

use crate::backing::Backing;
use crate::backings::in_process::{InProcess, InProcessDevice, ModelHost};
use crate::memory::{MappedMemory, Mapping};
use crate::verbs::{Device, OpenOptions};
use rnic_abi::command::{CommandHeader, CompletionHeader, DeviceLimits};
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, CommandStatus};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, Result};
use std::rc::Rc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// What a scripted command does instead of answering OK.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    Refuse(CommandStatus, u32),
    Ignore,
    WrongToken,
}

#[derive(Debug, Default)]
pub struct State {
    /// BAR stores that are no register accesses: BAR, offset, bytes.
    pub stores: Vec<(u8, u64, Vec<u8>)>,
    /// Commands in order, with their bodies.
    pub commands: Vec<(CommandOpcode, Vec<u8>)>,
    pub script: HashMap<u8, Script>,
    pub raised: Vec<u16>,
    pub last_diagnostic: u32,
    registers: HashMap<u64, u64>,
    command_index: u16,
    memory: Option<MappedMemory>,
}

impl State {
    pub fn memory(&self) -> &MappedMemory {
        self.memory.as_ref().unwrap()
    }

    fn register(&self, offset: u32) -> u64 {
        self.registers.get(&offset.into()).copied().unwrap_or(0)
    }

    fn run_commands(&mut self) {
        let log_slots = self.register(REG_COMMAND_RING_LOG_SLOTS);
        while self.command_index != self.register(REG_COMMAND_DOORBELL) as u16 {
            let index = self.command_index;
            self.command_index = index.wrapping_add(1);
            let offset = (u64::from(index) & ((1 << log_slots) - 1)) * 128;
            let mut slot = [0; 128];
            self.memory().copy_out(self.register(REG_COMMAND_RING) + offset, &mut slot).unwrap();
            let (header, body) = CommandHeader::read_from_prefix(&slot).unwrap();
            let opcode = CommandOpcode(header.opcode);
            self.commands.push((opcode, body.to_vec()));
            let mut answer = CompletionHeader { token: header.token, opcode: opcode.0, ..CompletionHeader::zeroed() };
            match self.script.get(&opcode.0) {
                None => {}
                Some(Script::Ignore) => continue,
                Some(Script::WrongToken) => answer.token = 77.into(),
                Some(Script::Refuse(status, diagnostic)) => {
                    (answer.status, answer.diagnostic) = (status.0, (*diagnostic).into());
                }
            }
            let mut completion = [0; 128];
            completion[..16].copy_from_slice(answer.as_bytes());
            if opcode == CommandOpcode::QUERY_DEVICE {
                completion[16..16 + size_of::<DeviceLimits>()].copy_from_slice(limits().as_bytes());
            }
            completion[124] = (!(index >> log_slots) & 1) as u8;
            self.memory().copy_in(self.register(REG_COMMAND_COMPLETION_RING) + offset, &completion).unwrap();
        }
    }
}

fn limits() -> DeviceLimits {
    DeviceLimits {
        log_qps: 8,
        log_cqs: 8,
        log_keys: 8,
        log_sq_slots: 15,
        log_rq_entries: 15,
        log_cq_entries: 10,
        log_eq_entries: 10,
        log_srqs: 6,
        log_srq_slots: 15,
        srq_context_bytes: 64.into(),
        max_inline_bytes: 224.into(),
        max_eqs: 4.into(),
        vectors: 4.into(),
        qp_context_bytes: 256.into(),
        cq_context_bytes: 64.into(),
        key_context_bytes: 64.into(),
        rd_atomic_context_bytes: 512.into(),
        max_rd_atomic: 16,
        ..DeviceLimits::zeroed()
    }
}

/// The model as the in-process backing sees it.
#[derive(Debug, Default)]
pub struct Model(Rc<RefCell<State>>);

impl InProcessDevice for Model {
    fn mmio_read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) -> Result<()> {
        assert_eq!(bar, BAR_REGISTERS);
        let state = self.0.borrow();
        let value = match offset as u32 {
            REG_MAGIC => MAGIC.into(),
            REG_VERSION => 1 << 16,
            REG_STATUS => state.register(REG_CONTROL) & u64::from(STATUS_ENABLED),
            REG_LAST_DIAGNOSTIC => state.last_diagnostic.into(),
            register => state.register(register),
        };
        bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
        Ok(())
    }

    fn mmio_write(&mut self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.0.borrow_mut();
        if bar != BAR_REGISTERS {
            state.stores.push((bar, offset, bytes.to_vec()));
            return Ok(());
        }
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        state.registers.insert(offset, u64::from_le_bytes(value));
        if offset == u64::from(REG_CONTROL) {
            state.command_index = 0;
        }
        if offset == u64::from(REG_COMMAND_DOORBELL) {
            state.run_commands();
        }
        Ok(())
    }

    /// Capabilities: PCI Express at 0x40, MSI-X at 0x80.
    fn config_read(&mut self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        let word: u32 = match offset {
            0x34 => 0x40,
            0x40 => 0x8010,
            0x80 => 0x0003_0011,
            _ => 0,
        };
        bytes.copy_from_slice(&word.to_le_bytes());
        Ok(())
    }

    fn config_write(&mut self, _: u16, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn map(&mut self, iova: u64, file: File, file_offset: u64, length_bytes: u64) -> Result<()> {
        let mapping = Mapping::of_file(&file, file_offset, length_bytes as usize).map_err(Error::other)?;
        self.0.borrow_mut().memory = Some(MappedMemory::new(iova, mapping));
        Ok(())
    }

    fn connect_vectors(&mut self, _: u16) -> Result<()> {
        Ok(())
    }

    fn take_vector(&mut self, vector: u16) -> Result<bool> {
        let mut state = self.0.borrow_mut();
        let found = state.raised.iter().position(|raised| *raised == vector);
        Ok(found.map(|at| state.raised.remove(at)).is_some())
    }

    fn step(&mut self) -> Result<()> {
        Ok(())
    }
}

pub const LIMIT: Duration = Duration::from_millis(50);

pub fn backing() -> (Box<dyn Backing>, Rc<RefCell<State>>) {
    let model = Model::default();
    let state = model.0.clone();
    let host = ModelHost { memory_bytes: 8 << 20, ..ModelHost::default() };
    (Box::new(InProcess::open(model, host).unwrap()), state)
}

/// An open device, with small command rings so that their phase wraps early.
pub fn device() -> (Device, Rc<RefCell<State>>) {
    let (backing, state) = backing();
    let options = OpenOptions { log_command_slots: 1, command_limit: LIMIT, ..OpenOptions::default() };
    let device = Device::open(backing, options).unwrap();
    state.borrow_mut().stores.clear();
    (device, state)
}
