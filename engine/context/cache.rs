//! A working-set cache of contexts: bounded, least recently used out first, write-back.

/// No entry: end of a list, or an index that is not cached.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry<T> {
    index: u32,
    dirty: bool,
    value: T,
    newer: u32,
    older: u32,
}

/// An entry that had to leave and holds changes that its table has not seen.
#[derive(Debug, PartialEq, Eq)]
pub struct Evicted<T> {
    pub index: u32,
    pub value: T,
}

/// Contexts by their index in the backing table.
///
/// Invariants: `slot_of[entries[s].index] == s` for every entry; the list from `newest` over `older` visits each
/// entry once; `entries.len() <= capacity`.
#[derive(Debug)]
pub struct Cache<T> {
    capacity: usize,
    entries: Vec<Entry<T>>,
    slot_of: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl<T> Cache<T> {
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), entries: Vec::new(), slot_of: Vec::new(), newest: NONE, oldest: NONE }
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
        let slot = self.slot(index)?;
        self.make_newest(slot);
        Some(&self.entries[slot].value)
    }

    /// Looks an entry up to change it: it becomes the newest, and dirty.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let slot = self.slot(index)?;
        self.make_newest(slot);
        self.entries[slot].dirty = true;
        Some(&mut self.entries[slot].value)
    }

    /// Puts an entry in. What had to leave for it and is dirty comes back, to be written to its table.
    pub fn insert(&mut self, index: u32, value: T, dirty: bool) -> Option<Evicted<T>> {
        if let Some(slot) = self.slot(index) {
            self.entries[slot].value = value;
            self.entries[slot].dirty |= dirty;
            self.make_newest(slot);
            return None;
        }
        let evicted = if self.entries.len() >= self.capacity { self.take(self.oldest as usize) } else { None };
        let slot = self.entries.len();
        self.entries.push(Entry { index, dirty, value, newer: NONE, older: NONE });
        if self.slot_of.len() <= index as usize {
            self.slot_of.resize(index as usize + 1, NONE);
        }
        self.slot_of[index as usize] = slot as u32;
        self.link_newest(slot);
        evicted.filter(|entry| entry.dirty).map(|entry| Evicted { index: entry.index, value: entry.value })
    }

    /// Forgets an entry, dirty or not.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slot(index)?;
        self.take(slot).map(|entry| entry.value)
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
        (self.newest, self.oldest) = (NONE, NONE);
        dirty
    }

    fn take(&mut self, slot: usize) -> Option<Entry<T>> {
        if slot >= self.entries.len() {
            return None;
        }
        self.unlink(slot);
        let last = self.entries.len() - 1;
        let entry = self.entries.swap_remove(slot);
        self.slot_of[entry.index as usize] = NONE;
        if slot != last {
            self.moved(slot);
        }
        Some(entry)
    }

    /// The entry now in `slot` stood elsewhere before: its neighbours and its index learn it.
    fn moved(&mut self, slot: usize) {
        let (index, newer, older) = {
            let entry = &self.entries[slot];
            (entry.index, entry.newer, entry.older)
        };
        self.slot_of[index as usize] = slot as u32;
        match newer {
            NONE => self.newest = slot as u32,
            newer => self.entries[newer as usize].older = slot as u32,
        }
        match older {
            NONE => self.oldest = slot as u32,
            older => self.entries[older as usize].newer = slot as u32,
        }
    }

    fn make_newest(&mut self, slot: usize) {
        if self.newest != slot as u32 {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn unlink(&mut self, slot: usize) {
        let (newer, older) = (self.entries[slot].newer, self.entries[slot].older);
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: usize) {
        let before = self.newest;
        self.entries[slot].newer = NONE;
        self.entries[slot].older = before;
        match before {
            NONE => self.oldest = slot as u32,
            before => self.entries[before as usize].newer = slot as u32,
        }
        self.newest = slot as u32;
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
            }
            let mut dirty: Vec<_> = model.into_iter().filter(|e| e.2).map(|e| Evicted { index: e.0, value: e.1 }).collect();
            dirty.sort_by_key(|e| e.index);
            prop_assert_eq!(cache.flush(), dirty);
        }
    }
}
