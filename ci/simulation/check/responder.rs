//! What a receiver may answer, read from the frames alone (items 3 to 5, 17, 26, 32 to 34, 111): acknowledgements that
//! only rise and never exceed what came in order; one NAK a gap, at the first PSN that is missing; the right MSN.

use super::packet::{ahead, step};
use super::standing::{Receive, Standing};
use std::collections::{BTreeMap, VecDeque};

/// Repeated requests that are remembered.
const REPEATED: usize = 32;

/// Where a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    InOrder,
    Gap,
    Duplicate,
}

#[derive(Clone, Debug)]
pub struct ResponderCheck {
    /// As far as packets came in order: the receiver itself expects this PSN or an earlier one.
    expected: u32,
    /// What the latest answer acknowledged: everything before it.
    answered: u32,
    /// Where the receiver may stand, up to that; of one that drops what comes ahead of a gap.
    standing: Standing,
    /// The PSN that the latest sequence NAK named.
    named: Option<u32>,
    /// The PSNs behind the messages to come.
    ends: VecDeque<u32>,
    msn: u32,
    /// READs and atomics whose answers have not all left: the answer that leaves next, and the PSN behind the last one.
    questions: VecDeque<(u32, u32)>,
    /// READs and atomics that were asked for again: the first PSN that was, and the one behind the last.
    repeated: VecDeque<(u32, u32)>,
    /// Of a receiver that keeps what comes ahead of a gap: PSN, and how many it takes.
    kept: Option<BTreeMap<u32, u32>>,
}

impl ResponderCheck {
    pub fn new(psn: u32) -> Self {
        Self {
            expected: psn,
            answered: psn,
            standing: Standing::new(psn),
            named: None,
            ends: VecDeque::new(),
            msn: 0,
            questions: VecDeque::new(),
            repeated: VecDeque::new(),
            kept: None,
        }
    }

    /// It keeps what comes ahead of a gap.
    pub fn selective(mut self) -> Self {
        self.kept = Some(BTreeMap::new());
        self
    }

    /// The gap's turn to be told of.
    pub fn on_gap(&mut self, psn: u32, first: bool, msn: u32) -> Result<(), String> {
        if self.kept.is_none() {
            return Err("tells of a gap, and does not keep what is behind it".into());
        }
        // Where it was not ready, or what was kept found no room, it misses what has come.
        if first { self.check_progress(psn, msn) } else { Ok(()) }
    }

    /// A message was posted whose packets end before `psn`.
    pub fn expect_message(&mut self, psn: u32) {
        self.ends.push_back(psn);
    }

    /// A READ or an atomic was posted, whose answers are to take these PSNs.
    pub fn expect_question(&mut self, psn: u32, end: u32) {
        self.questions.push_back((psn, end));
    }

    /// A request packet that takes so many PSNs came.
    pub fn on_received(&mut self, psn: u32, packets: u32, receive: Receive) -> Arrival {
        if self.kept.is_some() {
            // It may have its turn at any later time.
            self.standing.note_receive(psn, receive);
        } else {
            self.standing.on_received(psn, packets, receive);
        }
        match ahead(psn, self.expected) {
            0 => {
                self.expected = step(psn, packets);
                while let Some(packets) = self.kept.as_mut().and_then(|kept| kept.remove(&self.expected)) {
                    self.expected = step(self.expected, packets);
                }
                Arrival::InOrder
            }
            1.. => {
                if let Some(kept) = &mut self.kept {
                    kept.insert(psn, packets);
                }
                Arrival::Gap
            }
            _ => Arrival::Duplicate,
        }
    }

    /// A READ or an atomic came again, from this PSN on.
    pub fn on_repeated(&mut self, psn: u32, end: u32) {
        if self.repeated.len() == REPEATED {
            self.repeated.pop_front();
        }
        self.repeated.push_back((psn, end));
    }

