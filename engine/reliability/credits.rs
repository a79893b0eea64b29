//! End-to-end credits: a responder tells with each acknowledgement how many receives it has; a requester sends no more
//! messages than those that need one, and one to ask with.
//!
//! In: what the newest acknowledgement promised, and the messages behind it that take a receive. Out: whether the next
//! packet may leave. Nothing waits for ever: whoever is beyond the promise has something outstanding that is answered,
//! if only by RNR. A responder on a shared receive queue promises nothing, and nothing is known before the first
//! acknowledgement: then RNR alone holds the requester back. IBTA 9.7.7.2; the codes are `rnic_wire::CreditCode`'s.

use crate::context::queue_pair::{QpContext, Service};
use crate::engine::Engine;
use crate::front_end::TakesReceive;
use crate::numbers::Qpn;
use crate::planted::planted;
use crate::queues::QueuePair;
use crate::tx::segment::Segment;
use rnic_wire::{CreditCode, Syndrome};

impl QueuePair {
    /// What an acknowledgement that leaves now may promise.
    pub(crate) fn credits(&self) -> CreditCode {
        if self.service != Service::Rc || self.srqn.is_some() {
            return CreditCode::NONE;
        }
        let posted = u32::from(self.rq_producer.wrapping_sub(self.rq_consumer));
        CreditCode::at_most(posted + u32::from(planted("credits_beyond_what_is_posted")))
    }
}

impl QpContext {
    /// The newest acknowledgement decides, also when it takes a promise back.
    pub(crate) fn note_credits(&mut self, syndrome: Syndrome) {
        if let Syndrome::Ack { credits } = syndrome
            && self.service == Service::Rc
            && !planted("credits_unheard")
        {
            self.requester.credits = credits;
        }
    }
}

impl Engine {
    /// The message is not covered by what the peer has promised. The first one beyond is a question, and may be asked.
    pub(crate) fn beyond_credits(&self, qpn: Qpn, context: &QpContext, segment: &Segment) -> bool {
        if segment.takes_receive == TakesReceive::Never {
            return false;
        }
        let Some(promised) = context.requester.credits.credits() else { return false };
        self.queue_pairs.get(qpn).is_some_and(|qp| {
            let before = qp.replay.taking().saturating_sub(usize::from(!segment.fresh_message));
            // What is in front of it and goes again had its promise.
            let newest = segment.fresh_message || qp.replay.back().is_some_and(|entry| entry.wqe == segment.wqe);
            newest && before >= promised as usize
        })
    }

    /// The packet has to wait: another message is the question already, or this one is, and its first packet is not answered.
    /// A WRITE needs its receive in the end only: nothing of it is sent in vain before.
    pub(crate) fn awaits_credits(&self, qpn: Qpn, context: &QpContext, segment: &Segment) -> bool {
        if segment.takes_receive == TakesReceive::Never || !(segment.fresh_message || segment.question) {
            return false;
        }
        let Some(promised) = context.requester.credits.credits() else { return false };
        if segment.fresh_message {
            let taking = self.queue_pairs.get(qpn).map_or(0, |qp| qp.replay.taking());
            return taking > promised as usize;
        }
        // Whoever has not asked waits for nothing: nobody would answer.
        segment.takes_receive == TakesReceive::AtFirst
            && !segment.first
            && !context.requester.unacked_psn.is_after(segment.first_psn)
            && self.beyond_credits(qpn, context, segment)
            && !planted("questions_in_full_length")
    }
}
