//! File descriptors on their way from the socket to the message they came with.
//!
//! The kernel ends a read after the first packet that brings descriptors, but the read may begin with packets that
//! bring none. So with one `sendmsg` per message, as the protocol has it, the descriptors belong to the last message
//! that has a byte in the read. A client that puts several messages in one packet is served as well: if that last
//! message cannot take descriptors, they go to the nearest one before it in the read that can.

use super::message::MAX_MESSAGE_FDS;
use super::parser::InputBuffer;
use std::os::fd::OwnedFd;

/// The descriptors of one message.
#[derive(Debug, Default)]
pub struct MessageFds {
    pub fds: Vec<OwnedFd>,
    /// More came than one message may bring; those were closed.
    pub too_many: bool,
}

impl MessageFds {
    pub fn is_empty(&self) -> bool {
        self.fds.is_empty() && !self.too_many
    }
}

/// The descriptors that wait for their message to be whole. At most two messages at a time have any: one that was
/// unfinished at the last read, and one of this read.
#[derive(Debug, Default)]
pub struct PassedFds {
    parcels: Vec<(u64, MessageFds)>,
}

impl PassedFds {
    /// Assigns what one read brought. `read_from` is the stream offset where the read began.
    pub fn assign(&mut self, input: &InputBuffer, read_from: u64, arrived: Vec<OwnedFd>, truncated: bool) {
        let Some(offset) = owner_of(input, read_from) else { return };
        let at = match self.parcels.iter().position(|(of, _)| *of == offset) {
            Some(at) => at,
            None => {
                self.parcels.push((offset, MessageFds::default()));
                self.parcels.len() - 1
            }
        };
        let Some((_, parcel)) = self.parcels.get_mut(at) else { return };
        let room = MAX_MESSAGE_FDS.saturating_sub(parcel.fds.len());
        parcel.too_many |= truncated || arrived.len() > room;
        parcel.fds.extend(arrived.into_iter().take(room));
    }

    /// The descriptors of the message that begins at this stream offset.
    pub fn take(&mut self, stream_offset: u64) -> MessageFds {
        if self.parcels.is_empty() {
            return MessageFds::default();
        }
        match self.parcels.iter().position(|(of, _)| *of == stream_offset) {
            Some(at) => self.parcels.swap_remove(at).1,
            None => MessageFds::default(),
        }
    }

    /// How many descriptors are held.
    pub fn held(&self) -> usize {
        self.parcels.iter().map(|(_, parcel)| parcel.fds.len()).sum()
    }
}

fn owner_of(input: &InputBuffer, read_from: u64) -> Option<u64> {
    let mut last = None;
    let mut last_taker = None;
    for sighted in input.sightings() {
        let end = match sighted.header {
            Some(header) => sighted.stream_offset + u64::from(header.size_bytes),
            None => u64::MAX,
        };
        if end <= read_from {
            continue;
        }
        last = Some(sighted.stream_offset);
        // An unfinished header may still turn out to be a command that takes them.
        if sighted.header.is_none_or(|header| header.command().takes_fds()) {
            last_taker = last;
        }
    }
    last_taker.or(last)
}
