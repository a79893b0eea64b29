//! `Link`: one function's end of its PCIe link, and the `DmaPort` that its logic is given.
//!
//! Transfers of the device go in; guest memory, messages to the client and MSI-X come out, each crossing counted
//! on the way. The owner tells it of maps, BAR addresses, bus mastering, link settings and time; carries messages
//! to the client and answers back; and hands completions of pending reads to the device's logic.

mod port;
#[cfg(test)]
mod tests;

use crate::books::{Account, Books};
use crate::dma_window::{Backing, DmaWindow, MapError, Permissions};
use crate::ledger::Ledger;
use crate::msix::{Message, MsixControl, MsixTable, Undelivered};
use crate::outbound::{Completion, MessageId, Outbound, OutboundMessage, Surroundings};
use crate::queue_totals::{QueueChange, QueueTotals};
use crate::tlp::{LinkSettings, Splitter};
use crate::trace::{Reading, Trace};
use crate::{Crossing, DmaFault, DmaRange, DmaTag, Iova, Origin};
use std::fmt;
use std::fs::File;
use vmm_sys_util::eventfd::EventFd;

/// What a simulation decides about a read of mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Made in its turn.
    Now,
    /// Answered `Pending` until it is released; it then takes its turn, and the bytes of then.
    Hold,
    /// Refused at once.
    Fault(DmaFault),
}

/// Asked at each read. Without one, every read is made in its turn.
pub type ReadPolicy = Box<dyn FnMut(Origin, &[DmaRange]) -> Verdict + Send>;

/// What becomes of the reads in flight when all are called back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Each ends with a completion `Revoked`.
    Complete,
    /// None is ever completed: the logic that waited for them is gone.
    Discard,
}

/// One function's end of its link.
pub struct Link {
    settings: LinkSettings,
    splitter: Splitter,
    window: DmaWindow,
    msix: MsixTable,
    outbound: Outbound,
    books: Books,
    bar_addresses: [u64; 6],
    bus_master: bool,
    read_policy: Option<ReadPolicy>,
    /// MSI-X messages that found no receiver.
    undelivered: u64,
    /// The latest read that was made in mapped memory: where a look at the client's side is worth while.
    latest_read: Option<DmaRange>,
}

impl Link {
    /// A link as after a reset: nothing mapped, bus mastering off.
    pub fn new(settings: LinkSettings, vectors: u16) -> Self {
        let settings = settings.legalised();
        Self {
            settings,
            splitter: Splitter::new(settings),
            window: DmaWindow::default(),
            msix: MsixTable::new(vectors),
            outbound: Outbound::default(),
            books: Books::default(),
            bar_addresses: [0; 6],
            bus_master: false,
            read_policy: None,
            undelivered: 0,
            latest_read: None,
        }
    }

    pub fn settings(&self) -> LinkSettings {
        self.settings
    }

    /// Settings that no link can have are brought to the nearest that one can.
    pub fn set_settings(&mut self, settings: LinkSettings) {
        self.settings = settings.legalised();
        self.splitter = Splitter::new(self.settings);
    }

    /// The time that crossings are recorded with.
    pub fn set_time(&mut self, now_ns: u64) {
        self.books.now_ns = now_ns;
    }

    /// Where a BAR is on the bus, which decides the size of headers.
    pub fn set_bar_address(&mut self, bar: u8, address: u64) {
        if let Some(known) = self.bar_addresses.get_mut(usize::from(bar)) {
            *known = address;
        }
    }

    /// While bus mastering is off nothing leaves: transfers are refused, what is queued stays where it is. Whoever
    /// switches it off calls back what is in flight, with [`revoke_all`](Self::revoke_all).
    pub fn set_bus_master(&mut self, on: bool) {
        self.bus_master = on;
        self.pump();
        self.deliver_pending();
    }

    pub fn bus_master(&self) -> bool {
        self.bus_master
    }

    // Maps.

