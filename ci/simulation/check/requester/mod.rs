//! What a sender may send next, read from the frames alone (items 42, 47 to 57, 110): the next packet; the one that a
//! NAK names; the oldest unacknowledged one after its time. Never ahead of what was sent, never beyond the window.

use crate::check::packet::{ahead, step};
use crate::check::resends::Resends;
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// A PSN that an answer made the oldest unacknowledged one, for all the sender knows.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    psn: u32,
    at_ns: u64,
    /// NAKs that have named it and led to nothing yet.
    naks: u32,
    /// All that have, and how often the receiver was not ready for it.
    refusals: u32,
    unready: u32,
    not_before_ns: Option<u64>,
    timeouts: u64,
    tries: u32,
    rnr_tries: u32,
}

/// How a packet came to be sent out of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// What was to be sent again has arrived meanwhile.
    Skip,
    Nak,
    ReceiverNotReady,
    Timeout,
}

/// A packet of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub again: bool,
    pub jump: Option<Jump>,
}

/// What the sender is told by an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ack,
    SequenceNak,
    /// Selectively: this packet is missing; the first one also acknowledges what was before it.
    Gap {
        first: bool,
    },
    ReceiverNotReady {
        delay_ns: u64,
    },
    /// An error that ends the connection.
    Refusal,
}

#[derive(Clone, Debug)]
pub struct RequesterCheck {
    window: u32,
    timeout_ns: u64,
    retry_cnt: u32,
    /// How long an answer may lie with the sender before it is looked at.
    lag_ns: u64,
    /// The sender's oldest unacknowledged PSN is one of these; it works off its answers in order, but later.
    points: VecDeque<Point>,
    /// Never sent so far.
    fresh: u32,
    /// Behind the packet sent last.
    next: u32,
    /// READs and atomics that have left: the answer that is missing next, and the PSN behind the last one.
    questions: VecDeque<(u32, u32)>,
    /// What the newest acknowledgement that was looked at promised.
    promise: Option<u32>,
    /// The latest answer passed over one that is missing: nothing else is read in it.
    passed: bool,
    /// Of a sender that retransmits selectively.
    resends: Option<Resends>,
    /// With those: the newest packet that an acknowledgement has named, and with it everything before.
    acknowledged: Option<u32>,
}

impl RequesterCheck {
    pub fn new(psn: u32, window: u32, timeout_ns: u64, retry_cnt: u32) -> Self {
        let points = VecDeque::from([Point { psn, ..Point::default() }]);
        Self {
            window,
            timeout_ns,
            retry_cnt,
            lag_ns: 0,
            points,
            fresh: psn,
            next: psn,
            questions: VecDeque::new(),
            promise: None,
            passed: false,
            resends: None,
            acknowledged: None,
        }
    }

    /// Of a sender that is slow to look at its answers.
    pub fn lagging(mut self, lag_ns: u64) -> Self {
        self.lag_ns = lag_ns;
        self
    }

    /// Lost packets alone are sent again.
    pub fn selective(mut self) -> Self {
        self.resends = Some(Resends::default());
        self
    }

    /// A packet of a SEND or WRITE.
    pub fn on_sent(&mut self, psn: u32, now_ns: u64) -> Result<Sent, String> {
        self.on_span(psn, 1, now_ns)
    }

    /// The request of a READ or an atomic with so many answers still missing.
    pub fn on_question(&mut self, psn: u32, answers: u32, now_ns: u64) -> Result<Sent, String> {
        let sent = self.on_span(psn, answers, now_ns)?;
        if !sent.again {
            self.questions.push_back((psn, step(psn, answers)));
        }
        Ok(sent)
    }

    /// READs and atomics that are not answered, as far as could be seen.
    pub fn unanswered(&self) -> usize {
        self.questions.len()
    }

