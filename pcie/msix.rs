//! MSI-X: the table and the pending bits behind BAR4, and how a vector's message gets to the host.
//!
//! Under QEMU the table never reaches the device: a vector is usable once the client has set its eventfd, and the
//! client masks. A driver that writes the table itself has its masks and addresses honoured: its messages go to
//! the eventfd where there is one, else as a 4-byte write to the address of the table.

#[cfg(test)]
mod tests;

use crate::Origin;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use vmm_sys_util::eventfd::EventFd;

/// Size of the BAR that holds table and pending bits.
pub const BAR_BYTES: u64 = 0x1_0000;
/// Where the table is in its BAR.
pub const TABLE_OFFSET: u64 = 0;
/// Where the pending bits are.
pub const PBA_OFFSET: u64 = 0x8000;
/// The most vectors that a table has.
pub const MAX_VECTORS: u16 = 2048;

const ENTRY_BYTES: u64 = 16;
const ADDRESS: usize = 0;
const DATA: usize = 8;
const CONTROL: usize = 12;
const MASKED: u8 = 1;

/// The two bits of MSI-X message control that the driver sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsixControl {
    pub enabled: bool,
    pub function_masked: bool,
}

/// A message on its way, decided when its vector was raised: what the driver changes later does not call it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The vector's eventfd. `wide` if the driver gave an address from 4 GiB on.
    Signal { vector: u16, wide: bool },
    /// A write of the data to the address.
    Write { address: u64, data: u32 },
}

/// Why no message came of a raised vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    #[error("the table has no such vector")]
    NoSuchVector,
    #[error("MSI-X is not enabled")]
    Disabled,
    #[error("the vector has neither an eventfd nor an address")]
    NoReceiver,
    #[error("the eventfd could not be written")]
    SignalFailed,
}

/// What became of a raised vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    Message(Message),
    /// Masked: its pending bit is set, and the message follows the unmasking.
    Pending,
    Undelivered(Undelivered),
}

#[derive(Debug)]
struct Vector {
    /// Address, data and control as in the table.
    entry: [u8; ENTRY_BYTES as usize],
    /// The driver has written the entry: its mask counts.
    written: bool,
    /// The driver has written the address.
    addressed: bool,
    eventfd: Option<EventFd>,
    /// Raised while masked, for this reason.
    pending: Option<Origin>,
}

impl Vector {
    fn new() -> Self {
        let mut entry = [0; ENTRY_BYTES as usize];
        entry[CONTROL] = MASKED;
        Self { entry, written: false, addressed: false, eventfd: None, pending: None }
    }

    fn address(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.entry[ADDRESS..DATA]);
        u64::from_le_bytes(bytes)
    }

    fn data(&self) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.entry[DATA..CONTROL]);
        u32::from_le_bytes(bytes)
    }

    fn has_receiver(&self) -> bool {
        self.eventfd.is_some() || self.addressed
    }

    fn write_byte(&mut self, index: usize, value: u8) {
        self.written = true;
        self.addressed |= index < DATA;
        let writable = match index {
            ADDRESS => !3,
            CONTROL => MASKED,
            13.. => 0,
            _ => 0xff,
        };
        if let Some(byte) = self.entry.get_mut(index) {
            *byte = value & writable;
        }
    }
}

/// The vectors of a function.
#[derive(Debug)]
pub struct MsixTable {
    vectors: Vec<Vector>,
    control: MsixControl,
    /// Vectors whose pending bit is set.
    pending: usize,
}

impl MsixTable {
    /// A table of 1 to [`MAX_VECTORS`] vectors.
    pub fn new(vectors: u16) -> Self {
        let count = vectors.clamp(1, MAX_VECTORS);
        Self { vectors: (0..count).map(|_| Vector::new()).collect(), control: MsixControl::default(), pending: 0 }
    }

    pub fn vector_count(&self) -> u16 {
        self.vectors.len() as u16
    }

    pub fn set_control(&mut self, control: MsixControl) {
        self.control = control;
    }

    /// Sets or removes a vector's eventfd; false where there is no such vector. The descriptor is made
    /// non-blocking: a client whose counter is full must not stop the device.
    pub fn set_eventfd(&mut self, vector: u16, eventfd: Option<EventFd>) -> bool {
        let Some(entry) = self.vectors.get_mut(usize::from(vector)) else { return false };
        if let Some(eventfd) = &eventfd
            && let Err(error) = set_nonblocking(eventfd)
        {
            log::warn!("the eventfd of vector {vector} cannot be made non-blocking: {error}");
            return false;
        }
        entry.eventfd = eventfd;
        true
    }

    /// The client is gone, or has switched MSI-X off.
    pub fn clear_eventfds(&mut self) {
        self.vectors.iter_mut().for_each(|vector| vector.eventfd = None);
    }

