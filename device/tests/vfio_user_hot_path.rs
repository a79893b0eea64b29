//! A posted doorbell write costs no allocation, and many of them one read of the socket.
//!
//! A test of its own, because it counts the allocations of the whole process.

use rnic_device::vfio_user::{Backend, Connection, DmaMap, DmaUnmap, IrqRequest, device_tables};
use rustix::io::Errno;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use vfio_user::{IrqInfo, ServerRegion};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Device {
    regions: Vec<ServerRegion>,
    irqs: Vec<IrqInfo>,
    writes: u64,
    sum: u64,
}

impl Backend for Device {
    fn regions(&self) -> &[ServerRegion] {
        &self.regions
    }

    fn irqs(&self) -> &[IrqInfo] {
        &self.irqs
    }

    fn region_read(&mut self, _: u32, _: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.fill(1);
        Ok(())
    }

    fn region_write(&mut self, _: u32, _: u64, from: &[u8]) -> Result<(), Errno> {
        self.writes += 1;
        self.sum += u64::from_ne_bytes(from.try_into().map_err(|_| Errno::INVAL)?);
        Ok(())
    }

    fn dma_map(&mut self, _: DmaMap) -> Result<(), Errno> {
        Ok(())
    }

    fn dma_unmap(&mut self, _: DmaUnmap) -> Result<(), Errno> {
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn set_irqs(&mut self, _: u32, _: IrqRequest<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn dma_answered(&mut self, _: u64, _: Result<&[u8], Errno>) {}

    fn disconnected(&mut self) {}
}

/// A message by hand: id, command, size, flags, error, then the body.
fn message(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = 16 + body.len() as u32;
    let fixed = [command, size as u16, (size >> 16) as u16];
    [&[0, 0][..], &fixed.map(u16::to_ne_bytes).concat(), &flags.to_ne_bytes(), &[0; 4], body].concat()
}

fn access(region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    [&64u64.to_ne_bytes()[..], &region.to_ne_bytes(), &count.to_ne_bytes(), data].concat()
}

#[test]
fn posted_writes_and_small_reads_allocate_nothing() {
    let (server, mut client) = UnixStream::pair().unwrap();
    let mut connection = Connection::new(server).unwrap();
    let regions = device_tables::pci_regions([65536, 0, 65536, 0, 4096, 0], 4096);
    let mut device = Device { regions, irqs: device_tables::pci_irqs(0, 8), writes: 0, sum: 0 };
    client.write_all(&message(1, 0, &[0; 4])).unwrap();
    // A first read makes the reply buffer as large as it will be.
    client.write_all(&message(9, 0, &access(0, 8, &[]))).unwrap();
    connection.on_readable(&mut device, 100).unwrap();

    let one = message(10, 1 << 4, &access(2, 8, &3u64.to_ne_bytes()));
    let burst = one.repeat(2000);
    let read = message(9, 0, &access(0, 8, &[]));
    for round in 1..=10 {
        client.write_all(&burst).unwrap();
        client.write_all(&read).unwrap();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let progress = connection.on_readable(&mut device, u32::MAX).unwrap();
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "something was allocated in round {round}");
        assert_eq!((progress.served, progress.more), (2001, false), "one read served it all");
        assert_eq!((device.writes, device.sum), (2000 * round, 6000 * round));
    }
}
