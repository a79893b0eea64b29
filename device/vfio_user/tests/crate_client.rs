//! The public crate as an independent peer: its client against our server, and its server over our backend.

use super::super::backend::{Backend, DmaUnmap, IrqAction};
use super::super::connection::{CloseReason, Connection};
use super::super::listener::Listener;
use super::super::server_adapter::ServerAdapter;
use super::recorder::{BAR2_BYTES, Call, MSIX_VECTORS, Recorder};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread;
use vfio_user::Client;
use vmm_sys_util::eventfd::EventFd;

/// Serves one client with our server, as an owner's loop does, and gives back what the device was told.
fn serve(listener: Listener) -> (Recorder, CloseReason) {
    let mut listener = listener;
    let mut device = Recorder::new();
    let stream = loop {
        wait(&listener, PollFlags::IN);
        if let Some(stream) = listener.on_readable(false).unwrap() {
            break stream;
        }
    };
    let mut connection = Connection::new(stream).unwrap();
    loop {
        let out = if connection.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
        let into = if connection.wants_read() { PollFlags::IN } else { PollFlags::empty() };
        if !connection.has_work() {
            wait(&connection, into | out);
        }
        let written = if connection.wants_write() { connection.on_writable(&mut device).map(drop) } else { Ok(()) };
        if let Err(closed) = written.and_then(|()| connection.on_readable(&mut device, 64).map(drop)) {
            return (device, closed.reason);
        }
    }
}

fn wait(fd: &impl std::os::fd::AsFd, flags: PollFlags) {
    poll(&mut [PollFd::new(fd, flags)], None).unwrap();
}

/// The same calls whichever server is on the other side.
fn exercise(path: PathBuf) -> (vmm_sys_util::eventfd::EventFd, Vec<(u64, u32)>) {
    let mut client = Client::new(&path).unwrap();
    let regions: Vec<(u64, u32)> =
        (0..9).map(|index| client.region(index).map(|r| (r.size, r.flags)).unwrap()).collect();
    assert!(client.region(9).is_none());
    let irq = client.get_irq_info(2).unwrap();
    assert_eq!((irq.index, irq.flags, irq.count), (2, 1, MSIX_VECTORS));
    let mut data = [0; 8];
    client.region_read(0, 16, &mut data).unwrap();
    assert_eq!(data, [0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57]);
    let mut config = vec![0; 4096];
    client.region_read(7, 0, &mut config).unwrap();
    client.region_write(2, 4096, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(0x10_0000).unwrap();
    client.dma_map(0x1000, 0x8000_0000, 0x8000, memory.as_raw_fd()).unwrap();
    client.dma_unmap(0x8000_0000, 0x8000).unwrap();
    let vector = EventFd::new(0).unwrap();
    client.set_irqs(2, 0x24, 3, 1, &[vector.as_raw_fd()]).unwrap();
    client.set_irqs(2, 0x24, 4, 1, &[]).unwrap();
    client.set_irqs(2, 0x21, 0, 0, &[]).unwrap();
    client.reset().unwrap();
    client.shutdown().unwrap();
    (vector, regions)
}

fn check(device: &mut Recorder, vector: &EventFd, regions: &[(u64, u32)]) {
    assert_eq!(regions[2], (BAR2_BYTES, 3));
    assert_eq!((regions[6], regions[7], regions[8]), ((0, 0), (4096, 3), (0, 0)));
    let (action, index) = (IrqAction::Trigger, 2);
    let expected = vec![
        Call::Read { region: 0, offset: 16, length: 8 },
        Call::Read { region: 7, offset: 0, length: 4096 },
        Call::Write { region: 2, offset: 4096, data: vec![1, 2, 3, 4, 5, 6, 7, 8] },
        Call::Map { iova: 0x8000_0000, size_bytes: 0x8000, permissions: 3, file_offset: Some(0x1000) },
        Call::Unmap(DmaUnmap::Range { iova: 0x8000_0000, size_bytes: 0x8000 }),
        Call::Assign { index, action, start: 3, count: 1 },
        Call::Deassign { index, action, start: 4, count: 1 },
        Call::DisableAll { index },
        Call::Reset,
        Call::Disconnected,
    ];
    assert_eq!(device.take(), expected);
    device.eventfds[0].write(5).unwrap();
    assert_eq!(vector.read().unwrap(), 5);
    assert_eq!(device.files.len(), 1);
}

#[test]
fn the_crates_client_works_with_our_server() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("s");
    let listener = Listener::bind(&path).unwrap();
    let server = thread::spawn(move || serve(listener).1);
    drop(Client::new(&path).unwrap());
    assert_eq!(server.join().unwrap(), CloseReason::ByClient);

    let listener = Listener::bind(&path).unwrap();
    let client = thread::spawn(move || exercise(path));
    let (mut device, reason) = serve(listener);
    let (vector, regions) = client.join().unwrap();
    assert_eq!(reason, CloseReason::ByClient);
    check(&mut device, &vector, &regions);
}

#[test]
fn our_backend_works_under_the_crates_server() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("s");
    let mut device = Recorder::new();
    let server = vfio_user::Server::new(&path, true, device.irqs().to_vec(), device.regions().to_vec()).unwrap();
    let client = thread::spawn(move || exercise(path));
    server.run(&mut ServerAdapter(&mut device)).unwrap();
    device.disconnected();
    let (vector, regions) = client.join().unwrap();
    check(&mut device, &vector, &regions);
}