    fn on_span(&mut self, psn: u32, packets: u32, now_ns: u64) -> Result<Sent, String> {
        if ahead(psn, self.fresh) > 0 {
            return Err(format!("PSN {psn:#x} is sent, and {:#x} before it never was", self.fresh));
        }
        let (fresh, timeout_ns) = (self.fresh, self.timeout_ns);
        let jump = match &mut self.resends {
            None if psn == self.next => None,
            None => Some(self.jump(psn, now_ns)?),
            Some(_) if psn == fresh => None,
            Some(resends) => Some(resends.justify(psn, fresh, timeout_ns, now_ns)?),
        };
        if let Some(resends) = self.resends.as_mut().filter(|_| psn == fresh) {
            resends.leaves(psn, now_ns);
        }
        let newest = self.points.back().copied().unwrap_or_default();
        let again = psn != self.fresh;
        if !again && psn == newest.psn {
            // Nothing was outstanding: the timer starts with this packet, if the sender has heard of it.
            let known = newest.at_ns + self.lag_ns <= now_ns;
            self.points.retain(|point| point.psn == psn || !known);
            self.points.iter_mut().filter(|point| point.psn == psn).for_each(|point| point.at_ns = now_ns);
        }
        self.next = step(psn, packets);
        if !again {
            self.fresh = self.next;
        }
        if ahead(psn, newest.psn) >= self.window as i32 {
            let window = self.window;
            return Err(format!("PSN {psn:#x} is beyond the window of {window}: {:#x} is unacknowledged", newest.psn));
        }
        Ok(Sent { again, jump })
    }

    fn jump(&mut self, psn: u32, now_ns: u64) -> Result<Jump, String> {
        let Some(place) = self.points.iter().rposition(|point| point.psn == psn) else {
            let named: Vec<String> = self.points.iter().map(|point| format!("{:#x}", point.psn)).collect();
            let next = self.next;
            return Err(format!("PSN {psn:#x} follows {next:#x} - 1, and no answer names it: {}", named.join(" ")));
        };
        let timeout_ns = self.timeout_ns;
        let overdue = |point: &Point| timeout_ns > 0 && now_ns >= point.at_ns + timeout_ns * (point.timeouts + 1);
        // Sent back to an earlier packet, and ahead again by what has arrived, before anything could leave.
        let recalled = self.points.drain(..place).any(|point| point.naks > 0 || overdue(&point));
        let skips = ahead(psn, self.next) > 0;
        let retry_cnt = self.retry_cnt;
        let Some(point) = self.points.front_mut() else { return Ok(Jump::Skip) };
        if skips || (recalled && point.naks == 0) {
            return Ok(Jump::Skip);
        }
        let due = point.at_ns + timeout_ns * (point.timeouts + 1);
        let overdue = overdue(point);
        // An answer that waits for a context may come to the sender after its timer.
        if let Some(until) = point.not_before_ns.filter(|until| now_ns >= *until || !overdue) {
            if now_ns < until {
                return Err(format!("PSN {psn:#x} is sent again at {now_ns}, and the receiver asked for {until}"));
            }
            (point.not_before_ns, point.naks) = (None, 0);
            point.rnr_tries += 1;
            return Ok(Jump::ReceiverNotReady);
        }
        if recalled && point.naks > 0 {
            // The earlier one is why, or this one: it may not have been looked at yet, and nothing be counted for it.
            return Ok(Jump::Nak);
        }
        point.tries += 1;
        if point.tries > retry_cnt {
            return Err(format!("PSN {psn:#x} is sent again {} times, retry_cnt is {retry_cnt}", point.tries));
        }
        if point.naks > 0 {
            point.naks -= 1;
            return Ok(Jump::Nak);
        }
        if !overdue {
            return Err(format!("PSN {psn:#x} is sent again at {now_ns} with no NAK, and its time is {due}"));
        }
        point.timeouts += 1;
        Ok(Jump::Timeout)
    }

    /// True when the answer says something new.
    pub fn on_answer(&mut self, psn: u32, answer: Answer, now_ns: u64) -> bool {
        // Where only what is lost goes again, what an acknowledgement passed over need not be acknowledged anew.
        if answer == Answer::Ack && self.resends.is_some() && ahead(psn, self.fresh) < 0 {
            self.acknowledged = Some(self.acknowledged.filter(|kept| ahead(*kept, psn) > 0).unwrap_or(psn));
        }
        self.hear(psn, answer, now_ns)
    }

