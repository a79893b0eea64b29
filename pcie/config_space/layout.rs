//! Lays a function's configuration space out: the header, then the capabilities in their fixed places.

use super::capability::{self, Builder};
use super::{BarDescription, CONFIG_BYTES, ConfigDescription, ConfigSpace};
use crate::LinkSettings;

pub(super) const COMMAND: usize = 0x04;
pub(super) const BAR0: usize = 0x10;
const STATUS: usize = 0x06;
const CAPABILITIES_POINTER: usize = 0x34;

/// Memory space, bus master, parity error response, SERR#, INTx disable.
const COMMAND_WRITABLE: u16 = 0x0546;
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Master data parity error, and the five abort and error bits.
const STATUS_CLEAR_ON_ONE: u16 = 0xf900;

pub(super) fn build(description: &ConfigDescription) -> ConfigSpace {
    let mut space = Builder::new();
    header(&mut space, description);
    for (index, bar) in description.bars.iter().enumerate() {
        if let Some(bar) = bar {
            base_address(&mut space, index, bar);
        }
    }
    capability::power_management::add(&mut space);
    capability::msix::add(&mut space, description.vectors);
    capability::express::add(&mut space, description.link);
    capability::add_vendor_specific(&mut space, &description.vendor_capabilities);
    capability::add_error_reporting(&mut space);
    capability::add_serial_number(&mut space, description.serial_number);
    let Builder { bytes, writable, clear_on_one, .. } = space;
    ConfigSpace {
        initial: bytes.clone(),
        bytes,
        writable,
        clear_on_one,
        bars: description.bars,
        link: LinkSettings { ..description.link.legalised() },
    }
}

fn header(space: &mut Builder, description: &ConfigDescription) {
    space.set(0x00, &description.vendor_id.to_le_bytes());
    space.set(0x02, &description.device_id.to_le_bytes());
    space.set_writable(COMMAND, &COMMAND_WRITABLE.to_le_bytes());
    space.set(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
    space.set_clear_on_one(STATUS, &STATUS_CLEAR_ON_ONE.to_le_bytes());
    let [interface, sub_class, base_class, _] = description.class.to_le_bytes();
    space.set(0x08, &[description.revision, interface, sub_class, base_class]);
    space.set_writable(0x0c, &[0xff]); // Cache line size: kept for software, without effect.
    space.set(0x0e, &[if description.multifunction { 0x80 } else { 0x00 }]);
    space.set(0x2c, &description.subsystem_vendor_id.to_le_bytes());
    space.set(0x2e, &description.subsystem_id.to_le_bytes());
    space.set(CAPABILITIES_POINTER, &[capability::power_management::OFFSET as u8]);
    space.set_writable(0x3c, &[0xff]); // Interrupt line. The pin, 0x3d, stays 0: there is no INTx.
}

/// The writable bits are those above the size, so that writing ones shows the size.
fn base_address(space: &mut Builder, index: usize, bar: &BarDescription) {
    let at = BAR0 + 4 * index;
    let size = bar.size_bytes.max(16).checked_next_power_of_two().unwrap_or(1 << 63);
    let mask = !(size - 1);
    let kind = u8::from(bar.is_64_bit) << 2 | u8::from(bar.prefetchable) << 3;
    space.set(at, &[kind]);
    let [a, b, c, d, upper @ ..] = mask.to_le_bytes();
    space.set_writable(at, &[a & 0xf0, b, c, d]);
    if bar.is_64_bit && index < 5 {
        space.set_writable(at + 4, &upper);
    }
}

impl Builder {
    fn new() -> Self {
        let zeros = || Box::new([0; CONFIG_BYTES]);
        Self { bytes: zeros(), writable: zeros(), clear_on_one: zeros(), last_pointer: CAPABILITIES_POINTER }
    }
}
