//! The totals of all crossings by the queue whose operation they served, as requester and as responder apart.
//!
//! Like the ledger they are never reset and compared by difference. A queue's totals are made with its first crossing,
//! in blocks, so that memory follows the numbers in use and an entry costs no search.

use crate::Crossing;
use crate::crossing::Role;
use crate::tlp::Traffic;

/// Queues are told apart up to this number; the crossings of others count together.
pub const MAX_QUEUES: u32 = 1 << 17;
const BLOCK: usize = 64;

/// What one queue's operations of one role amount to: a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueShare {
    pub crossings: u64,
    pub bytes: u64,
    pub mrd: u64,
    pub mwr: u64,
    pub cpld: u64,
    pub wire_down_bytes: u64,
    pub wire_up_bytes: u64,
    /// Crossings that failed.
    pub faults: u64,
}

impl QueueShare {
    fn correct(&mut self, was: &Traffic, is: &Traffic) {
        let correct = |total: &mut u64, was: u64, is: u64| *total = total.saturating_sub(was).saturating_add(is);
        correct(&mut self.mrd, was.tlps.mrd.into(), is.tlps.mrd.into());
        correct(&mut self.mwr, was.tlps.mwr.into(), is.tlps.mwr.into());
        correct(&mut self.cpld, was.tlps.cpld.into(), is.tlps.cpld.into());
        correct(&mut self.wire_down_bytes, was.wire_bytes.down, is.wire_bytes.down);
        correct(&mut self.wire_up_bytes, was.wire_bytes.up, is.wire_bytes.up);
        self.faults += 1;
    }

    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            crossings: self.crossings.saturating_sub(earlier.crossings),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            mrd: self.mrd.saturating_sub(earlier.mrd),
            mwr: self.mwr.saturating_sub(earlier.mwr),
            cpld: self.cpld.saturating_sub(earlier.cpld),
            wire_down_bytes: self.wire_down_bytes.saturating_sub(earlier.wire_down_bytes),
            wire_up_bytes: self.wire_up_bytes.saturating_sub(earlier.wire_up_bytes),
            faults: self.faults.saturating_sub(earlier.faults),
        }
    }
}

/// By role.
pub type QueueShares = [QueueShare; Role::ALL.len()];
type Block = Box<[QueueShares; BLOCK]>;

/// Shares by queue number.
#[derive(Clone, Debug, Default)]
pub struct QueueTotals {
    blocks: Vec<Option<Block>>,
    others: QueueShares,
}

impl QueueTotals {
    fn share(&mut self, queue: u32, role: Role) -> &mut QueueShare {
        if queue >= MAX_QUEUES {
            return &mut self.others[role as usize];
        }
        let (block, at) = (queue as usize / BLOCK, queue as usize % BLOCK);
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        let block = self.blocks[block].get_or_insert_with(|| Box::new([QueueShares::default(); BLOCK]));
        &mut block[at][role as usize]
    }

    #[inline]
    pub(crate) fn enter(&mut self, crossing: &Crossing) {
        let Some((queue, role)) = crossing.origin.cause.operation() else { return };
        let share = self.share(queue, role);
        share.crossings += 1;
        share.bytes += u64::from(crossing.bytes);
        share.mrd += u64::from(crossing.tlps.mrd);
        share.mwr += u64::from(crossing.tlps.mwr);
        share.cpld += u64::from(crossing.tlps.cpld);
        share.wire_down_bytes += crossing.wire_bytes.down;
        share.wire_up_bytes += crossing.wire_bytes.up;
        share.faults += u64::from(crossing.fault.is_some());
    }

    pub(crate) fn amend(&mut self, queue: u32, role: Role, was: &Traffic, is: &Traffic) {
        self.share(queue, role).correct(was, is);
    }

    /// A queue's shares; zero for one that has caused nothing.
    pub fn queue(&self, queue: u32) -> QueueShares {
        let block = self.blocks.get(queue as usize / BLOCK).and_then(Option::as_ref);
        block.map_or_else(QueueShares::default, |block| block[queue as usize % BLOCK])
    }

    /// Queues beyond [`MAX_QUEUES`], together.
    pub fn others(&self) -> QueueShares {
        self.others
    }

    /// Queues that have caused something, from number `first` on.
    pub fn used_from(&self, first: u32) -> impl Iterator<Item = (u32, QueueShares)> {
        let blocks = self.blocks.iter().enumerate().skip(first as usize / BLOCK);
        let queues =
            blocks.filter_map(|(at, block)| block.as_ref().map(|block| (at, block))).flat_map(|(at, block)| {
                block.iter().enumerate().map(move |(within, shares)| ((at * BLOCK + within) as u32, *shares))
            });
        queues.filter(move |(queue, shares)| *queue >= first && shares.iter().any(|share| share.crossings > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Class, Origin, Tlps, WireBytes};

    fn crossing(cause: Cause) -> Crossing {
        Crossing {
            sequence: 1,
            time_ns: 0,
            origin: Origin::new(Class::WqeFetch, cause),
            bytes: 64,
            ranges: 1,
            tlps: Tlps { mrd: 1, mwr: 0, cpld: 1 },
            wire_bytes: WireBytes { down: 84, up: 20 },
            observed: None,
            fault: None,
        }
    }

    fn send(qpn: u32) -> Crossing {
        crossing(Cause::Send { qpn, index: 0, count: 1, attempt: 0 })
    }

    #[test]
    fn each_queue_and_role_has_its_own_and_memory_follows_the_numbers_in_use() {
        let mut totals = QueueTotals::default();
        for queue in [0x11, 0x11, MAX_QUEUES - 1, MAX_QUEUES, u32::MAX] {
            totals.enter(&send(queue));
        }
        totals.enter(&crossing(Cause::Packet { qpn: 0x11, psn: 1, attempt: 0 }));
        totals.enter(&crossing(Cause::Maintenance));
        let used: Vec<_> = totals.used_from(0).map(|(queue, shares)| (queue, shares.map(|s| s.crossings))).collect();
        assert_eq!(used, [(0x11, [2, 1]), (MAX_QUEUES - 1, [1, 0])]);
        assert_eq!(totals.used_from(0x12).next().map(|(queue, _)| queue), Some(MAX_QUEUES - 1));
        assert_eq!(totals.others().map(|share| share.crossings), [2, 0]);
        assert_eq!(totals.blocks.iter().flatten().count(), 2);
        assert_eq!(totals.queue(5), QueueShares::default());
    }

    #[test]
    fn a_read_that_failed_keeps_its_request_only() {
        let mut totals = QueueTotals::default();
        let read = send(7);
        totals.enter(&read);
        let was = Traffic { tlps: read.tlps, wire_bytes: read.wire_bytes };
        let is = Traffic { tlps: Tlps { mrd: 1, mwr: 0, cpld: 0 }, wire_bytes: WireBytes { down: 0, up: 20 } };
        totals.amend(7, Role::Requester, &was, &is);
        let share = totals.queue(7)[0];
        assert_eq!((share.crossings, share.mrd, share.cpld, share.wire_down_bytes, share.faults), (1, 1, 0, 0, 1));
    }
}