    pub fn map(&mut self, iova: u64, length: u64, permissions: Permissions, backing: Backing) -> Result<(), MapError> {
        self.window.map(iova, length, permissions, backing)
    }

    /// Maps a part of a file, which is mapped into this process once for all its maps.
    pub fn map_file(
        &mut self,
        iova: u64,
        length_bytes: u64,
        permissions: Permissions,
        file: File,
        offset: u64,
    ) -> Result<(), MapError> {
        self.window.map_file(iova, length_bytes, permissions, file, offset)
    }

    /// Removes the maps that lie in the range and says how many. Reads in flight that touch the range are called
    /// back, a queued write to what is gone is dropped in its turn; other transfers go on.
    pub fn unmap(&mut self, iova: u64, length_bytes: u64) -> usize {
        let removed = self.window.unmap(iova, length_bytes);
        if removed > 0 {
            let last = iova.saturating_add(length_bytes.saturating_sub(1));
            self.outbound.revoke_reads_touching(iova, last, &mut self.books);
            self.pump();
        }
        removed
    }

    pub fn unmap_all(&mut self) -> usize {
        self.outbound.revoke_reads_touching(0, u64::MAX, &mut self.books);
        let removed = self.window.unmap_all();
        self.pump();
        removed
    }

    pub fn window(&self) -> &DmaWindow {
        &self.window
    }

    /// The latest read that was made in mapped memory, once.
    pub fn take_latest_read(&mut self) -> Option<DmaRange> {
        self.latest_read.take()
    }

    /// What the maps show at a range, for the check that they show what the guest sees. This is no transfer of the
    /// device and is not counted; nothing of it may reach the device's logic.
    pub fn inspect_map(&self, range: DmaRange, into: &mut [u8]) -> Result<(), DmaFault> {
        self.window.read_mapped(range.iova.0, into)
    }

    // Messages and completions.

    /// The next message to the client; to be asked until there is none, while the client waits for no reply.
    pub fn next_message(&mut self) -> Option<OutboundMessage> {
        if !self.bus_master {
            return None;
        }
        let (outbound, mut around) = self.split();
        outbound.next_message(&mut around)
    }

    /// The client's answer to a message: the data of a read, nothing for a write. False for a message that was
    /// revoked meanwhile or never sent; its answer is ignored.
    pub fn message_answered(&mut self, id: MessageId, answer: Result<&[u8], DmaFault>) -> bool {
        let held_back = !self.bus_master;
        let (outbound, mut around) = self.split();
        if held_back { outbound.settle(id, answer, around.books) } else { outbound.answered(id, answer, &mut around) }
    }

    /// Messages that the client has not answered.
    pub fn unanswered_messages(&self) -> usize {
        self.outbound.unanswered()
    }

