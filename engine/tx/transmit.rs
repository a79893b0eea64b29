//! Transmit: the last steps of a packet. In: a scheduled queue pair. Out: a frame in the port's hands, and in the
//! same step the replay entry, the timer and the moved PSN.

use super::gather::Gathering;
use super::schedule::Turn;
use super::segment::Segment;
use crate::blocks::Block;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Status, TakesReceive};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::queues::{Failing, TransmitState};
use crate::reliability::replay_buffer::ReplayEntry;
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
        let Some(mut segment) = self.next_segment(qpn, &context) else { return Ok(Turn::Idle) };
        if segment.fresh_message && segment.local {
            return self.run_local(host, qpn, &mut context, &segment);
        }
        if self.awaits_credits(qpn, &context, &segment) {
            return Ok(Turn::Idle);
        }
        segment.question |= segment.fresh_message && self.beyond_credits(qpn, &context, &segment);
        if segment.fresh_message && (segment.fence || segment.awaits_response) {
            match self.may_begin(qpn, &context, &segment) {
                Ok(true) => {}
                Ok(false) => return Ok(Turn::Idle),
                Err(stop) => {
                    self.message_fails(host, qpn, &mut context, &segment, stop);
                    return Ok(Turn::Idle);
                }
            }
        }
        if context.service.is_datagram()
            && let Err(stop) = self.check_datagram(&context, &segment)
        {
            self.message_fails(host, qpn, &mut context, &segment, stop);
            return Ok(Turn::Idle);
        }
        if !self.gate_open(host, qpn) {
            return Ok(Turn::Idle);
        }
        match self.fill_frame(host, qpn, &context, &segment, frame) {
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
    ) -> Result<(), Stop> {
        let plan = self.gather_ranges(host, qpn, context, segment)?;
        let payload = self.build_request(qpn, context, segment, frame)?;
        self.gather(host, qpn, segment, plan.as_ref(), frame, payload)
    }

    /// Replay entry, timer and PSN, in the step that hands the frame to the port.
    fn handed_over(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, segment: &Segment, frame: &Frame) {
        self.blocks.touch(host.now_ns, Block::TxPacketBuild, qpn.0);
        self.counters.sent_pkts += 1;
        self.last_sender = qpn;
        self.counters.retransmitted_pkts += u64::from(segment.attempt > 0);
        if segment.fresh_message
            && let Some(qp) = self.queue_pairs.get_mut(qpn)
        {
            qp.waiting.pop_front();
            context.requester.message_count = context.requester.message_count.next();
            let message = context.requester.message_count;
            let (wqe, first_psn, packets) = (segment.wqe, segment.first_psn, segment.packets);
            let awaits_response = segment.awaits_response;
            let takes_receive = segment.takes_receive != TakesReceive::Never;
            let (question, restarted) = (segment.question, false);
            qp.replay.push(ReplayEntry {
                wqe,
                first_psn,
                packets,
                message,
                awaits_response,
                takes_receive,
                question,
                restarted,
            });
        } else if segment.awaits_response && segment.psn != segment.first_psn {
            self.note_restarted(qpn, segment.first_psn);
        }
        self.blocks.touch(host.now_ns, Block::ReplayBuffer, qpn.0);
        let next = segment.next_psn;
        context.requester.send_psn = self.next_to_send(qpn, context, segment.psn, next);
        if next.is_after(context.requester.fresh_psn) {
            context.requester.fresh_psn = next;
        }
        self.rate_limits.charge(qpn, host.now_ns, frame.bytes().len() as u32);
        if context.service.is_reliable() {
            self.ensure_retry_timer(host, qpn, context);
        } else {
            self.left_for_good(host, qpn, context);
        }
    }

    /// A message that could not be read fails when it is the oldest; nothing from this packet on leaves.
    pub(crate) fn message_fails(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        segment: &Segment,
        stop: Stop,
    ) {
        let (status, diagnostic) = match stop {
            Stop::Refused(refusal) => (Status::LocalProtection, self.local_refusal(refusal)),
            Stop::Broken(
                diagnostic @ (Diagnostic::ReadNotEnabled
                | Diagnostic::ReadTooLong
                | Diagnostic::InvalidateRefused
                | Diagnostic::RegisterState
                | Diagnostic::RegisterShape
                | Diagnostic::NotPrivileged),
            ) => (Status::LocalQpOperation, diagnostic),
            Stop::Broken(
                diagnostic @ (Diagnostic::BindWindow
                | Diagnostic::BindRegion
                | Diagnostic::BindRange
                | Diagnostic::BindAccess),
            ) => (Status::WindowBind, diagnostic),
            // The path, not the message.
            Stop::Broken(diagnostic @ (Diagnostic::ModifyValue | Diagnostic::DatagramAddress)) => {
                (Status::LocalQpOperation, diagnostic)
            }
            Stop::Broken(diagnostic @ Diagnostic::DatagramTooLong) => (Status::LocalLength, diagnostic),
            Stop::Broken(diagnostic) => (Status::LocalProtection, diagnostic),
            Stop::Blocked => return,
        };
        self.diagnose(host.now_ns, diagnostic, qpn.0, segment.offset);
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.failing = Some(Failing { wqe: segment.wqe, psn: segment.psn, status, diagnostic });
        }
        self.fail_if_oldest(host, qpn, context);
        self.store_qp(host, qpn, *context);
    }

    /// True when a message has failed, or the next one cannot be understood: nothing from there on may leave.
    fn stopped_by_failure(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) -> bool {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return true };
        let psn = context.requester.send_psn;
        if let Some(failing) = qp.failing {
            // What is in flight before it may still have to be sent again.
            return !psn.is_before(failing.psn);
        }
        let begins_next = context.state.sends() && qp.replay.back().is_none_or(|entry| entry.next_psn() == psn);
        let Some(wqe) = qp.waiting.front().copied().filter(|_| begins_next) else { return false };
        let Some(fetched) = self.wqes.get(wqe) else { return false };
        let Err(diagnostic) = fetched.work else { return false };
        let slot_index = fetched.slot_index;
        let status = match diagnostic {
            Diagnostic::AtomicLength => Status::LocalLength,
            _ => Status::LocalQpOperation,
        };
        qp.failing = Some(Failing { wqe, psn, status, diagnostic });
        self.diagnose(host.now_ns, diagnostic, qpn.0, slot_index.into());
        self.fail_if_oldest(host, qpn, context);
        self.store_qp(host, qpn, *context);
        true
    }

    /// A gather that was in flight is back: the packet leaves, unless the queue pair has gone back meanwhile.
    pub(crate) fn gathered(&mut self, host: &mut Host, mut gathering: Box<Gathering>, bytes: Option<&[u8]>) {
        let qpn = gathering.qpn;
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if qp.transmit_epoch != gathering.epoch {
            return self.end_gathering(qpn);
        }
        match bytes.filter(|bytes| bytes.len() == gathering.payload.len()) {
            Some(bytes) => {
                gathering.frame.bytes_mut()[gathering.payload.clone()].copy_from_slice(bytes);
                qp.gathered = Some(gathering);
                self.staged.push_back(qpn);
            }
            None => self.gather_failed(host, &gathering),
        }
    }

    fn gather_failed(&mut self, host: &mut Host, gathering: &Gathering) {
        let qpn = gathering.qpn;
        let cause = gathering.segment.cause(qpn);
        match self.load_qp(host, qpn, cause, Waiter::Transmit(qpn)) {
            Ok(mut context) => {
                let stop = Stop::Broken(Diagnostic::PayloadFault);
                self.message_fails(host, qpn, &mut context, &gathering.segment, stop);
                self.end_gathering(qpn);
            }
            // The turn after the context's fill reads again, and meets the fault again.
            Err(Stop::Blocked) => {
                if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                    qp.transmit = TransmitState::Blocked;
                }
            }
            Err(stop) => self.queue_pair_broken(host, qpn, stop),
        }
    }

    /// While a packet is being gathered, and until it leaves, its queue pair has no other turn; now it has.
    fn end_gathering(&mut self, qpn: Qpn) {
        let qp = self.queue_pairs.get_mut(qpn);
        if let Some(qp) = qp.filter(|qp| qp.transmit == TransmitState::Gathering) {
            qp.transmit = TransmitState::Idle;
            self.schedule(qpn);
        }
    }

    /// The context of a staged packet is there.
    pub(crate) fn restage(&mut self, qpn: Qpn) {
        if self.queue_pairs.get(qpn).is_some_and(|qp| qp.gathered.is_some()) {
            self.staged.push_back(qpn);
        }
    }

    /// Hands a packet over whose payload came late.
    pub(crate) fn transmit_staged(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        while let Some(qpn) = self.staged.pop_front() {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            let Some(mut gathering) = qp.gathered.take() else { continue };
            if qp.transmit_epoch != gathering.epoch {
                self.end_gathering(qpn);
                continue;
            }
            let cause: Cause = gathering.segment.cause(qpn);
            match self.load_qp(host, qpn, cause, Waiter::Staged(qpn)) {
                Ok(mut context) => {
                    std::mem::swap(frame, &mut gathering.frame);
                    self.handed_over(host, qpn, &mut context, &gathering.segment, frame);
                    self.store_qp(host, qpn, context);
                    self.end_gathering(qpn);
                    self.fetch_work(host, qpn);
                    return true;
                }
                Err(Stop::Blocked) => {
                    if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                        qp.gathered = Some(gathering);
                    }
                }
                Err(stop) => self.queue_pair_broken(host, qpn, stop),
            }
        }
        false
    }
}
