//! A transfer's ranges and bytes, and how far it has got.

use crate::{DmaRange, Iova};

#[derive(Debug)]
pub(crate) struct Transfer {
    /// Neighbours are merged.
    ranges: Vec<DmaRange>,
    data: Vec<u8>,
    /// Bytes done in all, and in the range `current`.
    done: usize,
    current: usize,
    done_in_range: u32,
}

impl Transfer {
    /// `data` is as long as the ranges together.
    pub fn new(ranges: &[DmaRange], data: Vec<u8>) -> Self {
        Self { ranges: merged(ranges).collect(), data, done: 0, current: 0, done_in_range: 0 }
    }

    pub fn length_bytes(&self) -> usize {
        self.data.len()
    }

    pub fn done(&self) -> usize {
        self.done
    }

    pub fn has_begun(&self) -> bool {
        self.done > 0
    }

    pub fn is_done(&self) -> bool {
        self.done >= self.data.len() || self.current >= self.ranges.len()
    }

    /// What is left of the current range.
    pub fn rest_of_range(&self) -> Option<DmaRange> {
        let range = self.ranges.get(self.current)?;
        let iova = Iova(range.iova.0.wrapping_add(u64::from(self.done_in_range)));
        Some(DmaRange::new(iova, range.length_bytes - self.done_in_range))
    }

    /// The next bytes, at most to the end of the range; they count as done.
    pub fn take_piece(&mut self, length: usize) -> &mut [u8] {
        let in_range = self.rest_of_range().map_or(0, |rest| rest.length_bytes as usize);
        let length = length.min(in_range).min(self.data.len() - self.done);
        let start = self.done;
        self.done += length;
        self.done_in_range += length as u32;
        if length == in_range {
            self.current += 1;
            self.done_in_range = 0;
        }
        &mut self.data[start..start + length]
    }

    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Does any range share a byte with the addresses?
    pub fn touches(&self, first: u64, last: u64) -> bool {
        self.ranges.iter().any(|range| {
            let end = range.iova.0.saturating_add(u64::from(range.length_bytes) - 1);
            range.iova.0 <= last && end >= first
        })
    }
}

/// The contiguous pieces of a list of ranges: empty ranges left out, neighbours merged.
pub(crate) fn merged(ranges: &[DmaRange]) -> impl Iterator<Item = DmaRange> {
    let mut rest = ranges.iter().filter(|range| range.length_bytes > 0).peekable();
    std::iter::from_fn(move || {
        let mut piece = *rest.next()?;
        while let Some(next) = rest.peek() {
            let adjacent = piece.iova.checked_add(u64::from(piece.length_bytes)) == Some(next.iova);
            match piece.length_bytes.checked_add(next.length_bytes) {
                Some(length_bytes) if adjacent => piece.length_bytes = length_bytes,
                _ => break,
            }
            rest.next();
        }
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(iova: u64, length_bytes: u32) -> DmaRange {
        DmaRange::new(Iova(iova), length_bytes)
    }

    #[test]
    fn neighbours_are_merged_and_empty_ranges_left_out() {
        let ranges = [range(0, 16), range(99, 0), range(16, 16), range(48, 8), range(40, 8), range(u64::MAX, 1)];
        let found: Vec<_> = merged(&ranges).collect();
        assert_eq!(found, [range(0, 32), range(48, 8), range(40, 8), range(u64::MAX, 1)]);
    }

    #[test]
    fn pieces_end_where_ranges_do() {
        let mut transfer = Transfer::new(&[range(0x100, 4), range(0x200, 3)], (0..7).collect());
        assert_eq!(transfer.take_piece(2), [0, 1]);
        assert_eq!(transfer.rest_of_range(), Some(range(0x102, 2)));
        assert_eq!(transfer.take_piece(9), [2, 3]);
        assert_eq!(transfer.rest_of_range(), Some(range(0x200, 3)));
        assert!(!transfer.is_done());
        assert_eq!(transfer.take_piece(3), [4, 5, 6]);
        assert!(transfer.is_done() && transfer.rest_of_range().is_none());
        assert!(transfer.touches(0x202, 0x300) && !transfer.touches(0x104, 0x1ff));
    }
}
