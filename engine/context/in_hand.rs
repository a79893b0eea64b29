//! What a fill has brought and its asker has not used yet.
//!
//! A cache may be smaller than what is under way: before an asker's turn comes, its entry may have left again for
//! another one's, and two that need two things at once could evict each other for ever. So what comes late is also
//! handed to those who asked for it, who use it once, as the entry of a miss-status register is used in hardware.
//! Nothing is pinned by it. Only late answers come here; memory that answers at once never does.
//!
//! Contexts of queue pairs and shared receive queues, and what is remembered of READs and atomics, change, so there is one place for each: here until its turn, then in the cache. Keys and
//! lines do not change; each asker has its own. What is invalidated goes from here as well.

use super::key::KeyContext;
use super::queue_pair::QpContext;
use super::rd_atomic::RdAtomicContext;
use super::shared_receive_queue::SrqContext;
use super::translation::{Line, Owner};
use crate::numbers::{Qpn, Srqn};
use crate::pending::Waiter;
use arrayvec::ArrayVec;
use std::collections::BTreeMap;

/// Lines of one walk: a list of lists, and a list.
const LINES: usize = 2;
/// Keys of one work request: a window and its region.
const KEYS: usize = 2;

/// One asker's.
#[derive(Debug, Default)]
struct Hand {
    keys: ArrayVec<(u32, KeyContext), KEYS>,
    lines: ArrayVec<Line, LINES>,
}

impl Hand {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.lines.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct InHand {
    queue_pairs: BTreeMap<Qpn, QpContext>,
    rd_atomics: BTreeMap<Qpn, RdAtomicContext>,
    shared_receive_queues: BTreeMap<Srqn, SrqContext>,
    hands: BTreeMap<Waiter, Hand>,
}

impl InHand {
    pub fn give_queue_pair(&mut self, qpn: Qpn, context: QpContext) {
        self.queue_pairs.insert(qpn, context);
    }

    /// The context, which is the caller's to put into the cache.
    pub fn take_queue_pair(&mut self, qpn: Qpn) -> Option<QpContext> {
        if self.queue_pairs.is_empty() { None } else { self.queue_pairs.remove(&qpn) }
    }

    pub fn give_rd_atomic(&mut self, qpn: Qpn, context: RdAtomicContext) {
        self.rd_atomics.insert(qpn, context);
    }

    /// The context, which is the caller's to put into the cache.
    pub fn take_rd_atomic(&mut self, qpn: Qpn) -> Option<RdAtomicContext> {
        if self.rd_atomics.is_empty() { None } else { self.rd_atomics.remove(&qpn) }
    }

    pub fn give_srq(&mut self, srqn: Srqn, context: SrqContext) {
        self.shared_receive_queues.insert(srqn, context);
    }

    /// The context, which is the caller's to put into the cache.
    pub fn take_srq(&mut self, srqn: Srqn) -> Option<SrqContext> {
        if self.shared_receive_queues.is_empty() { None } else { self.shared_receive_queues.remove(&srqn) }
    }

    pub fn flush_srqs(&mut self) {
        self.shared_receive_queues.clear();
    }

    pub fn give_key(&mut self, waiter: Waiter, index: u32, context: KeyContext) {
        let keys = &mut self.hands.entry(waiter).or_default().keys;
        keys.retain(|(held, _)| *held != index);
        if keys.is_full() {
            keys.remove(0);
        }
        keys.push((index, context));
    }

    pub fn key(&self, waiter: Waiter, index: u32) -> Option<KeyContext> {
        let keys = &self.hands.get(&waiter)?.keys;
        keys.iter().find(|(held, _)| *held == index).map(|(_, context)| *context)
    }

    pub fn give_line(&mut self, waiter: Waiter, line: Line) {
        let lines = &mut self.hands.entry(waiter).or_default().lines;
        if lines.is_full() {
            lines.remove(0);
        }
        lines.push(line);
    }

    pub fn line(&self, waiter: Waiter, owner: Owner, address: u64) -> Option<&Line> {
        self.hands.get(&waiter)?.lines.iter().find(|line| line.is(owner, address))
    }

    /// The walk has ended.
    pub fn drop_lines(&mut self, waiter: Waiter) {
        self.change(waiter, |hand| hand.lines.clear());
    }

    /// The access that the key was needed for has been checked and resolved.
    pub fn drop_key(&mut self, waiter: Waiter) {
        self.change(waiter, |hand| hand.keys.clear());
    }

    fn change(&mut self, waiter: Waiter, change: impl FnOnce(&mut Hand)) {
        if self.hands.is_empty() {
            return;
        }
        if let Some(hand) = self.hands.get_mut(&waiter) {
            change(hand);
            if hand.is_empty() {
                self.hands.remove(&waiter);
            }
        }
    }

    /// The queue pair starts anew or is gone.
    pub fn forget_queue_pair(&mut self, qpn: Qpn) {
        self.queue_pairs.remove(&qpn);
        self.rd_atomics.remove(&qpn);
        self.hands.retain(|waiter, _| waiter.queue_pair() != Some(qpn));
    }

    /// The key is not valid any more.
    pub fn forget_key(&mut self, index: u32) {
        self.retain(|hand| hand.keys.retain(|(held, _)| *held != index));
    }

    /// The owner's page list may change.
    pub fn forget_lines(&mut self, owner: Owner) {
        self.retain(|hand| hand.lines.retain(|line| line.owner != owner));
    }

    /// FLUSH_CACHES: what is here is no newer than what stands in host memory.
    pub fn flush_queue_pairs(&mut self) {
        self.queue_pairs.clear();
    }

    pub fn flush_rd_atomics(&mut self) {
        self.rd_atomics.clear();
    }

    pub fn flush_keys(&mut self) {
        self.retain(|hand| hand.keys.clear());
    }

    pub fn flush_lines(&mut self) {
        self.retain(|hand| hand.lines.clear());
    }

    fn retain(&mut self, mut change: impl FnMut(&mut Hand)) {
        self.hands.retain(|_, hand| {
            change(hand);
            !hand.is_empty()
        });
    }
}
