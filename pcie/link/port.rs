//! The link as its device's logic sees it: transfers are checked, counted, and made at once or queued.

use super::{Link, MESSAGE_BYTES, Verdict, message_range};
use crate::books::{Account, Entry, read_with_fault};
use crate::dma_window::{Access, Reach};
use crate::msix::{Message, Raised};
use crate::outbound::{Transfer, merged};
use crate::tlp::Traffic;
use crate::{Class, DmaFault, DmaPort, DmaRange, HostAccess, Iova, Observed, Origin, Submitted};

/// What a list of ranges amounts to.
struct Shape {
    bytes: u64,
    ranges: u16,
    traffic: Traffic,
}

impl Link {
    #[inline]
    fn shape(&self, ranges: &[DmaRange], access: Access) -> Shape {
        let mut shape = Shape { bytes: 0, ranges: 0, traffic: Traffic::default() };
        for range in merged(ranges) {
            shape.bytes += u64::from(range.length_bytes);
            shape.ranges = shape.ranges.saturating_add(1);
            shape.traffic += match access {
                Access::Read => self.splitter.device_read(range),
                Access::Write => self.splitter.device_write(range),
            };
        }
        shape
    }

    #[inline]
    fn enter(&mut self, origin: Origin, shape: &Shape, fault: Option<DmaFault>) -> Entry {
        let bytes = u32::try_from(shape.bytes).unwrap_or(u32::MAX);
        let Shape { ranges, traffic, .. } = *shape;
        self.books.enter(Account { origin, bytes, ranges, traffic, observed: None, fault })
    }

    /// Is the whole transfer reached, and how? A transfer that is not is a crossing all the same, with its fault.
    #[inline]
    fn admit(
        &mut self,
        ranges: &[DmaRange],
        length: usize,
        shape: &mut Shape,
        access: Access,
    ) -> Result<Reach, DmaFault> {
        if !self.bus_master {
            shape.traffic = Traffic::default();
            return Err(DmaFault::UnsupportedRequest);
        }
        debug_assert_eq!(shape.bytes, length as u64, "the ranges and the buffer differ in length");
        if shape.bytes != length as u64 {
            return Err(DmaFault::UnsupportedRequest);
        }
        let mut reach = Reach::Mapped;
        for &range in ranges {
            if self.window.reach(range, access)? == Reach::Message {
                reach = Reach::Message;
            }
        }
        if !self.outbound.takes(length) {
            return Err(DmaFault::CompleterAbort);
        }
        Ok(reach)
    }

    fn refuse_read(&mut self, origin: Origin, mut shape: Shape, fault: DmaFault) -> DmaFault {
        shape.traffic = read_with_fault(shape.traffic, fault);
        self.enter(origin, &shape, Some(fault));
        fault
    }

    #[cold]
    fn read_later(&mut self, entry: Entry, ranges: &[DmaRange], length: usize, held: bool) -> Submitted {
        let tag = self.outbound.push_read(Transfer::new(ranges, vec![0; length]), entry, held);
        self.pump();
        Submitted::Pending(tag)
    }

    /// Makes a write that was admitted and entered. `sent`: a part of its crossing has left before.
    #[inline]
    fn post(&mut self, entry: Entry, ranges: &[DmaRange], from: &[u8], reach: Reach, sent: bool) {
        if reach == Reach::Mapped && self.outbound.is_clear() {
            let mut rest = from;
            for range in ranges {
                let (piece, after) = rest.split_at((range.length_bytes as usize).min(rest.len()));
                rest = after;
                if let Err(fault) = self.window.write_mapped(range.iova.0, piece) {
                    self.books.fail_write(&entry, true, fault);
                    return;
                }
            }
        } else {
            self.post_later(entry, ranges, from, sent);
        }
    }

    #[cold]
    fn post_later(&mut self, entry: Entry, ranges: &[DmaRange], from: &[u8], sent: bool) {
        self.outbound.push_write(Transfer::new(ranges, from.to_vec()), entry, sent);
        self.pump();
    }

    /// Sends an MSI-X message behind the writes before it; it belongs to the crossing `entry`.
    pub(super) fn send_message(&mut self, message: Message, entry: Entry) {
        match message {
            Message::Signal { vector, .. } => {
                self.outbound.push_signal(vector);
                self.pump();
            }
            Message::Write { address, data } => {
                let range = DmaRange::new(Iova(address), MESSAGE_BYTES);
                match self.window.reach(range, Access::Write) {
                    Ok(reach) => self.post(entry, &[range], &data.to_le_bytes(), reach, true),
                    Err(fault) => self.books.fail_write(&entry, true, fault),
                }
            }
        }
    }
}

