//! Transfers that could not be made at once, in their order: those that travel as messages to the client, those
//! that wait behind them, and reads that a simulation holds back.
//!
//! One queue keeps the posted order, whatever way each piece travels. A piece in mapped memory, a read or an MSI-X
//! message waits until every write message before it is answered; write messages may follow each other unanswered,
//! since the client serves its socket in order. Reads leave the queue once asked for and are answered in any order.

mod read;
mod transfer;

use crate::books::{Books, Entry};
use crate::dma_window::{Access, DmaWindow, Piece};
use crate::msix::MsixTable;
use crate::planted::planted;
use crate::{DmaFault, DmaRange, DmaTag, Iova, guest_copy};
use read::Reads;
use std::collections::{BTreeMap, VecDeque};
pub(crate) use transfer::{Transfer, merged};

/// The most bytes that one message carries or asks for: what a client can be answered in one piece.
pub const MAX_MESSAGE_BYTES: u32 = 32 << 10;

/// Beyond this, the device's logic is not run until there is room again.
const ROOM_BYTES: usize = 4 << 20;
const ROOM_ITEMS: usize = 4096;
/// One run of the device's logic may still add so much; beyond that, transfers are refused.
const LIMIT_BYTES: usize = 4 * ROOM_BYTES;
const LIMIT_ITEMS: usize = 4 * ROOM_ITEMS;

/// Names a message until it is answered; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// What a message asks of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Read { iova: Iova, length_bytes: u32 },
    Write { iova: Iova, data: Vec<u8> },
}

/// A message to the client, to be sent now and answered later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundMessage {
    pub id: MessageId,
    pub kind: MessageKind,
}

/// A read's tag and what became of it.
pub type Completion = (DmaTag, Result<Vec<u8>, DmaFault>);

#[derive(Debug)]
enum Item {
    /// `sent`: a part of its crossing has left, here or before.
    Write {
        transfer: Transfer,
        entry: Entry,
        sent: bool,
    },
    Read(DmaTag),
    Signal {
        vector: u16,
    },
}

#[derive(Debug)]
enum InFlight {
    Write { entry: Entry },
    Read { tag: DmaTag, at: usize, length: usize },
}

/// What the front of the queue can do.
enum Step {
    /// It moved on.
    Moved,
    /// It waits for an answer, or the queue is empty.
    Waits,
    /// Its next piece is a message.
    Message(DmaRange),
}

/// What the queue works on.
pub(crate) struct Surroundings<'a> {
    pub window: &'a DmaWindow,
    pub msix: &'a MsixTable,
    pub books: &'a mut Books,
    pub undelivered: &'a mut u64,
}

#[derive(Debug, Default)]
pub(crate) struct Outbound {
    queue: VecDeque<Item>,
    reads: Reads,
    in_flight: BTreeMap<MessageId, InFlight>,
    unanswered_writes: usize,
    last_message: u64,
    /// Bytes of queued writes.
    write_bytes: usize,
}

