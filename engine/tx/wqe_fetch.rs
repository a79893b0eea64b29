//! WQE fetch: work requests come off the send queue ring.
//!
//! In: a queue whose producer is ahead of what was read. Out: fetched work requests in the shared pool, on the
//! queue's waiting list. One fetch in flight a queue; how far ahead it reads is bounded; a queue that finds the
//! pool full waits in line for room.

use crate::blocks::Block;
use crate::context::queue_pair::{QpState, Service};
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::Expected;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Awaited, Stop, Waiter};
use crate::queues::{Pieces, push_piece};
use crate::wqe_pool::{FETCH_SLOTS, FetchedWqe};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin, Submitted};

/// Bytes of one fetch.
const FETCH_BYTES: usize = FETCH_SLOTS as usize * 64;
/// Work requests of one queue that are fetched and not begun.
const FETCH_AHEAD: usize = 64;
const FAULT: Stop = Stop::Broken(Diagnostic::WqeFetchFault);

impl Engine {
    /// Reads work requests until the ring is empty, the queue is far enough ahead, or a read is in flight.
    pub(crate) fn fetch_work(&mut self, host: &mut Host, qpn: Qpn) {
        while self.fetch_once(host, qpn) {}
        match self.queue_pairs.get(qpn).map(|qp| (qp.state, qp.waiting.is_empty())) {
            Some((QpState::Err | QpState::Sqe, _)) => self.flush(host, qpn),
            Some((_, false)) => self.schedule(qpn),
            _ => {}
        }
    }

    /// One fetch. True when it was answered at once, well or badly.
    pub(crate) fn fetch_once(&mut self, host: &mut Host, qpn: Qpn) -> bool {
        let Some((index, slots)) = self.fetchable(qpn) else { return false };
        match self.fetch_slots(host, qpn, index, slots) {
            Ok(()) => true,
            Err(Stop::Blocked) => false,
            Err(_) => {
                self.unreadable(host, qpn, index);
                true
            }
        }
    }

    /// Slots to read next. A queue that has some and finds no room for them gets into line.
    fn fetchable(&mut self, qpn: Qpn) -> Option<(u16, u16)> {
        let qp = self.queue_pairs.get_mut(qpn)?;
        let runs = matches!(qp.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err);
        let unread = qp.sq_producer.wrapping_sub(qp.sq_fetch);
        if !runs || qp.sq_fetching || qp.leaving || unread == 0 || qp.waiting.len() >= FETCH_AHEAD {
            return None;
        }
        if !self.wqes.has_room() {
            if !std::mem::replace(&mut qp.sq_starved, true) {
                self.wqes.starved.push_back(qpn);
            }
            return None;
        }
        let at_once = FETCH_SLOTS.min((FETCH_BYTES / self.front_end.send_slot_bytes()) as u16);
        Some((qp.sq_fetch, unread.min(at_once)))
    }

