//! Arming a completion queue and waiting for its event, or for completions without one. Every wait has a limit.

use super::{Cqn, Device, Eqn, Event, Result, VerbsError, WorkCompletion};
use rnic_abi::EventType;
use rnic_abi::doorbell::{DB_CQ_ARM, cq_arm};
use std::time::{Duration, Instant};

/// How an event was learned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub event: Event,
    /// The vector was raised; false when the event stood in the queue before anybody waited.
    pub by_vector: bool,
}

impl Device {
    /// Arms a completion queue, and its event queue so that the event raises the vector.
    pub fn arm(&mut self, cqn: Cqn, solicited_only: bool) -> Result<()> {
        let queue = self.completion_queue(cqn)?;
        let (page, eqn) = (queue.doorbell_page, queue.eqn);
        let eqn = eqn.ok_or_else(|| VerbsError::Missing { what: format!("event queue of {cqn}") })?;
        let value = cq_arm(cqn.0, queue.consumer, queue.arm_sequence, solicited_only);
        let event_queue = self.event_queues.get(&eqn).ok_or_else(|| VerbsError::Missing { what: eqn.to_string() })?;
        if event_queue.vector.is_some() && !event_queue.armed {
            self.update_event_queue(eqn, true)?;
        }
        self.doorbell(page, DB_CQ_ARM, value)
    }

    /// Waits for the next event of a queue: by its vector when it is armed, else by polling.
    pub fn wait_event(&mut self, eqn: Eqn, limit: Duration) -> Result<Awaited> {
        let start = Instant::now();
        loop {
            let queue = self.event_queues.get(&eqn).ok_or_else(|| VerbsError::Missing { what: eqn.to_string() })?;
            let armed_vector = queue.vector.filter(|_| queue.armed);
            let mut by_vector = false;
            if let Some(vector) = armed_vector {
                by_vector = self.backing.wait_event(vector, limit.saturating_sub(start.elapsed()))?;
            }
            if by_vector && let Some(queue) = self.event_queues.get_mut(&eqn) {
                queue.armed = false;
            }
            match self.poll_event(eqn)? {
                Some(event) if by_vector || armed_vector.is_none() => return Ok(Awaited { event, by_vector }),
                Some(event) => {
                    let what = format!("{event:?} on {eqn}, but never raised vector {armed_vector:?}");
                    return Err(VerbsError::Device { what });
                }
                // The vector was for an entry that is already taken: ask for the next.
                None if by_vector => self.update_event_queue(eqn, true)?,
                None => {}
            }
            if start.elapsed() >= limit {
                return self.timed_out(format!("the next event of {eqn}"), limit);
            }
            self.backing.pause()?;
        }
    }

    /// Waits for the event of an armed completion queue; other events on the way are kept out of it and returned.
    pub fn wait_completion_event(&mut self, cqn: Cqn, limit: Duration) -> Result<(Awaited, Vec<Event>)> {
        let eqn = self.completion_queue(cqn)?.eqn;
        let eqn = eqn.ok_or_else(|| VerbsError::Missing { what: format!("event queue of {cqn}") })?;
        let start = Instant::now();
        let mut others = Vec::new();
        loop {
            let awaited = self.wait_event(eqn, limit.saturating_sub(start.elapsed()))?;
            if (awaited.event.event_type, awaited.event.object) == (EventType::COMPLETION, cqn.0) {
                return Ok((awaited, others));
            }
            others.push(awaited.event);
            if start.elapsed() >= limit {
                return self.timed_out(format!("the event of {cqn} among {} others", others.len()), limit);
            }
        }
    }

    /// Polls until there is a completion.
    pub fn wait_completion(&mut self, cqn: Cqn, limit: Duration) -> Result<WorkCompletion> {
        let start = Instant::now();
        let mut one = [WorkCompletion::default()];
        while self.poll(cqn, &mut one)? == 0 {
            if start.elapsed() >= limit {
                return self.timed_out(format!("a completion on {cqn}"), limit);
            }
            self.backing.pause()?;
        }
        Ok(one[0])
    }

    pub(crate) fn timed_out<T>(&mut self, what: String, limit: Duration) -> Result<T> {
        let (diagnostic, _) = self.last_diagnostic()?;
        Err(VerbsError::Timeout { what, limit, diagnostic })
    }
}
