//! A client that came while the device is taken: its VERSION is answered with EBUSY, then the connection closes.

use super::message::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES};
use super::reply::Reply;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// A client that has not sent its VERSION by then is cut off.
pub const REFUSAL_DEADLINE: Duration = Duration::from_secs(2);

/// One client being refused.
#[derive(Debug)]
pub struct Refusal {
    stream: UnixStream,
    header: [u8; HEADER_BYTES],
    filled: usize,
    /// What the message still brings after the header; read so that closing does not discard our answer.
    body_left: usize,
    deadline: Instant,
}

impl Refusal {
    /// `stream` is non-blocking.
    pub fn new(stream: UnixStream, now: Instant) -> Self {
        Self { stream, header: [0; HEADER_BYTES], filled: 0, body_left: 0, deadline: now + REFUSAL_DEADLINE }
    }

    /// Reads what has come; answers when the message is whole. True when the client can be dropped.
    pub fn advance(&mut self, now: Instant) -> bool {
        self.has_ended() || now >= self.deadline
    }

    fn has_ended(&mut self) -> bool {
        while self.filled < HEADER_BYTES {
            match self.stream.read(self.header.get_mut(self.filled..).unwrap_or_default()) {
                Ok(0) => return true,
                Ok(count) => self.filled += count,
                Err(error) => return !is_patient(&error),
            }
            if self.filled == HEADER_BYTES {
                match Header::read_from_bytes(&self.header) {
                    Ok(header) if (HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&(header.size_bytes as usize)) => {
                        self.body_left = header.size_bytes as usize - HEADER_BYTES;
                    }
                    _ => return true,
                }
            }
        }
        let mut scrap = [0; 4096];
        while self.body_left > 0 {
            let wanted = self.body_left.min(scrap.len());
            match self.stream.read(scrap.get_mut(..wanted).unwrap_or_default()) {
                Ok(0) => return true,
                Ok(count) => self.body_left -= count,
                Err(error) => return !is_patient(&error),
            }
        }
        self.answer();
        true
    }

    fn answer(&self) {
        let Ok(request) = Header::read_from_bytes(&self.header) else { return };
        if request.no_reply() || !request.is_command() {
            return;
        }
        let mut reply = Reply::default();
        reply.clear();
        let (bytes, _) = reply.finish(&request, Err(Errno::BUSY));
        // A header is small and the socket empty; if it fails, closing says enough.
        let _ = send(&self.stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

fn is_patient(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
}
