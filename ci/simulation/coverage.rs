//! How often a run has exercised each item of the checklist, each impairment and each operation.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Items of the checklist, numbered from 1.
pub const ITEMS: usize = 113;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    items: [u64; ITEMS + 1],
    named: BTreeMap<&'static str, u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { items: [0; ITEMS + 1], named: BTreeMap::new() }
    }
}

impl Coverage {
    pub fn item(&mut self, item: usize) {
        self.items[item] += 1;
    }

    pub fn items(&mut self, items: &[usize]) {
        items.iter().for_each(|item| self.item(*item));
    }

    /// An impairment or an operation.
    pub fn note(&mut self, name: &'static str, times: u64) {
        *self.named.entry(name).or_default() += times;
    }

    pub fn hits(&self, item: usize) -> u64 {
        self.items[item]
    }

    pub fn times(&self, name: &str) -> u64 {
        self.named.get(name).copied().unwrap_or(0)
    }

    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.named.iter().map(|(name, times)| (*name, *times))
    }
}

impl AddAssign<&Coverage> for Coverage {
    fn add_assign(&mut self, other: &Coverage) {
        self.items.iter_mut().zip(other.items).for_each(|(own, more)| *own += more);
        other.named().for_each(|(name, times)| self.note(name, times));
    }
}
