//! Owed acknowledgements, and notifications of congestion, leave through the same packet build and port as requests.

use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::reliability::ResponseDue;
use crate::reliability::selective::{FIRST_GAP, FURTHER_GAP};
use rnic_pcie::Cause;
use rnic_wire::{Frame, Psn};

impl Engine {
    /// Builds the next owed answer into the frame.
    pub(crate) fn respond(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        while let Some(qpn) = self.responses.pop_front() {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            qp.owed_queued = false;
            let notifies = qp.cnp_due;
            // Answers leave in the order of their requests; a notification is no answer.
            if !qp.replies.is_empty() && !notifies {
                continue;
            }
            let more = qp.selective.is_some() || notifies;
            let notification = notifies.then_some(Psn::new(0));
            let psn = notification.or_else(|| qp.owed.map(|due| due.psn)).or_else(|| qp.first_gap());
            let Some(psn) = psn else { continue };
            let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
            let built = match self.load_qp(host, qpn, cause, Waiter::Respond(qpn)) {
                Ok(context) if notifies => self.build_notification(host, qpn, &context, frame),
                Ok(context) => self.build_due(host, qpn, &context, frame),
                Err(stop) => Err(stop),
            };
            match built {
                Ok(false) | Err(Stop::Blocked) => {}
                Ok(true) => {
                    self.counters.sent_pkts += 1;
                    self.last_sender = qpn;
                    if more {
                        self.requeue_response(qpn);
                    }
                    return true;
                }
                Err(stop) => self.queue_pair_broken(host, qpn, stop),
            }
        }
        false
    }

    /// What the peer is to hear of congestion. It stands outside the order of packets.
    fn build_notification(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        frame: &mut Frame,
    ) -> Result<bool, Stop> {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.cnp_due = false;
        }
        self.build_cnp(host, qpn, context, frame)?;
        self.counters.np_cnp_sent += 1;
        Ok(true)
    }

    /// What is owed, or else a gap that the peer is to hear of. False when there is nothing any more.
    fn build_due(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext, frame: &mut Frame) -> Result<bool, Stop> {
        let (expected_psn, msn) = (context.responder.expected_psn, context.responder.msn);
        let owed = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.owed.take());
        let gap = |psn| {
            let syndrome = if psn == expected_psn { FIRST_GAP } else { FURTHER_GAP };
            ResponseDue { psn, syndrome, msn }
        };
        let Some(due) = owed.or_else(|| self.next_gap(qpn, expected_psn).map(gap)) else { return Ok(false) };
        self.build_response(host, qpn, context, &due, frame).map(|()| true)
    }

    pub(crate) fn requeue_response(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn)
            && (qp.owed.is_some() || qp.cnp_due || qp.first_gap().is_some())
            && !qp.owed_queued
        {
            qp.owed_queued = true;
            self.responses.push_back(qpn);
        }
    }
}
