//! The way out: one `sendmsg` per message; what the socket does not take waits in a queue, in order.
//!
//! The queue is bounded by back-pressure: beyond [`OUTPUT_BOUND_BYTES`] the connection serves no further request,
//! and one request adds at most one message.

use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// With so many bytes unsent, no further request is served.
pub const OUTPUT_BOUND_BYTES: usize = 1 << 20;

/// Messages that wait for the socket.
#[derive(Debug, Default)]
pub struct Output {
    queue: VecDeque<Unsent>,
    queued_bytes: usize,
}

#[derive(Debug)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    fd: Option<OwnedFd>,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn is_beyond_bound(&self) -> bool {
        self.queued_bytes >= OUTPUT_BOUND_BYTES
    }

    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Sends the message, now or when the socket has room.
    pub fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let sent = if self.queue.is_empty() { send_some(socket, bytes, fd)? } else { 0 };
        self.keep_rest(bytes, sent, fd)
    }

    /// Sends the message if it can leave now, behind nothing else; tells whether it did.
    pub fn send_now(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<bool, Errno> {
        if !self.queue.is_empty() {
            return Ok(false);
        }
        let sent = send_some(socket, bytes, None)?;
        if sent > 0 {
            self.keep_rest(bytes, sent, None)?;
        }
        Ok(sent > 0)
    }

    /// Sends what waits, as far as the socket takes it.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        while let Some(first) = self.queue.front_mut() {
            let rest = first.bytes.get(first.sent..).unwrap_or_default();
            let sent = send_some(socket, rest, first.fd.as_ref().map(AsFd::as_fd))?;
            if sent > 0 {
                // The descriptor travels with the first byte.
                first.fd = None;
            }
            first.sent += sent;
            self.queued_bytes -= sent;
            if first.sent < first.bytes.len() {
                return Ok(());
            }
            self.queue.pop_front();
        }
        self.queue.shrink_to(16);
        Ok(())
    }

    fn keep_rest(&mut self, bytes: &[u8], sent: usize, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let rest = bytes.get(sent..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        let fd = match fd.filter(|_| sent == 0) {
            Some(fd) => Some(rustix::io::fcntl_dupfd_cloexec(fd, 0)?),
            None => None,
        };
        self.queued_bytes += rest.len();
        self.queue.push_back(Unsent { bytes: rest.to_vec(), sent: 0, fd });
        Ok(())
    }
}

/// One `sendmsg`; 0 when the socket takes nothing now.
fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<usize, Errno> {
    let fds = fd.map(|fd| [fd]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fds) = &fds {
        // The space is that of one descriptor, so it fits.
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            // The kernel is short of memory for the packet: as good as a full socket, the client will read on.
            Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(0),
            Err(errno) => return Err(errno),
        }
    }
}
