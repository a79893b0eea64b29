//! A device behind a vfio-user socket, driven by a client of our own that behaves as QEMU does: BAR writes are
//! posted and at most 8 bytes, reads and configuration wait, vectors are eventfds.
//!
//! In: a path or a stream, and the model host to be. Out: a [`Backing`] whose DMA memory the server maps from our
//! memfd, or, without it, reads and writes by messages that are answered whenever this side waits.

mod connection;
mod message;

use crate::backing::{Backing, BackingError, DmaBuffer, Result};
use crate::backings::in_process::ModelHost;
use crate::memory::MappedMemory;
use crate::pci::{BAR_0, ConfigSpace};
use connection::{Connection, MAX_FDS, SERVER, readable};
use message::*;
use rustix::event::EventfdFlags;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// BARs stand here, each at a multiple of its size: above 4 GiB, above the host's memory.
const BARS_ADDRESS: u64 = 0x40_0000_0000;
const BARS: usize = 6;
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// How the server reaches the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// It gets the memfd and maps it.
    Shared,
    /// It gets a map without a file and asks by message.
    ByMessage,
}

/// The backing.
#[derive(Debug)]
pub struct Socket {
    connection: Connection,
    memory: MappedMemory,
    bar_bytes: [u64; BARS],
    vectors: Vec<OwnedFd>,
}

impl Socket {
    /// Connects, waiting at most `limit` for the server's socket and for the client before us to be gone; `limit`
    /// then bounds every reply.
    pub fn connect(path: &Path, host: ModelHost, access: MemoryAccess, limit: Duration) -> Result<Self> {
        let start = Instant::now();
        loop {
            let what = || format!("connecting to {}", path.display());
            let outcome = UnixStream::connect(path)
                .map_err(BackingError::io(what()))
                .and_then(|stream| Self::open(stream, host, access, limit));
            match outcome {
                Err(error) if is_for_later(&error) && start.elapsed() < limit => std::thread::sleep(RETRY_AFTER),
                outcome => return outcome,
            }
        }
    }

    /// Negotiates, maps memory, resets the device and programs its configuration space.
    pub fn open(stream: UnixStream, host: ModelHost, access: MemoryAccess, limit: Duration) -> Result<Self> {
        let (file, memory) = host.memory()?;
        let connection = Connection::new(stream, limit)?;
        let mut socket = Self { connection, memory, bar_bytes: [0; BARS], vectors: Vec::new() };
        socket.negotiate()?;
        socket.map_memory(&host, (access == MemoryAccess::Shared).then_some(&file))?;
        socket.ask_regions()?;
        socket.call(DEVICE_RESET, &[], &[])?;
        socket.place_bars()?;
        socket.set_payload_sizes(host.max_payload_bytes, host.max_read_request_bytes)?;
        socket.enable_memory_and_bus_master()?;
        Ok(socket)
    }

    /// Resets the device as QEMU does at a machine's reset, and programs the configuration space again.
    pub fn reset(&mut self, host: &ModelHost) -> Result<()> {
        self.vectors.clear();
        self.call(DEVICE_RESET, &[], &[])?;
        self.place_bars()?;
        self.set_payload_sizes(host.max_payload_bytes, host.max_read_request_bytes)?;
        self.enable_memory_and_bus_master()
    }

    /// How many requests of the server were answered: DMA by message.
    pub fn dma_requests(&self) -> u64 {
        self.connection.dma_requests
    }

