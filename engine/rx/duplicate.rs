//! Duplicates: what was executed is answered again and never executed again. A WRITE or SEND hears once more how far the
//! responder is; a READ's range, or the rest of it, is read again; an atomic gets what it found the first time, an ATOMIC_WRITE
//! or a FLUSH its empty answer. What is wrong with a duplicate is nobody's error: it is dropped.

use super::key_check::Refused;
use super::opcode_check::{Arrival, Message};
use crate::context::queue_pair::QpContext;
use crate::context::rd_atomic::RdAtomicContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::{Key, Qpn};
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::reliability::reply::{Again, ReadReply};
use rnic_pcie::Cause;
use rnic_wire::{Operation, ParsedPacket, Psn};

impl Engine {
    pub(crate) fn duplicate(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        packet: &ParsedPacket<'_>,
    ) -> Result<(), Stop> {
        let psn = packet.headers.bth.psn;
        let answered = match packet.description.operation {
            Operation::ReadRequest => self.read_again(host, qpn, context, packet)?,
            Operation::CompareSwap | Operation::FetchAdd => self.atomic_again(host, qpn, context, psn)?,
            Operation::AtomicWrite | Operation::Flush => self.placed_again(host, qpn, context, psn)?,
            _ => {
                if !planted("duplicate_in_silence") {
                    let behind = if planted("duplicate_acknowledges_too_much") { 0 } else { 1 };
                    self.owe_ack(host, qpn, context, context.responder.expected_psn.subtract(behind));
                }
                true
            }
        };
        self.counters.duplicate_request += 1;
        self.counters.duplicate_unanswered += u64::from(!answered);
        Ok(())
    }

    /// What is remembered of earlier requests, for a duplicate; none when it cannot be had.
    pub(super) fn remembered(&mut self, host: &mut Host, qpn: Qpn, psn: Psn) -> Result<Option<RdAtomicContext>, Stop> {
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 1 };
        match self.load_rd_atomic(host, qpn, cause, Waiter::Inbound(qpn)) {
            Ok(remembered) => Ok(Some(remembered)),
            Err(Stop::Blocked) => Err(Stop::Blocked),
            Err(_) => Ok(None),
        }
    }

    /// A READ, or what is left of it, if it lies inside one that was accepted.
    fn read_again(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        packet: &ParsedPacket<'_>,
    ) -> Result<bool, Stop> {
        let (psn, reth) = (packet.headers.bth.psn, &packet.headers.extension.reth);
        let Some(pdn) = self.duplicate_domain(qpn, context, packet) else { return Ok(false) };
        let context = &QpContext { pdn, ..*context };
        let Some(remembered) = self.remembered(host, qpn, psn)? else { return Ok(false) };
        let mtu = context.path_mtu_bytes();
        let Some(read) = remembered.read_at(psn, mtu) else { return Ok(false) };
        let skipped = u64::from(psn.distance_from(read.first_psn)) * u64::from(mtu);
        let (address, rkey, length_bytes) = (reth.virtual_address, Key(reth.remote_key), reth.dma_length);
        let inside = (address == read.address.wrapping_add(skipped) || planted("duplicate_read_anywhere"))
            && skipped + u64::from(length_bytes) <= u64::from(read.length_bytes)
            && (rkey == read.rkey || planted("duplicate_read_of_any_rkey"));
        if !inside {
            return Ok(false);
        }
        let arrival = Arrival::whole(Message::Read { address, rkey, length_bytes });
        match self.authorize(host, qpn, context, &arrival, psn.get()) {
            Ok(_) => {}
            Err(Refused::Blocked) => return Err(Stop::Blocked),
            Err(Refused::Fault(_)) => return Ok(false),
        }
        let packets = context.packets_of(length_bytes);
        let reply = ReadReply::new(psn, packets, address, length_bytes, rkey, pdn, context.responder.msn);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Ok(false) };
        let again = qp.replies.read_again(reply, mtu);
        self.queue_reply(qpn);
        Ok(again != Again::Refused)
    }

    fn atomic_again(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext, psn: Psn) -> Result<bool, Stop> {
        let Some(remembered) = self.remembered(host, qpn, psn)? else { return Ok(false) };
        let Some(original) = remembered.atomic_at(psn) else { return Ok(false) };
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Ok(false) };
        let again = qp.replies.atomic_again(psn, context.responder.msn, original);
        self.queue_reply(qpn);
        Ok(again != Again::Refused)
    }
}
