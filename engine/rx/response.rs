//! Responses to this side's own requests: an acknowledgement goes to `reliability` as it is; what a READ or an atomic
//! brings is checked against what is missing, goes to host memory, and then counts as an acknowledgement.

use super::key_check::Authorized;
use crate::blocks::Block;
use crate::context::access::Plan;
use crate::context::key::Right;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Body, Operation, ScatterList, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::reliability::replay_buffer::ReplayEntry;
use rnic_abi::Diagnostic;
use rnic_abi::work_request::ATOMIC_BYTES;
use rnic_pcie::Cause;
use rnic_wire::{Headers, Operation as Carried, ParsedPacket, Psn, Syndrome};

/// What a response brings to which request.
struct Answer {
    elements: ScatterList,
    slot_index: u16,
    /// Where in the elements it goes.
    offset: u64,
    length_bytes: u32,
    /// Its request's first: all elements are checked before the first byte is placed.
    first: bool,
}

impl Engine {
    /// Blocked means that nothing has changed and the packet runs again.
    pub(crate) fn response(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
    ) -> Result<(), Stop> {
        self.blocks.touch(host.now_ns, Block::RxPsnCheck, qpn.0);
        if !context.state.requests_outstanding() {
            self.counters.rx_dropped_state += 1;
            return Ok(());
        }
        let psn = packet.headers.bth.psn;
        let aeth = &packet.headers.extension.aeth;
        if packet.description.operation == Carried::Acknowledge {
            self.acknowledged(host, qpn, context, psn, aeth.syndrome, aeth.msn);
            return Ok(());
        }
        let refuses =
            packet.description.headers.contains(Headers::AETH) && !matches!(aeth.syndrome, Syndrome::Ack { .. });
        if refuses || !self.is_outstanding(context, psn) {
            self.counters.ghost_acks += 1;
            return Ok(());
        }
        let Some(awaited) = self.awaited_psn(qpn, context).filter(|awaited| !psn.is_before(*awaited)) else {
            self.response_fails(host, qpn, context, psn, Status::BadResponse, Diagnostic::BadResponse);
            return Ok(());
        };
        if psn != awaited {
            self.advance(host, qpn, context, awaited, context.requester.message_count);
            self.passed_over(host, qpn, context, awaited);
            return Ok(());
        }
        self.expected_response(host, qpn, context, packet)
    }

    /// The response that is missing next.
    fn expected_response(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
    ) -> Result<(), Stop> {
        let psn = packet.headers.bth.psn;
        let Some(entry) = self.awaiting_at(qpn, psn) else { return Ok(()) };
        let answer = match self.check_response(context, &entry, packet) {
            Ok(answer) => answer,
            Err((status, diagnostic)) => {
                self.response_fails(host, qpn, context, psn, status, diagnostic);
                return Ok(());
            }
        };
        let cause = Cause::Send { qpn: qpn.0, index: answer.slot_index, count: 1, attempt: 0 };
        match self.authorize_response(host, qpn, context, &answer, cause) {
            Ok(authorized) => {
                // The atomic's word is big-endian on the wire, and the host's own in its memory.
                let word = packet.headers.extension.atomic_ack.original.to_le_bytes();
                let is_atomic = packet.description.operation == Carried::AtomicAcknowledge;
                let payload = if is_atomic { &word } else { packet.payload };
                self.scatter(host, qpn, &authorized, payload, cause);
            }
            Err(Stop::Blocked) => return Err(Stop::Blocked),
            Err(stop) => {
                let diagnostic = match stop {
                    Stop::Refused(refusal) => self.local_refusal(refusal),
                    Stop::Broken(diagnostic) => diagnostic,
                    Stop::Blocked => Diagnostic::PayloadFault,
                };
                self.response_fails(host, qpn, context, psn, Status::LocalProtection, diagnostic);
                return Ok(());
            }
        }
        let msn = if packet.description.headers.contains(Headers::AETH) {
            context.note_credits(packet.headers.extension.aeth.syndrome);
            packet.headers.extension.aeth.msn
        } else {
            context.requester.message_count
        };
        self.advance(host, qpn, context, psn.next(), msn);
        self.advance_to_kept(host, qpn, context);
        Ok(())
    }

    /// Its kind, its place in its message and its length are those of what is missing.
    fn check_response(
        &self,
        context: &QpContext,
        entry: &ReplayEntry,
        packet: &ParsedPacket<'_>,
    ) -> Result<Answer, (Status, Diagnostic)> {
        const BAD: (Status, Diagnostic) = (Status::BadResponse, Diagnostic::BadResponse);
        let psn = packet.headers.bth.psn;
        let fetched = self.wqes.get(entry.wqe).ok_or(BAD)?;
        let work = fetched.work.as_ref().map_err(|_| BAD)?;
        let position = packet.description.position;
        let of_read = packet.description.operation == Carried::ReadResponse;
        if of_read == work.operation.is_atomic() {
            return Err(BAD);
        }
        let number = psn.distance_from(entry.first_psn);
        let (first, last) = (number == 0, psn == entry.last_psn());
        let begins = position.starts_message();
        if position.ends_message() != last || (first && !begins) || (begins && !first && !entry.restarted) {
            return Err(BAD);
        }
        let mtu = u64::from(context.path_mtu_bytes());
        let offset = u64::from(number) * mtu;
        let length_bytes = match work.operation {
            Operation::Read => (u64::from(work.length_bytes) - offset).min(mtu) as u32,
            Operation::AtomicWrite | Operation::Flush => 0,
            _ => ATOMIC_BYTES,
        };
        if of_read && packet.payload.len() != length_bytes as usize {
            return Err((Status::LocalLength, Diagnostic::ReadResponseLength));
        }
        let elements = match &work.body {
            Body::Gather(elements) if work.operation.brings_data() => elements.clone(),
            _ => ScatterList::new(),
        };
        Ok(Answer { elements, slot_index: fetched.slot_index, offset, length_bytes, first })
    }

    fn authorize_response(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        answer: &Answer,
        cause: Cause,
    ) -> Result<Authorized, Stop> {
        let accessor = self.accessor(qpn, context.pdn, Right::LocalWrite, cause, Waiter::Inbound(qpn));
        let kept = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.receive_plan.take());
        let mut plan = kept.map_or_else(Plan::default, |plan| *plan);
        let mut resolved = Ok(());
        if answer.first {
            resolved = self.check_elements(host, &answer.elements, &accessor, &mut plan);
        }
        if resolved.is_ok() {
            let length = answer.length_bytes.into();
            resolved = self.resolve(host, &answer.elements, answer.offset, length, &accessor, &mut plan);
        }
        if resolved == Err(Stop::Blocked)
            && let Some(qp) = self.queue_pairs.get_mut(qpn)
        {
            qp.receive_plan = Some(Box::new(plan));
            return Err(Stop::Blocked);
        }
        resolved.map(|()| Authorized(plan))
    }

    fn response_fails(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        status: Status,
        diagnostic: Diagnostic,
    ) {
        self.diagnose(host.now_ns, diagnostic, qpn.0, psn.get().into());
        // Everything before its request has arrived, which makes that the oldest.
        if let Some(awaited) = self.awaited_psn(qpn, context).filter(|awaited| *awaited == psn) {
            self.advance(host, qpn, context, awaited, context.requester.message_count);
        }
        self.fail_oldest(host, qpn, context, status, diagnostic);
    }
}
