//! Object numbers: the driver chooses them, the lowest free one unless the caller wants a certain one.

use super::{Result, VerbsError};
use std::collections::BTreeSet;

/// Numbers from `first` to `end` - 1.
#[derive(Debug)]
pub(crate) struct Numbers {
    kind: &'static str,
    first: u32,
    end: u32,
    used: BTreeSet<u32>,
    /// No number below it is free, so that a hundred thousand are not counted through for each new one.
    lowest: u32,
}

impl Numbers {
    pub fn new(kind: &'static str, first: u32, end: u32) -> Self {
        Self { kind, first, end, used: BTreeSet::new(), lowest: first }
    }

    pub fn take(&mut self, wanted: Option<u32>) -> Result<u32> {
        let number = match wanted {
            Some(number) if number >= self.end => {
                return Err(VerbsError::Limit {
                    what: self.kind,
                    wanted: number.into(),
                    most: u64::from(self.end).saturating_sub(1),
                });
            }
            Some(number) => number,
            None => {
                let free = (self.lowest..self.end).find(|number| !self.used.contains(number));
                self.lowest = free.unwrap_or(self.end);
                free.ok_or_else(|| VerbsError::Missing { what: format!("free {}", self.kind) })?
            }
        };
        match self.used.insert(number) {
            true => Ok(number),
            false => Err(VerbsError::Exists { what: format!("{} {number:#x}", self.kind) }),
        }
    }

    /// Everything that had a number is gone.
    pub fn free_all(&mut self) {
        self.used.clear();
        self.lowest = self.first;
    }

    pub fn give(&mut self, number: u32) {
        if self.used.remove(&number) && number >= self.first {
            self.lowest = self.lowest.min(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// Whatever was taken, wanted and given back before.
        #[test]
        fn the_lowest_free_number_is_given(steps in proptest::collection::vec((0u8..3, 0u32..12), 0..60)) {
            let (first, end) = (2, 10);
            let mut numbers = Numbers::new("number", first, end);
            let mut used = BTreeSet::new();
            for (step, number) in steps {
                match step {
                    0 => {
                        let lowest = (first..end).find(|number| !used.contains(number));
                        prop_assert_eq!(numbers.take(None).ok(), lowest);
                        used.extend(lowest);
                    }
                    1 => prop_assert_eq!(numbers.take(Some(number)).is_ok(), number < end && used.insert(number)),
                    _ => {
                        numbers.give(number);
                        used.remove(&number);
                    }
                }
            }
        }
    }
}
