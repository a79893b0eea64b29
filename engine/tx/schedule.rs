//! The scheduler: whose turn it is. In: queue pairs with work. Out: one at a time, in turn, with its context.

use super::segment::Segment;
use crate::blocks::Block;
use crate::context::queue_pair::{QpContext, QpState};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::queues::TransmitState;
use crate::reliability::timer::Timer;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::{Frame, psn};

const HALF_OF_THE_PSNS: u32 = psn::MODULUS / 2;

/// What came of a queue pair's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A packet is in the frame; there may be more.
    Sent,
    /// Nothing to send now; an input will schedule it again.
    Idle,
}

impl Engine {
    /// Puts a queue pair on the list, once.
    pub(crate) fn schedule(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn)
            && qp.transmit == TransmitState::Idle
        {
            qp.transmit = TransmitState::Ready;
            self.ready.push_back(qpn);
        }
    }

    /// Gives the next queue pair its turn. False when none has anything to send.
    pub(crate) fn transmit_turn(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        while let Some(qpn) = self.ready.pop_front() {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            qp.transmit = TransmitState::Idle;
            match self.turn_of(host, qpn, frame) {
                Ok(Turn::Sent) => {
                    self.schedule(qpn);
                    return true;
                }
                Ok(Turn::Idle) => {}
                Err(Stop::Blocked) => {
                    // Unless it is being gathered: that read comes back by itself.
                    let qp = self.queue_pairs.get_mut(qpn);
                    if let Some(qp) = qp.filter(|qp| qp.transmit == TransmitState::Idle) {
                        qp.transmit = TransmitState::Blocked;
                    }
                }
                Err(stop) => self.queue_pair_broken(host, qpn, stop),
            }
        }
        false
    }

    fn turn_of(&mut self, host: &mut Host, qpn: Qpn, frame: &mut Frame) -> Result<Turn, Stop> {
        let Some(state) = self.queue_pairs.get(qpn).filter(|qp| !qp.leaving).map(|qp| qp.state) else {
            return Ok(Turn::Idle);
        };
        if !self.has_work(qpn, state) {
            return Ok(Turn::Idle);
        }
        self.blocks.touch(host.now_ns, Block::Scheduler, qpn.0);
        let context = self.load_qp(host, qpn, self.next_cause(qpn), Waiter::Transmit(qpn))?;
        self.send_next(host, qpn, context, frame)
    }

    /// Cheap checks that need no context.
    fn has_work(&self, qpn: Qpn, state: QpState) -> bool {
        self.queue_pairs.get(qpn).is_some_and(|qp| {
            let fresh = state.sends() && !qp.waiting.is_empty();
            (fresh || (state.requests_outstanding() && !qp.replay.is_empty()))
                && qp.deadlines.due_ns(Timer::Rnr).is_none()
        })
    }

    /// The operation that a turn's lookup serves: the message that is begun next, or the one that goes on.
    fn next_cause(&self, qpn: Qpn) -> Cause {
        let wqe = self.queue_pairs.get(qpn).and_then(|qp| {
            let id = qp.waiting.front().copied().or_else(|| qp.replay.front().map(|entry| entry.wqe))?;
            self.wqes.get(id)
        });
        let index = wqe.map_or(0, |wqe| wqe.slot_index);
        Cause::Send { qpn: qpn.0, index, count: 1, attempt: 0 }
    }

    /// Whether a message may begin that has to wait for earlier READs and atomics, or is one. An error is its own.
    pub(crate) fn may_begin(&self, qpn: Qpn, context: &QpContext, segment: &Segment) -> Result<bool, Stop> {
        let outstanding = self.queue_pairs.get(qpn).map_or(0, |qp| qp.replay.awaiting());
        let half = &context.requester;
        if !segment.awaits_response {
            return Ok(outstanding == 0 || planted("fence_ignored"));
        }
        if half.max_rd_atomic == 0 {
            return Err(Stop::Broken(Diagnostic::ReadNotEnabled));
        }
        if segment.packets >= HALF_OF_THE_PSNS {
            return Err(Stop::Broken(Diagnostic::ReadTooLong));
        }
        let fenced = segment.fence && outstanding > 0 && !planted("fence_ignored");
        // Further ahead, a PSN could no more be told from one of the past.
        let in_reach = segment.next_psn.distance_from(half.unacked_psn) < HALF_OF_THE_PSNS;
        let agreed = outstanding < usize::from(half.max_rd_atomic) || planted("more_reads_than_allowed");
        Ok(!fenced && agreed && in_reach)
    }

    /// Packets that may leave before an acknowledgement must come.
    pub(crate) fn window_open(&self, context: &QpContext) -> bool {
        let half = &context.requester;
        half.send_psn.distance_from(half.unacked_psn) < self.config.window_packets || planted("window_unbounded")
    }
}
