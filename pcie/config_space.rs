//! Configuration space: 4096 bytes, each with its writable and its write-one-to-clear bits.
//!
//! Accesses of any size at any offset go in; out go the bytes and what a write means for the rest of the device:
//! [`ConfigEffects`]. What the space holds is laid out once, from a [`ConfigDescription`]; configuration accesses
//! are not crossings.

mod capability;
mod layout;
#[cfg(test)]
mod tests;

use crate::LinkSettings;
use crate::msix::MsixControl;
use crate::planted::planted;
use capability::{device_control, link_control, msix, power_management};
use layout::{BAR0, COMMAND};

/// Size of the space.
pub const CONFIG_BYTES: usize = 4096;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;

/// What a base address register asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarDescription {
    /// A power of two, at least 16 (4 KiB makes pages that can be handed out one by one).
    pub size_bytes: u64,
    /// Takes two registers: its own and the next.
    pub is_64_bit: bool,
    pub prefetchable: bool,
}

/// What a function's configuration space says.
#[derive(Clone, Debug)]
pub struct ConfigDescription {
    pub vendor_id: u16,
    pub device_id: u16,
    pub subsystem_vendor_id: u16,
    pub subsystem_id: u16,
    pub revision: u8,
    /// Base class, sub class, interface: 0x020700.
    pub class: u32,
    pub multifunction: bool,
    pub bars: [Option<BarDescription>; 6],
    /// MSI-X vectors, whose table is in BAR 4.
    pub vectors: u16,
    /// Of the link: generation and width.
    pub link: LinkSettings,
    /// Device serial number; see [`serial_number`].
    pub serial_number: u64,
    /// One after the other behind PCI Express, from [`FIRST_VENDOR_CAPABILITY`] on, each at a multiple of 4, as far
    /// as they fit.
    pub vendor_capabilities: Vec<VendorCapability>,
}

/// Where the first vendor-specific capability is.
pub const FIRST_VENDOR_CAPABILITY: usize = capability::express::END;

/// A vendor-specific capability.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VendorCapability {
    /// From the length byte on, the third of the capability.
    pub body: Vec<u8>,
    /// The writable bits of the body; what is missing is read-only.
    pub writable: Vec<u8>,
}

impl ConfigDescription {
    /// The RDMA function: registers in BAR 0, doorbell pages in BAR 2, MSI-X in BAR 4.
    pub fn rnic(mac: [u8; 6], vectors: u16, doorbell_bytes: u64) -> Self {
        let bar = |size_bytes, prefetchable| Some(BarDescription { size_bytes, is_64_bit: true, prefetchable });
        Self {
            vendor_id: 0x1234,
            device_id: 0x12b7,
            subsystem_vendor_id: 0x1234,
            subsystem_id: 0x12b7,
            revision: 1,
            class: 0x02_07_00,
            multifunction: false,
            bars: [
                bar(0x1_0000, false),
                None,
                bar(doorbell_bytes.max(4096).next_power_of_two(), true),
                None,
                bar(crate::msix::BAR_BYTES, false),
                None,
            ],
            vectors,
            link: LinkSettings::AFTER_RESET,
            serial_number: serial_number(mac),
            vendor_capabilities: Vec::new(),
        }
    }
}

/// The serial number of a MAC address: its EUI-64 with ff:fe in the middle.
pub fn serial_number(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a, b, c, 0xff, 0xfe, d, e, f])
}

/// The power states that the function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    D0,
    D3Hot,
}

/// What a write means for the rest of the device; the new value of what it has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigEffects {
    pub bus_master_changed: Option<bool>,
    pub memory_enable_changed: Option<bool>,
    /// A function level reset was asked for. The owner carries it out, then calls
    /// [`ConfigSpace::function_level_reset`].
    pub flr: bool,
    pub msix_changed: Option<MsixControl>,
    pub link_changed: Option<LinkSettings>,
    pub power: Option<PowerState>,
    /// A base address has changed, or which are decoded.
    pub bars_changed: bool,
}

/// The configuration space of one function.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; CONFIG_BYTES]>,
    initial: Box<[u8; CONFIG_BYTES]>,
    writable: Box<[u8; CONFIG_BYTES]>,
    clear_on_one: Box<[u8; CONFIG_BYTES]>,
    bars: [Option<BarDescription>; 6],
    link: LinkSettings,
}

/// What effects are told from.
#[derive(PartialEq, Eq)]
struct State {
    command: u16,
    msix: MsixControl,
    link: LinkSettings,
    power: PowerState,
    bars: [u32; 6],
}

impl ConfigSpace {
    pub fn new(description: &ConfigDescription) -> Self {
        layout::build(description)
    }