    fn call(&mut self, command: u16, parts: &[&[u8]], fds: &[&OwnedFd]) -> Result<Vec<u8>> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        self.connection.call(command, parts, &fds, &self.memory)
    }

    fn negotiate(&mut self) -> Result<()> {
        let answer = self.call(VERSION, &[&version_body()], &[])?;
        match answer.first_chunk::<4>() {
            Some([0, 0, _, _]) => Ok(()),
            _ => Err(BackingError::Protocol { peer: SERVER, what: "VERSION is not 0.x".into() }),
        }
    }

    fn map_memory(&mut self, host: &ModelHost, file: Option<&File>) -> Result<()> {
        let map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: DMA_MAP_READ_WRITE,
            file_offset: 0,
            iova: host.memory_iova,
            length_bytes: host.memory_bytes,
        };
        let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        self.connection.call(DMA_MAP, &[map.as_bytes()], &fds, &self.memory).map(drop)
    }

    fn ask_regions(&mut self) -> Result<()> {
        let ask = DeviceInfo { argsz: size_of::<DeviceInfo>() as u32, ..Default::default() };
        let info: DeviceInfo = answer(&self.call(DEVICE_GET_INFO, &[ask.as_bytes()], &[])?)?;
        if info.regions <= REGION_CONFIG || info.irqs <= IRQ_MSIX {
            let what = format!("{} regions and {} interrupts", info.regions, info.irqs);
            return Err(BackingError::Protocol { peer: SERVER, what });
        }
        for index in 0..BARS {
            let ask = RegionInfo { argsz: size_of::<RegionInfo>() as u32, index: index as u32, ..Default::default() };
            let info: RegionInfo = answer(&self.call(DEVICE_GET_REGION_INFO, &[ask.as_bytes()], &[])?)?;
            self.bar_bytes[index] = info.size_bytes;
        }
        Ok(())
    }

    /// Gives every memory BAR an address of its own; a 64-bit one above 4 GiB.
    fn place_bars(&mut self) -> Result<()> {
        let mut high = BARS_ADDRESS;
        let mut low = 0xc000_0000;
        for index in 0..BARS {
            let size = self.bar_bytes[index];
            if size == 0 {
                continue;
            }
            let register = BAR_0 + 4 * index as u16;
            let is_64_bit = self.config_read32(register)? & 0x6 == 0x4;
            let next = if is_64_bit { &mut high } else { &mut low };
            let too_large = || BackingError::Protocol { peer: SERVER, what: format!("BAR {index} of {size:#x} bytes") };
            let address = next.checked_next_multiple_of(size).ok_or_else(too_large)?;
            *next = address.checked_add(size).ok_or_else(too_large)?;
            self.config_write32(register, address as u32)?;
            if is_64_bit {
                self.config_write32(register + 4, (address >> 32) as u32)?;
            }
        }
        Ok(())
    }

    fn region_read<const N: usize>(&mut self, region: u32, offset: u64) -> Result<[u8; N]> {
        let access = RegionAccess { offset, region, count: N as u32 };
        let body = self.call(REGION_READ, &[access.as_bytes()], &[])?;
        let (echo, data) = RegionAccess::read_from_prefix(&body)
            .map_err(|_| BackingError::Protocol { peer: SERVER, what: "a short reply to a read".into() })?;
        match data.try_into() {
            Ok(data) if echo == access => Ok(data),
            _ => Err(BackingError::Protocol {
                peer: SERVER,
                what: format!("a read of {N} bytes at {offset:#x} answered with {} bytes for {echo:?}", data.len()),
            }),
        }
    }

    /// Configuration writes wait for their reply, as QEMU's do.
    fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<()> {
        let access = RegionAccess { offset: offset.into(), region: REGION_CONFIG, count: data.len() as u32 };
        self.call(REGION_WRITE, &[access.as_bytes(), data], &[]).map(drop)
    }

    /// BAR writes are posted.
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<()> {
        self.check_bar(bar, offset, data.len() as u64)?;
        let access = RegionAccess { offset, region: bar.into(), count: data.len() as u32 };
        self.connection.post(REGION_WRITE, &[access.as_bytes(), data])
    }

    fn check_bar(&self, bar: u8, offset: u64, length_bytes: u64) -> Result<()> {
        let size = self.bar_bytes.get(usize::from(bar)).copied().unwrap_or(0);
        let inside = offset.checked_add(length_bytes).is_some_and(|end| end <= size);
        match inside && offset.is_multiple_of(length_bytes) {
            true => Ok(()),
            false => Err(BackingError::BarAccess { bar, offset, length_bytes }),
        }
    }

    fn set_vectors(&mut self, start: u32, fds: &[&OwnedFd]) -> Result<()> {
        let set = SetIrqs {
            argsz: size_of::<SetIrqs>() as u32,
            flags: SET_IRQS_EVENTFD_TRIGGER,
            index: IRQ_MSIX,
            start,
            count: fds.len().max(1) as u32,
        };
        self.call(DEVICE_SET_IRQS, &[set.as_bytes()], fds).map(drop)
    }
}

