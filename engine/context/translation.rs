//! The translation cache: lines of 64 bytes, eight entries, of page lists.

use rnic_pcie::Iova;

/// Whose page list a line belongs to, so that it goes when its owner goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Nobody,
    Key(u32),
    SendQueue(u32),
    ReceiveQueue(u32),
    /// Slots of a shared receive queue.
    SharedReceiveQueue(u32),
    /// Its index ring.
    SharedIndices(u32),
    CompletionQueue(u32),
    EventQueue(u32),
    Table(u8),
}

pub const LINE_BYTES: usize = 64;
const WAYS: usize = 4;
/// A walk of two levels needs two lines, and several are under way.
const FEWEST_LINES: usize = 8;

/// A line and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub owner: Owner,
    pub address: u64,
    used: u64,
    entries: [u64; 8],
}

impl Line {
    pub fn new(owner: Owner, address: u64, bytes: &[u8; LINE_BYTES]) -> Self {
        let mut entries = [0; 8];
        for (entry, chunk) in entries.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *entry = u64::from_le_bytes(*chunk);
        }
        Self { owner, address, used: 0, entries }
    }

    pub fn is(&self, owner: Owner, address: u64) -> bool {
        self.owner == owner && self.address == address
    }

    /// The entry at this address, which is in the line.
    pub const fn entry(&self, entry: Iova) -> u64 {
        self.entries[(entry.0 as usize & (LINE_BYTES - 1)) / 8]
    }
}

const EMPTY: Line = Line { owner: Owner::Nobody, address: 0, used: 0, entries: [0; 8] };

/// Set-associative, least recently used of a set out first; nothing is ever dirty.
#[derive(Debug)]
pub struct TranslationCache {
    lines: Vec<Line>,
    sets: usize,
    clock: u64,
    filled: bool,
}

impl TranslationCache {
    pub fn new(lines: usize) -> Self {
        let sets = (lines.max(FEWEST_LINES) / WAYS).next_power_of_two();
        Self { lines: vec![EMPTY; sets * WAYS], sets, clock: 0, filled: false }
    }

    pub fn capacity(&self) -> usize {
        self.lines.len()
    }

    /// Lines that hold something.
    pub fn used(&self) -> usize {
        self.lines.iter().filter(|line| line.owner != Owner::Nobody).count()
    }

    pub const fn line_of(entry: Iova) -> u64 {
        entry.0 & !(LINE_BYTES as u64 - 1)
    }

    fn set(&self, address: u64) -> std::ops::Range<usize> {
        // Fibonacci hashing: lists of one driver tend to stand at equal offsets of their pages.
        let hash = (address >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = hash as usize & (self.sets - 1);
        set * WAYS..(set + 1) * WAYS
    }

    /// The entry at this address, if its line is here.
    pub fn get(&mut self, owner: Owner, entry: Iova) -> Option<u64> {
        let address = Self::line_of(entry);
        let set = self.set(address);
        self.clock += 1;
        let clock = self.clock;
        let line = self.lines[set].iter_mut().find(|line| line.is(owner, address))?;
        line.used = clock;
        Some(line.entry(entry))
    }

    pub fn insert(&mut self, line: Line) {
        self.clock += 1;
        self.filled = true;
        let line = Line { used: self.clock, ..line };
        let set = self.set(line.address);
        let set = &mut self.lines[set];
        let same = set.iter().position(|old| old.is(line.owner, line.address));
        let victim = same.or_else(|| {
            set.iter().enumerate().min_by_key(|(_, old)| (old.owner != Owner::Nobody, old.used)).map(|(at, _)| at)
        });
        if let Some(at) = victim {
            set[at] = line;
        }
    }

    /// Forgets every line of an owner.
    pub fn forget(&mut self, owner: Owner) {
        if self.filled {
            self.lines.iter_mut().filter(|line| line.owner == owner).for_each(|line| *line = EMPTY);
        }
    }

    pub fn flush(&mut self) {
        self.lines.fill(EMPTY);
        self.filled = false;
    }
}
