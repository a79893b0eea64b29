//! WQE fetch: work requests come off the send queue ring.
//!
//! In: a queue whose producer is ahead of what was read. Out: fetched work requests in the shared pool, on the
//! queue's waiting list. One fetch in flight a queue; how far ahead it reads is bounded.

use crate::blocks::Block;
use crate::context::queue_pair::QpState;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::Expected;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Awaited, Stop, Waiter};
use crate::queues::{FetchedWqe, Pieces, push_piece};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin, Submitted};

/// Slots of one fetch.
const FETCH_SLOTS: u16 = 32;
/// Work requests of one queue that are fetched and not begun.
const FETCH_AHEAD: usize = 64;
const SLOT_BYTES: usize = 64;

impl Engine {
    /// Reads work requests until the ring is empty, the queue is far enough ahead, or a read is in flight.
    pub(crate) fn fetch_work(&mut self, host: &mut Host, qpn: Qpn) {
        while let Some((index, slots)) = self.fetchable(qpn) {
            match self.fetch_slots(host, qpn, index, slots) {
                Ok(()) => {}
                Err(Stop::Blocked) => break,
                Err(_) => {
                    self.unreadable(qpn, index);
                    self.diagnose(host.now_ns, Diagnostic::WqeFetchFault, qpn.0, index.into());
                }
            }
        }
        self.schedule_if_waiting(qpn);
    }

    fn fetchable(&self, qpn: Qpn) -> Option<(u16, u16)> {
        let qp = self.queue_pairs.get(qpn)?;
        let runs = matches!(qp.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err);
        let slots = qp.sq_producer.wrapping_sub(qp.sq_fetch).min(FETCH_SLOTS);
        let room = self.wqes.room() >= usize::from(FETCH_SLOTS) && qp.waiting.len() < FETCH_AHEAD;
        (runs && !qp.sq_fetching && !qp.leaving && slots > 0 && room).then_some((qp.sq_fetch, slots))
    }

    fn fetch_slots(&mut self, host: &mut Host, qpn: Qpn, index: u16, slots: u16) -> Result<(), Stop> {
        let cause = Cause::Send { qpn: qpn.0, index, count: slots, attempt: 0 };
        let pieces = self.ring_pieces(host, qpn, index, slots, cause)?;
        let mut bytes = [0; FETCH_SLOTS as usize * SLOT_BYTES];
        let bytes = &mut bytes[..usize::from(slots) * SLOT_BYTES];
        self.blocks.touch(host.now_ns, Block::WqeFetch, qpn.0);
        match host.port.read(Origin::new(Class::WqeFetch, cause), &pieces, bytes) {
            Ok(Submitted::Ready) => {
                self.accept_wqes(qpn, index, bytes);
                Ok(())
            }
            Ok(Submitted::Pending(tag)) => {
                if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                    qp.sq_fetching = true;
                }
                self.pending.insert(tag, Awaited::Wqes { qpn, index });
                Err(Stop::Blocked)
            }
            Err(_) => Err(Stop::Broken(Diagnostic::WqeFetchFault)),
        }
    }

    fn ring_pieces(&mut self, host: &mut Host, qpn: Qpn, index: u16, slots: u16, cause: Cause) -> Result<Pieces, Stop> {
        let ring = self.queue_pairs.get(qpn).map(|qp| qp.sq).ok_or(Stop::Broken(Diagnostic::WqeFetchFault))?;
        let mut pieces = Pieces::new();
        let mut done = 0;
        while done < slots {
            let offset = ring.offset(index.wrapping_add(done).into());
            let to_end = (ring.bytes() - offset) / SLOT_BYTES as u64;
            let wanted = u64::from(slots - done).min(to_end);
            let owner = Owner::SendQueue(qpn.0);
            let (iova, in_page) = self.translate(host, owner, &ring.pages, offset, cause, Waiter::WqeFetch(qpn))?;
            // Slots do not straddle pages: both are powers of two, unless a contiguous run ends the address space.
            let taken = wanted.min(in_page / SLOT_BYTES as u64);
            if taken == 0 || !push_piece(&mut pieces, iova, taken as u32 * SLOT_BYTES as u32) {
                return Err(Stop::Broken(Diagnostic::WqeFetchFault));
            }
            done += taken as u16;
        }
        Ok(pieces)
    }

    /// A fetch that was in flight is back.
    pub(crate) fn wqes_arrived(&mut self, host: &mut Host, qpn: Qpn, index: u16, bytes: Option<&[u8]>) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.sq_fetching = false;
        match bytes {
            Some(bytes) => self.accept_wqes(qpn, index, bytes),
            None => {
                self.unreadable(qpn, index);
                self.diagnose(host.now_ns, Diagnostic::WqeFetchFault, qpn.0, index.into());
            }
        }
        self.fetch_work(host, qpn);
    }

    /// Cuts slots into work requests. One whose last slots were not in this fetch is read again, whole.
    fn accept_wqes(&mut self, qpn: Qpn, index: u16, bytes: &[u8]) {
        let mut at = index;
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = (rest.len() / SLOT_BYTES) as u16;
            let available = self.queue_pairs.get(qpn).map_or(0, |qp| qp.sq_producer.wrapping_sub(at));
            let slots = self.front_end.send_slots(rest);
            if slots > read && slots <= available && at != index {
                return;
            }
            let slots = slots.min(read);
            self.accept_wqe(qpn, at, available, slots, &rest[..usize::from(slots) * SLOT_BYTES]);
            at = at.wrapping_add(slots);
            rest = &rest[usize::from(slots) * SLOT_BYTES..];
        }
    }

    fn accept_wqe(&mut self, qpn: Qpn, slot_index: u16, available_slots: u16, slots: u16, bytes: &[u8]) {
        let work = self.front_end.decode_send(Expected { qpn, slot_index, available_slots }, bytes);
        self.enqueue(qpn, FetchedWqe { slot_index, slots, work });
    }

    fn enqueue(&mut self, qpn: Qpn, wqe: FetchedWqe) {
        let next = wqe.slot_index.wrapping_add(wqe.slots);
        let id = self.wqes.insert(wqe);
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.waiting.push_back(id);
            qp.sq_fetch = next;
        }
    }

    /// The ring does not answer: one work request takes the blame for all that was rung.
    fn unreadable(&mut self, qpn: Qpn, slot_index: u16) {
        let slots = self.queue_pairs.get(qpn).map_or(1, |qp| qp.sq_producer.wrapping_sub(slot_index));
        self.enqueue(qpn, FetchedWqe { slot_index, slots, work: Err(Diagnostic::WqeFetchFault) });
    }

    /// The WQE-carrying doorbell: a work request of one slot needs no read, if nothing before it is unread.
    pub(crate) fn take_carried_wqe(&mut self, host: &mut Host, qpn: Qpn, index: u16, line: &[u8; SLOT_BYTES]) {
        let Some(qp) = self.queue_pairs.get(qpn) else { return };
        let newest = qp.sq_producer.wrapping_sub(1) == index && qp.sq_fetch == index && !qp.sq_fetching;
        if newest && self.front_end.send_slots(line) == 1 && self.wqes.room() > 0 {
            self.blocks.touch(host.now_ns, Block::WqeFetch, qpn.0);
            self.accept_wqe(qpn, index, 1, 1, line);
        }
    }
}
