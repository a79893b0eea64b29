//! One read of host memory at a time, answered at once or later: whoever asks again gets what came.

use rnic_pcie::{DmaFault, DmaPort, DmaRange, DmaTag, Origin, Submitted};

#[derive(Debug)]
enum State {
    Free,
    Asked(DmaTag),
    Answered(Result<(), DmaFault>),
}

/// A read and the buffer that its bytes come into.
#[derive(Debug)]
pub struct Fetch {
    buffer: Box<[u8]>,
    state: State,
}

impl Fetch {
    pub fn new(capacity_bytes: usize) -> Self {
        Self { buffer: vec![0; capacity_bytes].into(), state: State::Free }
    }

    pub fn capacity_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Asks for the ranges, at most the buffer's capacity. `None`: the bytes come later, and the same question then has
    /// an answer.
    pub fn read(
        &mut self,
        port: &mut dyn DmaPort,
        origin: Origin,
        ranges: &[DmaRange],
    ) -> Result<Option<&[u8]>, DmaFault> {
        let length = ranges.iter().map(|range| range.length_bytes as usize).sum::<usize>();
        let Some(buffer) = self.buffer.get_mut(..length) else { return Err(DmaFault::CompleterAbort) };
        match std::mem::replace(&mut self.state, State::Free) {
            State::Asked(tag) => {
                self.state = State::Asked(tag);
                return Ok(None);
            }
            State::Answered(answer) => answer?,
            State::Free => {
                if let Submitted::Pending(tag) = port.read(origin, ranges, buffer)? {
                    self.state = State::Asked(tag);
                    return Ok(None);
                }
            }
        }
        Ok(Some(buffer))
    }

    /// Takes the answer to its question; false if it is another's.
    pub fn answer(&mut self, tag: DmaTag, answer: Result<&[u8], DmaFault>) -> bool {
        if !matches!(self.state, State::Asked(asked) if asked == tag) {
            return false;
        }
        let taken = answer.and_then(|bytes| match self.buffer.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(DmaFault::CompleterAbort),
        });
        self.state = State::Answered(taken);
        true
    }

    /// Forgets the question; its answer finds nobody.
    pub fn reset(&mut self) {
        self.state = State::Free;
    }
}
