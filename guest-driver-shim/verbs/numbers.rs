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
}

impl Numbers {
    pub fn new(kind: &'static str, first: u32, end: u32) -> Self {
        Self { kind, first, end, used: BTreeSet::new() }
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
            None => (self.first..self.end)
                .find(|number| !self.used.contains(number))
                .ok_or_else(|| VerbsError::Missing { what: format!("free {}", self.kind) })?,
        };
        match self.used.insert(number) {
            true => Ok(number),
            false => Err(VerbsError::Exists { what: format!("{} {number:#x}", self.kind) }),
        }
    }

    pub fn give(&mut self, number: u32) {
        self.used.remove(&number);
    }
}
