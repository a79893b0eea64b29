//! The native interface, `rnic-abi`: registers, doorbells, commands, work requests, completions, events.

mod commands;
mod completions;
mod doorbells;
mod registers;
mod work_requests;

use super::*;
use registers::Registers;
use rnic_abi::{command, completion, event, registers as reg, work_request};

/// The front end of the native interface. Its only state is the registers.
#[derive(Debug, Default)]
pub struct Native {
    registers: Registers,
}

impl FrontEnd for Native {
    fn write(&mut self, bar: u8, offset: u64, data: &[u8], view: &RegisterView) -> Result<Input, Diagnostic> {
        match bar {
            reg::BAR_REGISTERS => self.registers.write(offset, data, view),
            reg::BAR_DOORBELLS => doorbells::decode(offset, data),
            _ => Err(Diagnostic::RegisterAccess),
        }
    }

    fn read(&self, bar: u8, offset: u64, data: &mut [u8], view: &RegisterView) -> Result<(), Diagnostic> {
        data.fill(0);
        match bar {
            reg::BAR_REGISTERS => self.registers.read(offset, data, view),
            reg::BAR_DOORBELLS => Ok(()),
            _ => Err(Diagnostic::RegisterAccess),
        }
    }

    fn reset(&mut self) {
        self.registers = Registers::default();
    }

    fn mark(&self) -> u64 {
        self.registers.mark
    }

    fn command_rings(&self) -> Result<CommandRings, Diagnostic> {
        self.registers.command_rings()
    }

    fn command_bytes(&self) -> usize {
        command::COMMAND_BYTES as usize
    }

    fn decode_command(&self, slot: &[u8]) -> Result<Command, CommandError> {
        commands::decode(slot)
    }

    fn wants_event(&self, slot: &[u8]) -> bool {
        slot.get(1).is_some_and(|flags| flags & command::COMMAND_NOTIFY != 0)
    }

    fn encode_answer(
        &self,
        slot: u16,
        slot_bytes: &[u8],
        answer: &Result<Answer, CommandError>,
        phase: bool,
        out: &mut [u8],
    ) {
        commands::encode(slot, slot_bytes, answer, phase, out);
    }

    fn send_slot_bytes(&self) -> usize {
        work_request::WQE_SLOT_BYTES as usize
    }

    fn send_slots(&self, first_slot: &[u8]) -> u16 {
        work_requests::slots(first_slot)
    }

    fn decode_send(&self, expected: Expected, bytes: &[u8]) -> Result<SendWork, Diagnostic> {
        work_requests::decode_send(expected, bytes)
    }

    fn decode_receive(&self, bytes: &[u8]) -> Result<ScatterList, Diagnostic> {
        work_requests::decode_receive(bytes)
    }

    fn completion_bytes(&self) -> usize {
        completion::CQE_BYTES as usize
    }

    fn encode_completion(&self, completion: &Completion, now_ns: u64, phase: bool, out: &mut [u8]) {
        completions::encode_completion(completion, now_ns, phase, out);
    }

    fn event_bytes(&self) -> usize {
        event::EQE_BYTES as usize
    }

    fn encode_event(&self, event: &EventRecord, phase: bool, out: &mut [u8]) {
        completions::encode_event(event, phase, out);
    }

    fn decode_record(&self, bytes: &[u8; 8]) -> u32 {
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}
