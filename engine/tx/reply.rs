//! Answers of READs and atomics: a packet a turn, as the port has room. A READ's payload is gathered under its rkey, which
//! is checked again for every packet; the rest is what requests go through: rate limit, packet build, port.

use super::schedule::Turn;
use crate::blocks::Block;
use crate::context::access::Plan;
use crate::context::key::Right;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::Element;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Awaited, Stop, Waiter};
use crate::queues::TransmitState;
use crate::reliability::reply::{ReadReply, Reply, ReplyPacket};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin, Submitted};
use rnic_wire::{Frame, Psn};
use std::ops::Range;

/// A packet of a READ's answer whose payload is on its way, or has come and waits for the port.
#[derive(Debug)]
pub(crate) struct Replying {
    pub qpn: Qpn,
    pub packet: ReplyPacket,
    pub frame: Frame,
    pub payload: Range<usize>,
    /// The answers' epoch when the read was sent: another one means that they have gone back meanwhile.
    pub epoch: u32,
    /// Host memory did not answer.
    pub failed: bool,
}

impl Engine {
    /// Puts a queue pair on the list of those that have READs or atomics to answer, once. With none left, what is owed
    /// behind them may leave.
    pub(crate) fn queue_reply(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if qp.replies.is_empty() {
            return self.requeue_response(qpn);
        }
        if qp.replies.turn == TransmitState::Idle {
            qp.replies.turn = TransmitState::Ready;
            self.replying.push_back(qpn);
        }
    }

    /// The fill that an answer waited for is done.
    pub(crate) fn resume_answers(&mut self, qpn: Qpn) {
        let qp = self.queue_pairs.get_mut(qpn);
        if let Some(qp) = qp.filter(|qp| qp.replies.turn == TransmitState::Blocked) {
            qp.replies.turn = TransmitState::Idle;
        }
        self.queue_reply(qpn);
    }

    /// Gives the next queue pair with something to answer its turn.
    pub(crate) fn reply_turn(&mut self, host: &mut Host, frame: &mut Frame) -> bool {
        while let Some(qpn) = self.replying.pop_front() {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { continue };
            qp.replies.turn = TransmitState::Idle;
            match self.next_reply(host, qpn, frame) {
                Ok(Turn::Sent) => {
                    self.queue_reply(qpn);
                    return true;
                }
                Ok(Turn::Idle) => {}
                Err(Stop::Blocked) => {
                    // Unless it is being gathered: that read comes back by itself.
                    let qp = self.queue_pairs.get_mut(qpn);
                    if let Some(qp) = qp.filter(|qp| qp.replies.turn == TransmitState::Idle) {
                        qp.replies.turn = TransmitState::Blocked;
                    }
                }
                Err(stop) => self.queue_pair_broken(host, qpn, stop),
            }
        }
        false
    }

    fn next_reply(&mut self, host: &mut Host, qpn: Qpn, frame: &mut Frame) -> Result<Turn, Stop> {
        let Some(qp) = self.queue_pairs.get_mut(qpn).filter(|qp| !qp.leaving) else { return Ok(Turn::Idle) };
        let gathered = qp.replies.gathered.take();
        let failed = gathered.as_ref().is_some_and(|gathered| gathered.failed);
        if let Some(mut gathered) = gathered.filter(|gathered| !gathered.failed) {
            std::mem::swap(frame, &mut gathered.frame);
            self.reply_left(host, qpn, gathered.packet.attempt, frame);
            return Ok(Turn::Sent);
        }
        let Some(reply) = qp.replies.front().copied() else { return Ok(Turn::Idle) };
        let cause = Cause::Packet { qpn: qpn.0, psn: reply.next_psn().get(), attempt: 0 };
        // A fault that is forgotten while this waits is met again by the next read.
        let mut context = self.load_qp(host, qpn, cause, Waiter::Respond(qpn))?;
        let built = match reply {
            _ if failed => Err(Stop::Broken(Diagnostic::PayloadFault)),
            Reply::Read(read) if self.gate_open(host, qpn) => self.fill_read_reply(host, qpn, &context, &read, frame),
            Reply::Read(_) => return Ok(Turn::Idle),
            Reply::Atomic { psn, msn, original, attempt } => {
                self.build_atomic_response(host, qpn, &context, psn, msn, original, frame).map(|()| attempt)
            }
        };
        match built {
            Ok(attempt) => {
                self.reply_left(host, qpn, attempt, frame);
                Ok(Turn::Sent)
            }
            Err(Stop::Blocked) => Err(Stop::Blocked),
            Err(stop) if !reply.is_fresh() => {
                self.drop_repeated(host, qpn, reply.next_psn(), stop);
                Ok(Turn::Idle)
            }
            Err(stop) => {
                self.reply_refused(host, qpn, &mut context, reply.next_psn(), stop);
                Ok(Turn::Idle)
            }
        }
    }

