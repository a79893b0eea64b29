//! A connection on one end of a socket pair, a raw client on the other.

use super::super::connection::{Closed, Connection};
use super::super::message::{Command, Header, header_flags};
use super::recorder::Recorder;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use zerocopy::{FromBytes, IntoBytes};

pub const POSTED: u32 = header_flags::COMMAND | header_flags::NO_REPLY;

pub struct Rig {
    pub server: Connection,
    pub device: Recorder,
    pub client: UnixStream,
    received: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

/// A message from the server, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub header: Header,
    pub body: Vec<u8>,
}

/// A whole message with a size that is right.
pub fn message(id: u16, command: Command, flags: u32, body: &[u8]) -> Vec<u8> {
    let size_bytes = (size_of::<Header>() + body.len()) as u32;
    let header = Header { message_id: id, command: command.0, size_bytes, flags, error: 0 };
    [header.as_bytes(), body].concat()
}

/// VERSION as QEMU 11.1 sends it.
pub fn qemu_version() -> Vec<u8> {
    let json = concat!(
        r#"{"capabilities":{"pgsizes":4096,"max_msg_fds":16,"max_dma_maps":65535,"max_data_xfer_size":1048576,"#,
        r#""migration":{"max_bitmap_size":268435456,"pgsize":4096},"write_multiple":true}}"#,
        "\0"
    );
    message(0, Command::VERSION, 0, &[&[0, 0, 0, 0], json.as_bytes()].concat())
}

impl Rig {
    /// Connected, nothing said.
    pub fn connected() -> Self {
        let (server, client) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        let server = Connection::new(server).unwrap();
        Self { server, device: Recorder::new(), client, received: vec![], fds: vec![] }
    }

    /// Connected and the version negotiated as QEMU does.
    pub fn negotiated() -> Self {
        let mut rig = Self::connected();
        let reply = rig.ask(&qemu_version());
        assert_eq!(reply.header.flags, header_flags::REPLY);
        rig
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.send_fds(bytes, &[]);
    }

    /// One `sendmsg`, which must be taken whole.
    pub fn send_fds(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let sent = sendmsg(&self.client, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len(), "the socket took only a part");
    }

    /// Lets the server do all it can.
    pub fn pump(&mut self) -> Result<(), Closed> {
        loop {
            let progress = self.server.on_readable(&mut self.device, u32::MAX)?;
            if progress.served == 0 && !progress.more {
                // The read may have brought a part of a message: read on until the socket is dry.
                let before = self.server_backlog();
                if before == 0 {
                    return Ok(());
                }
            }
        }
    }

    /// Bytes in the server's socket that it has not read.
    fn server_backlog(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.server).unwrap()
    }

    /// All that the server has sent so far, whole messages only.
    pub fn seen(&mut self) -> Vec<Seen> {
        self.drain();
        let mut all = vec![];
        while let Ok((header, rest)) = Header::read_from_prefix(&self.received) {
            let body_bytes = header.size_bytes as usize - size_of::<Header>();
            if rest.len() < body_bytes {
                break;
            }
            let body = rest[..body_bytes].to_vec();
            self.received.drain(..header.size_bytes as usize);
            all.push(Seen { header, body });
        }
        all
    }

    fn drain(&mut self) {
        let mut bytes = vec![0; 1 << 20];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.client, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
                Ok(part) if part.bytes == 0 => return,
                Ok(part) => {
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(fds) = message {
                            self.fds.extend(fds);
                        }
                    }
                    self.received.extend_from_slice(&bytes[..part.bytes]);
                }
                Err(Errno::AGAIN | Errno::CONNRESET) => return,
                Err(errno) => panic!("receiving failed: {errno}"),
            }
        }
    }

    /// Sends a request and takes its one reply.
    pub fn ask(&mut self, request: &[u8]) -> Seen {
        self.ask_fds(request, &[])
    }

    pub fn ask_fds(&mut self, request: &[u8], fds: &[BorrowedFd<'_>]) -> Seen {
        self.send_fds(request, fds);
        self.pump().unwrap();
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "one request, one reply");
        let reply = seen.remove(0);
        let (asked, _) = Header::read_from_prefix(request).unwrap();
        assert_eq!((reply.header.message_id, reply.header.command), (asked.message_id, asked.command));
        assert!(reply.header.is_reply());
        reply
    }

    /// Sends a request that must succeed; gives the body of its reply.
    pub fn succeed(&mut self, request: &[u8]) -> Vec<u8> {
        let reply = self.ask(request);
        assert_eq!((reply.header.flags, reply.header.error), (header_flags::REPLY, 0));
        reply.body
    }

    /// Sends a request that must be refused with this errno and reach no callback.
    pub fn refuse(&mut self, request: &[u8], errno: Errno) {
        self.refuse_fds(request, &[], errno);
    }

    pub fn refuse_fds(&mut self, request: &[u8], fds: &[BorrowedFd<'_>], errno: Errno) {
        self.device.calls.clear();
        let reply = self.ask_fds(request, fds);
        assert_refused(&reply, errno);
        assert_eq!(self.device.take(), vec![], "a refused request reached the device");
        // The same request, posted: not a word.
        let mut posted = request.to_vec();
        posted[8] |= header_flags::NO_REPLY as u8;
        self.send_fds(&posted, fds);
        self.pump().unwrap();
        assert_eq!(self.seen(), vec![], "an error was sent to NO_REPLY");
        assert_eq!(self.device.take(), vec![]);
        self.still_in_step();
    }

    /// Sends a posted request, which must be answered by nothing.
    pub fn post(&mut self, request: &[u8]) {
        self.send(request);
        self.pump().unwrap();
        assert_eq!(self.seen(), vec![]);
    }

    /// The stream is not out of step: a plain request still works.
    pub fn still_in_step(&mut self) {
        if self.server.client().is_none() {
            return;
        }
        let before = std::mem::take(&mut self.device.calls);
        let fails_with = self.device.fails_with.take();
        let body = [0u64.as_bytes(), 7u32.as_bytes(), 4u32.as_bytes()].concat();
        assert_eq!(self.succeed(&message(0xbeef, Command::REGION_READ, 0, &body)).len(), 20);
        self.device.calls = before;
        self.device.fails_with = fails_with;
    }
}

pub fn assert_refused(reply: &Seen, errno: Errno) {
    assert_eq!(reply.header.flags, header_flags::REPLY | header_flags::ERROR);
    assert_eq!(reply.header.error, errno.raw_os_error() as u32);
    assert_eq!((reply.header.size_bytes, reply.body.len()), (16, 0), "an error is a header alone");
}

/// An open descriptor that is an eventfd.
pub fn eventfd() -> vmm_sys_util::eventfd::EventFd {
    vmm_sys_util::eventfd::EventFd::new(0).unwrap()
}
