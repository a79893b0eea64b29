//! Transmit: the last steps of a packet. In: a scheduled queue pair. Out: a frame in the port's hands, and in the
//! same step the replay entry, the timer and the moved PSN.

use super::schedule::Turn;
use super::segment::Segment;
use crate::blocks::Block;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::Status;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::queues::{Failing, TransmitState};
use crate::reliability::replay_buffer::ReplayEntry;
use crate::tx::gather::Gathering;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::Frame;

impl Engine {
    /// A queue pair's turn, with its context.
    pub(crate) fn send_next(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        mut context: QpContext,
        frame: &mut Frame,
    ) -> Result<Turn, Stop> {
        if !self.window_open(&context) || self.stopped_by_failure(host, qpn, &mut context) {
            return Ok(Turn::Idle);
        }
        let Some(segment) = self.next_segment(qpn, &context) else { return Ok(Turn::Idle) };
        if !self.gate_open(host, qpn) {
            return Ok(Turn::Idle);
        }
        let index = self.wqes.get(segment.wqe).map_or(0, |wqe| wqe.slot_index);
        let cause = Cause::Send { qpn: qpn.0, index, count: 1, attempt: segment.attempt };
        match self.fill_frame(host, qpn, &context, &segment, frame, cause) {
            Ok(()) => {
                self.handed_over(host, qpn, &mut context, &segment, frame);
                self.store_qp(host, qpn, context);
                self.fetch_work(host, qpn);
                Ok(Turn::Sent)
            }
            Err(Stop::Blocked) => Err(Stop::Blocked),
            Err(stop) => {
                self.message_fails(host, qpn, &mut context, &segment, stop);
                Ok(Turn::Idle)
            }
        }
    }

    fn fill_frame(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        segment: &Segment,
        frame: &mut Frame,
        cause: Cause,
    ) -> Result<(), Stop> {
        let plan = self.gather_ranges(host, qpn, context, segment, cause)?;
        let payload = self.build_request(qpn, context, segment, frame)?;
        self.gather(host, qpn, segment, plan.as_ref(), frame, payload, cause)
    }

    /// Replay entry, timer and PSN, in the step that hands the frame to the port.
    fn handed_over(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, segment: &Segment, frame: &Frame) {
        self.blocks.touch(host.now_ns, Block::TxPacketBuild, qpn.0);
        self.counters.sent_pkts += 1;
        self.counters.retransmitted_pkts += u64::from(segment.attempt > 0);
        if segment.fresh_message
            && let Some(qp) = self.queue_pairs.get_mut(qpn)
        {
            qp.waiting.pop_front();
            context.requester.message_count = context.requester.message_count.next();
            let message = context.requester.message_count;
            let (wqe, first_psn, packets) = (segment.wqe, segment.first_psn, segment.packets);
            qp.replay.push(ReplayEntry { wqe, first_psn, packets, message });
        }
        self.blocks.touch(host.now_ns, Block::ReplayBuffer, qpn.0);
        let next = segment.psn.add(1);
        context.requester.send_psn = next;
        if next.compare(context.requester.fresh_psn) > 0 {
            context.requester.fresh_psn = next;
        }
        self.rate_limits.charge(qpn, host.now_ns, frame.bytes().len() as u32);
        self.ensure_retry_timer(host, qpn, context);
    }

