//! One read from the socket: bytes into the input buffer, file descriptors to the message they came with.

use super::message::MAX_MESSAGE_FDS;
use super::parser::InputBuffer;
use super::passed_fds::PassedFds;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes {
        /// Fewer than there was room for, and nothing that cuts a read short: the socket holds no more.
        all: bool,
    },
    NothingNow,
    EndOfStream,
}

/// Reads what there is, up to the room of the buffer. Never waits.
pub fn receive(socket: BorrowedFd<'_>, input: &mut InputBuffer, passed: &mut PassedFds) -> Result<Received, Errno> {
    let read_from = input.stream_end();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let room_bytes = input.room().len();
    let message = loop {
        let mut room = [IoSliceMut::new(input.room())];
        // Descriptors must not leak into a child that another thread starts meanwhile.
        match recvmsg(socket, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::NothingNow),
            Err(errno) => return Err(errno),
        }
    };
    if message.bytes == 0 {
        return Ok(Received::EndOfStream);
    }
    input.filled(message.bytes);
    let truncated = message.flags.contains(ReturnFlags::CTRUNC);
    let mut arrived: Vec<OwnedFd> = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            arrived.extend(fds);
        }
    }
    let with_fds = truncated || !arrived.is_empty();
    if with_fds {
        passed.assign(input, read_from, arrived, truncated);
    }
    // Descriptors end a read, so that something may stand behind them.
    Ok(Received::Bytes { all: message.bytes < room_bytes && !with_fds })
}
