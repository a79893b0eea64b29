//! The capabilities: power management, MSI-X, PCI Express, vendor-specific ones; and the extended ones: advanced
//! error reporting, device serial number. The first three have fixed places.

use super::{CONFIG_BYTES, VendorCapability};

/// A space being laid out.
pub(super) struct Builder {
    pub bytes: Box<[u8; CONFIG_BYTES]>,
    pub writable: Box<[u8; CONFIG_BYTES]>,
    pub clear_on_one: Box<[u8; CONFIG_BYTES]>,
    /// Where the pointer to the next capability goes.
    pub last_pointer: usize,
}

impl Builder {
    pub fn set(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.bytes, at, bytes);
    }

    pub fn set_writable(&mut self, at: usize, mask: &[u8]) {
        put(&mut self.writable, at, mask);
    }

    pub fn set_clear_on_one(&mut self, at: usize, mask: &[u8]) {
        put(&mut self.clear_on_one, at, mask);
    }

    /// Links a capability in.
    fn add(&mut self, at: usize, id: u8) {
        self.set(self.last_pointer, &[at as u8]);
        self.set(at, &[id]);
        self.last_pointer = at + 1;
    }
}

/// What does not fit is left out: the layout is ours but for vendor-specific capabilities, which are checked.
fn put(into: &mut [u8; CONFIG_BYTES], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Power management, version 3: D0 and D3hot.
pub(super) mod power_management {
    use super::Builder;

    pub const OFFSET: usize = 0x40;
    /// The low byte of control and status, whose low two bits are the state.
    pub const STATE_BYTE: usize = OFFSET + 4;

    pub fn add(space: &mut Builder) {
        space.add(OFFSET, 0x01);
        space.set(OFFSET + 2, &[0x03, 0x00]);
        // No soft reset: what was set up before D3hot is there after it.
        space.set(STATE_BYTE, &[1 << 3]);
        space.set_writable(STATE_BYTE, &[0b11]);
    }

    /// D1 and D2 do not exist: writing them changes nothing.
    pub fn is_state(byte: u8) -> bool {
        matches!(byte & 0b11, 0 | 3)
    }
}

/// MSI-X: the table at the start of BAR 4, pending bits in its upper half.
pub(super) mod msix {
    use super::Builder;
    use crate::msix::{MAX_VECTORS, PBA_OFFSET, TABLE_OFFSET};

    const OFFSET: usize = 0x48;
    const BAR: u32 = 4;
    pub const CONTROL: usize = OFFSET + 2;
    pub const ENABLE: u16 = 1 << 15;
    pub const FUNCTION_MASK: u16 = 1 << 14;

    pub fn add(space: &mut Builder, vectors: u16) {
        space.add(OFFSET, 0x11);
        space.set(CONTROL, &(vectors.clamp(1, MAX_VECTORS) - 1).to_le_bytes());
        space.set_writable(CONTROL, &(ENABLE | FUNCTION_MASK).to_le_bytes());
        space.set(OFFSET + 4, &(TABLE_OFFSET as u32 | BAR).to_le_bytes());
        space.set(OFFSET + 8, &(PBA_OFFSET as u32 | BAR).to_le_bytes());
    }
}

/// Device Control in the PCI Express capability.
pub(super) mod device_control {
    pub const OFFSET: usize = super::express::OFFSET + 0x08;
    /// 512 bytes.
    pub const MPS_SUPPORTED: u32 = 2;
    /// 4096 bytes.
    pub const MRRS_LARGEST: u32 = 5;
    pub const MPS_MASK: u16 = 7 << 5;
    pub const FLR_BYTE: usize = OFFSET + 1;
    pub const FLR_BIT: u8 = 1 << 7;
    /// Relaxed ordering and no snoop allowed, MPS 128, MRRS 512.
    pub const INITIAL: u16 = 0x2810;
    /// Error reporting, relaxed ordering, MPS, extended tags, no snoop, MRRS. The reset bit reads as 0.
    pub const WRITABLE: u16 = 0x79ff;
}

/// Link Control in the PCI Express capability.
pub(super) mod link_control {
    pub const OFFSET: usize = super::express::OFFSET + 0x10;
    pub const RCB_128: u16 = 1 << 3;
    /// ASPM, RCB, common clock, extended synch.
    pub const WRITABLE: u16 = 0x00cb;
}

/// PCI Express, version 2, endpoint.
pub(super) mod express {
    use super::{Builder, device_control, link_control};
    use crate::LinkSettings;

    pub const OFFSET: usize = 0x60;
    /// Where the next capability may begin.
    pub const END: usize = OFFSET + 0x3c;

    /// MPS 512; extended tags; role-based error reporting; function level reset.
    const DEVICE_CAPABILITIES: u32 = device_control::MPS_SUPPORTED | 1 << 5 | 1 << 15 | 1 << 28;
    /// Completion timeout: ranges A to D, and it can be disabled.
    const DEVICE_CAPABILITIES_2: u32 = 0xf | 1 << 4;

    pub fn add(space: &mut Builder, link: LinkSettings) {
        let link = link.legalised();
        let speed = u32::from(link.generation);
        let width = u32::from(link.width);
        space.add(OFFSET, 0x10);
        space.set(OFFSET + 0x02, &0x0002u16.to_le_bytes());
        space.set(OFFSET + 0x04, &DEVICE_CAPABILITIES.to_le_bytes());
        space.set(device_control::OFFSET, &device_control::INITIAL.to_le_bytes());
        space.set_writable(device_control::OFFSET, &device_control::WRITABLE.to_le_bytes());
        // Device Status: four errors.
        space.set_clear_on_one(OFFSET + 0x0a, &[0x0f]);
        // Link Capabilities: no ASPM, and that is stated on purpose (bit 22).
        space.set(OFFSET + 0x0c, &(speed | width << 4 | 1 << 22).to_le_bytes());
        space.set_writable(link_control::OFFSET, &link_control::WRITABLE.to_le_bytes());
        // Link Status: as capable, on the slot's clock.
        space.set(OFFSET + 0x12, &((speed | width << 4 | 1 << 12) as u16).to_le_bytes());
        space.set(OFFSET + 0x24, &DEVICE_CAPABILITIES_2.to_le_bytes());
        space.set_writable(OFFSET + 0x28, &[0x1f]);
        // Link Capabilities 2: every speed up to ours.
        space.set(OFFSET + 0x2c, &(((1u32 << speed) - 1) << 1).to_le_bytes());
        // Link Control 2: target speed.
        space.set(OFFSET + 0x30, &[speed as u8]);
        space.set_writable(OFFSET + 0x30, &[0x0f]);
    }
}

/// Vendor-specific capabilities, one after the other behind PCI Express, as long as they fit.
pub(super) fn add_vendor_specific(space: &mut Builder, capabilities: &[VendorCapability]) {
    let mut at = express::END;
    for VendorCapability { body, writable } in capabilities {
        let end = at + 2 + body.len();
        if end > 0x100 {
            log::warn!("a vendor-specific capability of {} bytes does not fit at {at:#x}", body.len() + 2);
            return;
        }
        space.add(at, 0x09);
        space.set(at + 2, body);
        space.set_writable(at + 2, &writable[..writable.len().min(body.len())]);
        at = end.next_multiple_of(4);
    }
}

const ERROR_REPORTING: usize = 0x100;
const SERIAL_NUMBER: usize = 0x150;

fn extended_header(id: u16, version: u32, next: usize) -> [u8; 4] {
    (u32::from(id) | version << 16 | (next as u32) << 20).to_le_bytes()
}

/// Advanced error reporting, version 2. No error is ever reported; masks and severities are kept for software.
pub(super) fn add_error_reporting(space: &mut Builder) {
    const UNCORRECTABLE: u32 = 0x007f_f030;
    const CORRECTABLE: u32 = 0x0000_f1c1;
    let at = ERROR_REPORTING;
    space.set(at, &extended_header(0x0001, 2, SERIAL_NUMBER));
    space.set_clear_on_one(at + 0x04, &UNCORRECTABLE.to_le_bytes());
    space.set_writable(at + 0x08, &UNCORRECTABLE.to_le_bytes());
    space.set(at + 0x0c, &0x0046_2030u32.to_le_bytes());
    space.set_writable(at + 0x0c, &UNCORRECTABLE.to_le_bytes());
    space.set_clear_on_one(at + 0x10, &CORRECTABLE.to_le_bytes());
    // Advisory non-fatal errors are masked at first.
    space.set(at + 0x14, &0x0000_2000u32.to_le_bytes());
    space.set_writable(at + 0x14, &CORRECTABLE.to_le_bytes());
}

pub(super) fn add_serial_number(space: &mut Builder, serial_number: u64) {
    space.set(SERIAL_NUMBER, &extended_header(0x0003, 1, 0));
    space.set(SERIAL_NUMBER + 4, &serial_number.to_le_bytes());
}