    fn hear(&mut self, psn: u32, answer: Answer, now_ns: u64) -> bool {
        let mut unacked = if answer == Answer::Ack { step(psn, 1) } else { psn };
        let newest = self.points.back().copied().unwrap_or_default();
        if ahead(psn, newest.psn) < 0 || ahead(psn, self.fresh) >= 0 {
            return false;
        }
        if let (Some(resends), Answer::Gap { .. } | Answer::ReceiverNotReady { .. }) = (&mut self.resends, answer) {
            resends.name(psn);
        }
        if let (Some(resends), Answer::SequenceNak) = (&mut self.resends, answer) {
            resends.refuse(psn);
        }
        if answer == (Answer::Gap { first: false }) {
            return true;
        }
        // It passes over an answer that has not come: everything before that has arrived, and that is asked for again.
        let passed = self.questions.front().map(|(missing, _)| *missing).filter(|missing| ahead(unacked, *missing) > 0);
        if let Some(missing) = passed {
            unacked = missing;
        }
        self.passed = passed.is_some();
        let window = self.window;
        if let Some(resends) = &mut self.resends {
            passed.into_iter().for_each(|missing| resends.name(missing));
            resends.forget(unacked, window);
        }
        if unacked != newest.psn {
            self.points.push_back(Point { psn: unacked, at_ns: now_ns, ..Point::default() });
        }
        if let Some(point) = self.points.back_mut() {
            match answer {
                Answer::Refusal if passed.is_none() => {}
                Answer::Ack if passed.is_none() => {}
                Answer::ReceiverNotReady { delay_ns } if passed.is_none() => {
                    point.naks += 1;
                    point.unready += 1;
                    point.not_before_ns.get_or_insert(now_ns + delay_ns);
                }
                // The last one, or an answer that was passed over, names what is missing.
                _ => (point.naks, point.refusals) = (point.naks + 1, point.refusals + 1),
            }
        }
        true
    }

    /// An answer of a READ or an atomic, which acknowledges what was before it. True when it is the one that is missing.
    pub fn on_brought(&mut self, psn: u32, now_ns: u64) -> bool {
        let Some((missing, end)) = self.questions.front_mut() else { return false };
        if ahead(psn, *missing) != 0 {
            // Of a later one: as an acknowledgement that passes over what is missing.
            return ahead(psn, *missing) > 0 && ahead(psn, self.fresh) < 0 && {
                self.hear(psn, Answer::Ack, now_ns);
                false
            };
        }
        *missing = step(psn, 1);
        if *missing == *end {
            self.questions.pop_front();
        }
        self.hear(psn, Answer::Ack, now_ns);
        if let Some(kept) = self.acknowledged.filter(|kept| ahead(*kept, psn) > 0) {
            let missing = self.questions.front().map(|(missing, _)| *missing);
            let missing = missing.filter(|missing| ahead(kept, *missing) >= 0);
            self.hear(missing.map_or(kept, |missing| step(missing, 0xff_ffff)), Answer::Ack, now_ns);
        }
        true
    }

    /// How often the oldest packet was sent again without progress, as far as could be seen.
    pub fn tries(&self) -> (u32, u32) {
        self.points.back().map_or((0, 0), |point| (point.tries, point.rnr_tries))
    }

    /// The answer that came last acknowledges, and promises this.
    pub fn on_promise(&mut self, promise: Option<u32>) {
        if !self.passed {
            self.promise = promise;
        }
    }

    /// What is promised, and the oldest unacknowledged PSN.
    pub fn promise(&self) -> Option<(u32, u32)> {
        Some((self.promise?, self.points.back()?.psn))
    }

    /// The first PSN that was never sent.
    pub fn fresh(&self) -> u32 {
        self.fresh
    }

    /// Everything that was sent is answered.
    pub fn is_settled(&self) -> bool {
        self.points.back().is_none_or(|point| point.psn == self.fresh)
    }

    /// Whether refusals and timeouts without progress were so many that the sender may have given up by now.
    pub fn may_have_given_up(&self, now_ns: u64) -> bool {
        let until = |at: usize| self.points.get(at + 1).map_or(now_ns, |next| now_ns.min(next.at_ns + self.lag_ns));
        self.points.iter().enumerate().any(|(at, point)| {
            let timeouts = until(at).saturating_sub(point.at_ns).checked_div(self.timeout_ns).unwrap_or(0);
            point.psn != self.fresh && u64::from(point.refusals) + timeouts > u64::from(self.retry_cnt)
        })
    }

    /// Whether the receiver was not ready more often than a sender of this patience waits for it.
    pub fn may_have_lost_patience(&self, rnr_retry: u8) -> bool {
        rnr_retry < 7 && self.points.iter().any(|point| point.unready > rnr_retry.into())
    }
}
