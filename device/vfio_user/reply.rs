//! The reply under construction: one buffer for all replies of a connection.

use super::message::{HEADER_BYTES, Header, header_flags};
use rustix::io::Errno;
use std::os::fd::RawFd;
use zerocopy::{Immutable, IntoBytes};

/// Room for the header, then the body as the command writes it.
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    fd: Option<RawFd>,
}

impl Reply {
    /// An empty body.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.fd = None;
    }

    pub fn put(&mut self, part: &(impl IntoBytes + Immutable)) {
        self.put_bytes(part.as_bytes());
    }

    pub fn put_bytes(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    /// So many zero bytes to be filled. The caller has bounded `length`.
    pub fn space(&mut self, length: usize) -> &mut [u8] {
        let from = self.bytes.len();
        self.bytes.resize(from + length, 0);
        self.bytes.get_mut(from..).unwrap_or_default()
    }

    /// A descriptor of the device's own that is to travel with the reply.
    pub fn attach(&mut self, fd: RawFd) {
        self.fd = Some(fd);
    }

    /// The message that answers `request`: the body after success, a header alone after an error.
    pub fn finish(&mut self, request: &Header, outcome: Result<(), Errno>) -> (&[u8], Option<RawFd>) {
        let mut flags = header_flags::REPLY;
        let mut error = 0;
        if let Err(errno) = outcome {
            self.clear();
            flags |= header_flags::ERROR;
            // An error reply with errno 0 counts as success in QEMU.
            error = u32::try_from(errno.raw_os_error()).ok().filter(|&raw| raw != 0).unwrap_or(libc::EIO as u32);
        }
        let Header { message_id, command, .. } = *request;
        let header = Header { message_id, command, size_bytes: self.bytes.len() as u32, flags, error };
        if let Some(place) = self.bytes.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(header.as_bytes());
        }
        (&self.bytes, self.fd)
    }

    /// What the buffer holds on to.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
