//! Frames that wait: for their time, or for others to overtake them.
//!
//! In: frames with a time of release. Out: the same frames, by time and then by arrival. Bounded: the caller takes no
//! more in while it is full.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rnic_wire::Frame;

/// A frame that waits for its time. Ordered by time and sequence, which no two have in common.
#[derive(Debug)]
struct Waiting {
    release_ns: u64,
    sequence: u64,
    frame: Frame,
}

/// A frame that lets others pass, but not for ever.
#[derive(Debug)]
struct Overtaken {
    frames_left: u32,
    deadline_ns: u64,
    frame: Frame,
}

#[derive(Debug)]
pub struct Held {
    waiting: BinaryHeap<Reverse<Waiting>>,
    overtaken: VecDeque<Overtaken>,
    /// Empty buffers, as many as were ever held at once.
    spare: Vec<Frame>,
    sequence: u64,
}

impl Held {
    pub const fn new() -> Self {
        Self { waiting: BinaryHeap::new(), overtaken: VecDeque::new(), spare: Vec::new(), sequence: 0 }
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.overtaken.len()
    }

    /// Takes the frame's contents until `release_ns`.
    pub fn hold(&mut self, frame: &mut Frame, release_ns: u64) {
        let frame = std::mem::replace(frame, self.spare.pop().unwrap_or_default());
        self.waiting.push(Reverse(Waiting { release_ns, sequence: self.sequence, frame }));
        self.sequence += 1;
    }

    /// Takes the frame's contents until `frames` others were released, at most until `deadline_ns`.
    pub fn hold_back(&mut self, frame: &mut Frame, frames: u32, deadline_ns: u64) {
        let frame = std::mem::replace(frame, self.spare.pop().unwrap_or_default());
        self.overtaken.push_back(Overtaken { frames_left: frames, deadline_ns, frame });
    }

    /// Gives out the next frame whose time has come.
    pub fn release(&mut self, frame: &mut Frame, now_ns: u64) -> bool {
        let passed = self.overtaken.iter().position(|held| held.frames_left == 0 || held.deadline_ns <= now_ns);
        if let Some(held) = passed.and_then(|place| self.overtaken.remove(place)) {
            self.give(held.frame, frame);
            return true;
        }
        if self.waiting.peek().is_none_or(|Reverse(next)| next.release_ns > now_ns) {
            return false;
        }
        let Some(Reverse(next)) = self.waiting.pop() else { return false };
        for held in &mut self.overtaken {
            held.frames_left = held.frames_left.saturating_sub(1);
        }
        self.give(next.frame, frame);
        true
    }

    fn give(&mut self, held: Frame, frame: &mut Frame) {
        self.spare.push(std::mem::replace(frame, held));
    }

    /// When [`Held::release`] next has something to give; the past if it has something now.
    pub fn next_release_ns(&self) -> Option<u64> {
        let overtaken =
            self.overtaken.iter().map(|held| if held.frames_left == 0 { 0 } else { held.deadline_ns }).min();
        let waiting = self.waiting.peek().map(|Reverse(next)| next.release_ns);
        overtaken.into_iter().chain(waiting).min()
    }
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.release_ns, self.sequence)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8) -> Frame {
        let mut frame = Frame::new();
        assert!(frame.set_bytes(&[tag]));
        frame
    }

    fn released(held: &mut Held, now_ns: u64) -> Vec<u8> {
        let mut out = Frame::new();
        std::iter::from_fn(|| held.release(&mut out, now_ns).then(|| out.bytes()[0])).collect()
    }

    #[test]
    fn frames_come_out_by_time_then_by_arrival() {
        let mut held = Held::new();
        for (tag, release_ns) in [(1, 30), (2, 10), (3, 10), (4, 20)] {
            held.hold(&mut frame(tag), release_ns);
        }
        assert_eq!(held.next_release_ns(), Some(10));
        assert_eq!(released(&mut held, 9), []);
        assert_eq!(released(&mut held, 20), [2, 3, 4]);
        assert_eq!(held.next_release_ns(), Some(30));
        assert_eq!(released(&mut held, u64::MAX), [1]);
        assert_eq!((held.len(), held.next_release_ns()), (0, None));
    }

    #[test]
    fn a_frame_lets_others_pass_but_not_for_ever() {
        let mut held = Held::new();
        held.hold_back(&mut frame(1), 2, 100);
        for tag in 2..5 {
            held.hold(&mut frame(tag), 5);
        }
        assert_eq!(released(&mut held, 5), [2, 3, 1, 4]);
        held.hold_back(&mut frame(5), 2, 100);
        assert_eq!(released(&mut held, 99), []);
        assert_eq!(held.next_release_ns(), Some(100));
        assert_eq!(released(&mut held, 100), [5]);
    }
}