impl Outbound {
    /// No write is queued or unanswered: the next transfer may be made at once.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.queue.is_empty() && self.unanswered_writes == 0
    }

    pub fn has_room(&self) -> bool {
        self.bytes() < ROOM_BYTES && self.items() < ROOM_ITEMS
    }

    /// A transfer of so many bytes may still be taken.
    pub fn takes(&self, bytes: usize) -> bool {
        self.bytes().saturating_add(bytes) <= LIMIT_BYTES && self.items() < LIMIT_ITEMS
    }

    fn bytes(&self) -> usize {
        self.write_bytes + self.reads.bytes()
    }

    fn items(&self) -> usize {
        self.queue.len() + self.reads.len()
    }

    pub fn unanswered(&self) -> usize {
        self.in_flight.len()
    }

    pub fn push_write(&mut self, transfer: Transfer, entry: Entry, sent: bool) {
        self.write_bytes += transfer.length_bytes();
        self.queue.push_back(Item::Write { transfer, entry, sent });
    }

    pub fn push_signal(&mut self, vector: u16) {
        self.queue.push_back(Item::Signal { vector });
    }

    /// Takes a read, to be made in its turn or, if `held`, when it is released.
    pub fn push_read(&mut self, transfer: Transfer, entry: Entry, held: bool) -> DmaTag {
        let tag = self.reads.add(transfer, entry, held);
        if !held {
            self.queue.push_back(Item::Read(tag));
        }
        tag
    }

    pub fn held_tags(&self) -> impl Iterator<Item = DmaTag> {
        self.reads.held()
    }

    /// A held read takes its turn; its bytes are those of then.
    pub fn release(&mut self, tag: DmaTag) -> bool {
        let released = self.reads.release(tag);
        if released {
            self.queue.push_back(Item::Read(tag));
        }
        released
    }

    /// Ends a read that is held, queued or asked for.
    pub fn fail_read(&mut self, tag: DmaTag, fault: DmaFault, books: &mut Books) -> bool {
        self.reads.fail(tag, fault, books)
    }

    pub fn next_completion(&mut self) -> Option<Completion> {
        self.reads.next_completion()
    }

    /// Does all that needs no message.
    pub fn pump(&mut self, around: &mut Surroundings<'_>) {
        while matches!(self.step(around), Step::Moved) {}
    }

    /// The next message to be sent, if one can be.
    pub fn next_message(&mut self, around: &mut Surroundings<'_>) -> Option<OutboundMessage> {
        let range = loop {
            match self.step(around) {
                Step::Moved => {}
                Step::Waits => return None,
                Step::Message(range) => break range,
            }
        };
        let message = self.emit(range, around.books);
        self.pump(around);
        message
    }

    /// The client's answer; false for one to a message that is not known, or was revoked.
    pub fn answered(&mut self, id: MessageId, answer: Result<&[u8], DmaFault>, around: &mut Surroundings<'_>) -> bool {
        let known = self.settle(id, answer, around.books);
        self.pump(around);
        known
    }

    /// Takes the client's answer without moving the queue on.
    pub fn settle(&mut self, id: MessageId, answer: Result<&[u8], DmaFault>, books: &mut Books) -> bool {
        match self.in_flight.remove(&id) {
            None => return false,
            Some(InFlight::Write { entry }) => {
                self.unanswered_writes = self.unanswered_writes.saturating_sub(1);
                if let Err(fault) = answer {
                    books.fail_write(&entry, true, fault);
                }
            }
            Some(InFlight::Read { tag, at, length }) => self.reads.answered(tag, at, length, answer, books),
        }
        true
    }

    /// Forgets queue and messages; reads end as `Revoked`, or vanish with those that are complete already.
    pub fn revoke_all(&mut self, discard: bool, books: &mut Books) {
        for item in std::mem::take(&mut self.queue) {
            if let Item::Write { transfer, entry, sent } = item {
                books.fail_write(&entry, sent || transfer.has_begun(), DmaFault::Revoked);
            }
        }
        self.write_bytes = 0;
        self.in_flight.clear();
        self.unanswered_writes = 0;
        self.reads.revoke_if(|_| true, books);
        if discard {
            self.reads.discard_completions();
        }
    }

    /// Ends the reads that touch the addresses. Queued writes find them unmapped in their turn.
    pub fn revoke_reads_touching(&mut self, first: u64, last: u64, books: &mut Books) {
        self.reads.revoke_if(|transfer| transfer.touches(first, last), books);
    }

    /// Moves the front of the queue on by one piece.
    fn step(&mut self, around: &mut Surroundings<'_>) -> Step {
        let clear = self.unanswered_writes == 0 || planted("mapped pieces do not wait for messages");
        let (outcome, ends) = match self.queue.front_mut() {
            None => return Step::Waits,
            Some(Item::Signal { vector }) => {
                if !clear {
                    return Step::Waits;
                }
                if around.msix.signal(*vector).is_err() {
                    *around.undelivered += 1;
                }
                (Ok(Step::Moved), true)
            }
            Some(Item::Write { transfer, .. }) => {
                let outcome = write_piece(transfer, clear, around.window);
                (outcome, transfer.is_done())
            }
            Some(Item::Read(tag)) => {
                if !clear {
                    return Step::Waits;
                }
                match self.reads.get_mut(*tag) {
                    // It was revoked meanwhile.
                    None => (Ok(Step::Moved), true),
                    Some(pending) => {
                        let outcome = read_piece(&mut pending.transfer, around.window);
                        (outcome, pending.transfer.is_done())
                    }
                }
            }
        };
        match outcome {
            Ok(step) => {
                if ends {
                    self.pop(around.books, None);
                }
                step
            }
            Err(fault) => {
                self.pop(around.books, Some(fault));
                Step::Moved
            }
        }
    }

    /// Takes the front off: it is done, or has met a fault.
    fn pop(&mut self, books: &mut Books, fault: Option<DmaFault>) {
        match self.queue.pop_front() {
            Some(Item::Write { transfer, entry, .. }) => {
                self.write_bytes = self.write_bytes.saturating_sub(transfer.length_bytes());
                if let Some(fault) = fault {
                    books.fail_write(&entry, true, fault);
                }
            }
            Some(Item::Read(tag)) => match fault {
                Some(fault) => {
                    self.reads.fail(tag, fault, books);
                }
                None => self.reads.asked(tag),
            },
            Some(Item::Signal { .. }) | None => {}
        }
    }

    /// Makes a message of the front's next piece.
    fn emit(&mut self, range: DmaRange, books: &mut Books) -> Option<OutboundMessage> {
        self.last_message += 1;
        let id = MessageId(self.last_message);
        let length = range.length_bytes as usize;
        let (kind, in_flight, ends) = match self.queue.front_mut()? {
            Item::Write { transfer, entry, .. } => {
                let kind = MessageKind::Write { iova: range.iova, data: transfer.take_piece(length).to_vec() };
                self.unanswered_writes += 1;
                (kind, InFlight::Write { entry: *entry }, transfer.is_done())
            }
            Item::Read(tag) => {
                let pending = self.reads.get_mut(*tag)?;
                let at = pending.transfer.done();
                pending.transfer.take_piece(length);
                pending.unanswered += 1;
                let kind = MessageKind::Read { iova: range.iova, length_bytes: range.length_bytes };
                (kind, InFlight::Read { tag: *tag, at, length }, pending.transfer.is_done())
            }
            Item::Signal { .. } => return None,
        };
        self.in_flight.insert(id, in_flight);
        if ends {
            self.pop(books, None);
        }
        Some(OutboundMessage { id, kind })
    }
}