/// The server is not there yet, or still has another client.
fn is_for_later(error: &BackingError) -> bool {
    match error {
        BackingError::Io { source, .. } => {
            matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused)
        }
        BackingError::Refused { errno, .. } => *errno == rustix::io::Errno::BUSY.raw_os_error() as u32,
        _ => false,
    }
}

/// The fixed part of a reply; capabilities may follow it.
fn answer<T: FromBytes>(body: &[u8]) -> Result<T> {
    T::read_from_prefix(body)
        .map(|(value, _)| value)
        .map_err(|_| BackingError::Protocol { peer: SERVER, what: format!("a reply of {} bytes", body.len()) })
}

impl Backing for Socket {
    fn name(&self) -> &'static str {
        "vfio-user socket"
    }

    fn read32(&mut self, bar: u8, offset: u64) -> Result<u32> {
        self.check_bar(bar, offset, 4)?;
        self.region_read(bar.into(), offset).map(u32::from_le_bytes)
    }

    fn read64(&mut self, bar: u8, offset: u64) -> Result<u64> {
        self.check_bar(bar, offset, 8)?;
        self.region_read(bar.into(), offset).map(u64::from_le_bytes)
    }

    fn write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<()> {
        self.bar_write(bar, offset, &value.to_le_bytes())
    }

    fn write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<()> {
        self.bar_write(bar, offset, &value.to_le_bytes())
    }

    super::memory_of_the_backing!();

    fn config_read32(&mut self, offset: u16) -> Result<u32> {
        self.region_read(REGION_CONFIG, offset.into()).map(u32::from_le_bytes)
    }

    fn config_write32(&mut self, offset: u16, value: u32) -> Result<()> {
        self.config_write(offset, &value.to_le_bytes())
    }

    fn config_write16(&mut self, offset: u16, value: u16) -> Result<()> {
        self.config_write(offset, &value.to_le_bytes())
    }

    fn enable_vectors(&mut self, count: u16) -> Result<()> {
        let ask = IrqInfo { argsz: size_of::<IrqInfo>() as u32, index: IRQ_MSIX, ..Default::default() };
        let info: IrqInfo = answer(&self.call(DEVICE_GET_IRQ_INFO, &[ask.as_bytes()], &[])?)?;
        if u32::from(count) > info.count {
            return Err(BackingError::NoVector { vector: count.saturating_sub(1), count: info.count as usize });
        }
        let made: rustix::io::Result<Vec<OwnedFd>> =
            (0..count).map(|_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).collect();
        self.vectors = made.map_err(BackingError::errno(format!("creating {count} eventfds")))?;
        self.enable_msix()?;
        // QEMU enables MSI-X without a vector first, then connects what the guest unmasks.
        self.set_vectors(0, &[])?;
        let vectors = std::mem::take(&mut self.vectors);
        for (start, chunk) in (0..).step_by(MAX_FDS).zip(vectors.chunks(MAX_FDS)) {
            self.set_vectors(start, &chunk.iter().collect::<Vec<_>>())?;
        }
        self.vectors = vectors;
        Ok(())
    }

    fn wait_event(&mut self, vector: u16, timeout: Duration) -> Result<bool> {
        let count = self.vectors.len();
        let start = Instant::now();
        loop {
            let eventfd = self.vectors.get(usize::from(vector)).ok_or(BackingError::NoVector { vector, count })?;
            match rustix::io::read(eventfd, &mut [0; 8]) {
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(BackingError::errno(format!("reading vector {vector}"))(errno)),
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            readable([eventfd.as_fd(), self.connection.fd()], left)?;
            self.connection.serve_pending(&self.memory)?;
        }
    }

    fn pause(&mut self) -> Result<()> {
        self.connection.serve_pending(&self.memory)?;
        std::thread::yield_now();
        Ok(())
    }
}

#[cfg(test)]
mod stream_property;
#[cfg(test)]
mod tests;
