//! The egress half of a port: fault script, then queue, then line, then the wait for the time of release.
//!
//! In: frames as they come out of the rings. Out: what reaches the port, and when. It belongs to the receiving port's
//! thread. With everything off no frame comes here.

use rnic_wire::Frame;

use crate::counters::{Counters, DropReason};
use crate::egress_queue::{EgressQueue, mark_congestion_experienced};
use crate::fault_script::{FaultAction, FaultScript};
use crate::held::Held;
use crate::impair::{Displacement, Fate, Impairment, flip_any_bit, flip_covered_bit};
use crate::planted::planted;
use crate::random::Random;

#[derive(Debug)]
pub struct Egress {
    impairment: Impairment,
    script: FaultScript,
    random: Random,
    queue: EgressQueue,
    held: Held,
    /// Whether frames come this way at all.
    active: bool,
    /// Where a duplicate is made.
    copy: Frame,
}

impl Egress {
    pub fn new() -> Self {
        let impairment = Impairment::default();
        Self {
            random: Random::new(impairment.seed),
            impairment,
            script: FaultScript::default(),
            queue: EgressQueue::default(),
            held: Held::new(),
            active: false,
            copy: Frame::new(),
        }
    }

    /// Starts chance and queue anew; frames already held keep their time.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.random = Random::new(impairment.seed);
        self.queue = EgressQueue::default();
        self.impairment = impairment;
        self.update_active();
    }

    pub fn set_fault_script(&mut self, script: FaultScript) {
        self.script = script;
        self.update_active();
    }

    fn update_active(&mut self) {
        self.active = self.impairment.is_on() || !self.script.is_empty() || self.held.len() > 0;
    }

    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Whether no more is accepted for now. What was accepted last may exceed the bound by its duplicates, at most three.
    pub fn is_full(&self) -> bool {
        self.held.len() >= self.impairment.held_frames_max.max(1)
    }

    pub fn held_frames(&self) -> usize {
        self.held.len()
    }

    pub fn next_release_ns(&self) -> Option<u64> {
        self.held.next_release_ns()
    }

    /// Gives out the next frame whose time has come.
    pub fn release(&mut self, frame: &mut Frame, now_ns: u64) -> bool {
        let released = self.held.release(frame, now_ns);
        if self.held.len() == 0 {
            self.update_active();
        }
        released
    }

    /// Takes a frame from a ring; its contents are gone afterwards.
    pub fn accept(&mut self, frame: &mut Frame, now_ns: u64, counters: &Counters) {
        let fault = if self.script.is_empty() { None } else { self.script.probe(frame.bytes()) };
        match fault {
            Some(FaultAction::Drop) => return counters.drop(DropReason::Fault, 1),
            Some(FaultAction::Corrupt) => {
                flip_covered_bit(frame, &mut self.random);
                counters.corrupted_frames.add(1);
            }
            Some(FaultAction::Mark) => mark(frame, counters),
            Some(FaultAction::Duplicate) => {
                self.copy.copy_from(frame);
                counters.duplicated_frames.add(1);
                let mut copy = std::mem::take(&mut self.copy);
                self.enqueue(&mut copy, now_ns, counters);
                self.copy = copy;
            }
            None => {}
        }
        self.enqueue(frame, now_ns, counters);
    }

    fn enqueue(&mut self, frame: &mut Frame, now_ns: u64, counters: &Counters) {
        let mut departs_ns = now_ns;
        if let Some(limit) = &self.impairment.rate_limit {
            let Some(admission) = self.queue.admit(limit, frame.length(), now_ns, &mut self.random) else {
                return counters.drop(DropReason::QueueFull, 1);
            };
            departs_ns = admission.departs_ns;
            if admission.marked {
                mark(frame, counters);
            }
        }
        self.send_down_the_line(frame, departs_ns, counters);
    }

    fn send_down_the_line(&mut self, frame: &mut Frame, departs_ns: u64, counters: &Counters) {
        let Fate::Delivered { corrupted, duplicated, displaced } = self.impairment.decide(&mut self.random) else {
            return counters.drop(DropReason::Loss, 1);
        };
        let arrives_ns = departs_ns.saturating_add(self.impairment.delay_ns);
        if duplicated {
            self.copy.copy_from(frame);
            counters.duplicated_frames.add(u64::from(!planted("duplicate_uncounted")));
        }
        if corrupted {
            flip_any_bit(frame, &mut self.random);
            counters.corrupted_frames.add(1);
        }
        counters.reordered_frames.add(u64::from(displaced.is_some()));
        match displaced {
            Some(Displacement::Frames { count, timeout_ns }) => {
                self.held.hold_back(frame, count, arrives_ns.saturating_add(timeout_ns));
            }
            Some(Displacement::Time { delay_ns }) => self.held.hold(frame, arrives_ns.saturating_add(delay_ns)),
            None => self.held.hold(frame, arrives_ns),
        }
        if duplicated {
            self.held.hold(&mut self.copy, arrives_ns);
        }
    }
}

fn mark(frame: &mut Frame, counters: &Counters) {
    counters.marked_frames.add(u64::from(mark_congestion_experienced(frame)));
}
