//! The registers of BAR 0, as virtio 1.2 lays them out (4.1.4): common configuration, interrupt status, the network
//! device's own configuration, notifications.

use super::device::{EthernetDevice, FEATURES, QUEUES};
use super::{NO_VECTOR, VECTORS};
use rnic_pcie::{Cause, Class, DmaPort, HostAccess, Observed, Origin};
use std::mem::offset_of;
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_DRIVER_OK, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_net::{VIRTIO_NET_S_LINK_UP, virtio_net_config};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// The BAR, and where in it each structure is.
pub const BAR: u8 = 0;
pub const BAR_BYTES: u64 = 0x4000;
pub const COMMON: u64 = 0x0000;
pub const COMMON_BYTES: usize = 0x38;
pub const INTERRUPT_STATUS: u64 = 0x1000;
pub const DEVICE: u64 = 0x2000;
pub const DEVICE_BYTES: usize = size_of::<virtio_net_config>();
pub const NOTIFY: u64 = 0x3000;
/// Each queue has its own place to be notified at.
pub const NOTIFY_STRIDE: u64 = 4;
pub const NOTIFY_BYTES: u64 = NOTIFY_STRIDE * QUEUES as u64;

/// What the driver has written that belongs to no queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    device_feature_select: u32,
    driver_feature_select: u32,
    pub driver_features: u64,
    pub config_vector: u16,
    pub status: u8,
    pub generation: u8,
    queue_select: u16,
}

impl Default for Registers {
    fn default() -> Self {
        Self {
            device_feature_select: 0,
            driver_feature_select: 0,
            driver_features: 0,
            config_vector: NO_VECTOR,
            status: 0,
            generation: 0,
            queue_select: 0,
        }
    }
}

impl Registers {
    pub fn has_status(&self, bits: u32) -> bool {
        u32::from(self.status) & bits == bits
    }
}

