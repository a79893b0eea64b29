//! Selective retransmission, between two ends that both know it: a receiver keeps what comes ahead of a gap and tells of
//! each packet that is missing; a sender sends those packets again, and nothing else.
//!
//! On the wire a gap is an acknowledgement of a class that the specification reserves: whoever does not know it takes
//! nothing from it, and recovers by its timer, going back. This file has what a queue pair of either side keeps, and the
//! sender's half; the receiver's is in `rx/ahead`.

use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::planted::planted;
use rnic_wire::{Frame, Msn, Psn, Syndrome};
use std::collections::VecDeque;

/// AETH syndrome of the first gap: everything before this PSN has come, this one has not, and others behind it have.
pub(crate) const FIRST_GAP: Syndrome = Syndrome::Reserved(0x40);
/// Of a gap behind others: it acknowledges nothing.
pub(crate) const FURTHER_GAP: Syndrome = Syndrome::Reserved(0x41);

/// What a queue pair keeps for it.
#[derive(Debug, Default)]
pub(crate) struct Selective {
    /// Sender: packets to be sent again, in order; what is not among them has arrived, or is on its way.
    again: VecDeque<Psn>,
    /// Receiver: packets that came ahead of a gap, in order.
    pub ahead: VecDeque<Ahead>,
    /// The early packet that is in the caller's hands: its PSN, and how many PSNs it takes.
    pub arriving: Option<(Psn, u32)>,
    /// Gaps before this PSN have been told of. It says nothing while nothing is kept.
    pub told: Psn,
    /// Missing packets that the peer is still to be told of.
    pub gaps: VecDeque<Psn>,
    /// Sender: everything before this PSN is acknowledged but for responses that are missing, and the MSN that said so.
    pub acknowledged: Option<(Psn, Msn)>,
}

/// A packet that has come early.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub psn: Psn,
    /// PSNs that it takes: a READ's as many as its responses'.
    pub packets: u32,
    pub frame: Frame,
}

impl Selective {
    /// A packet is to be sent again. False when it is already.
    fn insert(&mut self, psn: Psn) -> bool {
        let at = self.again.partition_point(|other| other.is_before(psn));
        let fresh = self.again.get(at) != Some(&psn);
        if fresh {
            self.again.insert(at, psn);
        }
        fresh
    }

    /// This packet is to be sent again: the one to begin with.
    pub fn begin_with(&mut self, psn: Psn) -> Psn {
        self.insert(psn);
        self.again.front().copied().unwrap_or(psn)
    }

    /// A gap that the peer is to be told of. There are never more than `most`: the oldest have been closed meanwhile, or are
    /// found by the peer's timer.
    pub fn queue_gap(&mut self, psn: Psn, most: usize) {
        if self.gaps.len() >= most {
            self.gaps.pop_front();
        }
        self.gaps.push_back(psn);
    }

    /// The place of a packet among those that are kept; `Ok` when it is there.
    pub fn find(&self, psn: Psn) -> Result<usize, usize> {
        let at = self.ahead.partition_point(|other| other.psn.is_before(psn));
        if self.ahead.get(at).is_some_and(|other| other.psn == psn) { Ok(at) } else { Err(at) }
    }
}

impl Engine {
    /// The peer tells of a gap, and with the first one of what has come before it.
    pub(crate) fn gap_reported(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        syndrome: Syndrome,
        msn: Msn,
    ) {
        self.counters.rcvd_seq_err += 1;
        if syndrome == FIRST_GAP && !planted("gaps_acknowledge_nothing") {
            let awaited = self.awaited_psn(qpn, context).filter(|awaited| psn.is_after(*awaited));
            self.advance(host, qpn, context, awaited.unwrap_or(psn), msn);
            if let Some(awaited) = awaited {
                self.passed_over(host, qpn, context, awaited);
            }
        }
        if psn == context.requester.unacked_psn {
            // The peer is there, and the packet is on its way again from here on.
            self.start_retry_timer(host, qpn, context);
        }
        self.miss(qpn, context, psn);
    }

