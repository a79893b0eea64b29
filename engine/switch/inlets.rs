//! The rings from other ports to one port, each served in its turn.
//!
//! In: a ring for each port that joins. Out: their frames, and wake-ups for senders that sleep until there is room.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rnic_wire::Frame;

use crate::counters::Counters;
use crate::ring::Consumer;
use crate::switch::Member;

#[derive(Debug, Default)]
pub struct Inlets {
    rings: Vec<Inlet>,
    /// Whose turn it is.
    next: usize,
}

#[derive(Debug)]
struct Inlet {
    peer: Arc<Member>,
    ring: Consumer<Frame>,
}

impl Inlets {
    pub fn add(&mut self, peer: Arc<Member>, ring: Consumer<Frame>) {
        self.rings.push(Inlet { peer, ring });
    }

    /// Lets go of the rings whose sender has left, but only once their last frames were taken.
    pub fn remove_left(&mut self) {
        self.rings.retain_mut(|inlet| !inlet.ring.producer_left() || !inlet.ring.is_empty());
    }

    pub fn is_empty(&mut self) -> bool {
        self.rings.iter_mut().all(|inlet| inlet.ring.is_empty())
    }

    /// Takes the next frame; the buffer given in goes into the ring in its place.
    #[inline]
    pub fn take(&mut self, frame: &mut Frame, counters: &Counters) -> bool {
        let count = self.rings.len();
        for _ in 0..count {
            let place = if self.next < count { self.next } else { 0 };
            self.next = place + 1;
            let Some(inlet) = self.rings.get_mut(place) else { return false };
            if inlet.ring.pop(frame) {
                counters.arrived_frames.add(1);
                if inlet.ring.at_checkpoint() {
                    inlet.wake_starved_sender();
                }
                return true;
            }
        }
        false
    }

    /// Leaves all rings; the frames in them that nobody else will count.
    pub fn leave(&mut self) -> usize {
        self.rings.drain(..).map(|inlet| inlet.ring.leave()).sum()
    }
}

impl Inlet {
    /// A sender that found the ring full and went to sleep is woken when half of it is free again.
    fn wake_starved_sender(&self) {
        // Orders the freed slot before the look at whether the sender waits for it.
        fence(Ordering::SeqCst);
        if self.ring.take_producer_waits() {
            self.peer.sleeper.wake();
        }
    }
}