    /// What is asked for again and cannot be had any more is not answered, and nobody is refused: as a duplicate whose key
    /// is gone when it comes.
    fn drop_repeated(&mut self, host: &mut Host, qpn: Qpn, psn: Psn, stop: Stop) {
        self.counters.duplicate_unanswered += 1;
        if let Stop::Broken(diagnostic) = stop {
            self.diagnose(host.now_ns, diagnostic, qpn.0, psn.get().into());
        }
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.replies.plan = None;
            qp.replies.pop_front();
        }
        self.queue_reply(qpn);
    }

    /// The packet is in the port's hands.
    fn reply_left(&mut self, host: &mut Host, qpn: Qpn, attempt: u16, frame: &Frame) {
        self.counters.sent_pkts += 1;
        self.last_sender = qpn;
        self.counters.retransmitted_pkts += u64::from(attempt > 0);
        let Some(replies) = self.queue_pairs.get_mut(qpn).map(|qp| &mut qp.replies) else { return };
        let done = match replies.front_mut() {
            Some(Reply::Read(read)) => {
                self.rate_limits.charge(qpn, host.now_ns, frame.bytes().len() as u32);
                read.sent()
            }
            Some(Reply::Atomic { .. }) | None => true,
        };
        if done {
            replies.pop_front();
        }
    }

    /// Builds the next packet of a READ's answer; which attempt it is, is the result.
    fn fill_read_reply(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        read: &ReadReply,
        frame: &mut Frame,
    ) -> Result<u16, Stop> {
        let packet = read.packet(context.path_mtu_bytes());
        let plan = self.reply_ranges(host, qpn, read, &packet)?;
        let payload = self.build_read_response(host, qpn, context, read.msn, &packet, frame)?;
        self.gather_reply(host, qpn, &packet, &plan, frame, payload)?;
        Ok(packet.attempt)
    }

    fn reply_ranges(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        read: &ReadReply,
        packet: &ReplyPacket,
    ) -> Result<Plan, Stop> {
        let (cause, waiter) = (cause_of(qpn, packet), Waiter::Respond(qpn));
        let accessor = self.accessor(qpn, read.pdn, Right::RemoteRead, cause, waiter);
        let element = [Element { address: packet.address, length_bytes: packet.length_bytes, key: read.rkey }];
        let kept = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.replies.plan.take());
        let mut plan = kept.map_or_else(Plan::default, |plan| *plan);
        let resolved = self.resolve(host, &element, 0, packet.length_bytes.into(), &accessor, &mut plan);
        if resolved == Err(Stop::Blocked)
            && let Some(qp) = self.queue_pairs.get_mut(qpn)
        {
            qp.replies.plan = Some(Box::new(plan));
            return Err(Stop::Blocked);
        }
        resolved.map(|()| plan)
    }

    fn gather_reply(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        packet: &ReplyPacket,
        plan: &Plan,
        frame: &mut Frame,
        payload: Range<usize>,
    ) -> Result<(), Stop> {
        if payload.is_empty() {
            return Ok(());
        }
        self.blocks.touch(host.now_ns, Block::DmaEngine, qpn.0);
        self.blocks.touch(host.now_ns, Block::SystemIommu, qpn.0);
        let origin = Origin::new(Class::PayloadRead, cause_of(qpn, packet));
        match host.port.read(origin, &plan.ranges, &mut frame.bytes_mut()[payload.clone()]) {
            Ok(Submitted::Ready) => Ok(()),
            Ok(Submitted::Pending(tag)) => {
                let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Err(Stop::Blocked) };
                qp.replies.turn = TransmitState::Gathering;
                let (frame, epoch) = (std::mem::take(frame), qp.replies.epoch);
                let replying = Replying { qpn, packet: *packet, frame, payload, epoch, failed: false };
                self.pending.insert(tag, Awaited::Reply(Box::new(replying)));
                Err(Stop::Blocked)
            }
            Err(_) => Err(Stop::Broken(Diagnostic::PayloadFault)),
        }
    }

    /// A read that was in flight is back: the packet leaves at the queue pair's turn, unless it has gone back meanwhile.
    pub(crate) fn reply_gathered(&mut self, mut replying: Box<Replying>, bytes: Option<&[u8]>) {
        let qpn = replying.qpn;
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if qp.replies.turn == TransmitState::Gathering {
            qp.replies.turn = TransmitState::Idle;
        }
        if qp.replies.epoch == replying.epoch {
            match bytes.filter(|bytes| bytes.len() == replying.payload.len()) {
                Some(bytes) => replying.frame.bytes_mut()[replying.payload.clone()].copy_from_slice(bytes),
                None => replying.failed = true,
            }
            qp.replies.gathered = Some(replying);
        }
        self.queue_reply(qpn);
    }
}

fn cause_of(qpn: Qpn, packet: &ReplyPacket) -> Cause {
    Cause::Packet { qpn: qpn.0, psn: packet.psn.get(), attempt: packet.attempt }
}
