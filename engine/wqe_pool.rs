//! The shared pool of fetched work requests, and the queues that wait for room in it.

use crate::front_end::SendWork;
use crate::numbers::Qpn;
use rnic_abi::Diagnostic;
use std::collections::VecDeque;

/// Names a fetched work request in the shared pool.
pub(crate) type WqeId = u32;

/// The most slots that one fetch brings.
pub(crate) const FETCH_SLOTS: u16 = 32;

/// A send work request that was read off its ring.
#[derive(Debug)]
pub(crate) struct FetchedWqe {
    pub slot_index: u16,
    pub slots: u16,
    /// One that could not be understood fails when its turn comes.
    pub work: Result<SendWork, Diagnostic>,
}

/// Work requests by id. A fetch in flight has its room reserved, so that what comes back always fits.
#[derive(Debug)]
pub(crate) struct WqePool {
    slots: Vec<Option<FetchedWqe>>,
    free: Vec<WqeId>,
    reserved: usize,
    capacity: usize,
    /// Queues with work to read that found no room, in the order in which they came.
    pub starved: VecDeque<Qpn>,
}

impl WqePool {
    /// A pool for `capacity` work requests; one whole fetch always fits.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(FETCH_SLOTS.into());
        Self { slots: Vec::new(), free: Vec::new(), reserved: 0, capacity, starved: VecDeque::new() }
    }

    fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Room for one whole fetch.
    pub fn has_room(&self) -> bool {
        self.used() + self.reserved + usize::from(FETCH_SLOTS) <= self.capacity
    }

    pub fn reserve(&mut self, slots: u16) {
        self.reserved += usize::from(slots);
    }

    pub fn release(&mut self, slots: u16) {
        self.reserved = self.reserved.saturating_sub(slots.into());
    }

    pub fn insert(&mut self, wqe: FetchedWqe) -> WqeId {
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(wqe);
                id
            }
            None => {
                self.slots.push(Some(wqe));
                self.slots.len() as WqeId - 1
            }
        }
    }

    pub fn get(&self, id: WqeId) -> Option<&FetchedWqe> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub fn remove(&mut self, id: WqeId) -> Option<FetchedWqe> {
        let wqe = self.slots.get_mut(id as usize)?.take();
        if wqe.is_some() {
            self.free.push(id);
        }
        wqe
    }
}
