//! Which IOVAs are free: first fit over ascending runs that merge when given back.

use crate::backing::{BackingError, Result};
use std::collections::BTreeMap;

/// Free runs by start.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    runs: BTreeMap<u64, u64>,
}

impl Extents {
    /// Takes the first run that fits.
    pub fn take(&mut self, length_bytes: u64, align_bytes: u64) -> Result<u64> {
        let align = align_bytes.max(1);
        let fits = |(start, length): (&u64, &u64)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(length_bytes)?;
            (length_bytes > 0 && end <= start + length).then_some((*start, *length, aligned, end))
        };
        let Some((start, length, aligned, end)) = self.runs.iter().find_map(fits) else {
            let largest_bytes = self.runs.values().copied().max().unwrap_or(0);
            return Err(BackingError::OutOfMemory { length_bytes, align_bytes, largest_bytes });
        };
        self.runs.remove(&start);
        self.insert(start, aligned - start);
        self.insert(end, start + length - end);
        Ok(aligned)
    }

    /// Gives a run back, or adds one.
    pub fn give(&mut self, start: u64, length_bytes: u64) {
        let (mut start, mut length) = (start, length_bytes);
        if let Some((&before, &before_length)) = self.runs.range(..start).next_back()
            && before + before_length == start
        {
            self.runs.remove(&before);
            start = before;
            length += before_length;
        }
        if let Some(after_length) = self.runs.remove(&(start + length)) {
            length += after_length;
        }
        self.insert(start, length);
    }

    /// Bytes that are free in all runs together.
    pub fn free_bytes(&self) -> u64 {
        self.runs.values().sum()
    }

    fn insert(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.runs.insert(start, length);
        }
    }
}
