//! The replay buffer: an entry a message, a reference to its source buffer, no copy of the payload.
//!
//! Entries are in PSN order. An entry is made in the step that hands its first packet to the port and retired when
//! an acknowledgement covers its last.

use crate::wqe_pool::WqeId;
use rnic_wire::{Msn, Psn};
use std::collections::VecDeque;

/// What a resend would need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayEntry {
    pub wqe: WqeId,
    pub first_psn: Psn,
    /// Packets of the whole message.
    pub packets: u32,
    /// The message's number: what the peer's MSN must reach.
    pub message: Msn,
    /// A READ or an atomic: it ends with its response.
    pub awaits_response: bool,
    /// It takes a receive of the peer.
    pub takes_receive: bool,
    /// It left although the peer had promised no receive for it: its first packet asks.
    pub question: bool,
    /// It was asked for again from somewhere behind its first packet.
    pub restarted: bool,
}

impl ReplayEntry {
    pub fn last_psn(&self) -> Psn {
        self.first_psn.add(self.packets - 1)
    }

    pub fn next_psn(&self) -> Psn {
        self.first_psn.add(self.packets)
    }

    pub fn contains(&self, psn: Psn) -> bool {
        let distance = psn.compare(self.first_psn);
        distance >= 0 && (distance as u32) < self.packets
    }
}

/// A queue pair's messages in flight.
#[derive(Debug, Default)]
pub(crate) struct ReplayBuffer {
    entries: VecDeque<ReplayEntry>,
    /// Of those, the ones that await a response: their first PSNs.
    awaiting: VecDeque<Psn>,
    /// And how many take a receive of the peer.
    taking: usize,
    /// Where the next packet's message was last found.
    hint: usize,
}

impl ReplayBuffer {
    pub fn push(&mut self, entry: ReplayEntry) {
        if entry.awaits_response {
            self.awaiting.push_back(entry.first_psn);
        }
        self.taking += usize::from(entry.takes_receive);
        self.entries.push_back(entry);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn front(&self) -> Option<&ReplayEntry> {
        self.entries.front()
    }

    pub fn back(&self) -> Option<&ReplayEntry> {
        self.entries.back()
    }

    pub fn pop_front(&mut self) -> Option<ReplayEntry> {
        self.hint = self.hint.saturating_sub(1);
        let entry = self.entries.pop_front()?;
        if entry.awaits_response {
            self.awaiting.pop_front();
        }
        self.taking -= usize::from(entry.takes_receive);
        Some(entry)
    }

    /// READs and atomics that are outstanding.
    pub fn awaiting(&self) -> usize {
        self.awaiting.len()
    }

    /// Messages outstanding that take a receive of the peer.
    pub fn taking(&self) -> usize {
        self.taking
    }

    /// Where the oldest outstanding READ or atomic begins.
    pub fn first_awaiting(&self) -> Option<Psn> {
        self.awaiting.front().copied()
    }

    /// The entry of the message that holds `psn`, to change it.
    pub fn find_mut(&mut self, psn: Psn) -> Option<&mut ReplayEntry> {
        self.entries.iter_mut().find(|entry| entry.contains(psn))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The message a packet belongs to.
    pub fn find(&mut self, psn: Psn) -> Option<ReplayEntry> {
        let near = self.hint.min(self.entries.len())..self.entries.len().min(self.hint + 2);
        let found = near.clone().find(|at| self.entries[*at].contains(psn));
        let at = found.or_else(|| self.entries.iter().position(|entry| entry.contains(psn)))?;
        self.hint = at;
        Some(self.entries[at])
    }
}