    /// An answer leaves that acknowledges everything before `unacked`.
    fn check_progress(&mut self, unacked: u32, msn: u32) -> Result<(), String> {
        if ahead(unacked, self.answered) < 0 {
            return Err(format!("acknowledges up to {unacked:#x}, and {:#x} was before", self.answered));
        }
        if ahead(unacked, self.expected) > 0 {
            return Err(format!("acknowledges up to {unacked:#x}, and only what is before {:#x} came", self.expected));
        }
        // Answers leave in the order of their requests.
        if let Some((owed, _)) = self.questions.front().filter(|(owed, _)| ahead(unacked, *owed) > 0) {
            return Err(format!("acknowledges up to {unacked:#x}, and the answer {owed:#x} has not left"));
        }
        self.answered = unacked;
        self.standing.has_reached(unacked);
        while self.ends.front().is_some_and(|end| ahead(*end, unacked) <= 0) {
            self.ends.pop_front();
            self.msn = step(self.msn, 1);
        }
        if msn != self.msn {
            return Err(format!("carries MSN {msn} with {unacked:#x}, and {} messages end before it", self.msn));
        }
        Ok(())
    }

    /// An answer of the READ or atomic that ends before `end`. True when it leaves for the first time.
    pub fn on_answer(&mut self, psn: u32, end: u32, msn: Option<u32>) -> Result<bool, String> {
        if ahead(end, self.expected) > 0 {
            return Err(format!("answers what has not come: {:#x} is expected", self.expected));
        }
        let Some((owed, last)) = self.questions.front_mut().filter(|(owed, _)| ahead(psn, *owed) >= 0) else {
            return Ok(false);
        };
        if psn != *owed {
            return Err(format!("{owed:#x} is to leave first"));
        }
        *owed = step(psn, 1);
        if *owed == *last {
            self.questions.pop_front();
        }
        while self.ends.front().is_some_and(|known| ahead(*known, end) <= 0) {
            self.ends.pop_front();
            self.msn = step(self.msn, 1);
        }
        self.answered = step(psn, 1);
        // The request of whose answers this is one has come whole.
        self.standing.has_reached(end);
        if msn.is_some_and(|msn| msn != self.msn) {
            return Err(format!("carries MSN {msn:?}, and {} messages end before {end:#x}", self.msn));
        }
        Ok(true)
    }

    pub fn on_ack(&mut self, psn: u32, msn: u32) -> Result<(), String> {
        self.check_progress(step(psn, 1), msn)
    }

    pub fn on_sequence_nak(&mut self, psn: u32, msn: u32) -> Result<(), String> {
        self.check_progress(psn, msn)?;
        if self.named == Some(psn) {
            return Err(format!("a second NAK names {psn:#x}"));
        }
        if self.kept.is_none() && !self.standing.may_miss(psn) {
            return Err(format!("a NAK names {psn:#x}, where no packet was missing: {:x?}", self.standing));
        }
        self.named = Some(psn);
        Ok(())
    }

    /// The receiver was not ready for this packet: it expects it again.
    pub fn on_receiver_not_ready(&mut self, psn: u32, msn: u32) -> Result<(), String> {
        self.check_progress(psn, msn)?;
        if psn == self.expected {
            return Err(format!("was not ready for {psn:#x}, which has not come"));
        }
        if !self.standing.may_be_unready(psn) {
            return Err(format!("was not ready for {psn:#x}, and a receive was there for it"));
        }
        Ok(())
    }

    /// What is answered is refused: the request has come again, with the PSN that is named or one before it in its message.
    pub fn refuses_repeated(&self, psn: u32) -> bool {
        self.repeated.iter().any(|(first, end)| ahead(psn, *first) >= 0 && ahead(psn, *end) < 0)
    }