impl DmaPort for Link {
    fn read(&mut self, origin: Origin, ranges: &[DmaRange], into: &mut [u8]) -> Result<Submitted, DmaFault> {
        let mut shape = self.shape(ranges, Access::Read);
        if shape.bytes == 0 && into.is_empty() {
            return Ok(Submitted::Ready);
        }
        let reach = match self.admit(ranges, into.len(), &mut shape, Access::Read) {
            Ok(reach) => reach,
            Err(fault) => return Err(self.refuse_read(origin, shape, fault)),
        };
        let verdict = self.read_policy.as_mut().map_or(Verdict::Now, |policy| policy(origin, ranges));
        if let Verdict::Fault(fault) = verdict {
            return Err(self.refuse_read(origin, shape, fault));
        }
        let entry = self.enter(origin, &shape, None);
        if verdict == Verdict::Hold || reach == Reach::Message || !self.outbound.is_clear() {
            return Ok(self.read_later(entry, ranges, into.len(), verdict == Verdict::Hold));
        }
        let mut rest = into;
        for range in ranges {
            let (piece, after) = rest.split_at_mut((range.length_bytes as usize).min(rest.len()));
            rest = after;
            if let Err(fault) = self.window.read_mapped(range.iova.0, piece) {
                self.books.fail_read(&entry, fault);
                return Err(fault);
            }
        }
        self.latest_read = ranges.first().copied();
        Ok(Submitted::Ready)
    }

    fn write(&mut self, origin: Origin, ranges: &[DmaRange], from: &[u8]) -> Result<(), DmaFault> {
        let mut shape = self.shape(ranges, Access::Write);
        if shape.bytes == 0 && from.is_empty() {
            return Ok(());
        }
        let admitted = self.admit(ranges, from.len(), &mut shape, Access::Write);
        let entry = self.enter(origin, &shape, admitted.err());
        self.post(entry, ranges, from, admitted?, false);
        Ok(())
    }

    fn event(&mut self, origin: Origin, entry: DmaRange, from: &[u8], vector: Option<u16>) -> Result<(), DmaFault> {
        let ranges = [entry];
        let mut shape = self.shape(&ranges, Access::Write);
        let admitted = self.admit(&ranges, from.len(), &mut shape, Access::Write);
        if admitted.is_err() {
            self.enter(origin, &shape, admitted.err());
        }
        let reach = admitted?;
        let mut message = None;
        if let Some(vector) = vector {
            match self.msix.raise(vector, origin) {
                Raised::Message(raised) => {
                    shape.bytes += u64::from(MESSAGE_BYTES);
                    shape.ranges = shape.ranges.saturating_add(1);
                    shape.traffic += self.splitter.device_write(message_range(raised));
                    message = Some(raised);
                }
                Raised::Pending => {}
                Raised::Undelivered(why) => self.note_undelivered(vector, why),
            }
        }
        if shape.bytes == 0 {
            // No entry, and no message that leaves now.
            return Ok(());
        }
        let entry = self.enter(origin, &shape, None);
        self.post(entry, &ranges, from, reach, false);
        if let Some(message) = message {
            self.send_message(message, entry);
        }
        Ok(())
    }

    fn count(&mut self, origin: Origin, bar: u8, access: HostAccess, observed: Observed) {
        let bar_address = self.bar_addresses.get(usize::from(bar)).copied().unwrap_or(0);
        let (bytes, traffic) = match access {
            HostAccess::Write { address, bytes } => {
                (bytes, self.splitter.host_write(bar_address.saturating_add(address), bytes))
            }
            HostAccess::Read { address, bytes } => {
                (bytes, self.splitter.host_read(bar_address.saturating_add(address), bytes))
            }
        };
        self.books.enter(Account { origin, bytes, ranges: 1, traffic, observed: Some(observed), fault: None });
    }

    fn vector_usable(&self, vector: u16) -> bool {
        self.bus_master && self.msix.usable(vector)
    }

    fn crossings(&self, class: Class) -> u64 {
        self.ledger().class(class).crossings
    }

    fn has_room(&self) -> bool {
        self.outbound.has_room()
    }
}
