//! Reads that were answered `Pending`: by tag, until their completion is collected.

use super::{Completion, Transfer};
use crate::books::{Books, Entry};
use crate::{DmaFault, DmaTag};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Held back by a simulation.
    Held,
    /// In the queue.
    Queued,
    /// All of it is read or asked for.
    Asked,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub transfer: Transfer,
    pub unanswered: usize,
    entry: Entry,
    phase: Phase,
}

#[derive(Debug, Default)]
pub(super) struct Reads {
    pending: BTreeMap<DmaTag, Pending>,
    completions: VecDeque<Completion>,
    last_tag: u64,
    /// Bytes of all buffers.
    bytes: usize,
}

impl Reads {
    pub fn add(&mut self, transfer: Transfer, entry: Entry, held: bool) -> DmaTag {
        self.last_tag += 1;
        let tag = DmaTag(self.last_tag);
        self.bytes += transfer.length_bytes();
        let phase = if held { Phase::Held } else { Phase::Queued };
        self.pending.insert(tag, Pending { transfer, unanswered: 0, entry, phase });
        tag
    }

    pub fn get_mut(&mut self, tag: DmaTag) -> Option<&mut Pending> {
        self.pending.get_mut(&tag)
    }

    pub fn len(&self) -> usize {
        self.pending.len() + self.completions.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn held(&self) -> impl Iterator<Item = DmaTag> {
        self.pending.iter().filter(|(_, pending)| pending.phase == Phase::Held).map(|(&tag, _)| tag)
    }

    pub fn release(&mut self, tag: DmaTag) -> bool {
        match self.pending.get_mut(&tag) {
            Some(pending) if pending.phase == Phase::Held => {
                pending.phase = Phase::Queued;
                true
            }
            _ => false,
        }
    }

    /// Everything is read or asked for; complete if no answer is missing.
    pub fn asked(&mut self, tag: DmaTag) {
        if let Some(pending) = self.pending.get_mut(&tag) {
            pending.phase = Phase::Asked;
            self.complete_if_whole(tag);
        }
    }

    /// An answer to one message of a read; late ones find no read.
    pub fn answered(
        &mut self,
        tag: DmaTag,
        at: usize,
        length: usize,
        answer: Result<&[u8], DmaFault>,
        books: &mut Books,
    ) {
        let Some(pending) = self.pending.get_mut(&tag) else { return };
        pending.unanswered = pending.unanswered.saturating_sub(1);
        let place = pending.transfer.data_mut().get_mut(at..at + length);
        let fault = match (answer, place) {
            (Ok(data), Some(place)) if data.len() == place.len() => {
                place.copy_from_slice(data);
                None
            }
            // An answer of another length than was asked for.
            (Ok(_), _) => Some(DmaFault::CompleterAbort),
            (Err(fault), _) => Some(fault),
        };
        match fault {
            Some(fault) => {
                self.fail(tag, fault, books);
            }
            None => self.complete_if_whole(tag),
        }
    }

    fn complete_if_whole(&mut self, tag: DmaTag) {
        let whole = |pending: &Pending| pending.phase == Phase::Asked && pending.unanswered == 0;
        if self.pending.get(&tag).is_some_and(whole)
            && let Some(pending) = self.pending.remove(&tag)
        {
            self.completions.push_back((tag, Ok(pending.transfer.into_data())));
        }
    }

    /// Ends a read with a fault; false if there is none of this tag.
    pub fn fail(&mut self, tag: DmaTag, fault: DmaFault, books: &mut Books) -> bool {
        let Some(pending) = self.pending.remove(&tag) else { return false };
        self.bytes = self.bytes.saturating_sub(pending.transfer.length_bytes());
        books.fail_read(&pending.entry, fault);
        self.completions.push_back((tag, Err(fault)));
        true
    }

    /// Ends as `Revoked` the reads that the predicate picks.
    pub fn revoke_if(&mut self, picks: impl Fn(&Transfer) -> bool, books: &mut Books) {
        let picked: Vec<DmaTag> =
            self.pending.iter().filter(|(_, pending)| picks(&pending.transfer)).map(|(&tag, _)| tag).collect();
        for tag in picked {
            self.fail(tag, DmaFault::Revoked, books);
        }
    }

    pub fn next_completion(&mut self) -> Option<Completion> {
        let completion = self.completions.pop_front()?;
        if let Ok(data) = &completion.1 {
            self.bytes = self.bytes.saturating_sub(data.len());
        }
        Some(completion)
    }

    pub fn discard_completions(&mut self) {
        while self.next_completion().is_some() {}
    }
}
