//! The command queue's client: one command at a time, its completion polled with a limit.
//!
//! In: an opcode and a body. Out: the answer's body, or what the device refused and by which rule.

use super::error::explain;
use super::{Result, VerbsError};
use crate::backing::{Backing, DmaBuffer};
use rnic_abi::command::{COMMAND_BYTES, COMMAND_PHASE, CommandHeader, CompletionHeader};
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, CommandStatus};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const SLOT_BYTES: usize = COMMAND_BYTES as usize;
const HEADER_BYTES: usize = size_of::<CommandHeader>();
/// What a completion carries behind its header and before its phase.
pub(crate) const ANSWER_BYTES: usize = SLOT_BYTES - size_of::<CompletionHeader>() - 4;

/// A command that the device refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{opcode:?} was refused with {status:?}: {}", explain(*.diagnostic))]
pub struct CommandRefused {
    pub opcode: CommandOpcode,
    pub status: CommandStatus,
    /// Number of the rule, see [`rnic_abi::diagnostic::rule`].
    pub diagnostic: u32,
}

#[derive(Debug)]
pub(crate) struct CommandQueue {
    ring: DmaBuffer,
    completions: DmaBuffer,
    log_slots: u8,
    /// Free-running modulo 2^16.
    producer: u16,
    next_token: u32,
    limit: Duration,
}

impl CommandQueue {
    /// Allocates both rings and writes their registers; the device must be disabled.
    pub fn create(backing: &mut dyn Backing, log_slots: u8, limit: Duration) -> Result<Self> {
        let length_bytes = u64::from(COMMAND_BYTES) << log_slots;
        let ring = backing.allocate(length_bytes, 4096)?;
        let completions = backing.allocate(length_bytes, 4096)?;
        backing.write64(BAR_REGISTERS, REG_COMMAND_RING.into(), ring.iova)?;
        backing.write64(BAR_REGISTERS, REG_COMMAND_COMPLETION_RING.into(), completions.iova)?;
        backing.write32(BAR_REGISTERS, REG_COMMAND_RING_LOG_SLOTS.into(), log_slots.into())?;
        Ok(Self { ring, completions, log_slots, producer: 0, next_token: 1, limit })
    }

    /// Gives the rings back; the device must be disabled.
    pub fn release(self, backing: &mut dyn Backing) {
        backing.release(self.ring);
        backing.release(self.completions);
    }

    pub fn execute(
        &mut self,
        backing: &mut dyn Backing,
        opcode: CommandOpcode,
        body: &[u8],
    ) -> Result<[u8; ANSWER_BYTES]> {
        let mut slot = [0; SLOT_BYTES];
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        let header = CommandHeader { opcode: opcode.0, token: token.into(), ..CommandHeader::zeroed() };
        slot[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let room = slot.get_mut(HEADER_BYTES..HEADER_BYTES + body.len());
        let most = (SLOT_BYTES - HEADER_BYTES) as u64;
        room.ok_or(VerbsError::Limit { what: "command body", wanted: body.len() as u64, most })?.copy_from_slice(body);

        let index = self.producer;
        let offset = u64::from(index & ((1 << self.log_slots) - 1)) * u64::from(COMMAND_BYTES);
        backing.copy_in(self.ring.iova + offset, &slot)?;
        self.producer = index.wrapping_add(1);
        backing.write32(BAR_REGISTERS, REG_COMMAND_DOORBELL.into(), self.producer.into())?;
        self.wait_phase(backing, opcode, index, self.completions.iova + offset)?;
        backing.copy_out(self.completions.iova + offset, &mut slot)?;
        self.read_answer(opcode, token, &slot)
    }

    fn wait_phase(&self, backing: &mut dyn Backing, opcode: CommandOpcode, index: u16, slot_iova: u64) -> Result<()> {
        let phase = !(u32::from(index) >> self.log_slots) & COMMAND_PHASE;
        let start = Instant::now();
        while backing.load32(slot_iova + u64::from(COMMAND_BYTES) - 4)? & COMMAND_PHASE != phase {
            if start.elapsed() > self.limit {
                return Err(VerbsError::Timeout {
                    what: format!("{opcode:?} in command slot {}", index & ((1 << self.log_slots) - 1)),
                    limit: self.limit,
                    diagnostic: backing.read32(BAR_REGISTERS, REG_LAST_DIAGNOSTIC.into())?,
                });
            }
            backing.pause()?;
        }
        Ok(())
    }

    fn read_answer(&self, opcode: CommandOpcode, token: u32, slot: &[u8; SLOT_BYTES]) -> Result<[u8; ANSWER_BYTES]> {
        let short = |_| VerbsError::CommandAnswer { what: "a short slot".into() };
        let (header, rest) = CompletionHeader::read_from_prefix(slot).map_err(|_| short(()))?;
        if header.token.get() != token || header.opcode != opcode.0 {
            let found = CommandOpcode(header.opcode);
            let what = format!("token {} of {found:?} instead of {token} of {opcode:?}", header.token);
            return Err(VerbsError::CommandAnswer { what });
        }
        let status = CommandStatus(header.status);
        if status != CommandStatus::OK {
            return Err(CommandRefused { opcode, status, diagnostic: header.diagnostic.get() }.into());
        }
        rest.first_chunk().copied().ok_or(()).map_err(short)
    }
}