    pub fn on_refusal(&mut self, psn: u32, msn: u32) -> Result<(), String> {
        // A READ counts as a message from its acceptance on, even if its bytes cannot be had then.
        // So do those behind it that have come.
        if self.questions.front().is_some_and(|(owed, _)| *owed == psn) {
            while msn != self.msn && self.ends.front().is_some_and(|end| ahead(*end, self.expected) <= 0) {
                self.ends.pop_front();
                self.msn = step(self.msn, 1);
            }
        }
        // It was asked to begin again in the middle of its answers, and cannot.
        let front = self.questions.front().map(|(_, last)| *last);
        let begun = front.is_some_and(|last| ahead(psn, last) < 0 && self.refuses_repeated(psn));
        if begun && ahead(psn, self.answered) < 0 {
            return Ok(());
        }
        self.check_progress(psn, msn)?;
        if psn == self.expected {
            return Err(format!("refuses {psn:#x}, which has not come"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_nak_a_gap_at_the_first_missing_packet() {
        let mut check = ResponderCheck::new(0xff_ffff);
        check.expect_message(5);
        assert_eq!(check.on_received(0xff_ffff, 1, Receive::Sure), Arrival::InOrder);
        assert_eq!(check.on_received(2, 1, Receive::Sure), Arrival::Gap);
        assert!(check.clone().on_sequence_nak(1, 0).is_err(), "0 is missing first");
        assert!(check.on_sequence_nak(0, 0).is_ok());
        assert!(check.on_sequence_nak(0, 0).unwrap_err().contains("second"));
        assert_eq!(check.on_received(0, 1, Receive::Sure), Arrival::InOrder);
        assert_eq!(check.on_received(0, 1, Receive::Sure), Arrival::Duplicate);
        assert!(check.on_ack(0, 0).is_ok());
        assert!(check.clone().on_ack(0xff_ffff, 0).unwrap_err().contains("was before"));
        assert!(check.on_ack(1, 0).unwrap_err().contains("came"));
    }

    #[test]
    fn what_is_missing_among_what_comes_again_may_be_named() {
        let mut check = ResponderCheck::new(0);
        check.expect_message(9);
        (0..9).for_each(|psn| {
            let receive = if psn == 3 { Receive::Doubtful } else { Receive::Sure };
            assert_eq!(check.on_received(psn, 1, receive), Arrival::InOrder);
        });
        assert!(check.clone().on_sequence_nak(4, 0).is_err(), "nothing was missing");
        [2, 3, 5].into_iter().for_each(|psn| assert_eq!(check.on_received(psn, 1, Receive::Sure), Arrival::Duplicate));
        assert!(check.on_sequence_nak(4, 0).is_ok());
    }

    #[test]
    fn a_read_that_is_asked_for_again_may_be_refused_behind_what_was_answered() {
        let mut check = ResponderCheck::new(0);
        check.expect_message(8);
        check.expect_question(0, 8);
        assert_eq!(check.on_received(0, 8, Receive::Sure), Arrival::InOrder);
        (0..5).for_each(|psn| assert_eq!(check.on_answer(psn, 8, None), Ok(true)));
        assert!(check.clone().on_refusal(3, 1).is_err(), "nobody has asked again");
        check.on_repeated(3, 8);
        assert!(check.clone().on_refusal(3, 1).is_ok() && check.clone().on_refusal(2, 1).is_err());
        (5..8).for_each(|psn| assert_eq!(check.on_answer(psn, 8, None), Ok(true)));
        assert!(check.on_refusal(3, 1).is_err(), "it was answered");
    }

    #[test]
    fn the_msn_counts_messages_that_are_whole() {
        let mut check = ResponderCheck::new(0);
        check.expect_message(2);
        check.expect_message(3);
        (0..3).for_each(|psn| assert_eq!(check.on_received(psn, 1, Receive::Doubtful), Arrival::InOrder));
        assert!(check.on_ack(0, 0).is_ok());
        assert!(check.clone().on_ack(1, 0).is_err());
        assert!(check.on_ack(1, 1).is_ok());
        assert!(check.on_receiver_not_ready(2, 1).is_ok());
        assert!(check.on_receiver_not_ready(3, 2).unwrap_err().contains("has not come"));
    }
}
