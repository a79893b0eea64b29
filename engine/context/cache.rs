//! A working-set cache of contexts: bounded, least recently used out first, write-back.
//!
//! Who uses an entry writes the time into it and touches nothing else: among many entries each neighbour in a list would
//! be a line of memory that no processor cache holds. The order is found when somebody has to leave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An index that is not cached.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry<T> {
    index: u32,
    dirty: bool,
    /// When it was last used.
    used: u64,
    /// Its use that `order` knows: this one or an earlier one.
    queued: u64,
    value: T,
}

/// An entry that had to leave and holds changes that its table has not seen.
#[derive(Debug, PartialEq, Eq)]
pub struct Evicted<T> {
    pub index: u32,
    pub value: T,
}

/// Contexts by their index in the backing table.
///
/// Invariants: `slot_of[entries[s].index] == s` for every entry; `order` holds `(queued, index)` of every entry, and
/// `queued <= used`; no two uses have the same time; `entries.len() <= capacity`.
#[derive(Debug)]
pub struct Cache<T> {
    capacity: usize,
    entries: Vec<Entry<T>>,
    slot_of: Vec<u32>,
    /// Counts uses.
    clock: u64,
    /// Entries by a use that was their last one once, and what is left of entries that are gone.
    order: BinaryHeap<Reverse<(u64, u32)>>,
}

impl<T> Cache<T> {
    pub fn new(capacity: usize) -> Self {
        let (entries, slot_of, order) = (Vec::new(), Vec::new(), BinaryHeap::new());
        Self { capacity: capacity.max(1), entries, slot_of, clock: 0, order }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn slot(&self, index: u32) -> Option<usize> {
        self.slot_of.get(index as usize).filter(|slot| **slot != NONE).map(|slot| *slot as usize)
    }

    pub fn contains(&self, index: u32) -> bool {
        self.slot(index).is_some()
    }

    /// Looks an entry up from outside: nothing changes by it.
    pub fn peek(&self, index: u32) -> Option<&T> {
        self.slot(index).map(|slot| &self.entries[slot].value)
    }

    /// Looks an entry up and makes it the newest.
    pub fn get(&mut self, index: u32) -> Option<&T> {
        self.use_entry(index).map(|entry| &entry.value)
    }

    /// Looks an entry up to change it: it becomes the newest, and dirty.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let entry = self.use_entry(index)?;
        entry.dirty = true;
        Some(&mut entry.value)
    }

    fn use_entry(&mut self, index: u32) -> Option<&mut Entry<T>> {
        let slot = self.slot(index)?;
        self.clock += 1;
        let entry = &mut self.entries[slot];
        entry.used = self.clock;
        Some(entry)
    }

    /// Puts an entry in. What had to leave for it and is dirty comes back, to be written to its table.
    pub fn insert(&mut self, index: u32, value: T, dirty: bool) -> Option<Evicted<T>> {
        if let Some(entry) = self.use_entry(index) {
            entry.value = value;
            entry.dirty |= dirty;
            return None;
        }
        let evicted = if self.entries.len() >= self.capacity { self.take_oldest() } else { None };
        self.clock += 1;
        if self.slot_of.len() <= index as usize {
            self.slot_of.resize(index as usize + 1, NONE);
        }
        self.slot_of[index as usize] = self.entries.len() as u32;
        self.entries.push(Entry { index, dirty, used: self.clock, queued: self.clock, value });
        self.enqueue(index);
        evicted.filter(|entry| entry.dirty).map(|entry| Evicted { index: entry.index, value: entry.value })
    }

