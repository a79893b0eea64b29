//! One client, served by whoever polls its socket: a non-blocking state machine without a thread of its own.
//!
//! In come readiness and a budget; out come callbacks of the [`Backend`], replies, and the reason of the end. Requests
//! are answered in the call that serves them, so a DMA message never leaves while one is unanswered.

use super::backend::{Backend, DmaUnmap};
use super::dispatch::{Message, Session, cost};
use super::dma_message::{DmaRefusal, MAX_DMA_BYTES};
use super::message::{Command, HEADER_BYTES, Header};
use super::negotiate::ClientCapabilities;
use super::parser::{BadSize, InputBuffer};
use super::passed_fds::PassedFds;
use super::receive::{Received, receive};
use crate::planted::planted;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("the client closed it")]
    ByClient,
    #[error("the client closed it in the middle of a message")]
    InMessage,
    #[error("{0}")]
    FramingLost(#[from] BadSize),
    #[error("receiving failed: {0}")]
    Receive(Errno),
    #[error("sending failed: {0}")]
    Send(Errno),
    #[error("it was shut down on this side")]
    Shutdown,
    #[error("it negotiated no version within {} s of connecting", NEGOTIATION_LIMIT.as_secs())]
    Silent,
}

/// A client that connects and does not say which version it speaks holds the adapter no longer than this. QEMU says
/// it at once.
pub const NEGOTIATION_LIMIT: Duration = Duration::from_secs(10);

/// The connection is over; the backend has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vfio-user connection closed: {reason}")]
pub struct Closed {
    pub reason: CloseReason,
}

/// What a call got done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// So much of the budget was used: messages, and writes inside REGION_WRITE_MULTI.
    pub served: u32,
    /// A whole message waits in memory: call again without waiting for the socket.
    pub more: bool,
}

/// A connected client.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    input: InputBuffer,
    passed: PassedFds,
    session: Session,
    /// A DMA message being put together.
    request: Vec<u8>,
    closed: Option<Closed>,
    /// The socket was full when a DMA message wanted to leave.
    dma_awaits_socket: bool,
    /// Sending failed outside a callback; the next call reports it.
    send_failed: Option<Errno>,
    /// The last read of the socket left nothing in it.
    silent: bool,
    connected: Instant,
}

