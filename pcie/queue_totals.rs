//! The totals of all crossings by the queue whose operation they served, as requester and as responder apart.
//!
//! Like the ledger they are never reset and compared by difference. A queue's totals are made with its first crossing,
//! in blocks, so that memory follows the numbers in use and an entry costs no search. A block also remembers how it was
//! when changes were last taken, from the first time that somebody takes them.

use crate::Crossing;
use crate::crossing::Role;
use crate::ledger::Totals;
use crate::tlp::Traffic;

/// Queues are told apart up to this number; the crossings of others count together.
pub const MAX_QUEUES: u32 = 1 << 17;
const BLOCK: usize = 64;

/// What one queue's operations amount to, by role.
pub type QueueShares = [Totals; Role::ALL.len()];
type Rows = [QueueShares; BLOCK];

/// How a queue's totals went on between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueChange {
    pub queue: u32,
    pub from: QueueShares,
    pub until: QueueShares,
}

#[derive(Clone, Debug)]
struct Block {
    now: Box<Rows>,
    /// As when changes were last taken; nothing has been taken of a block without it.
    taken: Option<Box<Rows>>,
    changed: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self { now: Box::new([QueueShares::default(); BLOCK]), taken: None, changed: false }
    }
}

/// Totals by queue number.
#[derive(Clone, Debug, Default)]
pub struct QueueTotals {
    blocks: Vec<Option<Block>>,
    others: QueueShares,
}

impl QueueTotals {
    #[inline]
    fn totals(&mut self, queue: u32, role: Role) -> &mut Totals {
        if queue >= MAX_QUEUES {
            return &mut self.others[role as usize];
        }
        let (block, at) = (queue as usize / BLOCK, queue as usize % BLOCK);
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        let block = self.blocks[block].get_or_insert_default();
        block.changed = true;
        &mut block.now[at][role as usize]
    }

    #[inline]
    pub(crate) fn enter(&mut self, crossing: &Crossing) {
        if let Some((queue, role)) = crossing.origin.cause.operation() {
            self.totals(queue, role).enter(crossing);
        }
    }

    pub(crate) fn amend(&mut self, queue: u32, role: Role, was: &Traffic, is: &Traffic) {
        self.totals(queue, role).amend(was, is);
    }

    /// The queues that have changed since this was asked last, in order: their totals then and now.
    pub(crate) fn take_changes(&mut self) -> Vec<QueueChange> {
        let mut changes = Vec::new();
        let blocks = self.blocks.iter_mut().enumerate();
        for (at, block) in blocks.filter_map(|(at, block)| block.as_mut().map(|block| (at, block))) {
            if !std::mem::take(&mut block.changed) {
                continue;
            }
            let taken = block.taken.get_or_insert_with(|| Box::new([QueueShares::default(); BLOCK]));
            for (within, (from, until)) in taken.iter().zip(block.now.iter()).enumerate() {
                if from != until {
                    changes.push(QueueChange { queue: (at * BLOCK + within) as u32, from: *from, until: *until });
                }
            }
            taken.copy_from_slice(&*block.now);
        }
        changes
    }

    /// A queue's shares; zero for one that has caused nothing.
    pub fn queue(&self, queue: u32) -> QueueShares {
        let block = self.blocks.get(queue as usize / BLOCK).and_then(Option::as_ref);
        block.map_or_else(QueueShares::default, |block| block.now[queue as usize % BLOCK])
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
                block.now.iter().enumerate().map(move |(within, shares)| ((at * BLOCK + within) as u32, *shares))
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
    fn changes_are_what_came_since_they_were_taken_last() {
        let mut totals = QueueTotals::default();
        let changes = |totals: &mut QueueTotals| -> Vec<_> {
            let changes = totals.take_changes().into_iter();
            changes.map(|change| (change.queue, change.from[0].crossings, change.until[0].crossings)).collect()
        };
        [1, 2, 2, 200].iter().for_each(|queue| totals.enter(&send(*queue)));
        assert_eq!(changes(&mut totals), [(1, 0, 1), (2, 0, 2), (200, 0, 1)]);
        assert_eq!(changes(&mut totals), []);
        [2, 3].iter().for_each(|queue| totals.enter(&send(*queue)));
        assert_eq!(changes(&mut totals), [(2, 2, 3), (3, 0, 1)]);
        totals.enter(&send(MAX_QUEUES));
        assert_eq!(changes(&mut totals), [], "queues that are not told apart are in no change");
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
