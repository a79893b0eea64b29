//! Host memory for tests: a flat array, a log of every transfer, and reads that can be held back.

use rnic_pcie::{Cause, Class, DmaFault, DmaPort, DmaRange, DmaTag, HostAccess, Observed, Origin, Submitted};

/// Where the array stands in DMA space: above 4 GiB, as on a large host.
pub const BASE: u64 = 0x1_0000_0000;
pub const SIZE: usize = 8 << 20;

/// One transfer, in the order in which it became visible.
#[derive(Clone, Debug, PartialEq)]
pub enum Transfer {
    Read { origin: Origin, bytes: usize },
    Write { origin: Origin, address: u64, bytes: usize },
    Event { cause: Cause, bytes: usize, vector: Option<u16> },
    Host { origin: Origin, bytes: u32 },
}

impl Transfer {
    pub fn class(&self) -> Class {
        match self {
            Self::Read { origin, .. } | Self::Write { origin, .. } | Self::Host { origin, .. } => origin.class,
            Self::Event { .. } => Class::Event,
        }
    }
}

type Hold = Box<dyn FnMut(&Origin, &[DmaRange]) -> bool>;
type Fail = Box<dyn FnMut(&Origin) -> bool>;

pub struct Port {
    pub memory: Vec<u8>,
    pub log: Vec<Transfer>,
    pub held: Vec<(DmaTag, Vec<DmaRange>)>,
    pub hold: Hold,
    /// Decides which transfers host memory does not answer.
    pub fail: Fail,
    pub vectors_usable: bool,
    next_tag: u64,
}

impl Port {
    pub fn new() -> Self {
        Self {
            memory: vec![0; SIZE],
            log: Vec::new(),
            held: Vec::new(),
            hold: Box::new(|_, _| false),
            fail: Box::new(|_| false),
            vectors_usable: true,
            next_tag: 1,
        }
    }

    pub fn slice(&self, iova: u64, length: usize) -> &[u8] {
        let at = (iova - BASE) as usize;
        &self.memory[at..at + length]
    }

    pub fn put(&mut self, iova: u64, bytes: &[u8]) {
        let at = (iova - BASE) as usize;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn place(range: &DmaRange) -> Result<std::ops::Range<usize>, DmaFault> {
        let at = range.iova.0.checked_sub(BASE).ok_or(DmaFault::UnsupportedRequest)? as usize;
        let end = at.checked_add(range.length_bytes as usize).ok_or(DmaFault::UnsupportedRequest)?;
        if end <= SIZE { Ok(at..end) } else { Err(DmaFault::UnsupportedRequest) }
    }

    fn gather(&self, ranges: &[DmaRange], into: &mut [u8]) -> Result<(), DmaFault> {
        let mut done = 0;
        for range in ranges {
            let place = Self::place(range)?;
            into[done..done + place.len()].copy_from_slice(&self.memory[place.clone()]);
            done += place.len();
        }
        assert_eq!(done, into.len(), "the ranges are as long as the buffer");
        Ok(())
    }

    /// The bytes of a held read, taken now.
    pub fn take(&self, ranges: &[DmaRange]) -> Result<Vec<u8>, DmaFault> {
        let mut bytes = vec![0; ranges.iter().map(|range| range.length_bytes as usize).sum()];
        self.gather(ranges, &mut bytes).map(|()| bytes)
    }
}

impl DmaPort for Port {
    fn read(&mut self, origin: Origin, ranges: &[DmaRange], into: &mut [u8]) -> Result<Submitted, DmaFault> {
        self.log.push(Transfer::Read { origin, bytes: into.len() });
        if (self.fail)(&origin) {
            return Err(DmaFault::UnsupportedRequest);
        }
        if (self.hold)(&origin, ranges) {
            let tag = DmaTag(self.next_tag);
            self.next_tag += 1;
            self.held.push((tag, ranges.to_vec()));
            return Ok(Submitted::Pending(tag));
        }
        self.gather(ranges, into).map(|()| Submitted::Ready)
    }

    fn write(&mut self, origin: Origin, ranges: &[DmaRange], from: &[u8]) -> Result<(), DmaFault> {
        let address = ranges.first().map_or(0, |range| range.iova.0);
        if (self.fail)(&origin) {
            return Err(DmaFault::UnsupportedRequest);
        }
        let mut done = 0;
        for range in ranges {
            let place = Self::place(range)?;
            self.memory[place.clone()].copy_from_slice(&from[done..done + place.len()]);
            done += place.len();
        }
        assert_eq!(done, from.len());
        self.log.push(Transfer::Write { origin, address, bytes: from.len() });
        Ok(())
    }

    fn event(&mut self, origin: Origin, entry: DmaRange, from: &[u8], vector: Option<u16>) -> Result<(), DmaFault> {
        if (self.fail)(&origin) {
            return Err(DmaFault::UnsupportedRequest);
        }
        if !from.is_empty() {
            let place = Self::place(&entry)?;
            self.memory[place].copy_from_slice(from);
        }
        self.log.push(Transfer::Event { cause: origin.cause, bytes: from.len(), vector });
        Ok(())
    }

    fn count(&mut self, origin: Origin, _bar: u8, access: HostAccess, _observed: Observed) {
        let (HostAccess::Write { bytes, .. } | HostAccess::Read { bytes, .. }) = access;
        self.log.push(Transfer::Host { origin, bytes });
    }

    fn vector_usable(&self, _vector: u16) -> bool {
        self.vectors_usable
    }

    fn crossings(&self, class: Class) -> u64 {
        self.log.iter().filter(|transfer| transfer.class() == class).count() as u64
    }

    fn has_room(&self) -> bool {
        true
    }
}
