//! The responder: a request packet through its stages, in the order of the specification: PSN, opcode, resources,
//! key, execution, acknowledgement, completion.

use super::fault::Fault;
use super::key_check::Refused;
use super::opcode_check::{self, Arrival, Message};
use super::read_reply::AcceptedRead;
use crate::context::queue_pair::{Inbound, QpContext};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::{ParsedPacket, Psn, RnrTimer, Syndrome};

impl Engine {
    /// Blocked means that nothing has changed and the packet runs again.
    pub(crate) fn request(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
    ) -> Result<(), Stop> {
        let Some(in_sequence) = self.check_psn(host, qpn, context, packet)? else { return Ok(()) };
        let checked = opcode_check::check(context, &in_sequence)
            .and_then(|arrival| self.aim(qpn, context, packet, arrival.first).map(|()| arrival));
        let arrival = match checked {
            Ok(arrival) => arrival,
            Err(fault) => {
                self.responder_fault(host, qpn, context, packet.headers.bth.psn, fault, false);
                return Ok(());
            }
        };
        match arrival.message {
            Message::Send | Message::Write { .. } => self.place(host, qpn, context, packet, &arrival)?,
            Message::Read { .. } | Message::Atomic { .. } | Message::AtomicWrite { .. } | Message::Flush { .. } => {
                self.answer(host, qpn, context, packet, &arrival)?;
            }
        }
        self.note_established(host, qpn, context);
        Ok(())
    }

    /// What has an answer of its own: a place to remember it in, the key, its execution.
    fn answer(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
        arrival: &Arrival,
    ) -> Result<(), Stop> {
        let psn = packet.headers.bth.psn;
        let executed = match self.rd_atomic_resource(host, qpn, context, psn)? {
            Err(fault) => Err(fault),
            Ok(remembered) => match (self.authorize(host, qpn, context, arrival, psn.get()), arrival.message) {
                (Err(Refused::Blocked), _) => return Err(Stop::Blocked),
                (Err(Refused::Fault(fault)), _) => Err(fault),
                (Ok(authorized), Message::Atomic { modify, .. }) => {
                    self.execute_atomic(host, qpn, context, modify, psn, &authorized, remembered)?
                }
                (Ok(authorized), Message::AtomicWrite { bytes, .. }) => {
                    self.execute_atomic_write(host, qpn, context, bytes, psn, &authorized, remembered)?
                }
                (Ok(authorized), Message::Flush { .. }) => {
                    self.execute_flush(host, qpn, context, psn, &authorized, remembered)?
                }
                (Ok(_), Message::Read { address, rkey, length_bytes }) => {
                    let read = AcceptedRead { address, rkey, length_bytes };
                    self.accept_read(host, qpn, context, &read, psn, remembered);
                    Ok(())
                }
                (Ok(_), Message::Send | Message::Write { .. }) => Ok(()),
            },
        };
        if let Err(fault) = executed {
            self.responder_fault(host, qpn, context, psn, fault, false);
        }
        Ok(())
    }

