//! DMA by message: the requests this side has sent and the client has not answered.
//!
//! At most [`MAX_IN_FLIGHT`] at a time. A message id names slot and generation, so the late answer to a revoked
//! request is told from the answer to the one that follows in its slot; a slot stays taken until it is answered.

use super::backend::DmaUnmap;
use super::message::{Command, DmaAccess, HEADER_BYTES, Header, header_flags};
use crate::planted::planted;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// The most bytes one DMA message may carry: a larger answer may be cut short by QEMU, and the stream with it.
pub const MAX_DMA_BYTES: u32 = 32 << 10;
/// The most requests that may wait for an answer.
pub const MAX_IN_FLIGHT: usize = 64;

const SLOT_BITS: u32 = MAX_IN_FLIGHT.trailing_zeros();

/// Why a DMA message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaRefusal {
    /// To be tried again after the next answer or when the connection is writable: a client request or its answer
    /// is still on the way, the socket is full, or [`MAX_IN_FLIGHT`] requests wait.
    #[error("the connection cannot take a DMA message now")]
    Busy,
    #[error(
        "a DMA message of {length_bytes} bytes at {iova:#x} is not possible: from 1 to {max_bytes}, and without wrapping"
    )]
    Length { iova: u64, length_bytes: u64, max_bytes: u32 },
    #[error("the client has not negotiated a version yet")]
    NotNegotiated,
    #[error("the connection is closed")]
    Closed,
}

/// What to make of a reply from the client.
#[derive(Debug, PartialEq, Eq)]
pub enum DmaReply<'a> {
    /// It answers a request.
    Answers { id: u64, answer: Result<&'a [u8], Errno> },
    /// It answers a request that was revoked.
    Late,
    /// It answers nothing that was asked.
    Stray,
    /// It puts the data where QEMU before 11.1 does, four bytes too early; the request is answered with an error.
    ShiftedPayload { id: u64 },
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    generation: u16,
    request: Option<InFlight>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    command: Command,
    iova: u64,
    length_bytes: u32,
    /// `None` once revoked.
    id: Option<u64>,
}

/// The requests in flight.
#[derive(Debug)]
pub struct DmaMessages {
    slots: [Slot; MAX_IN_FLIGHT],
    taken: u64,
}

impl DmaMessages {
    pub fn new() -> Self {
        Self { slots: [Slot::default(); MAX_IN_FLIGHT], taken: 0 }
    }

    pub fn has_room(&self) -> bool {
        self.taken != u64::MAX
    }

    /// How many wait for an answer, revoked ones included.
    pub fn in_flight(&self) -> u32 {
        self.taken.count_ones()
    }

    /// Takes a slot and gives the header and body to send.
    pub fn begin(&mut self, id: u64, command: Command, iova: u64, length_bytes: u32) -> Option<(Header, DmaAccess)> {
        let index = (!self.taken).trailing_zeros() as usize;
        let slot = self.slots.get_mut(index)?;
        self.taken |= 1 << index;
        slot.request = Some(InFlight { command, iova, length_bytes, id: Some(id) });
        let data_bytes = if command == Command::DMA_WRITE { length_bytes } else { 0 };
        let header = Header {
            message_id: slot.generation << SLOT_BITS | index as u16,
            command: command.0,
            size_bytes: (HEADER_BYTES + size_of::<DmaAccess>()) as u32 + data_bytes,
            flags: header_flags::COMMAND,
            error: 0,
        };
        Some((header, DmaAccess { address: iova, count: length_bytes.into() }))
    }

    /// Frees the slot of a request that was not sent after all.
    pub fn cancel(&mut self, header: &Header) {
        self.free(header.message_id);
    }

    /// Matches a reply to its request.
    pub fn reply<'a>(&mut self, header: &Header, body: &'a [u8]) -> DmaReply<'a> {
        let Some(request) = self.find(header) else { return DmaReply::Stray };
        self.free(header.message_id);
        let Some(id) = request.id else { return DmaReply::Late };
        if header.flags & header_flags::ERROR != 0 {
            return DmaReply::Answers { id, answer: Err(errno_of(header.error)) };
        }
        match request.command {
            Command::DMA_READ => read_answer(id, request, body),
            _ => DmaReply::Answers { id, answer: Ok(&[]) },
        }
    }

    /// Revokes what touches the range; `revoked` gets each request's id.
    pub fn revoke(&mut self, range: DmaUnmap, mut revoked: impl FnMut(u64)) {
        if self.taken == 0 {
            return;
        }
        for request in self.slots.iter_mut().filter_map(|slot| slot.request.as_mut()) {
            if range.touches(request.iova, request.length_bytes.into())
                && let Some(id) = if planted("vfio_user_revoked_twice") { request.id } else { request.id.take() }
            {
                revoked(id);
            }
        }
    }

    fn find(&self, header: &Header) -> Option<InFlight> {
        let slot = self.slots.get(slot_index(header.message_id))?;
        let request = slot.request?;
        let same = slot.generation == header.message_id >> SLOT_BITS && request.command == header.command();
        same.then_some(request)
    }

    fn free(&mut self, message_id: u16) {
        let index = slot_index(message_id);
        if let Some(slot) = self.slots.get_mut(index) {
            slot.request = None;
            slot.generation = (slot.generation + 1) & (u16::MAX >> SLOT_BITS);
            self.taken &= !(1 << index);
        }
    }
}

impl Default for DmaMessages {
    fn default() -> Self {
        Self::new()
    }
}

fn slot_index(message_id: u16) -> usize {
    usize::from(message_id) % MAX_IN_FLIGHT
}

fn read_answer(id: u64, request: InFlight, body: &[u8]) -> DmaReply<'_> {
    let expected = DmaAccess { address: request.iova, count: request.length_bytes.into() };
    let broken = DmaReply::Answers { id, answer: Err(Errno::PROTO) };
    let Ok((access, data)) = DmaAccess::read_from_prefix(body) else { return broken };
    if data.len() == request.length_bytes as usize {
        if access.as_bytes() == expected.as_bytes() {
            return DmaReply::Answers { id, answer: Ok(data) };
        }
        // A count of 32 bits, then the data: the upper half of what should be the count is data.
        if access.address == expected.address && access.count as u32 == request.length_bytes {
            return DmaReply::ShiftedPayload { id };
        }
    }
    broken
}

/// The errno of an error reply. The protocol allows 0 in one, which would say success to us.
fn errno_of(error: u32) -> Errno {
    match i32::try_from(error) {
        Ok(raw @ 1..=4095) => Errno::from_raw_os_error(raw),
        _ => Errno::IO,
    }
}
