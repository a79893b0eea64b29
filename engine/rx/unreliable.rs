//! The responder of an unreliable connection: the same stages as a reliable one's, but nothing is answered, and what does
//! not fit is dropped with the rest of its message. Nothing that the peer sends changes the queue pair's state.

use super::fault::Fault;
use super::key_check::Refused;
use super::opcode_check::{self, Arrival, Message};
use super::psn_check::InSequence;
use crate::context::queue_pair::{Inbound, QpContext};
use crate::engine::Engine;
use crate::front_end::EventRecord;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;
use rnic_wire::{ParsedPacket, Psn};

/// Why a message is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    NoReceive,
    TooLong,
    Sequence,
    Refused,
}

impl Engine {
    /// Blocked means that nothing has changed and the packet runs again.
    pub(crate) fn unreliable_request(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
    ) -> Result<(), Stop> {
        let unfinished = context.responder.inbound != Inbound::None;
        let Some(in_sequence) = resynchronise(context, packet) else {
            self.count_lost(Lost::Sequence);
            return Ok(());
        };
        let interrupted = unfinished && context.responder.inbound == Inbound::None;
        let arrival = match opcode_check::check(context, &in_sequence) {
            Ok(arrival) => arrival,
            Err(_) => {
                // What belongs to no message is the rest of one that is lost already.
                let rest = context.responder.inbound == Inbound::None && !packet.description.position.starts_message();
                let lost = if rest { None } else { Some(Lost::Refused) };
                self.drop_message(context, packet.headers.bth.psn, lost);
                return Ok(());
            }
        };
        self.place_unreliably(host, qpn, context, packet, &arrival)?;
        if interrupted {
            self.count_lost(Lost::Sequence);
        }
        self.note_established(host, qpn, context);
        Ok(())
    }

    fn place_unreliably(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
        arrival: &Arrival,
    ) -> Result<(), Stop> {
        let psn = packet.headers.bth.psn;
        let needs_receive = (arrival.message == Message::Send && arrival.first) || arrival.completes_receive();
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        if needs_receive && !self.receive_ready(host, qpn, cause)? {
            self.drop_message(context, psn, Some(Lost::NoReceive));
            return Ok(());
        }
        if needs_receive && !self.take_unreliably(host, qpn, context, psn)? {
            return Ok(());
        }
        if arrival.message == Message::Send {
            self.read_next_receive(host, qpn)?;
        }
        let authorized = match self.authorize(host, qpn, context, arrival, psn.get()) {
            Ok(authorized) => authorized,
            Err(Refused::Blocked) => return Err(Stop::Blocked),
            Err(Refused::Fault(fault)) => {
                match lost_by(fault) {
                    Some(lost) => self.drop_message(context, psn, Some(lost)),
                    None => self.receive_fails(host, qpn, context, psn, fault, arrival.message == Message::Send),
                }
                return Ok(());
            }
        };
        self.scatter(host, qpn, &authorized, packet.payload, cause);
        self.advance_responder(context, arrival);
        if arrival.completes_receive() {
            self.message_arrived(host, qpn, context, arrival, None, None);
        }
        Ok(())
    }

    /// The packet and the rest of its message are of no use. A receive work request that it had begun is the next one's.
    fn drop_message(&mut self, context: &mut QpContext, psn: Psn, lost: Option<Lost>) {
        if let Some(lost) = lost {
            self.count_lost(lost);
        }
        context.responder.inbound = Inbound::None;
        context.responder.expected_psn = psn.next();
    }

    pub(crate) fn count_lost(&mut self, lost: Lost) {
        let counter = match lost {
            Lost::NoReceive => &mut self.counters.rx_dropped_no_receive,
            Lost::TooLong => &mut self.counters.rx_dropped_too_long,
            Lost::Sequence => &mut self.counters.rx_dropped_sequence,
            Lost::Refused => &mut self.counters.rx_dropped_refused,
        };
        *counter += 1;
    }

    /// The receive that a shared receive queue has for this message is in hand. False when there is none to be had any
    /// more, and the queue pair has ended.
    pub(crate) fn take_unreliably(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
    ) -> Result<bool, Stop> {
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        match self.take_receive(host, qpn, cause) {
            Ok(()) => Ok(true),
            Err(Stop::Blocked) => Err(Stop::Blocked),
            Err(stop) => {
                let diagnostic = if let Stop::Broken(broken) = stop { broken } else { Diagnostic::SrqFetchFault };
                self.receive_fails(host, qpn, context, psn, Fault::LocalOperation(diagnostic), false);
                Ok(false)
            }
        }
    }

    /// The receive work request that a SEND uses, read once.
    pub(crate) fn read_next_receive(&mut self, host: &mut Host, qpn: Qpn) -> Result<(), Stop> {
        let Some(qp) = self.queue_pairs.get(qpn) else { return Ok(()) };
        // The WQEs of earlier WRITEs with immediate come first: their reads use the same place.
        if qp.arrived.iter().any(|item| item.waits_for_wqe) {
            return Err(Stop::Blocked);
        }
        let (srqn, index) = (qp.srqn, qp.current_receive());
        self.fetch_receive_wqe(host, qpn, srqn, index)
    }

    /// A fault of this side: its receive work request, or the memory that it names. The peer is told nothing.
    pub(crate) fn receive_fails(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        psn: Psn,
        fault: Fault,
        uses_receive: bool,
    ) {
        let consequence = fault.consequence();
        let diagnostic = consequence.diagnostic;
        self.counters.resp_local_operation_errors += 1;
        self.diagnose(host.now_ns, diagnostic, qpn.0, psn.get().into());
        if let Some(status) = consequence.receive_status.filter(|_| uses_receive) {
            self.fail_receive(host, qpn, status, diagnostic);
        }
        self.enter_error(host, qpn, context, EventRecord::QpFatal { qpn: qpn.0, diagnostic });
    }
}

/// The peer's fault costs its message; none where the fault is this side's.
pub(crate) fn lost_by(fault: Fault) -> Option<Lost> {
    match fault {
        Fault::ReceiveTooSmall => Some(Lost::TooLong),
        Fault::InvalidRequest(_) | Fault::RemoteAccess(_) | Fault::Invalidate(_) => Some(Lost::Refused),
        Fault::LocalProtection(_) | Fault::LocalOperation(_) => None,
    }
}

/// In order, or the first packet of a message: a gap, and whatever message was open, ends with it.
fn resynchronise<'a, 'b>(context: &mut QpContext, packet: &'a ParsedPacket<'b>) -> Option<InSequence<'a, 'b>> {
    let half = &mut context.responder;
    let psn = packet.headers.bth.psn;
    let begins = packet.description.position.starts_message() && !planted("gap_never_closes");
    let in_order = psn == half.expected_psn || planted("unreliable_gap_ignored");
    if begins || !in_order {
        half.inbound = Inbound::None;
        half.expected_psn = if begins || planted("gap_never_closes") { psn } else { psn.next() };
    }
    (begins || in_order).then_some(InSequence(packet))
}