    /// Reads at any offset; what lies past the end reads as ones, as where nothing answers.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = place(offset, index).and_then(|at| self.bytes.get(at)).copied().unwrap_or(0xff);
        }
    }

    /// Writes at any offset; read-only bits stay, what lies past the end is lost.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> ConfigEffects {
        let before = self.state();
        let mut flr = false;
        for (index, &value) in from.iter().enumerate() {
            let Some(at) = place(offset, index).filter(|&at| at < CONFIG_BYTES) else { break };
            flr |= at == device_control::FLR_BYTE && value & device_control::FLR_BIT != 0;
            self.write_byte(at, value);
        }
        self.settle(&before, flr)
    }

    fn write_byte(&mut self, at: usize, value: u8) {
        let (writable, clears) = (self.writable[at], self.clear_on_one[at]);
        let old = self.bytes[at];
        let mut new = (old & !writable) | (value & writable);
        if planted("config space writes status bits") {
            new |= value & clears;
        } else {
            new &= !(value & clears);
        }
        if at == power_management::STATE_BYTE && !power_management::is_state(new) {
            new = (new & !3) | (old & 3);
        }
        self.bytes[at] = new;
    }

    fn settle(&self, before: &State, flr: bool) -> ConfigEffects {
        let now = self.state();
        let changed = before.command ^ now.command;
        let bit = |bit: u16| (changed & bit != 0).then_some(now.command & bit != 0);
        ConfigEffects {
            bus_master_changed: bit(COMMAND_BUS_MASTER),
            memory_enable_changed: bit(COMMAND_MEMORY),
            flr,
            msix_changed: (before.msix != now.msix).then_some(now.msix),
            link_changed: (before.link != now.link).then_some(now.link),
            power: (before.power != now.power).then_some(now.power),
            bars_changed: before.bars != now.bars || changed & COMMAND_MEMORY != 0,
        }
    }

    fn state(&self) -> State {
        State {
            command: self.word(COMMAND),
            msix: self.msix_control(),
            link: self.link_settings(),
            power: self.power_state(),
            bars: std::array::from_fn(|bar| self.dword(BAR0 + 4 * bar)),
        }
    }

    /// Everything as after power-on.
    pub fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial[..]);
    }

    /// A function level reset leaves what belongs to the link as it is.
    pub fn function_level_reset(&mut self) {
        let kept_mps = self.word(device_control::OFFSET) & device_control::MPS_MASK;
        let kept_link = self.word(link_control::OFFSET);
        self.reset();
        let control = self.word(device_control::OFFSET) & !device_control::MPS_MASK;
        self.set_word(device_control::OFFSET, control | kept_mps);
        self.set_word(link_control::OFFSET, kept_link);
    }

    pub fn bus_master(&self) -> bool {
        self.word(COMMAND) & COMMAND_BUS_MASTER != 0
    }

    pub fn memory_enabled(&self) -> bool {
        self.word(COMMAND) & COMMAND_MEMORY != 0
    }

    pub fn power_state(&self) -> PowerState {
        if self.bytes[power_management::STATE_BYTE] & 3 == 3 { PowerState::D3Hot } else { PowerState::D0 }
    }

    pub fn msix_control(&self) -> MsixControl {
        let control = self.word(msix::CONTROL);
        MsixControl { enabled: control & msix::ENABLE != 0, function_masked: control & msix::FUNCTION_MASK != 0 }
    }

    /// MPS, MRRS and RCB as programmed; what the function does not support is brought to the nearest that it does.
    pub fn link_settings(&self) -> LinkSettings {
        let control = self.word(device_control::OFFSET);
        let mps_code = u32::from(control >> 5 & 7).min(device_control::MPS_SUPPORTED);
        let mrrs_code = u32::from(control >> 12 & 7).min(device_control::MRRS_LARGEST);
        let rcb_bytes = if self.word(link_control::OFFSET) & link_control::RCB_128 != 0 { 128 } else { 64 };
        LinkSettings { mps_bytes: 128 << mps_code, mrrs_bytes: 128 << mrrs_code, rcb_bytes, ..self.link }
    }

    /// Where a BAR is on the bus, decoded or not; `None` for one that the function does not have.
    pub fn bar_address(&self, bar: u8) -> Option<u64> {
        let index = usize::from(bar);
        let description = self.bars.get(index).copied().flatten()?;
        let low = u64::from(self.dword(BAR0 + 4 * index) & !0xf);
        let high = if description.is_64_bit { u64::from(self.dword(BAR0 + 4 * (index + 1))) } else { 0 };
        Some(high << 32 | low)
    }

    pub fn bar(&self, bar: u8) -> Option<BarDescription> {
        self.bars.get(usize::from(bar)).copied().flatten()
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn set_word(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn dword(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }
}

fn place(offset: u64, index: usize) -> Option<usize> {
    usize::try_from(offset).ok()?.checked_add(index)
}
