//! DMA memory that is mapped into this process: pieces of IOVA space, each behind one mapping, and what is free.
//!
//! In: mappings with their IOVAs. Out: zeroed buffers and bounded accesses to them. The device writes at the same
//! time, so every access is atomic or volatile; nothing ever holds a reference into this memory.

mod extents;
mod mapping;

pub use extents::Extents;
pub use mapping::Mapping;

use crate::backing::{BackingError, DmaBuffer, Result};

#[derive(Debug)]
struct Piece {
    iova: u64,
    mapping: Mapping,
}

/// Mapped DMA memory.
#[derive(Debug)]
pub struct MappedMemory {
    /// In ascending order, without overlap.
    pieces: Vec<Piece>,
    free: Extents,
}

impl MappedMemory {
    /// One mapping at one IOVA.
    pub fn new(iova: u64, mapping: Mapping) -> Self {
        Self::from_pieces(vec![(iova, mapping)])
    }

    /// Several mappings, such as huge pages; neighbours in IOVA space form one run.
    pub fn from_pieces(pieces: Vec<(u64, Mapping)>) -> Self {
        let mut pieces: Vec<Piece> = pieces.into_iter().map(|(iova, mapping)| Piece { iova, mapping }).collect();
        pieces.sort_by_key(|piece| piece.iova);
        let mut free = Extents::default();
        for piece in &pieces {
            free.give(piece.iova, piece.mapping.length_bytes());
        }
        Self { pieces, free }
    }

    pub fn allocate(&mut self, length_bytes: u64, align_bytes: u64) -> Result<DmaBuffer> {
        let iova = self.free.take(length_bytes, align_bytes)?;
        let buffer = DmaBuffer { iova, length_bytes };
        self.for_each_part(iova, length_bytes as usize, |mapping, offset, range| mapping.zero(offset, range.len()))?;
        Ok(buffer)
    }

    pub fn release(&mut self, buffer: DmaBuffer) {
        self.free.give(buffer.iova, buffer.length_bytes);
    }

    pub fn copy_in(&self, iova: u64, bytes: &[u8]) -> Result<()> {
        self.for_each_part(iova, bytes.len(), |mapping, offset, range| mapping.copy_in(offset, &bytes[range]))
    }

    pub fn copy_out(&self, iova: u64, bytes: &mut [u8]) -> Result<()> {
        let length = bytes.len();
        self.for_each_part(iova, length, |mapping, offset, range| mapping.copy_out(offset, &mut bytes[range]))
    }

    pub fn load32(&self, iova: u64) -> Result<u32> {
        let (mapping, offset) = self.aligned(iova, 4)?;
        mapping.load32(offset).ok_or(BackingError::NotDmaMemory { iova, length_bytes: 4 })
    }

    pub fn load64(&self, iova: u64) -> Result<u64> {
        let (mapping, offset) = self.aligned(iova, 8)?;
        mapping.load64(offset).ok_or(BackingError::NotDmaMemory { iova, length_bytes: 8 })
    }

    pub fn store32(&self, iova: u64, value: u32) -> Result<()> {
        let (mapping, offset) = self.aligned(iova, 4)?;
        mapping.store32(offset, value).ok_or(BackingError::NotDmaMemory { iova, length_bytes: 4 })
    }

    pub fn store64(&self, iova: u64, value: u64) -> Result<()> {
        let (mapping, offset) = self.aligned(iova, 8)?;
        mapping.store64(offset, value).ok_or(BackingError::NotDmaMemory { iova, length_bytes: 8 })
    }

    fn piece_at(&self, iova: u64) -> Option<&Piece> {
        let next = self.pieces.partition_point(|piece| piece.iova <= iova);
        let piece = self.pieces.get(next.checked_sub(1)?)?;
        (iova - piece.iova < piece.mapping.length_bytes()).then_some(piece)
    }

    fn aligned(&self, iova: u64, align_bytes: u64) -> Result<(&Mapping, usize)> {
        if !iova.is_multiple_of(align_bytes) {
            return Err(BackingError::Unaligned { iova, align_bytes });
        }
        let piece = self.piece_at(iova).ok_or(BackingError::NotDmaMemory { iova, length_bytes: align_bytes })?;
        Ok((&piece.mapping, (iova - piece.iova) as usize))
    }

    /// Whether all of a range is there: nothing of a refused access is done.
    fn covers(&self, iova: u64, length: usize) -> bool {
        let Some(end) = iova.checked_add(length as u64) else { return false };
        let mut at = iova;
        while at < end {
            let Some(piece) = self.piece_at(at) else { return false };
            at = piece.iova.saturating_add(piece.mapping.length_bytes());
        }
        true
    }

    /// Visits the parts of a range in ascending order: the mapping, the offset in it, and which bytes these are.
    fn for_each_part(
        &self,
        iova: u64,
        length: usize,
        mut visit: impl FnMut(&Mapping, usize, std::ops::Range<usize>) -> Option<()>,
    ) -> Result<()> {
        let outside = || BackingError::NotDmaMemory { iova, length_bytes: length as u64 };
        if !self.covers(iova, length) {
            return Err(outside());
        }
        let mut done = 0;
        while done < length {
            let at = iova.checked_add(done as u64).ok_or_else(outside)?;
            let piece = self.piece_at(at).ok_or_else(outside)?;
            let offset = at - piece.iova;
            let room = (piece.mapping.length_bytes() - offset).min((length - done) as u64) as usize;
            visit(&piece.mapping, offset as usize, done..done + room).ok_or_else(outside)?;
            done += room;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
