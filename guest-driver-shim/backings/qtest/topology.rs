//! What firmware would have done: number the buses behind root ports, open their windows, place the device's BARs.
//!
//! In: ports 0xcf8 and 0xcfc. Out: the function and where its BARs are.

use super::protocol::Qtest;
use crate::backing::{BackingError, Result};
use crate::pci::{BAR_0, COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, ConfigSpace, VENDOR_ID};
use rnic_abi::{PCI_DEVICE_ID, PCI_VENDOR_ID};

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
const HEADER_TYPE: u16 = 0x0c;
const BRIDGE_BUSES: u16 = 0x18;
const BRIDGE_WINDOW: u16 = 0x20;
const BRIDGE_PREFETCHABLE_WINDOW: u16 = 0x24;
const BARS: usize = 6;
/// Windows of one bridge; those of the next follow.
const WINDOW_ADDRESS: u64 = 0xe000_0000;
const WINDOW_BYTES: u64 = 16 << 20;
const PREFETCHABLE_ADDRESS: u64 = 0x80_0000_0000;
const PREFETCHABLE_BYTES: u64 = 1 << 30;

/// One function on one bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

/// Its configuration space. Only the first 256 bytes are reached, which hold all that is needed.
pub(super) struct FunctionConfig<'a> {
    pub qtest: &'a mut Qtest,
    pub function: Function,
}

impl FunctionConfig<'_> {
    fn select(&mut self, offset: u16) -> Result<()> {
        let Function { bus, device, function } = self.function;
        let place = u32::from(bus) << 16 | u32::from(device & 31) << 11 | u32::from(function & 7) << 8;
        self.qtest.port_out32(CONFIG_ADDRESS, 0x8000_0000 | place | u32::from(offset & 0xfc))
    }

    fn exists(&mut self) -> Result<bool> {
        Ok(self.read_config16(VENDOR_ID)? != 0xffff)
    }
}

impl ConfigSpace for FunctionConfig<'_> {
    fn read_config32(&mut self, offset: u16) -> Result<u32> {
        self.select(offset)?;
        self.qtest.port_in32(CONFIG_DATA)
    }

    fn write_config32(&mut self, offset: u16, value: u32) -> Result<()> {
        self.select(offset)?;
        self.qtest.port_out32(CONFIG_DATA, value)
    }

    fn write_config16(&mut self, offset: u16, value: u16) -> Result<()> {
        self.select(offset)?;
        self.qtest.port_out16(CONFIG_DATA + (offset & 2), value)
    }
}

/// The `nth` rnic behind the root ports of bus 0, with its BARs placed.
pub(super) fn find_device(qtest: &mut Qtest, nth: usize) -> Result<(Function, [u64; BARS])> {
    let wanted = u32::from(PCI_DEVICE_ID) << 16 | u32::from(PCI_VENDOR_ID);
    let mut found = 0;
    let mut bridges = 0u8;
    for place in 0..=u8::MAX {
        let function = Function { bus: 0, device: place >> 3, function: place & 7 };
        let mut config = FunctionConfig { qtest, function };
        let is_bridge = config.exists()? && config.read_config32(HEADER_TYPE)? >> 16 & 0x7f == 1;
        if !is_bridge {
            continue;
        }
        bridges += 1;
        // Bus numbers: primary 0; secondary and subordinate are the bridge's own.
        let buses = u32::from(bridges) << 16 | u32::from(bridges) << 8;
        config.write_config32(BRIDGE_BUSES, buses)?;
        for below in 0..8 {
            let function = Function { bus: bridges, device: 0, function: below };
            let mut below = FunctionConfig { qtest, function };
            if below.read_config32(VENDOR_ID)? != wanted {
                continue;
            }
            if found == nth {
                let bars = place_bars(&mut below, bridges)?;
                let bridge = Function { bus: 0, device: place >> 3, function: place & 7 };
                open_windows(&mut FunctionConfig { qtest, function: bridge }, bridges)?;
                return Ok((function, bars));
            }
            found += 1;
        }
    }
    let place = format!("as number {nth} behind the {bridges} root ports of bus 0");
    Err(BackingError::NoDevice { vendor: PCI_VENDOR_ID, device: PCI_DEVICE_ID, place })
}

fn windows(bridge: u8) -> (u64, u64) {
    let index = u64::from(bridge) - 1;
    (WINDOW_ADDRESS + index % 16 * WINDOW_BYTES, PREFETCHABLE_ADDRESS + index * PREFETCHABLE_BYTES)
}

/// Sizes every BAR and gives it an address in the bridge's windows.
fn place_bars(config: &mut FunctionConfig<'_>, bridge: u8) -> Result<[u64; BARS]> {
    let (window, prefetchable) = windows(bridge);
    let mut rooms = [(window, window + WINDOW_BYTES), (prefetchable, prefetchable + PREFETCHABLE_BYTES)];
    let mut addresses = [0; BARS];
    let mut index = 0;
    while index < BARS {
        let register = BAR_0 + 4 * index as u16;
        config.write_config32(register, u32::MAX)?;
        let low = config.read_config32(register)?;
        let is_64_bit = low & 0x6 == 0x4;
        let mut mask = u64::from(low & !0xf) | 0xffff_ffff_0000_0000;
        if is_64_bit && index + 1 < BARS {
            config.write_config32(register + 4, u32::MAX)?;
            mask = u64::from(low & !0xf) | u64::from(config.read_config32(register + 4)?) << 32;
        }
        let size = mask.wrapping_neg();
        if low & !0xf != 0 && low & 1 == 0 && size.is_power_of_two() {
            let (next, end) = &mut rooms[usize::from(low & 0x8 != 0)];
            let address = next.next_multiple_of(size);
            if address.checked_add(size).is_none_or(|bar_end| bar_end > *end) {
                return Err(BackingError::Missing { what: format!("room for BAR {index} of {size:#x} bytes") });
            }
            *next = address + size;
            config.write_config32(register, address as u32)?;
            if is_64_bit {
                config.write_config32(register + 4, (address >> 32) as u32)?;
            }
            addresses[index] = address;
        }
        index += if is_64_bit { 2 } else { 1 };
    }
    Ok(addresses)
}

fn open_windows(config: &mut FunctionConfig<'_>, bridge: u8) -> Result<()> {
    let (window, prefetchable) = windows(bridge);
    // Base and limit in bits 15:4 of each half, in units of 1 MiB; the limit is inclusive.
    let pair = |first: u64, bytes: u64| {
        let (first, last) = (first as u32, (first + bytes - 1) as u32);
        last & 0xfff0_0000 | (first >> 16) & 0xfff0
    };
    config.write_config32(BRIDGE_WINDOW, pair(window, WINDOW_BYTES))?;
    config.write_config32(BRIDGE_PREFETCHABLE_WINDOW, pair(prefetchable, PREFETCHABLE_BYTES))?;
    config.write_config32(BRIDGE_PREFETCHABLE_WINDOW + 4, (prefetchable >> 32) as u32)?;
    config.write_config32(BRIDGE_PREFETCHABLE_WINDOW + 8, ((prefetchable + PREFETCHABLE_BYTES - 1) >> 32) as u32)?;
    config.write_config16(COMMAND, COMMAND_MEMORY | COMMAND_BUS_MASTER)
}
