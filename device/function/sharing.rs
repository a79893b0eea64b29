//! Does the map of the client's memory show what the guest writes? Asked once a connection of each function, where it reads.
//!
//! In: the latest read of mapped memory. Out: a question to the client, a DMA message for the same bytes, and, when
//! its answers say so, the verdict that the memory is not shared. Nobody waits for it: the question goes out when the
//! connection is free, and a client that never answers is never judged.
//!
//! The guest may write while it is looked at, and then map and answer differ although the memory is shared. So memory
//! is called stale only after [`ROUNDS`] rounds, [`PAUSE_NS`] apart, in which the map never changed and the client
//! always answered the same other bytes: in a shared map each such answer would be a write that was taken back
//! before the next look. The question is no transfer of the device and is not counted.

use crate::vfio_user::probe::{Sharing, compare};
use rnic_pcie::{DmaRange, Link};

/// The id of the question among DMA messages; the link counts its own up from 1.
pub const QUESTION: u64 = u64::MAX;
const ROUNDS: u32 = 5;
const PAUSE_NS: u64 = 10_000_000;
/// Zeros on both sides say nothing; so often another place is looked at.
const QUESTIONS: u32 = 64;
/// The most bytes of one question: small beside the device's own reads.
const MAX_BYTES: u32 = 512;

/// A connection's check.
#[derive(Debug)]
pub struct SharingCheck {
    state: State,
    questions_left: u32,
    suspicion: Option<Suspicion>,
    /// Where memory turned out not to be shared; to be told once.
    stale: Option<DmaRange>,
}

#[derive(Debug)]
enum State {
    Open,
    /// With the map's bytes from before the question.
    Asked {
        range: DmaRange,
        before: Vec<u8>,
    },
    Shared,
    Stale,
    /// Nothing that was looked at could tell.
    Undecided,
}

/// What a round that looked stale has shown.
#[derive(Debug)]
struct Suspicion {
    range: DmaRange,
    map: Vec<u8>,
    answer: Vec<u8>,
    rounds: u32,
    next_ns: u64,
}

impl Default for SharingCheck {
    fn default() -> Self {
        Self { state: State::Open, questions_left: QUESTIONS, suspicion: None, stale: None }
    }
}

impl SharingCheck {
    /// The bytes to ask the client for now, as [`QUESTION`].
    pub fn question(&mut self, link: &mut Link, now_ns: u64) -> Option<DmaRange> {
        if !matches!(self.state, State::Open) || !link.bus_master() {
            return None;
        }
        let range = match &self.suspicion {
            Some(suspicion) if suspicion.next_ns > now_ns => return None,
            Some(suspicion) => suspicion.range,
            None => {
                let read = link.take_latest_read()?;
                DmaRange::new(read.iova, read.length_bytes.min(MAX_BYTES))
            }
        };
        let Some(before) = look(link, range) else {
            self.suspicion = None;
            return None;
        };
        self.state = State::Asked { range, before };
        Some(range)
    }

    /// The question could not leave.
    pub fn not_asked(&mut self) {
        if matches!(self.state, State::Asked { .. }) {
            self.state = State::Open;
        }
    }

    /// The client's answer; none where it has none, or the question was called back.
    pub fn answered(&mut self, link: &Link, answer: Option<&[u8]>, now_ns: u64) {
        let State::Asked { range, before } = std::mem::replace(&mut self.state, State::Open) else { return };
        self.questions_left = self.questions_left.saturating_sub(1);
        let after = look(link, range);
        let sharing = match (answer, &after) {
            (Some(answer), Some(after)) => compare(&before, answer, after),
            _ => Sharing::Undecided,
        };
        match sharing {
            Sharing::Shared => self.state = State::Shared,
            Sharing::Stale { .. } => {
                self.suspect(range, before, answer.unwrap_or_default(), now_ns);
                if self.suspicion.as_ref().is_some_and(|suspicion| suspicion.rounds >= ROUNDS) {
                    self.state = State::Stale;
                    self.stale = Some(range);
                }
            }
            Sharing::Undecided => self.suspicion = None,
        }
        if self.questions_left == 0 && matches!(self.state, State::Open) {
            self.state = State::Undecided;
        }
    }

    /// The place where the memory turned out not to be shared, once a connection.
    pub fn take_stale(&mut self) -> Option<DmaRange> {
        self.stale.take()
    }

    /// A round more of the same, or the first of another.
    fn suspect(&mut self, range: DmaRange, map: Vec<u8>, answer: &[u8], now_ns: u64) {
        let next_ns = now_ns.saturating_add(PAUSE_NS);
        match &mut self.suspicion {
            Some(known) if known.range == range && known.map == map && known.answer == answer => {
                known.rounds += 1;
                known.next_ns = next_ns;
            }
            other => *other = Some(Suspicion { range, map, answer: answer.to_vec(), rounds: 1, next_ns }),
        }
    }

    /// When time alone makes a question due.
    pub fn deadline_ns(&self) -> Option<u64> {
        match (&self.state, &self.suspicion) {
            (State::Open, Some(suspicion)) => Some(suspicion.next_ns),
            _ => None,
        }
    }

    /// What is known: true where the map shows the guest's writes, false where it does not.
    pub fn verdict(&self) -> Option<bool> {
        match self.state {
            State::Shared => Some(true),
            State::Stale => Some(false),
            State::Open | State::Asked { .. } | State::Undecided => None,
        }
    }
}

fn look(link: &Link, range: DmaRange) -> Option<Vec<u8>> {
    let mut bytes = vec![0; range.length_bytes as usize];
    link.inspect_map(range, &mut bytes).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests;
