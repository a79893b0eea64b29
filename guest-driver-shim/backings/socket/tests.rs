//! The exact messages of the client, against a peer written from the protocol's description on a socket pair.

use super::*;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::thread::JoinHandle;

const LIMIT: Duration = Duration::from_secs(5);

/// A message as it came: command, flags, body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    id: u16,
    command: u16,
    flags: u32,
    body: Vec<u8>,
}

struct Peer {
    stream: UnixStream,
    config: Vec<u8>,
    log: Vec<Message>,
    fds: Vec<OwnedFd>,
    /// errno of the next VERSION.
    refuse_version: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Peer {
    fn new(stream: UnixStream) -> Self {
        let mut config = vec![0; 4096];
        config[0x34] = 0x40;
        // PCI Express at 0x40, MSI-X with 4 vectors at 0x80; BARs 0, 2, 4 are 64-bit, 2 prefetchable.
        config[0x40..0x42].copy_from_slice(&[0x10, 0x80]);
        config[0x80..0x84].copy_from_slice(&[0x11, 0, 3, 0]);
        (config[0x10], config[0x18], config[0x20]) = (0x4, 0xc, 0x4);
        Self { stream, config, log: Vec::new(), fds: Vec::new(), refuse_version: 0 }
    }

    /// One message; its descriptors are kept. Every message must come whole with one read.
    fn receive(&mut self) -> Option<Message> {
        let mut bytes = vec![0u8; 4096];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut header = [0; 16];
        let mut slices = [std::io::IoSliceMut::new(&mut header)];
        let flags = rustix::net::RecvFlags::empty();
        let got = rustix::net::recvmsg(self.stream.as_fd(), &mut slices, &mut ancillary, flags).unwrap();
        if got.bytes == 0 {
            return None;
        }
        assert_eq!(got.bytes, 16, "a message begins with its whole header");
        for message in ancillary.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        let size = word(&header, 4) as usize;
        bytes.truncate(size - 16);
        self.stream.read_exact(&mut bytes).unwrap();
        let id_command = word(&header, 0);
        let message =
            Message { id: id_command as u16, command: (id_command >> 16) as u16, flags: word(&header, 8), body: bytes };
        self.log.push(message.clone());
        Some(message)
    }

    fn send(&mut self, id: u16, command: u16, flags: u32, errno: u32, body: &[u8]) {
        let mut message = Vec::new();
        message.extend_from_slice(&id.to_ne_bytes());
        message.extend_from_slice(&command.to_ne_bytes());
        for field in [16 + body.len() as u32, flags, errno] {
            message.extend_from_slice(&field.to_ne_bytes());
        }
        message.extend_from_slice(body);
        self.stream.write_all(&message).unwrap();
    }

    fn reply(&mut self, message: &Message) {
        let mut body = message.body.clone();
        let mut put = |at: usize, value: u32| body[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        match message.command {
            1 if self.refuse_version != 0 => {
                let errno = std::mem::take(&mut self.refuse_version);
                return self.send(message.id, 1, 0x21, errno, &[]);
            }
            1 => body = b"\0\0\0\0{}\0".to_vec(),
            2 | 8 | 13 => body.clear(),
            4 => [9, 5].into_iter().zip([8, 12]).for_each(|(value, at)| put(at, value)),
            5 => put(16, [0x1_0000, 0, 0x40_0000, 0, 0x1000, 0][word(&message.body, 8) as usize]),
            7 => put(12, 4),
            9 | 10 => {
                let (offset, region, count) = (word(&body, 0) as usize, word(&body, 8), word(&body, 12) as usize);
                match (message.command, region) {
                    (9, 7) => body.extend_from_slice(&self.config[offset..offset + count]),
                    (9, _) => body.extend((1..=count as u8).rev()),
                    (_, 7) => self.config[offset..offset + count].copy_from_slice(&body[16..]),
                    _ => {}
                }
                if message.command == 10 {
                    body.truncate(16);
                }
            }
            _ => panic!("{message:?}"),
        }
        self.send(message.id, message.command, 1, 0, &body);
    }

    /// Answers until the client goes, and returns what came.
    fn run(mut self) -> Self {
        while let Some(message) = self.receive() {
            if message.flags & 0x10 == 0 {
                self.reply(&message);
            }
        }
        self
    }
}

fn host() -> ModelHost {
    ModelHost { memory_bytes: 1 << 20, ..ModelHost::default() }
}

fn open(access: MemoryAccess) -> (Socket, JoinHandle<Peer>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = std::thread::spawn(move || Peer::new(theirs).run());
    (Socket::open(ours, host(), access, LIMIT).unwrap(), peer)
}

fn access_body(offset: u64, region: u32, data: &[u8]) -> Vec<u8> {
    let mut body = offset.to_ne_bytes().to_vec();
    body.extend_from_slice(&region.to_ne_bytes());
    body.extend_from_slice(&(data.len() as u32).to_ne_bytes());
    body.extend_from_slice(data);
    body
}

#[test]
fn bring_up_negotiates_maps_resets_and_programs_the_function_as_a_model_host() {
    let (socket, peer) = open(MemoryAccess::Shared);
    drop(socket);
    let peer = peer.join().unwrap();
    let commands: Vec<u16> = peer.log.iter().map(|message| message.command).collect();
    assert_eq!(commands[..11], [1, 2, 4, 5, 5, 5, 5, 5, 5, 13, 9]);
    assert!(peer.log.iter().all(|message| message.flags == 0), "nothing of bring-up is posted");
    let version = &peer.log[0].body;
    assert_eq!((&version[..4], version.last()), (&[0u8; 4][..], Some(&0)));
    let text: serde_json::Value = serde_json::from_slice(&version[4..version.len() - 1]).unwrap();
    assert_eq!(text["capabilities"]["max_data_xfer_size"], 1 << 20);
    let mut map = Vec::new();
    map.extend_from_slice(&32u32.to_ne_bytes());
    map.extend_from_slice(&3u32.to_ne_bytes());
    [0u64, 0x1_0000_0000, 1 << 20].iter().for_each(|field| map.extend_from_slice(&field.to_ne_bytes()));
    assert_eq!(peer.log[1].body, map);
    assert_eq!(peer.fds.len(), 1);
    // BARs above 4 GiB, 256-byte payloads, 512-byte read requests, decoding and bus mastering.
    assert_eq!([word(&peer.config, 0x14), word(&peer.config, 0x1c), word(&peer.config, 0x24)], [0x40; 3]);
    assert_eq!(word(&peer.config, 0x48) as u16 & 0x70e0, 2 << 12 | 1 << 5);
    assert_eq!(peer.config[4] & 6, 6);
}

#[test]
fn bar_writes_are_posted_and_at_most_8_bytes() {
    let (mut socket, peer) = open(MemoryAccess::Shared);
    let line: [u8; 64] = std::array::from_fn(|index| index as u8);
    socket.write_line(2, 0x1400, &line).unwrap();
    socket.write64(0, 0x40, 0x0102_0304_0506_0708).unwrap();
    socket.write32(0, 0x54, 0xaabb_ccdd).unwrap();
    assert_eq!(socket.read32(0, 0x10).unwrap(), 0x0102_0304);
    assert_eq!(socket.read64(0, 0x70).unwrap(), 0x0102_0304_0506_0708);
    socket.config_write16(0x4, 0x406).unwrap();
    for refused in [socket.write64(0, 0x44, 0), socket.write32(0, 0x1_0000, 0), socket.write32(1, 0, 0)] {
        assert!(matches!(refused, Err(BackingError::BarAccess { .. })));
    }
    drop(socket);
    let peer = peer.join().unwrap();
    let tail = &peer.log[peer.log.len() - 13..];
    for (index, message) in tail[..8].iter().enumerate() {
        let expected = access_body(0x1400 + 8 * index as u64, 2, &line[8 * index..8 * index + 8]);
        assert_eq!((message.command, message.flags, &message.body), (10, 0x10, &expected));
    }
    let expect = |message: &Message, command: u16, flags: u32, body: Vec<u8>| {
        assert_eq!((message.command, message.flags, &message.body), (command, flags, &body));
    };
    expect(&tail[8], 10, 0x10, access_body(0x40, 0, &[8, 7, 6, 5, 4, 3, 2, 1]));
    expect(&tail[9], 10, 0x10, access_body(0x54, 0, &[0xdd, 0xcc, 0xbb, 0xaa]));
    let mut read = access_body(0x10, 0, &[]);
    read[12] = 4;
    expect(&tail[10], 9, 0, read);
    expect(&tail[12], 10, 0, access_body(4, 7, &[0x06, 0x04]));
}

#[test]
fn vectors_are_connected_as_qemu_does_and_an_eventfd_is_an_interrupt() {
    let (mut socket, peer) = open(MemoryAccess::Shared);
    socket.enable_vectors(2).unwrap();
    assert!(!socket.wait_event(1, Duration::from_millis(10)).unwrap());
    rustix::io::write(&socket.vectors[1], &1u64.to_ne_bytes()).unwrap();
    assert!(socket.wait_event(1, LIMIT).unwrap());
    assert!(!socket.wait_event(1, Duration::ZERO).unwrap());
    assert!(matches!(socket.wait_event(2, LIMIT), Err(BackingError::NoVector { vector: 2, count: 2 })));
    assert!(matches!(socket.enable_vectors(5), Err(BackingError::NoVector { vector: 4, count: 4 })));
    drop(socket);
    let peer = peer.join().unwrap();
    let sets: Vec<Vec<u32>> = peer
        .log
        .iter()
        .filter(|message| message.command == 8)
        .map(|message| (0..5).map(|field| word(&message.body, field * 4)).collect())
        .collect();
    assert_eq!(sets, [[20, 0x24, 2, 0, 1], [20, 0x24, 2, 0, 2]]);
    assert_eq!(peer.fds.len(), 3, "the memory and two vectors");
    assert_eq!(peer.config[0x83] & 0x80, 0x80);
}

/// Without a file the server reads and writes the host's memory by messages, also while a reply is awaited.
#[test]
fn the_server_s_dma_requests_are_answered_in_between() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = std::thread::spawn(move || {
        let mut peer = Peer::new(theirs);
        while let Some(message) = peer.receive() {
            if message.command == 9 && message.body[8] == 0 {
                let mut write = 0x1_0000_0010u64.to_ne_bytes().to_vec();
                write.extend_from_slice(&4u64.to_ne_bytes());
                peer.send(7, 12, 0, 0, &[&write[..], b"DATA"].concat());
                let written = peer.receive().unwrap();
                assert_eq!((written.id, written.command, written.flags, &written.body), (7, 12, 1, &write));
                peer.send(8, 11, 0, 0, &write);
                assert_eq!(peer.receive().unwrap().body, [&write[..], b"DATA"].concat());
                // Posted, outside the memory, not a request at all.
                peer.send(9, 12, 0x10, 0, &[&write[..], b"MORE"].concat());
                peer.send(10, 11, 0, 0, &[0u64.to_ne_bytes(), 4u64.to_ne_bytes()].concat());
                let refused = peer.receive().unwrap();
                assert_eq!((refused.id, refused.flags, refused.body.len()), (10, 0x21, 0));
                peer.send(11, 11, 0, 0, &[0x1_0000_0000u64.to_ne_bytes(), u64::MAX.to_ne_bytes()].concat());
                assert_eq!(peer.receive().unwrap().flags, 0x21);
                peer.send(12, 3, 0, 0, &[]);
                assert_eq!(peer.receive().unwrap().flags, 0x21);
            }
            if message.flags & 0x10 == 0 {
                peer.reply(&message);
            }
        }
        peer
    });
    let mut socket = Socket::open(ours, host(), MemoryAccess::ByMessage, LIMIT).unwrap();
    socket.read32(0, 0).unwrap();
    let mut bytes = [0; 4];
    socket.copy_out(0x1_0000_0010, &mut bytes).unwrap();
    assert_eq!(&bytes, b"MORE");
    assert_eq!(socket.dma_requests(), 6);
    drop(socket);
    assert!(peer.join().unwrap().fds.is_empty());
}

#[test]
fn a_busy_server_is_tried_again_and_broken_ones_are_errors() {
    let path = std::env::temp_dir().join(format!("rnic-shim-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        for errno in [rustix::io::Errno::BUSY.raw_os_error() as u32, 0] {
            let mut peer = Peer::new(listener.accept().unwrap().0);
            peer.refuse_version = errno;
            peer.run();
        }
    });
    drop(Socket::connect(&path, host(), MemoryAccess::Shared, LIMIT).unwrap());
    server.join().unwrap();
    std::fs::remove_file(&path).unwrap();

    let replies: [&[u8]; 5] = [
        b"",
        &[1, 0, 1, 0, 15, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0],
        &[9, 0, 1, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 1, 0, 18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    for reply in replies {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(reply).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let outcome = Socket::open(ours, host(), MemoryAccess::Shared, LIMIT);
        assert!(matches!(outcome, Err(BackingError::Protocol { .. } | BackingError::Io { .. })), "{reply:?}");
    }
    let (ours, _silent) = UnixStream::pair().unwrap();
    let outcome = Socket::open(ours, host(), MemoryAccess::Shared, Duration::from_millis(50));
    assert!(matches!(outcome, Err(BackingError::Io { .. })));
}
