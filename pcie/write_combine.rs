//! Stores to the doorbell BAR come in one by one; the writes that the driver meant go out.
//!
//! A processor's write-combining buffer sends a full 64-byte line as one write. A trapped BAR shows the same line
//! as eight stores of 8 bytes. Eight such stores in ascending order to one line are put together again here: one
//! logical write of 64 bytes, observed as 8 messages. Whatever breaks the row (a store elsewhere, a step back, a
//! gap, a read, a long silence) sends out what is held as writes of 8 bytes, in order, marked as torn, as a real
//! buffer would when it is evicted early. One line is open at a time. Nothing is lost, nothing reordered.

#[cfg(test)]
mod tests;

use crate::Observed;
use crate::planted::planted;
use arrayvec::ArrayVec;

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
const STORE_BYTES: usize = 8;
const STORES: usize = LINE_BYTES / STORE_BYTES;

/// The most logical writes that one store can set free: seven held stores and itself.
pub const MAX_WRITES: usize = STORES + 1;

/// A write as the driver's processor would have put it on the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalWrite {
    /// Offset in the BAR.
    pub offset: u64,
    pub data: ArrayVec<u8, LINE_BYTES>,
    /// A part of a line that was not put together.
    pub torn: bool,
    pub observed: Observed,
}

/// What a store or a flush set free, in order.
pub type Writes = ArrayVec<LogicalWrite, MAX_WRITES>;

/// A store of more than a line: cut it with [`pieces`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a store of {length_bytes} bytes at offset {offset:#x}: at most {LINE_BYTES} are taken at a time")]
pub struct StoreTooLong {
    pub offset: u64,
    pub length_bytes: usize,
}

/// Where lines may be, which is the owner's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineOffsets {
    page_bytes: u64,
    in_page: ArrayVec<u16, 16>,
}

impl LineOffsets {
    /// Lines at these offsets of every page (the first sixteen count; all must be multiples of 64 inside the page).
    pub fn new(page_bytes: u64, in_page: &[u16]) -> Self {
        let is_line = |offset: &u16| usize::from(*offset).is_multiple_of(LINE_BYTES) && u64::from(*offset) < page_bytes;
        debug_assert!(in_page.len() <= 16 && in_page.iter().all(is_line), "line offsets {in_page:?}");
        Self {
            page_bytes: page_bytes.max(LINE_BYTES as u64),
            in_page: in_page.iter().copied().filter(is_line).take(16).collect(),
        }
    }

    /// The line that holds the offset, if one does.
    fn line_of(&self, offset: u64) -> Option<u64> {
        let line = offset & !(LINE_BYTES as u64 - 1);
        let in_page = line % self.page_bytes;
        self.in_page.iter().any(|&known| u64::from(known) == in_page).then_some(line)
    }
}

/// The line being put together.
#[derive(Clone, Debug)]
struct OpenLine {
    offset: u64,
    data: [u8; LINE_BYTES],
    /// Stores held: 1 to 7.
    stores: usize,
    last_store_ns: u64,
}

/// Puts lines together again. It has no clock: [`expire`](Self::expire) is called when the deadline has passed and
/// no store is waiting to be taken in; a store that was delayed on its way still completes its line.
#[derive(Clone, Debug)]
pub struct WriteCombiner {
    lines: LineOffsets,
    timeout_ns: u64,
    open: Option<OpenLine>,
}

impl WriteCombiner {
    /// `timeout_ns`: how long after its latest store an open line is kept.
    pub fn new(lines: LineOffsets, timeout_ns: u64) -> Self {
        Self { lines, timeout_ns, open: None }
    }

    /// Takes a store in; gives out what is decided by it.
    pub fn push(&mut self, offset: u64, store: &[u8], now_ns: u64) -> Result<Writes, StoreTooLong> {
        if store.len() > LINE_BYTES {
            return Err(StoreTooLong { offset, length_bytes: store.len() });
        }
        let mut writes = Writes::new();
        if store.is_empty() {
            return Ok(writes);
        }
        if self.continues(offset, store) {
            self.extend(store, now_ns, &mut writes);
            return Ok(writes);
        }
        self.release(&mut writes);
        let line = self.lines.line_of(offset);
        if line == Some(offset) && store.len() == STORE_BYTES {
            let mut data = [0; LINE_BYTES];
            data[..STORE_BYTES].copy_from_slice(store);
            self.open = Some(OpenLine { offset, data, stores: 1, last_store_ns: now_ns });
        } else {
            let whole_line = line == Some(offset) && store.len() == LINE_BYTES;
            writes.push(logical(offset, store, line.is_some() && !whole_line, 1));
        }
        Ok(writes)
    }

    /// A read came, or the owner is reset: nothing stays held.
    pub fn flush(&mut self) -> Writes {
        let mut writes = Writes::new();
        self.release(&mut writes);
        writes
    }

    /// When an open line is to be given up.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.open.as_ref().map(|line| line.last_store_ns.saturating_add(self.timeout_ns))
    }

    /// Gives up an open line whose deadline has passed.
    pub fn expire(&mut self, now_ns: u64) -> Writes {
        if self.deadline_ns().is_some_and(|deadline| now_ns >= deadline) { self.flush() } else { Writes::new() }
    }

    /// Forgets what is held, as a reset does.
    pub fn discard(&mut self) {
        self.open = None;
    }

    /// Is this the next store of the open line?
    fn continues(&self, offset: u64, store: &[u8]) -> bool {
        self.open.as_ref().is_some_and(|line| {
            let next = line.offset + (line.stores * STORE_BYTES) as u64;
            let in_row =
                offset == next || (planted("combiner takes any slot of the line") && offset & !63 == line.offset);
            store.len() == STORE_BYTES && in_row
        })
    }

    fn extend(&mut self, store: &[u8], now_ns: u64, writes: &mut Writes) {
        let Some(line) = &mut self.open else { return };
        let at = line.stores * STORE_BYTES;
        line.data[at..at + STORE_BYTES].copy_from_slice(store);
        line.stores += 1;
        line.last_store_ns = now_ns;
        if line.stores == STORES {
            writes.push(logical(line.offset, &line.data, false, STORES as u32));
            self.open = None;
        }
    }

    fn release(&mut self, writes: &mut Writes) {
        if let Some(line) = self.open.take() {
            for (slot, store) in line.data.chunks_exact(STORE_BYTES).take(line.stores).enumerate() {
                writes.push(logical(line.offset + (slot * STORE_BYTES) as u64, store, true, 1));
            }
        }
    }
}

fn logical(offset: u64, data: &[u8], torn: bool, messages: u32) -> LogicalWrite {
    let observed = Observed { messages, bytes: data.len() as u32 };
    LogicalWrite { offset, data: data.iter().copied().collect(), torn, observed }
}

/// Cuts a long access at multiples of 64 bytes into stores that [`WriteCombiner::push`] takes.
pub fn pieces(offset: u64, access: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut offset = offset;
    let mut rest = access;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let to_line_end = LINE_BYTES - (offset % LINE_BYTES as u64) as usize;
        let (piece, after) = rest.split_at(to_line_end.min(rest.len()));
        let at = offset;
        offset = offset.wrapping_add(piece.len() as u64);
        rest = after;
        Some((at, piece))
    })
}