    /// A SEND or a WRITE: its bytes go to host memory.
    fn place(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
        arrival: &Arrival,
    ) -> Result<(), Stop> {
        let psn = packet.headers.bth.psn;
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        let needs_receive = (arrival.message == Message::Send && arrival.first)
            || arrival.completes_receive()
            || planted("every_packet_needs_a_receive");
        let ready = !needs_receive || self.receive_ready(host, qpn, cause)?;
        if !ready && planted("receiver_not_ready_in_silence") {
            return Ok(());
        }
        if !ready {
            self.counters.send_rnr_err += 1;
            // What follows is out of sequence because of this: it is dropped in silence.
            context.responder.nak_outstanding = !planted("nak_behind_receiver_not_ready");
            let timer =
                RnrTimer::new(if planted("rnr_timer_of_its_own") { 1 } else { context.responder.min_rnr_timer });
            self.owe(host, qpn, context, psn, Syndrome::RnrNak { timer });
            return Ok(());
        }
        if arrival.message == Message::Send {
            // The WQEs of earlier WRITEs with immediate come first: their reads use the same place.
            if self.queue_pairs.get(qpn).is_some_and(|qp| qp.arrived.iter().any(|item| item.waits_for_wqe)) {
                return Err(Stop::Blocked);
            }
            if arrival.first && !self.receive_taken(host, qpn, context, psn, cause)? {
                return Ok(());
            }
            self.read_next_receive(host, qpn)?;
        }
        let authorized = match self.authorize(host, qpn, context, arrival, psn.get()) {
            Ok(authorized) => authorized,
            Err(Refused::Blocked) => return Err(Stop::Blocked),
            Err(Refused::Fault(fault)) => {
                let uses_receive = arrival.message == Message::Send;
                self.responder_fault(host, qpn, context, psn, fault, uses_receive);
                return Ok(());
            }
        };
        let waiter = Waiter::Inbound(qpn);
        let named = arrival.invalidate;
        let invalidatable = named.map(|key| self.invalidatable(host, key, qpn, cause, waiter));
        if invalidatable == Some(Err(Stop::Blocked)) {
            if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                qp.receive_plan = Some(Box::new(authorized.0));
            }
            return Err(Stop::Blocked);
        }
        if arrival.completes_receive() && arrival.message != Message::Send {
            match self.receive_taken(host, qpn, context, psn, cause) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(stop) => {
                    if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                        qp.receive_plan = Some(Box::new(authorized.0));
                    }
                    return Err(stop);
                }
            }
        }
        if planted("completion_before_payload") && arrival.completes_receive() {
            self.message_arrived(host, qpn, context, arrival, None, None);
        }
        self.scatter(host, qpn, &authorized, packet.payload, cause);
        if let Some(Err(stop)) = invalidatable {
            let diagnostic =
                if let Stop::Broken(diagnostic) = stop { diagnostic } else { Diagnostic::InvalidateRefused };
            self.responder_fault(host, qpn, context, psn, Fault::Invalidate(diagnostic), true);
            return Ok(());
        }
        let barrier = match (named, invalidatable) {
            (Some(key), Some(Ok(of_key))) => self.invalidate(host, key, of_key),
            _ => None,
        };
        self.advance_responder(context, arrival);
        if packet.headers.bth.ack_req && !planted("request_for_acknowledgement_ignored") {
            self.owe_ack(host, qpn, context, psn);
        }
        if arrival.completes_receive() && !planted("completion_before_payload") {
            self.message_arrived(host, qpn, context, arrival, barrier, None);
        }
        Ok(())
    }

    /// The receive that a shared receive queue has for this message is in hand. False when there is none to be had any
    /// more: the fault has been dealt with.
    fn receive_taken(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        cause: Cause,
    ) -> Result<bool, Stop> {
        match self.take_receive(host, qpn, cause) {
            Ok(()) => Ok(true),
            Err(Stop::Blocked) => Err(Stop::Blocked),
            Err(stop) => {
                let diagnostic = if let Stop::Broken(broken) = stop { broken } else { Diagnostic::SrqFetchFault };
                self.responder_fault(host, qpn, context, psn, Fault::LocalOperation(diagnostic), false);
                Ok(false)
            }
        }
    }

    /// The packet is executed: the next PSN is expected, and the message has grown or is complete.
    pub(crate) fn advance_responder(&mut self, context: &mut QpContext, arrival: &Arrival) {
        let half = &mut context.responder;
        if arrival.last {
            self.counters.executed_messages += 1;
            let msn = half.msn;
            half.message_arrived(1);
            if planted("msn_stands_still") {
                half.msn = msn;
            }
            return;
        }
        half.expected_psn = half.expected_psn.next();
        half.nak_outstanding &= planted("nak_outstanding_for_ever");
        if planted("msn_counts_packets") {
            half.msn = half.msn.next();
        }
        let received = arrival.offset + u64::from(arrival.length_bytes);
        half.inbound = match arrival.message {
            Message::Send => Inbound::Send { received_bytes: received },
            Message::Read { .. } | Message::Atomic { .. } => Inbound::None,
            Message::AtomicWrite { .. } | Message::Flush { .. } => Inbound::None,
            Message::Write { address, rkey, length_bytes } => {
                Inbound::Write { address, rkey, length_bytes, received_bytes: received as u32 }
            }
        };
    }

    /// What a fault means for the peer, the driver and the queue pair: see [`Fault::consequence`].
    pub(crate) fn responder_fault(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        fault: Fault,
        uses_receive: bool,
    ) {
        let consequence = fault.consequence();
        match fault {
            Fault::InvalidRequest(_) | Fault::ReceiveTooSmall => self.counters.resp_local_invalid_request += 1,
            Fault::RemoteAccess(_) | Fault::Invalidate(_) => self.counters.resp_remote_access_errors += 1,
            Fault::LocalProtection(_) | Fault::LocalOperation(_) => self.counters.resp_local_operation_errors += 1,
        }
        self.diagnose(host.now_ns, consequence.diagnostic, qpn.0, psn.get().into());
        if let Some(code) = consequence.nak {
            self.owe(host, qpn, context, psn, Syndrome::Nak { code });
        }
        if let Some(status) = consequence.receive_status.filter(|_| uses_receive) {
            self.fail_receive(host, qpn, status, consequence.diagnostic);
        }
        // The peer hears of its fault behind the answers of what it asked for before.
        let replies = self.queue_pairs.get_mut(qpn).map(|qp| std::mem::take(&mut qp.replies));
        if !planted("refusal_without_error_state") {
            self.enter_error(host, qpn, context, consequence.event(qpn));
        }
        if let (Some(qp), Some(replies)) = (self.queue_pairs.get_mut(qpn), replies) {
            qp.replies = replies;
        }
    }
}