impl Connection {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: InputBuffer::new(),
            passed: PassedFds::default(),
            session: Session::new("vfio-user".into()),
            request: Vec::new(),
            closed: None,
            dma_awaits_socket: false,
            send_failed: None,
            silent: false,
            connected: Instant::now(),
        })
    }

    /// What the log calls this connection.
    pub fn set_name(&mut self, name: String) {
        self.session.notices.rename(name);
    }

    /// Serves what is in memory and, if that leaves budget, does one read of the socket and serves that.
    pub fn on_readable(&mut self, backend: &mut dyn Backend, budget: u32) -> Result<Progress, Closed> {
        self.still_open(backend)?;
        let mut served = 0;
        self.serve_whole_messages(backend, budget, &mut served)?;
        self.silent = false;
        if served < budget && !self.session.output.is_beyond_bound() {
            match receive(self.stream.as_fd(), &mut self.input, &mut self.passed) {
                Ok(Received::Bytes { all }) => {
                    self.silent = all;
                    self.serve_whole_messages(backend, budget, &mut served)?;
                }
                Ok(Received::NothingNow) => self.silent = true,
                Ok(Received::EndOfStream) => {
                    let whole = self.input.is_empty();
                    let reason = if whole { CloseReason::ByClient } else { CloseReason::InMessage };
                    return Err(self.close(reason, backend));
                }
                Err(errno) => return Err(self.close(CloseReason::Receive(errno), backend)),
            }
        }
        Ok(Progress { served, more: self.has_work() })
    }

    /// Sends what waits for the socket. After it there may be work in memory that back-pressure had stopped.
    pub fn on_writable(&mut self, backend: &mut dyn Backend) -> Result<Progress, Closed> {
        self.still_open(backend)?;
        self.dma_awaits_socket = false;
        match self.session.output.flush(self.stream.as_fd()) {
            Ok(()) => Ok(Progress { served: 0, more: self.has_work() }),
            Err(errno) => Err(self.close(CloseReason::Send(errno), backend)),
        }
    }

    /// When a client that has not negotiated by then is let go.
    pub fn negotiates_until(&self) -> Option<Instant> {
        let waits = self.session.client.is_none() && self.closed.is_none();
        waits.then_some(self.connected + NEGOTIATION_LIMIT)
    }

    /// Ends the connection of a client that has said nothing, or not enough, for too long.
    pub fn expire(&mut self, now: Instant, backend: &mut dyn Backend) -> Result<(), Closed> {
        match self.negotiates_until() {
            Some(until) if until <= now => Err(self.close(CloseReason::Silent, backend)),
            _ => Ok(()),
        }
    }

    /// Bytes, or a refused DMA message, wait for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        self.closed.is_none() && (self.dma_awaits_socket || !self.session.output.is_empty())
    }

    /// Readability is of interest; not so while too much waits to be sent.
    pub fn wants_read(&self) -> bool {
        self.closed.is_none() && !self.session.output.is_beyond_bound()
    }

    /// A whole message waits in memory and may be served, or a failure waits to be told: [`Self::on_readable`] is due
    /// without any readiness.
    pub fn has_work(&self) -> bool {
        self.wants_read() && (self.has_whole_message() || self.send_failed.is_some())
    }

    /// The last call of [`Self::on_readable`] found, or left, the socket empty. It may have something again by now.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// The client has closed its end, though its last requests may still have to be read.
    pub fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
            && fds[0].revents().intersects(ended)
    }

    /// Asks the client for guest memory; the answer comes as `dma_answered(id, ..)`.
    pub fn request_dma_read(&mut self, id: u64, iova: u64, length_bytes: u32) -> Result<(), DmaRefusal> {
        self.request_dma(id, Command::DMA_READ, iova, length_bytes.into(), &[])
    }

    /// Asks the client to write guest memory; that it has comes as `dma_answered(id, ..)`.
    pub fn request_dma_write(&mut self, id: u64, iova: u64, from: &[u8]) -> Result<(), DmaRefusal> {
        self.request_dma(id, Command::DMA_WRITE, iova, from.len() as u64, from)
    }

    /// A DMA message would leave now.
    pub fn can_request_dma(&self) -> bool {
        self.session.client.is_some() && self.closed.is_none() && self.dma_is_free()
    }

    /// The most bytes of one DMA message.
    pub fn max_dma_bytes(&self) -> u32 {
        let client = self.session.client.as_ref().map_or(u64::MAX, |client| client.max_data_xfer_size);
        client.min(MAX_DMA_BYTES.into()) as u32
    }

    /// Forgets the DMA messages in flight, without a callback: late answers are discarded. For a reset that the
    /// connection does not see, a function-level reset or bus mastering switched off. An unmap, DEVICE_RESET and
    /// the end of the connection revoke by themselves.
    pub fn revoke_dma(&mut self) {
        self.session.dma.revoke(DmaUnmap::All, |_| {});
    }

    /// DMA messages without an answer, revoked ones included.
    pub fn dma_in_flight(&self) -> u32 {
        self.session.dma.in_flight()
    }

    /// What the client said it can do, once it has.
    pub fn client(&self) -> Option<&ClientCapabilities> {
        self.session.client.as_ref()
    }

    /// Ends the connection: sends what the socket still takes, tells the backend, closes both ways.
    pub fn shutdown(&mut self, backend: &mut dyn Backend) {
        if self.closed.is_none() {
            let _ = self.session.output.flush(self.stream.as_fd());
            self.close(CloseReason::Shutdown, backend);
        }
    }

    /// What the buffers of the connection hold on to.
    pub fn memory_bytes(&self) -> usize {
        self.input.capacity_bytes()
            + self.session.output.queued_bytes()
            + self.session.reply_capacity_bytes()
            + self.request.capacity()
    }

    /// File descriptors that wait for their message to be whole.
    pub fn held_fds(&self) -> usize {
        self.passed.held()
    }

    fn serve_whole_messages(&mut self, backend: &mut dyn Backend, budget: u32, served: &mut u32) -> Result<(), Closed> {
        while *served < budget && !self.session.output.is_beyond_bound() {
            let (header, place) = match self.input.first() {
                Ok(Some(first)) => first,
                Ok(None) => break,
                Err(bad) => return Err(self.close(bad.into(), backend)),
            };
            *served = served.saturating_add(self.serve_one(header, place, backend)?);
        }
        Ok(())
    }

    fn serve_one(&mut self, header: Header, place: Range<usize>, backend: &mut dyn Backend) -> Result<u32, Closed> {
        let fds = self.passed.take(self.input.stream_offset());
        let body = self.input.body(place);
        let cost = cost(&header, body);
        let sent = self.session.serve(Message { header, body, fds }, backend, self.stream.as_fd());
        let refused_body_left = planted("vfio_user_body_not_drained") && header.command().name().is_none();
        self.input.consume(if refused_body_left { HEADER_BYTES as u32 } else { header.size_bytes });
        match sent {
            Ok(()) => Ok(cost),
            Err(errno) => Err(self.close(CloseReason::Send(errno), backend)),
        }
    }

    fn request_dma(
        &mut self,
        id: u64,
        command: Command,
        iova: u64,
        length_bytes: u64,
        data: &[u8],
    ) -> Result<(), DmaRefusal> {
        if self.closed.is_some() || self.send_failed.is_some() {
            return Err(DmaRefusal::Closed);
        }
        if self.session.client.is_none() {
            return Err(DmaRefusal::NotNegotiated);
        }
        let max_bytes = self.max_dma_bytes();
        let wraps = iova.checked_add(length_bytes.saturating_sub(1)).is_none();
        if length_bytes == 0 || length_bytes > max_bytes.into() || wraps {
            return Err(DmaRefusal::Length { iova, length_bytes, max_bytes });
        }
        if !self.dma_is_free() {
            return Err(DmaRefusal::Busy);
        }
        let begun = self.session.dma.begin(id, command, iova, length_bytes as u32);
        let (header, access) = begun.ok_or(DmaRefusal::Busy)?;
        self.request.clear();
        self.request.extend_from_slice(header.as_bytes());
        self.request.extend_from_slice(access.as_bytes());
        self.request.extend_from_slice(data);
        debug_assert_eq!(self.request.len(), header.size_bytes as usize);
        debug_assert!(self.request.len() >= HEADER_BYTES);
        match self.session.output.send_now(self.stream.as_fd(), &self.request) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.dma_awaits_socket = true;
                self.session.dma.cancel(&header);
                Err(DmaRefusal::Busy)
            }
            Err(errno) => {
                self.session.dma.cancel(&header);
                self.send_failed = Some(errno);
                Err(DmaRefusal::Closed)
            }
        }
    }

    /// Nothing of the client's is unanswered, as far as this side can know, and a request may be in flight.
    fn dma_is_free(&self) -> bool {
        self.session.output.is_empty() && !self.has_whole_message() && self.session.dma.has_room()
    }

    /// A bad header counts: it is work too, the last.
    fn has_whole_message(&self) -> bool {
        !matches!(self.input.first(), Ok(None))
    }

    fn still_open(&mut self, backend: &mut dyn Backend) -> Result<(), Closed> {
        match (self.closed, self.send_failed) {
            (Some(closed), _) => Err(closed),
            (None, Some(errno)) => Err(self.close(CloseReason::Send(errno), backend)),
            (None, None) => Ok(()),
        }
    }

    fn close(&mut self, reason: CloseReason, backend: &mut dyn Backend) -> Closed {
        let closed = Closed { reason };
        self.closed = Some(closed);
        self.session.revoke_all(backend);
        // Who has not even negotiated (somebody who looks whether we live) has changed nothing that would have to go.
        if self.session.client.is_some() {
            backend.disconnected();
        }
        self.passed = PassedFds::default();
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        closed
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
