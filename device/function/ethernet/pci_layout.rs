//! The Ethernet function in PCI's terms: its identity, its BARs, and the capabilities that say where virtio's structures
//! are (virtio 1.2, 4.1.4).

use super::VECTORS;
use super::registers::{
    BAR, BAR_BYTES, COMMON, COMMON_BYTES, DEVICE, DEVICE_BYTES, INTERRUPT_STATUS, NOTIFY, NOTIFY_BYTES, NOTIFY_STRIDE,
};
use rnic_pcie::LinkSettings;
use rnic_pcie::config_space::{
    BarDescription, ConfigDescription, FIRST_VENDOR_CAPABILITY, VendorCapability, serial_number,
};
use rnic_pcie::msix;
use std::ops::Range;

pub const VENDOR_ID: u16 = 0x1af4;
/// Virtio's device number of a network card, 1, on the base of modern devices.
pub const DEVICE_ID: u16 = 0x1041;

/// Kinds of virtio capability.
const COMMON_CONFIGURATION: u8 = 1;
const NOTIFICATIONS: u8 = 2;
const INTERRUPT: u8 = 3;
const DEVICE_CONFIGURATION: u8 = 4;
const WINDOW: u8 = 5;

/// A capability's length without and with the field behind it.
const PLAIN_BYTES: u8 = 16;
const LONG_BYTES: u8 = 20;

/// What configuration space is built from.
pub fn description(mac: [u8; 6]) -> ConfigDescription {
    let bar = |size_bytes| Some(BarDescription { size_bytes, is_64_bit: true, prefetchable: false });
    ConfigDescription {
        vendor_id: VENDOR_ID,
        device_id: DEVICE_ID,
        subsystem_vendor_id: 0x1234,
        subsystem_id: 0x12b7,
        revision: 1,
        class: 0x02_00_00,
        multifunction: true,
        bars: [bar(BAR_BYTES), None, None, None, bar(msix::BAR_BYTES), None],
        vectors: VECTORS,
        link: LinkSettings::AFTER_RESET,
        serial_number: serial_number(mac),
        vendor_capabilities: capabilities(),
    }
}

/// The window comes last: [`window`] counts on it.
fn capabilities() -> Vec<VendorCapability> {
    let read_only = |body: Vec<u8>| VendorCapability { body, writable: Vec::new() };
    let mut notifications = structure(LONG_BYTES, NOTIFICATIONS, NOTIFY, NOTIFY_BYTES as u32);
    notifications.extend((NOTIFY_STRIDE as u32).to_le_bytes());
    let mut window = structure(LONG_BYTES, WINDOW, 0, 0);
    window.extend([0; 4]);
    // BAR, offset and length; the data behind them is the BAR's.
    let writable = [[0, 0, 0xff, 0, 0, 0].as_slice(), &[0xff; 8]].concat();
    vec![
        read_only(structure(PLAIN_BYTES, COMMON_CONFIGURATION, COMMON, COMMON_BYTES as u32)),
        read_only(notifications),
        read_only(structure(PLAIN_BYTES, INTERRUPT, INTERRUPT_STATUS, 1)),
        read_only(structure(PLAIN_BYTES, DEVICE_CONFIGURATION, DEVICE, DEVICE_BYTES as u32)),
        VendorCapability { body: window, writable },
    ]
}

/// From the length byte on: length, kind, BAR, id, padding, offset, length of the structure.
fn structure(length: u8, kind: u8, offset: u64, bytes: u32) -> Vec<u8> {
    let mut body = vec![length, kind, BAR, 0, 0, 0];
    body.extend((offset as u32).to_le_bytes());
    body.extend(bytes.to_le_bytes());
    body
}

/// Where in configuration space the window's capability is, which reaches the BAR without mapping it: BAR at 4, offset
/// at 8, length at 12, data at 16.
pub fn window() -> usize {
    let before = capabilities()
        .split_last()
        .map_or(0, |(_, before)| before.iter().map(|capability| (capability.body.len() + 2).next_multiple_of(4)).sum());
    FIRST_VENDOR_CAPABILITY + before
}

/// Where the window's data is.
pub fn window_data() -> Range<u64> {
    let data = (window() + usize::from(PLAIN_BYTES)) as u64;
    data..data + 4
}