    /// The next completion of a pending read, for the logic's `handle_dma_completion`.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.outbound.next_completion()
    }

    /// Calls back everything in flight: queued writes and MSI-X messages are dropped, late answers ignored.
    pub fn revoke_all(&mut self, revocation: Revocation) {
        self.outbound.revoke_all(revocation == Revocation::Discard, &mut self.books);
    }

    // Simulation.

    pub fn set_read_policy(&mut self, policy: Option<ReadPolicy>) {
        self.read_policy = policy;
    }

    /// Reads that the policy has held back, oldest first.
    pub fn held_tags(&self) -> Vec<DmaTag> {
        self.outbound.held_tags().collect()
    }

    /// Lets a held read take its turn. False if there is none of this tag.
    pub fn release(&mut self, tag: DmaTag) -> bool {
        let released = self.outbound.release(tag);
        self.pump();
        released
    }

    /// Ends a pending read with a fault. False if there is none of this tag.
    pub fn fail(&mut self, tag: DmaTag, fault: DmaFault) -> bool {
        self.outbound.fail_read(tag, fault, &mut self.books)
    }

    // Ledger and trace.

    pub fn ledger(&self) -> &Ledger {
        &self.books.ledger
    }

    /// The totals of operations by their queue.
    pub fn queue_totals(&self) -> &QueueTotals {
        &self.books.queues
    }

    /// What has changed in them since this was asked last.
    pub fn take_queue_changes(&mut self) -> Vec<QueueChange> {
        self.books.queues.take_changes()
    }

    /// The sequence number of the latest crossing; 0 before the first.
    pub fn last_sequence(&self) -> u64 {
        self.books.last_sequence
    }

    pub fn trace(&self) -> &Trace {
        &self.books.trace
    }

    /// Starts and stops the trace.
    pub fn trace_mut(&mut self) -> &mut Trace {
        &mut self.books.trace
    }

    /// Appends up to `limit` crossings from `sequence` on to `into`.
    pub fn read_trace(&self, sequence: u64, limit: usize, into: &mut Vec<Crossing>) -> Reading {
        self.books.trace.read(sequence, self.books.last_sequence, limit, into)
    }

    // MSI-X.

    /// A read of BAR4.
    pub fn msix_read(&self, offset: u64, into: &mut [u8]) {
        self.msix.read(offset, into);
    }

    /// A write to BAR4; vectors that it unmasks deliver what was pending.
    pub fn msix_write(&mut self, offset: u64, from: &[u8]) {
        self.msix.write(offset, from);
        self.deliver_pending();
    }

    /// Enable and function mask, from configuration space.
    pub fn set_msix_control(&mut self, control: MsixControl) {
        self.msix.set_control(control);
        self.deliver_pending();
    }

    /// Sets or removes the eventfd of a vector; false if there is no such vector.
    pub fn set_vector_eventfd(&mut self, vector: u16, eventfd: Option<EventFd>) -> bool {
        let set = self.msix.set_eventfd(vector, eventfd);
        self.deliver_pending();
        set
    }

    pub fn clear_vector_eventfds(&mut self) {
        self.msix.clear_eventfds();
    }

    /// The table as after a reset; eventfds stay.
    pub fn reset_msix(&mut self) {
        self.msix.reset();
    }

    /// MSI-X messages that found no receiver since the link came up.
    pub fn undelivered_messages(&self) -> u64 {
        self.undelivered
    }

    /// Each pending message that is free to go is a crossing of its own: its entry was written when it was raised.
    fn deliver_pending(&mut self) {
        while self.bus_master
            && let Some((message, origin)) = self.msix.take_deliverable()
        {
            self.send_late_message(message, origin);
        }
    }

    fn send_late_message(&mut self, message: Message, origin: Origin) {
        let account = Account {
            origin,
            bytes: MESSAGE_BYTES,
            ranges: 1,
            traffic: self.splitter.device_write(message_range(message)),
            observed: None,
            fault: None,
        };
        let entry = self.books.enter(account);
        self.send_message(message, entry);
    }

    fn note_undelivered(&mut self, vector: u16, why: Undelivered) {
        self.undelivered += 1;
        log::debug!("MSI-X vector {vector}: {why}");
    }

    fn pump(&mut self) {
        if self.bus_master {
            let (outbound, mut around) = self.split();
            outbound.pump(&mut around);
        }
    }

    fn split(&mut self) -> (&mut Outbound, Surroundings<'_>) {
        let Self { window, msix, outbound, books, undelivered, .. } = self;
        (outbound, Surroundings { window, msix, books, undelivered })
    }
}

/// An MSI-X message carries one DW.
const MESSAGE_BYTES: u32 = 4;

/// What a message is on the link; where the address is not known, below 4 GiB.
fn message_range(message: Message) -> DmaRange {
    let address = match message {
        Message::Write { address, .. } => address,
        Message::Signal { wide: true, .. } => 1 << 32,
        Message::Signal { wide: false, .. } => 0,
    };
    DmaRange::new(Iova(address), MESSAGE_BYTES)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("settings", &self.settings)
            .field("bus_master", &self.bus_master)
            .field("maps", &self.window.map_count())
            .field("last_sequence", &self.books.last_sequence)
            .finish_non_exhaustive()
    }
}