fn message_piece(iova: Iova, length_bytes: u64) -> Step {
    let length_bytes = length_bytes.min(u64::from(MAX_MESSAGE_BYTES)) as u32;
    Step::Message(DmaRange::new(iova, length_bytes))
}

fn write_piece(transfer: &mut Transfer, clear: bool, window: &DmaWindow) -> Result<Step, DmaFault> {
    let Some(rest) = transfer.rest_of_range() else { return Ok(Step::Moved) };
    match window.piece(rest.iova.0, u64::from(rest.length_bytes), Access::Write)? {
        Piece::Message { length_bytes } => Ok(message_piece(rest.iova, length_bytes)),
        Piece::Mapped(_) if !clear => Ok(Step::Waits),
        Piece::Mapped(slice) => {
            guest_copy::write(transfer.take_piece(slice.len()), &slice);
            Ok(Step::Moved)
        }
    }
}

fn read_piece(transfer: &mut Transfer, window: &DmaWindow) -> Result<Step, DmaFault> {
    let Some(rest) = transfer.rest_of_range() else { return Ok(Step::Moved) };
    match window.piece(rest.iova.0, u64::from(rest.length_bytes), Access::Read)? {
        Piece::Message { length_bytes } => Ok(message_piece(rest.iova, length_bytes)),
        Piece::Mapped(slice) => {
            guest_copy::read(&slice, transfer.take_piece(slice.len()));
            Ok(Step::Moved)
        }
    }
}