    /// An acknowledgement of everything before `next` has passed over a response that is missing. Only that is asked for
    /// again: the rest is not acknowledged anew, so that it counts when the response has come.
    pub(crate) fn keep_acknowledgement(&mut self, qpn: Qpn, next: Psn, msn: Msn) {
        let Some(selective) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()) else { return };
        if selective.acknowledged.is_none_or(|(kept, _)| next.is_after(kept)) {
            selective.acknowledged = Some((next, msn));
        }
    }

    /// A response has come: what was acknowledged behind it counts, as far as to the next one that is missing.
    pub(crate) fn advance_to_kept(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        let kept = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()?.acknowledged.take());
        let Some((next, msn)) = kept.filter(|(next, _)| next.is_after(context.requester.unacked_psn)) else { return };
        let awaited = self.awaited_psn(qpn, context).filter(|awaited| next.is_after(*awaited));
        if awaited.is_some() {
            self.keep_acknowledgement(qpn, next, msn);
        }
        self.advance(host, qpn, context, awaited.unwrap_or(next), msn);
    }

    /// The peer misses this packet and has others behind it.
    fn miss(&mut self, qpn: Qpn, context: &mut QpContext, psn: Psn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let Some(entry) = qp.replay.find(psn) else { return };
        // A READ's request is one packet; the other PSNs are its responses'.
        let request = !entry.awaits_response || psn == entry.first_psn;
        let Some(selective) = qp.selective.as_mut().filter(|_| request) else { return };
        if selective.insert(psn) && !planted("gaps_unheard") {
            self.go_back(qpn, context, psn);
        }
    }

    /// Nothing has come for too long: beside the oldest packet, which goes again, the newest shows the peer its gaps.
    pub(crate) fn probe(&mut self, qpn: Qpn, context: &QpContext) {
        let newest = context.requester.fresh_psn.subtract(1);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let sends = qp.replay.find(newest).is_some_and(|entry| !entry.awaits_response);
        if let Some(selective) = qp.selective.as_mut().filter(|_| sends) {
            selective.insert(newest);
        }
    }

    /// The peer keeps nothing: every packet from this one on goes again.
    pub(crate) fn send_all_again(&mut self, qpn: Qpn, context: &QpContext, from: Psn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let Some(selective) = qp.selective.as_mut() else { return };
        let mut psn = from;
        while psn.is_before(context.requester.fresh_psn) {
            let Some(entry) = qp.replay.find(psn) else { return };
            selective.insert(psn);
            psn = if entry.awaits_response { entry.next_psn() } else { psn.next() };
        }
    }

    /// The packet `sent` has left, for the first time or again. The one to leave next; `behind` in the order of PSNs.
    pub(crate) fn next_to_send(&mut self, qpn: Qpn, context: &QpContext, sent: Psn, behind: Psn) -> Psn {
        let Some(selective) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()) else { return behind };
        while selective.again.front().is_some_and(|psn| !psn.is_after(sent)) {
            selective.again.pop_front();
        }
        let fresh = context.requester.fresh_psn;
        let or_fresh = if behind.is_before(fresh) && !planted("selective_goes_back") { fresh } else { behind };
        selective.again.front().copied().unwrap_or(or_fresh)
    }

    /// Everything before `next` has arrived: what of it was to be sent again need not be. The one to leave next.
    pub(crate) fn first_to_send(&mut self, qpn: Qpn, context: &QpContext, next: Psn) -> Psn {
        let Some(selective) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()) else { return next };
        while selective.again.front().is_some_and(|psn| psn.is_before(next)) {
            selective.again.pop_front();
        }
        selective.again.front().copied().unwrap_or(context.requester.fresh_psn)
    }

    pub(crate) fn is_selective(&self, qpn: Qpn) -> bool {
        self.queue_pairs.get(qpn).is_some_and(|qp| qp.selective.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_be_sent_again_are_kept_once_and_in_order_across_the_wrap() {
        let mut selective = Selective::default();
        let inserted = [3, 0xff_fffe, 3, 0, 0xff_ffff].map(|psn| selective.insert(Psn::new(psn)));
        assert_eq!(inserted, [true, true, false, true, true]);
        let order: Vec<_> = selective.again.iter().map(|psn| psn.get()).collect();
        assert_eq!(order, [0xff_fffe, 0xff_ffff, 0, 3]);
        assert_eq!(selective.begin_with(Psn::new(7)), Psn::new(0xff_fffe));
    }
}
