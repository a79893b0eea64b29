//! Responses of READs and atomics, in their order: what is missing next, and what to do when something passes over it.
//!
//! A response acknowledges everything before it. Whatever passes over one that is missing says that it was lost: its
//! request goes out again from the first missing PSN on, once, until a response comes.

use super::replay_buffer::ReplayEntry;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use rnic_wire::Psn;

impl Engine {
    /// The PSN of the response that must come next, if one is awaited.
    pub(crate) fn awaited_psn(&self, qpn: Qpn, context: &QpContext) -> Option<Psn> {
        let first = self.queue_pairs.get(qpn)?.replay.first_awaiting()?;
        let unacked = context.requester.unacked_psn;
        Some(if unacked.is_after(first) { unacked } else { first })
    }

    /// The request that awaits the response at `psn`.
    pub(crate) fn awaiting_at(&mut self, qpn: Qpn, psn: Psn) -> Option<ReplayEntry> {
        self.queue_pairs.get_mut(qpn)?.replay.find_mut(psn).copied()
    }

    /// The request has left again from behind its first packet: its answer may now begin there.
    pub(crate) fn note_restarted(&mut self, qpn: Qpn, first_psn: Psn) {
        if let Some(entry) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.replay.find_mut(first_psn)) {
            entry.restarted = true;
        }
    }

    /// Something has come that the peer sends only behind the response at `awaited`.
    pub(crate) fn passed_over(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, awaited: Psn) {
        let half = &context.requester;
        let asked_again = half.response_gap || !half.send_psn.is_after(awaited);
        if asked_again || self.waits_for_receiver(qpn) {
            return;
        }
        self.counters.implied_nak_seq_err += 1;
        if half.retries_left == 0 {
            return self.retries_exceeded(host, qpn, context);
        }
        context.requester.retries_left -= 1;
        context.requester.response_gap = true;
        self.go_back(qpn, context, awaited);
        self.start_retry_timer(host, qpn, context);
    }
}