    /// The state after a reset; eventfds are the client's and stay.
    pub fn reset(&mut self) {
        for vector in &mut self.vectors {
            *vector = Vector { eventfd: vector.eventfd.take(), ..Vector::new() };
        }
        self.control = MsixControl::default();
        self.pending = 0;
    }

    /// A message of this vector could be delivered now.
    pub fn usable(&self, vector: u16) -> bool {
        self.vectors.get(usize::from(vector)).is_some_and(|entry| entry.has_receiver() && !self.masked(entry))
    }

    /// Masks and enable count only where the driver writes the table itself; elsewhere the client keeps them.
    fn masked(&self, vector: &Vector) -> bool {
        vector.written && (!self.control.enabled || self.control.function_masked || vector.entry[CONTROL] & MASKED != 0)
    }

    /// Raises a vector: a message to be sent, a pending bit, or nothing.
    pub fn raise(&mut self, vector: u16, origin: Origin) -> Raised {
        let Some(entry) = self.vectors.get(usize::from(vector)) else {
            return Raised::Undelivered(Undelivered::NoSuchVector);
        };
        if !entry.written && entry.eventfd.is_none() {
            return Raised::Undelivered(Undelivered::NoReceiver);
        }
        if entry.written && !self.control.enabled {
            return Raised::Undelivered(Undelivered::Disabled);
        }
        if self.masked(entry) {
            self.set_pending(vector, origin);
            return Raised::Pending;
        }
        match Self::message_of(vector, entry) {
            Some(message) => Raised::Message(message),
            None => Raised::Undelivered(Undelivered::NoReceiver),
        }
    }

    fn set_pending(&mut self, vector: u16, origin: Origin) {
        if let Some(entry) = self.vectors.get_mut(usize::from(vector))
            && entry.pending.replace(origin).is_none()
        {
            self.pending += 1;
        }
    }

    fn message_of(vector: u16, entry: &Vector) -> Option<Message> {
        let address = entry.address();
        match entry.eventfd {
            Some(_) => Some(Message::Signal { vector, wide: address > u64::from(u32::MAX) }),
            None if entry.addressed => Some(Message::Write { address, data: entry.data() }),
            None => None,
        }
    }

    /// A pending vector that nothing holds back any more; its pending bit is cleared. To be asked until there is
    /// none, after each change of the table, of the control bits and of eventfds.
    pub fn take_deliverable(&mut self) -> Option<(Message, Origin)> {
        if self.pending == 0 {
            return None;
        }
        let deliverable = |entry: &Vector| entry.pending.is_some() && entry.has_receiver() && !self.masked(entry);
        let index = self.vectors.iter().position(deliverable)?;
        let entry = self.vectors.get_mut(index)?;
        let origin = entry.pending.take()?;
        self.pending -= 1;
        Some((Self::message_of(index as u16, entry)?, origin))
    }

    /// Writes the vector's eventfd. A counter that is full is a signal not yet taken: delivered.
    pub fn signal(&self, vector: u16) -> Result<(), Undelivered> {
        let entry = self.vectors.get(usize::from(vector)).ok_or(Undelivered::NoSuchVector)?;
        let eventfd = entry.eventfd.as_ref().ok_or(Undelivered::NoReceiver)?;
        // Whoever is woken sees everything that was written to guest memory before.
        fence(Ordering::SeqCst);
        match eventfd.write(1) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Undelivered::SignalFailed),
        }
    }

    /// Reads the BAR, at any offset and of any size; what is neither table nor pending bits reads as zero.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = offset.checked_add(index as u64).map_or(0, |at| self.byte(at));
        }
    }

    fn byte(&self, at: u64) -> u8 {
        if at < PBA_OFFSET {
            let entry = self.vectors.get((at / ENTRY_BYTES) as usize);
            return entry.map_or(0, |entry| entry.entry[(at % ENTRY_BYTES) as usize]);
        }
        let first = (at - PBA_OFFSET).saturating_mul(8);
        (0..8).fold(0, |bits, bit| {
            let vector = usize::try_from(first.saturating_add(bit)).ok().and_then(|index| self.vectors.get(index));
            bits | u8::from(vector.is_some_and(|vector| vector.pending.is_some())) << bit
        })
    }

    /// Writes the BAR, at any offset and of any size; pending bits are not writable.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        for (index, &value) in from.iter().enumerate() {
            let Some(at) = offset.checked_add(index as u64).filter(|&at| at < PBA_OFFSET) else { break };
            if let Some(entry) = self.vectors.get_mut((at / ENTRY_BYTES) as usize) {
                entry.write_byte((at % ENTRY_BYTES) as usize, value);
            }
        }
    }
}

fn set_nonblocking(eventfd: &EventFd) -> Result<(), rustix::io::Errno> {
    // SAFETY: the descriptor is open as long as the eventfd that is borrowed here.
    let fd = unsafe { BorrowedFd::borrow_raw(eventfd.as_raw_fd()) };
    fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)
}
