//! A second hardware interface, as unlike the native one as the engine's words allow: big-endian, BARs swapped,
//! slots of 32 bytes, completions of 32, events of 8, receive requests of 32, owner bits at other places, commands
//! that name an entry of a table.

use rnic_abi::Diagnostic;
use rnic_engine::front_end::commands::*;
use rnic_engine::front_end::*;
use rnic_engine::numbers::*;
use std::sync::{Arc, Mutex};

/// The toy's commands, by number: its driver and its front end share the table.
pub type Commands = Arc<Mutex<Vec<Command>>>;

pub const SLOT: usize = 32;
pub const CQE: usize = 32;
pub const EQE: usize = 8;
pub const COMMAND: usize = 16;
pub const RECEIVE: u16 = 32;

/// Offsets in BAR 4.
pub const BELL_SEND: u64 = 0;
pub const BELL_RECEIVE: u64 = 8;
pub const BELL_ARM: u64 = 16;
pub const BELL_EVENTS: u64 = 24;
/// Offsets in BAR 2.
pub const START: u64 = 0;
pub const COMMAND_BELL: u64 = 8;

#[derive(Debug, Default)]
pub struct Toy {
    pub commands: Commands,
    pub rings: (u64, u64),
}

fn be64(bytes: &[u8], at: usize) -> Result<u64, Diagnostic> {
    let field = bytes.get(at..at + 8).and_then(|field| field.try_into().ok());
    field.map(u64::from_be_bytes).ok_or(Diagnostic::WqeLength)
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, Diagnostic> {
    let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
    field.map(u32::from_be_bytes).ok_or(Diagnostic::WqeLength)
}

impl FrontEnd for Toy {
    /// Doorbells: object in the high half, index in the low one.
    fn write(&mut self, bar: u8, offset: u64, data: &[u8], _view: &RegisterView) -> Result<Input, Diagnostic> {
        let value = be64(data, 0).map_err(|_| Diagnostic::RegisterAccess)?;
        let (object, index) = ((value >> 32) as u32, value as u32);
        match (bar, offset) {
            (2, START) => Ok(if value == 0 { Input::Disable } else { Input::Enable }),
            (2, COMMAND_BELL) => Ok(Input::Commands { producer: index as u16 }),
            (4, BELL_SEND) => {
                let form = DoorbellForm::Value;
                Ok(Input::Send { page: 0, qpn: Qpn(object), producer: index as u16, form })
            }
            (4, BELL_RECEIVE) => Ok(Input::Receive { page: 0, qpn: Qpn(object), producer: index as u16 }),
            (4, BELL_ARM) => {
                let (cqn, sequence) = (Cqn(object & 0xffff), (object >> 24) as u8);
                Ok(Input::ArmCq { page: 0, cqn, consumer: index, sequence, solicited_only: false })
            }
            (4, BELL_EVENTS) => Ok(Input::UpdateEq { page: 0, eqn: Eqn(object), consumer: index, arm: true }),
            _ => Err(Diagnostic::RegisterAccess),
        }
    }

    fn read(&self, _bar: u8, _offset: u64, data: &mut [u8], view: &RegisterView) -> Result<(), Diagnostic> {
        data.fill(view.enabled.into());
        Ok(())
    }

    fn reset(&mut self) {}

    fn mark(&self) -> u64 {
        0
    }

    fn command_rings(&self) -> Result<CommandRings, Diagnostic> {
        Ok(CommandRings { commands: self.rings.0, completions: self.rings.1, log_slots: 3 })
    }

    fn command_bytes(&self) -> usize {
        COMMAND
    }

    fn decode_command(&self, slot: &[u8]) -> Result<Command, CommandError> {
        let number = be32(slot, 4).map_err(|_| CommandError::range(0))?;
        let commands = self.commands.lock().expect("nobody panics with the table");
        commands.get(number as usize).copied().ok_or(CommandError::range(number))
    }

    fn wants_event(&self, slot: &[u8]) -> bool {
        slot[15] == 1
    }

    /// The owner bit stands first, the number of the rule behind it.
    fn encode_answer(
        &self,
        _slot: u16,
        _slot_bytes: &[u8],
        answer: &Result<Answer, CommandError>,
        phase: bool,
        out: &mut [u8],
    ) {
        out.fill(0);
        out[0] = if phase { 0x80 } else { 0 };
        let number = answer.as_ref().err().map_or(0, |error| error.diagnostic.number());
        out[4..8].copy_from_slice(&number.to_be_bytes());
    }

    fn send_slot_bytes(&self) -> usize {
        SLOT
    }

    /// A first slot with the request and its remote address, then one slot an element.
    fn send_slots(&self, first_slot: &[u8]) -> u16 {
        1 + u16::from(first_slot.get(1).copied().unwrap_or(0) & 3)
    }

    fn decode_send(&self, expected: Expected, bytes: &[u8]) -> Result<SendWork, Diagnostic> {
        let slots = self.send_slots(bytes);
        if slots > expected.available_slots || bytes.len() < usize::from(slots) * SLOT {
            return Err(Diagnostic::WqeLength);
        }
        let operation = match bytes[0] {
            b's' => Operation::Send,
            b'w' => Operation::Write,
            b'i' => Operation::WriteImm,
            _ => return Err(Diagnostic::WqeOpcode),
        };
        let mut elements = ScatterList::new();
        for slot in 1..usize::from(slots) {
            elements.push(element(bytes, slot * SLOT)?);
        }
        let length_bytes = elements.iter().map(|element| element.length_bytes).sum();
        Ok(SendWork {
            operation,
            signaled: bytes[2] == 1,
            solicited: false,
            fence: false,
            immediate: be32(bytes, 4)?,
            remote_address: be64(bytes, 8)?,
            rkey: Key(be32(bytes, 16)?),
            swap_or_add: 0,
            compare: 0,
            length_bytes,
            slots,
            destination: None,
            srqn: None,
            body: Body::Gather(elements),
        })
    }

    fn decode_receive(&self, bytes: &[u8]) -> Result<ScatterList, Diagnostic> {
        let mut list = ScatterList::new();
        list.push(element(bytes, 0)?);
        Ok(list)
    }

    fn completion_bytes(&self) -> usize {
        CQE
    }

    /// The owner bit stands in the first byte.
    fn encode_completion(&self, completion: &Completion, _now_ns: u64, phase: bool, out: &mut [u8]) {
        out.fill(0);
        out[0] = if phase { 0x80 } else { 0 };
        out[1] = completion.status as u8;
        out[2..4].copy_from_slice(&completion.wqe_index.to_be_bytes());
        out[4..8].copy_from_slice(&completion.qpn.0.to_be_bytes());
        out[8..12].copy_from_slice(&completion.length_bytes.to_be_bytes());
        if let CompletionKind::Received { immediate: Some(immediate), .. } = completion.kind {
            out[12..16].copy_from_slice(&immediate.to_be_bytes());
        }
    }

    fn event_bytes(&self) -> usize {
        EQE
    }

    fn encode_event(&self, event: &EventRecord, phase: bool, out: &mut [u8]) {
        out.fill(0);
        out[0] = if phase { 0x80 } else { 0 };
        let (code, object) = match event {
            EventRecord::Completion { cqn, .. } => (1, *cqn),
            EventRecord::Command { slot } => (2, u32::from(*slot)),
            _ => (3, 0),
        };
        out[1] = code;
        out[4..8].copy_from_slice(&object.to_be_bytes());
    }

    fn decode_record(&self, bytes: &[u8; 8]) -> u32 {
        u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
    }
}

/// Length, key, address.
fn element(bytes: &[u8], at: usize) -> Result<Element, Diagnostic> {
    let (length_bytes, key) = (be32(bytes, at)?, Key(be32(bytes, at + 4)?));
    Ok(Element { address: be64(bytes, at + 8)?, length_bytes, key })
}