/// The 32 bits of a feature word that `select` names.
fn half(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

/// Replaces a part of a 64-bit register.
fn replace(register: u64, first_bit: u32, bits: u32, value: u64) -> u64 {
    let mask = (u64::MAX >> (64 - bits)) << first_bit;
    register & !mask | value << first_bit & mask
}

/// A vector that the device has, or none.
fn vector(value: u64) -> u16 {
    u16::try_from(value).ok().filter(|&vector| vector < VECTORS).unwrap_or(NO_VECTOR)
}

impl EthernetDevice {
    /// A read by the driver. Counted once, whatever it finds; what means nothing reads as zero.
    pub fn handle_read(&mut self, port: &mut dyn DmaPort, offset: u64, into: &mut [u8]) {
        into.fill(0);
        let access = HostAccess::Read { address: offset, bytes: into.len() as u32 };
        let observed = Observed { messages: 1, bytes: into.len() as u32 };
        port.count(Origin::new(Class::NetRegisterRead, Cause::Maintenance), BAR, access, observed);
        let known = if offset < INTERRUPT_STATUS {
            copy(&self.common(), offset - COMMON, into)
        } else if offset < DEVICE {
            // Reading acknowledges.
            let found = copy(&[self.isr], offset - INTERRUPT_STATUS, into);
            self.isr = if found { 0 } else { self.isr };
            found
        } else {
            offset < NOTIFY && copy(&self.device_configuration(), offset - DEVICE, into)
        };
        self.counters.refused_accesses += u64::from(!known);
    }

    /// A write by the driver. True if it has reset the device.
    pub fn handle_write(&mut self, port: &mut dyn DmaPort, offset: u64, from: &[u8]) -> bool {
        let notifies = (NOTIFY..NOTIFY + NOTIFY_BYTES).contains(&offset);
        let access = HostAccess::Write { address: offset, bytes: from.len() as u32 };
        let observed = Observed { messages: 1, bytes: from.len() as u32 };
        let queue = ((offset.saturating_sub(NOTIFY)) / NOTIFY_STRIDE) as u16;
        let (class, cause) = match notifies {
            true => (Class::NetDoorbell, Cause::Net { queue, index: 0 }),
            false => (Class::NetRegisterWrite, Cause::Maintenance),
        };
        port.count(Origin::new(class, cause), BAR, access, observed);
        let value = match from.len() {
            1 | 2 | 4 | 8 => from.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
            _ => {
                self.counters.refused_accesses += 1;
                return false;
            }
        };
        if notifies {
            self.notify(queue, offset, value);
            return false;
        }
        if (offset, from.len()) == (0x14, 1) {
            return self.write_status(value as u8);
        }
        if offset >= INTERRUPT_STATUS || !self.write_common(offset, from.len(), value) {
            self.counters.refused_accesses += 1;
        }
        false
    }

    /// The value is the queue's number, at the queue's own place.
    fn notify(&mut self, queue: u16, offset: u64, value: u64) {
        let aligned = offset.is_multiple_of(NOTIFY_STRIDE);
        match self.queues.get_mut(usize::from(queue)) {
            Some(known) if aligned && value == u64::from(queue) => {
                known.notify();
                self.active[usize::from(queue)] = true;
            }
            _ => self.counters.refused_accesses += 1,
        }
    }

    fn write_status(&mut self, value: u8) -> bool {
        if value == 0 {
            self.handle_reset();
            return true;
        }
        let was_running = self.is_running();
        let mut status = value | self.registers.status & VIRTIO_CONFIG_S_NEEDS_RESET as u8;
        let features = self.registers.driver_features;
        let acceptable = features & !FEATURES == 0 && features & 1 << VIRTIO_F_VERSION_1 != 0;
        if !acceptable {
            status &= !(VIRTIO_CONFIG_S_FEATURES_OK as u8 | VIRTIO_CONFIG_S_DRIVER_OK as u8);
        }
        self.registers.status = status;
        if !was_running && self.is_running() {
            // Buffers may have been made available before.
            for (queue, active) in self.queues.iter_mut().zip(&mut self.active) {
                queue.notify();
                *active = true;
            }
        }
        false
    }

    /// The common configuration as it reads now.
    fn common(&self) -> [u8; COMMON_BYTES] {
        let registers = &self.registers;
        let mut bytes = [0; COMMON_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0x00, &registers.device_feature_select.to_le_bytes());
        put(0x04, &half(FEATURES, registers.device_feature_select).to_le_bytes());
        put(0x08, &registers.driver_feature_select.to_le_bytes());
        put(0x0c, &half(registers.driver_features, registers.driver_feature_select).to_le_bytes());
        put(0x10, &registers.config_vector.to_le_bytes());
        put(0x12, &(QUEUES as u16).to_le_bytes());
        put(0x14, &[registers.status, registers.generation]);
        put(0x16, &registers.queue_select.to_le_bytes());
        // The rest reads as zero for a queue that there is none of.
        let Some(queue) = self.queues.get(usize::from(registers.queue_select)) else { return bytes };
        put(0x18, &queue.settings.size.to_le_bytes());
        put(0x1a, &queue.settings.vector.to_le_bytes());
        put(0x1c, &u16::from(queue.is_enabled()).to_le_bytes());
        put(0x1e, &queue.number().to_le_bytes());
        put(0x20, &queue.settings.descriptors.to_le_bytes());
        put(0x28, &queue.settings.available.to_le_bytes());
        put(0x30, &queue.settings.used.to_le_bytes());
        bytes
    }

    /// False: no such field, or not of this size, or not to be written now.
    fn write_common(&mut self, offset: u64, bytes: usize, value: u64) -> bool {
        let registers = &mut self.registers;
        match (offset, bytes) {
            (0x00, 4) => registers.device_feature_select = value as u32,
            (0x08, 4) => registers.driver_feature_select = value as u32,
            (0x0c, 4) => return self.write_features(value),
            (0x10, 2) => registers.config_vector = vector(value),
            (0x16, 2) => registers.queue_select = value as u16,
            _ => return self.write_queue(offset, bytes, value),
        }
        true
    }

    fn write_features(&mut self, value: u64) -> bool {
        let registers = &mut self.registers;
        if registers.has_status(VIRTIO_CONFIG_S_FEATURES_OK) || registers.driver_feature_select > 1 {
            return false;
        }
        registers.driver_features = replace(registers.driver_features, 32 * registers.driver_feature_select, 32, value);
        true
    }

    fn write_queue(&mut self, offset: u64, bytes: usize, value: u64) -> bool {
        let indirect = self.negotiated(VIRTIO_RING_F_INDIRECT_DESC);
        let ready = self.registers.has_status(VIRTIO_CONFIG_S_FEATURES_OK);
        let Some(queue) = self.queues.get_mut(usize::from(self.registers.queue_select)) else { return false };
        // A vector may be changed at any time, the rest stands once the queue is enabled.
        if (offset, bytes) == (0x1a, 2) {
            queue.settings.vector = vector(value);
            return true;
        }
        if queue.is_enabled() {
            return false;
        }
        let settings = &mut queue.settings;
        match (offset, bytes) {
            (0x18, 2) => settings.size = value as u16,
            (0x1c, 2) if value == 1 && ready => {
                if let Err(fault) = queue.enable(indirect) {
                    self.fail(fault);
                }
            }
            (0x20 | 0x24 | 0x28 | 0x2c | 0x30 | 0x34, 4) | (0x20 | 0x28 | 0x30, 8) => {
                let register = match offset & !7 {
                    0x20 => &mut settings.descriptors,
                    0x28 => &mut settings.available,
                    _ => &mut settings.used,
                };
                *register = replace(*register, (offset as u32 & 4) * 8, bytes as u32 * 8, value);
            }
            _ => return false,
        }
        true
    }

    /// The network device's configuration; features not offered leave their fields zero.
    fn device_configuration(&self) -> [u8; DEVICE_BYTES] {
        let mut bytes = [0; DEVICE_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(virtio_net_config, mac), &self.config.mac);
        let status = if self.link_up { VIRTIO_NET_S_LINK_UP as u16 } else { 0 };
        put(offset_of!(virtio_net_config, status), &status.to_le_bytes());
        put(offset_of!(virtio_net_config, max_virtqueue_pairs), &1u16.to_le_bytes());
        put(offset_of!(virtio_net_config, mtu), &self.config.mtu.to_le_bytes());
        bytes
    }
}

/// Copies what is there; false if the access reaches beyond.
fn copy(structure: &[u8], offset: u64, into: &mut [u8]) -> bool {
    let there = usize::try_from(offset).ok().and_then(|at| structure.get(at..at.checked_add(into.len())?));
    there.map(|bytes| into.copy_from_slice(bytes)).is_some()
}