    /// A message that could not be understood or read fails when it is the oldest; nothing after it leaves.
    fn message_fails(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, segment: &Segment, stop: Stop) {
        let (status, diagnostic) = match stop {
            Stop::Refused(refusal) => (Status::LocalProtection, self.local_refusal(refusal)),
            Stop::Broken(diagnostic) => (Status::LocalProtection, diagnostic),
            Stop::Blocked => return,
        };
        self.diagnose(host.now_ns, diagnostic, qpn.0, segment.offset);
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.failing = Some(Failing { status, diagnostic, begun: !segment.fresh_message });
        }
        self.fail_if_oldest(host, qpn, context);
        self.store_qp(host, qpn, *context);
    }

    /// True when a message has failed, or the next one cannot be understood: nothing more may leave.
    fn stopped_by_failure(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) -> bool {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return true };
        if qp.failing.is_some() {
            // What is in flight may still have to be sent again before the failed one.
            return context.requester.send_psn == context.requester.fresh_psn;
        }
        let at_end = context.requester.send_psn == context.requester.fresh_psn
            && qp.replay.back().is_none_or(|entry| entry.next_psn() == context.requester.send_psn);
        let next = qp.waiting.front().and_then(|id| self.wqes.get(*id));
        let Some(Err(diagnostic)) = next.map(|wqe| &wqe.work) else { return false };
        if !at_end {
            return false;
        }
        let diagnostic = *diagnostic;
        qp.failing = Some(Failing { status: Status::LocalQpOperation, diagnostic, begun: false });
        self.diagnose(host.now_ns, diagnostic, qpn.0, 0);
        self.fail_if_oldest(host, qpn, context);
        self.store_qp(host, qpn, *context);
        true
    }

    /// A gather that was in flight is back: the packet leaves, unless the queue pair has gone back meanwhile.
    pub(crate) fn gathered(&mut self, host: &mut Host, mut gathering: Gathering, bytes: Option<&[u8]>) {
        let qpn = gathering.qpn;
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if qp.transmit_epoch != gathering.epoch || qp.leaving {
            self.unblock_transmit(qpn);
            return self.schedule(qpn);
        }
        match bytes {
            Some(bytes) if bytes.len() == gathering.payload.len() => {
                gathering.frame.bytes_mut()[gathering.payload.clone()].copy_from_slice(bytes);
                self.staged.push_back(gathering);
            }
            _ => {
                self.unblock_transmit(qpn);
                self.gather_failed(host, gathering);
            }
        }
    }

    fn gather_failed(&mut self, host: &mut Host, gathering: Gathering) {
        let qpn = gathering.qpn;
        match self.load_qp(host, qpn, Cause::Maintenance, Waiter::Transmit(qpn)) {
            Ok(mut context) => {
                let stop = Stop::Broken(Diagnostic::PayloadFault);
                self.message_fails(host, qpn, &mut context, &gathering.segment, stop);
            }
            // The turn after the context's fill reads again, and meets the fault again.
            Err(Stop::Blocked) => self.block_transmit(qpn),
            Err(stop) => self.queue_pair_broken(host, qpn, stop),
        }
    }

    fn block_transmit(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.transmit = TransmitState::Blocked;
        }
    }

    /// While a packet is being gathered, and until it leaves, its queue pair has no other turn.
    fn unblock_transmit(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn)
            && qp.transmit == TransmitState::Blocked
        {
            qp.transmit = TransmitState::Idle;
        }
    }

    /// Hands a packet over whose payload came late.
    pub(crate) fn transmit_staged(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        while let Some(mut gathering) = self.staged.pop_front() {
            let qpn = gathering.qpn;
            self.unblock_transmit(qpn);
            let Some(qp) = self.queue_pairs.get(qpn) else { continue };
            if qp.transmit_epoch != gathering.epoch || qp.leaving {
                self.schedule(qpn);
                continue;
            }
            match self.load_qp(host, qpn, Cause::Maintenance, Waiter::Transmit(qpn)) {
                Ok(mut context) => {
                    std::mem::swap(frame, &mut gathering.frame);
                    self.handed_over(host, qpn, &mut context, &gathering.segment, frame);
                    self.store_qp(host, qpn, context);
                    self.schedule(qpn);
                    self.fetch_work(host, qpn);
                    return true;
                }
                // The packet is gathered anew once the context is back.
                Err(Stop::Blocked) => self.block_transmit(qpn),
                Err(stop) => self.queue_pair_broken(host, qpn, stop),
            }
        }
        false
    }
}
