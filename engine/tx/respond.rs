//! Owed acknowledgements leave through the same packet build and port as requests.

use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use rnic_pcie::Cause;
use rnic_wire::Frame;

impl Engine {
    /// Builds the next owed answer into the frame.
    pub(crate) fn respond(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        while let Some(qpn) = self.responses.pop_front() {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            qp.owed_queued = false;
            // Answers leave in the order of their requests.
            if !qp.replies.is_empty() {
                continue;
            }
            let Some(due) = qp.owed.take() else { continue };
            let cause = Cause::Packet { qpn: qpn.0, psn: due.psn.get(), attempt: 0 };
            let built = self
                .load_qp(host, qpn, cause, Waiter::Respond(qpn))
                .and_then(|context| self.build_response(host, qpn, &context, &due, frame));
            match built {
                Ok(()) => {
                    self.counters.sent_pkts += 1;
                    self.last_sender = qpn;
                    return true;
                }
                Err(Stop::Blocked) => {
                    if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                        qp.owed = Some(due);
                    }
                }
                Err(stop) => self.queue_pair_broken(host, qpn, stop),
            }
        }
        false
    }

    pub(crate) fn requeue_response(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn)
            && qp.owed.is_some()
            && !qp.owed_queued
        {
            qp.owed_queued = true;
            self.responses.push_back(qpn);
        }
    }
}