    /// Queues that found no room try again, the one that has waited longest first.
    pub(crate) fn feed_starved(&mut self, host: &mut Host) {
        while self.wqes.has_room() {
            let Some(qpn) = self.wqes.starved.pop_front() else { return };
            if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                qp.sq_starved = false;
            }
            self.fetch_work(host, qpn);
        }
    }

    fn fetch_slots(&mut self, host: &mut Host, qpn: Qpn, index: u16, slots: u16) -> Result<(), Stop> {
        let cause = Cause::Send { qpn: qpn.0, index, count: slots, attempt: 0 };
        let pieces = self.ring_pieces(host, qpn, index, slots, cause)?;
        let mut bytes = [0; FETCH_BYTES];
        let bytes = &mut bytes[..usize::from(slots) * self.front_end.send_slot_bytes()];
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
                self.wqes.reserve(slots);
                self.pending.insert(tag, Awaited::Wqes { qpn, index, slots });
                Err(Stop::Blocked)
            }
            Err(_) => Err(FAULT),
        }
    }

    fn ring_pieces(&mut self, host: &mut Host, qpn: Qpn, index: u16, slots: u16, cause: Cause) -> Result<Pieces, Stop> {
        let ring = self.queue_pairs.get(qpn).map(|qp| qp.sq).ok_or(FAULT)?;
        let slot_bytes = u64::from(ring.entry_bytes);
        let mut pieces = Pieces::new();
        let mut done = 0;
        while done < slots {
            let offset = ring.offset(index.wrapping_add(done).into());
            let to_end = (ring.bytes() - offset) / slot_bytes;
            let wanted = u64::from(slots - done).min(to_end);
            let owner = Owner::SendQueue(qpn.0);
            let (iova, in_page) = self.translate(host, owner, &ring.pages, offset, cause, Waiter::WqeFetch(qpn))?;
            // Slots do not straddle pages: both are powers of two, unless a contiguous run ends the address space.
            let taken = wanted.min(in_page / slot_bytes);
            if taken == 0 || !push_piece(&mut pieces, iova, (taken * slot_bytes) as u32) {
                return Err(FAULT);
            }
            done += taken as u16;
        }
        Ok(pieces)
    }

    /// A fetch that was in flight is back.
    pub(crate) fn wqes_arrived(&mut self, host: &mut Host, qpn: Qpn, index: u16, slots: u16, bytes: Option<&[u8]>) {
        self.wqes.release(slots);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.sq_fetching = false;
        let length = usize::from(slots) * self.front_end.send_slot_bytes();
        match bytes.filter(|bytes| bytes.len() == length) {
            Some(bytes) => self.accept_wqes(qpn, index, bytes),
            None => self.unreadable(host, qpn, index),
        }
        self.fetch_work(host, qpn);
    }

    /// Cuts slots into work requests. One whose last slots were not in this fetch is read again, whole.
    fn accept_wqes(&mut self, qpn: Qpn, index: u16, bytes: &[u8]) {
        let slot_bytes = self.front_end.send_slot_bytes();
        let mut at = index;
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = (rest.len() / slot_bytes) as u16;
            let available = self.queue_pairs.get(qpn).map_or(0, |qp| qp.sq_producer.wrapping_sub(at));
            let slots = self.front_end.send_slots(rest);
            if slots > read && slots <= available && at != index {
                return;
            }
            let slots = slots.clamp(1, read);
            let (bytes, behind) = rest.split_at(usize::from(slots) * slot_bytes);
            self.accept_wqe(qpn, at, available, slots, bytes);
            at = at.wrapping_add(slots);
            rest = behind;
        }
    }

    fn accept_wqe(&mut self, qpn: Qpn, slot_index: u16, available_slots: u16, slots: u16, bytes: &[u8]) {
        let service = self.queue_pairs.get(qpn).map_or(Service::Rc, |qp| qp.service);
        let work = self.front_end.decode_send(Expected { qpn, slot_index, available_slots, service }, bytes);
        self.enqueue(qpn, FetchedWqe { slot_index, slots, work });
    }

    fn enqueue(&mut self, qpn: Qpn, wqe: FetchedWqe) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.sq_fetch = wqe.slot_index.wrapping_add(wqe.slots);
        qp.waiting.push_back(self.wqes.insert(wqe));
    }

    /// The ring does not answer: one work request takes the blame for all that was rung.
    fn unreadable(&mut self, host: &mut Host, qpn: Qpn, slot_index: u16) {
        self.diagnose(host.now_ns, Diagnostic::WqeFetchFault, qpn.0, slot_index.into());
        let slots = self.queue_pairs.get(qpn).map_or(1, |qp| qp.sq_producer.wrapping_sub(slot_index));
        self.enqueue(qpn, FetchedWqe { slot_index, slots, work: Err(Diagnostic::WqeFetchFault) });
    }

    /// The WQE-carrying doorbell: a work request of one slot needs no read, if nothing before it is unread.
    pub(crate) fn take_carried_wqe(&mut self, host: &mut Host, qpn: Qpn, index: u16, line: &[u8; 64]) {
        let Some(qp) = self.queue_pairs.get(qpn) else { return };
        let newest = qp.sq_producer.wrapping_sub(1) == index && qp.sq_fetch == index && !qp.sq_fetching && !qp.leaving;
        if newest && self.front_end.send_slots(line) == 1 && self.wqes.has_room() {
            self.blocks.touch(host.now_ns, Block::WqeFetch, qpn.0);
            self.accept_wqe(qpn, index, 1, 1, line);
        }
    }
}