    /// Forgets an entry, dirty or not.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        self.take(index).map(|entry| entry.value)
    }

    /// Empties the cache; what is dirty comes back in the order of its index.
    pub fn flush(&mut self) -> Vec<Evicted<T>> {
        let mut dirty: Vec<_> = self
            .entries
            .drain(..)
            .filter(|entry| entry.dirty)
            .map(|entry| Evicted { index: entry.index, value: entry.value })
            .collect();
        dirty.sort_by_key(|entry| entry.index);
        self.slot_of.fill(NONE);
        self.order.clear();
        dirty
    }

    fn take(&mut self, index: u32) -> Option<Entry<T>> {
        let slot = self.slot(index)?;
        let entry = self.entries.swap_remove(slot);
        self.slot_of[index as usize] = NONE;
        if let Some(moved) = self.entries.get(slot) {
            self.slot_of[moved.index as usize] = slot as u32;
        }
        Some(entry)
    }

    /// Takes the entry whose last use is the longest ago. One that was used since it was queued goes behind again:
    /// each use costs at most one such turn.
    fn take_oldest(&mut self) -> Option<Entry<T>> {
        while let Some(Reverse((queued, index))) = self.order.pop() {
            let Some(slot) = self.slot(index).filter(|slot| self.entries[*slot].queued == queued) else { continue };
            let entry = &mut self.entries[slot];
            if entry.used == queued {
                return self.take(index);
            }
            entry.queued = entry.used;
            self.order.push(Reverse((entry.used, index)));
        }
        None
    }

    /// What is left of removed entries never is more than there can be entries.
    fn enqueue(&mut self, index: u32) {
        if self.order.len() > 2 * self.entries.len().max(16) {
            let (entries, slot_of) = (&self.entries, &self.slot_of);
            self.order.retain(|Reverse((queued, index))| {
                entries.get(slot_of[*index as usize] as usize).is_some_and(|entry| entry.queued == *queued)
            });
        }
        self.order.push(Reverse((self.clock, index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_leaves_and_only_dirty_ones_come_back() {
        let mut cache = Cache::new(2);
        assert_eq!(cache.insert(1, 'a', false), None);
        assert_eq!(cache.insert(2, 'b', true), None);
        assert_eq!(cache.get(1), Some(&'a'));
        assert_eq!(cache.insert(3, 'c', false), Some(Evicted { index: 2, value: 'b' }));
        assert_eq!(cache.insert(4, 'd', false), None, "1 was clean");
        assert!(!cache.contains(1) && cache.contains(3) && cache.contains(4));
    }

    proptest! {
        /// Against a plain list, newest first.
        #[test]
        fn behaves_as_a_list(capacity in 1usize..5, steps in prop::collection::vec((0u8..4, 0u32..8), 0..200)) {
            let mut cache = Cache::new(capacity);
            let mut model: Vec<(u32, u32, bool)> = Vec::new();
            for (time, (action, index)) in steps.into_iter().enumerate() {
                let at = model.iter().position(|entry| entry.0 == index);
                match action {
                    0 => {
                        prop_assert_eq!(cache.get(index).copied(), at.map(|at| model[at].1));
                        if let Some(at) = at { let e = model.remove(at); model.insert(0, e); }
                    }
                    1 => {
                        let found = cache.get_mut(index).map(|value| { *value += 1; *value });
                        prop_assert_eq!(found, at.map(|at| model[at].1 + 1));
                        if let Some(at) = at { let e = model.remove(at); model.insert(0, (e.0, e.1 + 1, true)); }
                    }
                    2 => {
                        let dirty = time % 2 == 0;
                        let out = cache.insert(index, time as u32, dirty);
                        let mut was_dirty = false;
                        if let Some(at) = at { was_dirty = model.remove(at).2; }
                        model.insert(0, (index, time as u32, dirty || was_dirty));
                        let left = if model.len() > capacity { model.pop() } else { None };
                        let left = left.filter(|e| e.2).map(|e| Evicted { index: e.0, value: e.1 });
                        prop_assert_eq!(out, left);
                    }
                    _ => {
                        prop_assert_eq!(cache.remove(index), at.map(|at| model.remove(at).1));
                    }
                }
                prop_assert_eq!(cache.len(), model.len());
                prop_assert!(cache.order.len() <= 2 * capacity.max(16) + 1, "what has left is forgotten");
            }
            let mut dirty: Vec<_> = model.into_iter().filter(|e| e.2).map(|e| Evicted { index: e.0, value: e.1 }).collect();
            dirty.sort_by_key(|e| e.index);
            prop_assert_eq!(cache.flush(), dirty);
        }
    }
}
