//! BAR 0.

use super::*;
use rnic_abi::limits;
use rnic_abi::registers::*;

/// The registers that hold what was written; the rest are views of the engine.
#[derive(Debug, Default)]
pub(super) struct Registers {
    command_ring: u64,
    completion_ring: u64,
    log_slots: u32,
    pub(super) mark: u64,
}

/// A write of 4 bytes to one half of an 8-byte register, or of all 8.
fn merge(old: u64, high_half: bool, data: &[u8]) -> u64 {
    match (data.len(), high_half) {
        (8, _) => word(data),
        (_, false) => (old & !0xffff_ffff) | word(data),
        (_, true) => (old & 0xffff_ffff) | word(data) << 32,
    }
}

fn word(data: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = data.len().min(8);
    bytes[..length].copy_from_slice(&data[..length]);
    u64::from_le_bytes(bytes)
}

/// Accesses are aligned and of 4 or 8 bytes; the latter only where a register of 8 bytes stands.
fn register_of(offset: u64, length: usize) -> Result<(u32, bool), Diagnostic> {
    let at = u32::try_from(offset).map_err(|_| Diagnostic::RegisterAccess)?;
    let wide = [REG_FEATURES, REG_MAC, REG_COMMAND_RING, REG_COMMAND_COMPLETION_RING, REG_MARK, REG_TIME];
    let register = if wide.contains(&(at & !7)) { at & !7 } else { at };
    match length {
        4 if at % 4 == 0 => Ok((register, at != register)),
        8 if at == register && wide.contains(&at) => Ok((register, false)),
        _ => Err(Diagnostic::RegisterAccess),
    }
}

impl Registers {
    pub(super) fn read(&self, offset: u64, data: &mut [u8], view: &RegisterView) -> Result<(), Diagnostic> {
        let (register, high_half) = register_of(offset, data.len())?;
        let value = self.value(register, view).ok_or(Diagnostic::RegisterAccess)?;
        let value = if high_half { value >> 32 } else { value };
        let length = data.len();
        data.copy_from_slice(&value.to_le_bytes()[..length]);
        Ok(())
    }

    fn value(&self, register: u32, view: &RegisterView) -> Option<u64> {
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&view.mac);
        let bit = |set: bool, bit: u32| if set { u64::from(bit) } else { 0 };
        Some(match register {
            REG_MAGIC => MAGIC.into(),
            REG_VERSION => u64::from(rnic_abi::VERSION_MAJOR) << 16 | u64::from(rnic_abi::VERSION_MINOR),
            REG_FEATURES => {
                FEATURE_ROCE_V2
                    | FEATURE_DOORBELL_LINE
                    | FEATURE_DOORBELL_WQE
                    | FEATURE_READ
                    | FEATURE_ATOMIC
                    | FEATURE_INVALIDATE
                    | FEATURE_UC
                    | FEATURE_UD
                    | FEATURE_MULTICAST
                    | FEATURE_SRQ
                    | FEATURE_CQ_RESIZE
                    | FEATURE_CQ_MODERATION
                    | FEATURE_FAST_REGISTER
                    | FEATURE_ZERO_BASED
                    | FEATURE_REREGISTER
                    | FEATURE_LOCAL_DMA_KEY
                    | FEATURE_WINDOW
                    | FEATURE_COUNTERS
                    | FEATURE_ATOMIC_WRITE
                    | FEATURE_FLUSH
                    | FEATURE_XRC
                    | FEATURE_SELECTIVE
            }
            REG_STATUS => {
                bit(view.enabled, STATUS_ENABLED) | bit(view.fatal, STATUS_FATAL) | bit(view.link_up, STATUS_LINK_UP)
            }
            REG_CONTROL => bit(view.enabled, CONTROL_ENABLE),
            REG_MAC => u64::from_le_bytes(mac),
            REG_DOORBELL_PAGES => view.doorbell_pages.into(),
            REG_VECTORS => view.vectors.into(),
            REG_PORT_MTU => view.port_mtu_bytes.into(),
            REG_COMMAND_RING => self.command_ring,
            REG_COMMAND_COMPLETION_RING => self.completion_ring,
            REG_COMMAND_RING_LOG_SLOTS => self.log_slots.into(),
            REG_COMMAND_DOORBELL => 0,
            REG_LAST_DIAGNOSTIC => view.last_diagnostic.into(),
            REG_LAST_DIAGNOSTIC_OBJECT => view.last_object.into(),
            REG_MARK => self.mark,
            REG_TIME => view.now_ns,
            _ => return None,
        })
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8], view: &RegisterView) -> Result<Input, Diagnostic> {
        let (register, high_half) = register_of(offset, data.len())?;
        let ring = matches!(register, REG_COMMAND_RING | REG_COMMAND_COMPLETION_RING | REG_COMMAND_RING_LOG_SLOTS);
        if ring && view.enabled {
            return Err(Diagnostic::RegisterWhileEnabled);
        }
        match register {
            REG_CONTROL => return self.control(word(data) as u32, view),
            REG_COMMAND_DOORBELL => return Self::command_doorbell(word(data)),
            REG_COMMAND_RING => self.command_ring = merge(self.command_ring, high_half, data),
            REG_COMMAND_COMPLETION_RING => self.completion_ring = merge(self.completion_ring, high_half, data),
            REG_COMMAND_RING_LOG_SLOTS => self.log_slots = word(data) as u32,
            REG_MARK => {
                self.mark = merge(self.mark, high_half, data);
                return Ok(Input::Mark(self.mark));
            }
            REG_LAST_DIAGNOSTIC => return Ok(Input::ClearDiagnostic),
            known if self.value(known, view).is_some() => return Err(Diagnostic::RegisterReadOnly),
            _ => return Err(Diagnostic::RegisterAccess),
        }
        Ok(Input::Register)
    }

    fn control(&self, value: u32, view: &RegisterView) -> Result<Input, Diagnostic> {
        match (value & CONTROL_ENABLE != 0, view.enabled) {
            (true, false) => Ok(Input::Enable),
            (false, true) => Ok(Input::Disable),
            _ => Ok(Input::Register),
        }
    }

    fn command_doorbell(value: u64) -> Result<Input, Diagnostic> {
        u16::try_from(value).map(|producer| Input::Commands { producer }).map_err(|_| Diagnostic::DoorbellReserved)
    }

    pub(super) fn command_rings(&self) -> Result<CommandRings, Diagnostic> {
        let aligned = (self.command_ring | self.completion_ring).is_multiple_of(4096);
        let present = self.command_ring != 0 && self.completion_ring != 0;
        if !aligned || !present || self.log_slots > u32::from(limits::MAX_LOG_COMMAND_SLOTS) {
            return Err(Diagnostic::CommandRingInvalid);
        }
        Ok(CommandRings {
            commands: self.command_ring,
            completions: self.completion_ring,
            log_slots: self.log_slots as u8,
        })
    }
}
