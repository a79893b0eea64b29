//! The stream: whole messages out with their file descriptors, whole messages in, the server's DMA requests
//! answered in between.
//!
//! In: commands. Out: the bodies of their replies. Every wait has the connection's limit; a server that breaks the
//! framing loses the connection, and its bytes never decide how much is allocated beyond the largest message.

use super::message::*;
use crate::backing::{BackingError, Result};
use crate::memory::MappedMemory;
use crate::planted::planted;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

pub(super) const SERVER: &str = "the vfio-user server";
/// The most file descriptors of one message, as offered in VERSION.
pub(super) const MAX_FDS: usize = 16;

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    limit: Duration,
    next_id: u16,
    /// DMA requests of the server that were answered.
    pub(super) dma_requests: u64,
}

fn broken(what: impl Into<String>) -> BackingError {
    BackingError::Protocol { peer: SERVER, what: what.into() }
}

impl Connection {
    pub fn new(stream: UnixStream, limit: Duration) -> Result<Self> {
        stream.set_read_timeout(Some(limit)).map_err(BackingError::io("setting the socket's read limit"))?;
        stream.set_write_timeout(Some(limit)).map_err(BackingError::io("setting the socket's write limit"))?;
        Ok(Self { stream, limit, next_id: 0, dma_requests: 0 })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Sends a command that nobody answers.
    pub fn post(&mut self, command: u16, parts: &[&[u8]]) -> Result<()> {
        let header = self.header(command, FLAGS_NO_REPLY, parts);
        self.send(&header, parts, &[])
    }

    /// Sends a command and waits for its reply's body. The server's own requests are served from `memory`.
    pub fn call(
        &mut self,
        command: u16,
        parts: &[&[u8]],
        fds: &[BorrowedFd<'_>],
        memory: &MappedMemory,
    ) -> Result<Vec<u8>> {
        let request = self.header(command, 0, parts);
        self.send(&request, parts, fds)?;
        let start = Instant::now();
        loop {
            let (header, body) = self.receive()?;
            if header.flags & FLAGS_TYPE != FLAGS_REPLY {
                self.serve(&header, &body, memory)?;
            } else if (header.message_id, header.command) != (request.message_id, command) {
                return Err(broken(format!("a reply to command {} that was not asked for", header.command)));
            } else if header.flags & FLAGS_ERROR != 0 {
                let what = format!("command {command}");
                return Err(BackingError::Refused { peer: SERVER, what, errno: header.errno });
            } else {
                return Ok(body);
            }
            if start.elapsed() > self.limit {
                return Err(BackingError::Timeout {
                    what: format!("the reply to command {command}"),
                    limit: self.limit,
                });
            }
        }
    }

    /// Serves requests of the server that are there, without waiting.
    pub fn serve_pending(&mut self, memory: &MappedMemory) -> Result<()> {
        while readable([self.fd()], Duration::ZERO)?[0] {
            let (header, body) = self.receive()?;
            if header.flags & FLAGS_TYPE == FLAGS_REPLY {
                return Err(broken(format!("a reply to command {} that nobody waits for", header.command)));
            }
            self.serve(&header, &body, memory)?;
        }
        Ok(())
    }

    fn header(&mut self, command: u16, flags: u32, parts: &[&[u8]]) -> Header {
        self.next_id = self.next_id.wrapping_add(1);
        let size = HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        Header { message_id: self.next_id, command, size_bytes: size as u32, flags, errno: 0 }
    }

    /// One message with one `sendmsg`; only what the socket's buffer did not take follows in others.
    fn send(&mut self, header: &Header, parts: &[&[u8]], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut message = [0u8; 128];
        let size = header.size_bytes as usize;
        let mut long;
        let bytes = match message.get_mut(..size) {
            Some(short) => short,
            None => {
                long = vec![0; size];
                &mut long[..]
            }
        };
        let mut rest = &mut bytes[..];
        for part in std::iter::once(&header.as_bytes()).chain(parts) {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(broken(format!("{} file descriptors are more than {MAX_FDS}", fds.len())));
        }
        let mut sent = 0;
        while sent < size {
            let rest = [IoSlice::new(&bytes[sent..])];
            match rustix::net::sendmsg(&self.stream, &rest, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    sent += count;
                    ancillary.clear();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(BackingError::errno(format!("sending command {}", header.command))(errno)),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(Header, Vec<u8>)> {
        let mut header = Header::default();
        let waiting = || BackingError::io("waiting for a message of the vfio-user server");
        self.stream.read_exact(header.as_mut_bytes()).map_err(waiting())?;
        let size = header.size_bytes as usize;
        if !(HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&size) {
            return Err(broken(format!("a message of {size} bytes")));
        }
        let mut body = vec![0; size - HEADER_BYTES];
        self.stream.read_exact(&mut body).map_err(waiting())?;
        Ok((header, body))
    }

    /// Answers DMA_READ and DMA_WRITE; refuses everything else.
    fn serve(&mut self, header: &Header, body: &[u8], memory: &MappedMemory) -> Result<()> {
        self.dma_requests += 1;
        let answer = match header.command {
            DMA_READ => read_memory(body, memory),
            DMA_WRITE => write_memory(body, memory),
            _ => Err(rustix::io::Errno::NOSYS),
        };
        if header.flags & FLAGS_NO_REPLY != 0 {
            return Ok(());
        }
        let (flags, errno, body) = match answer {
            Ok(body) => (FLAGS_REPLY, 0, body),
            Err(errno) => (FLAGS_REPLY | FLAGS_ERROR, errno.raw_os_error() as u32, Vec::new()),
        };
        let size_bytes = (HEADER_BYTES + body.len()) as u32;
        let reply = Header { message_id: header.message_id, command: header.command, size_bytes, flags, errno };
        self.send(&reply, &[&body], &[])
    }
}

type Answer = std::result::Result<Vec<u8>, rustix::io::Errno>;

fn read_memory(body: &[u8], memory: &MappedMemory) -> Answer {
    let access = DmaAccess::read_from_bytes(body).map_err(|_| rustix::io::Errno::INVAL)?;
    let count = usize::try_from(access.count).map_err(|_| rustix::io::Errno::TOOBIG)?;
    if count > MAX_DATA_BYTES {
        return Err(rustix::io::Errno::TOOBIG);
    }
    let mut reply = access.as_bytes().to_vec();
    reply.resize(size_of::<DmaAccess>() + count, 0);
    let data = &mut reply[size_of::<DmaAccess>()..];
    memory.copy_out(access.iova, data).map_err(|_| rustix::io::Errno::FAULT)?;
    Ok(reply)
}

fn write_memory(body: &[u8], memory: &MappedMemory) -> Answer {
    let (access, data) = DmaAccess::read_from_prefix(body).map_err(|_| rustix::io::Errno::INVAL)?;
    if access.count != data.len() as u64 && !planted("dma-write-ignores-its-count") {
        return Err(rustix::io::Errno::INVAL);
    }
    memory.copy_in(access.iova, data).map_err(|_| rustix::io::Errno::FAULT)?;
    Ok(access.as_bytes().to_vec())
}

/// Which of the descriptors have something to read, waiting at most `timeout`.
pub(super) fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> Result<[bool; N]> {
    let mut polled = fds.each_ref().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(BackingError::errno("polling the device's descriptors")(errno)),
    }
    let ready = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
    Ok(polled.each_ref().map(|fd| fd.revents().intersects(ready)))
}
