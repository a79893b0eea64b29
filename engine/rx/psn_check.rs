//! RX PSN check: in order, a duplicate, or a gap.

use crate::blocks::Block;
use crate::context::queue_pair::{QpContext, QpState};
use crate::engine::Engine;
use crate::front_end::EventRecord;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use rnic_pcie::Cause;
use rnic_wire::{NakCode, ParsedPacket, Syndrome};

/// A request packet whose PSN is the expected one. Nothing else reaches the later stages.
#[derive(Debug)]
pub(crate) struct InSequence<'a, 'b>(pub &'a ParsedPacket<'b>);

impl Engine {
    /// Requests: only the expected PSN goes on.
    pub(crate) fn check_psn<'a, 'b>(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &'a ParsedPacket<'b>,
    ) -> Result<Option<InSequence<'a, 'b>>, Stop> {
        self.blocks.touch(host.now_ns, Block::RxPsnCheck, qpn.0);
        let expected = context.responder.expected_psn;
        let psn = packet.headers.bth.psn;
        let as_numbers = psn.get().cast_signed() - expected.get().cast_signed();
        let distance = if planted("psns_compared_as_numbers") { as_numbers } else { psn.compare(expected) };
        match distance {
            0 => Ok(Some(InSequence(packet))),
            ahead if ahead > 0 && self.comes_ahead(qpn, context, packet) => Ok(None),
            ahead if ahead > 0 && !planted("gap_executed") => {
                self.counters.out_of_seq_request += 1;
                // One NAK for a gap: everything until it closes is dropped in silence.
                if !context.responder.nak_outstanding || planted("second_nak_for_a_gap") {
                    context.responder.nak_outstanding = true;
                    self.counters.send_seq_err += 1;
                    let syndrome = Syndrome::Nak { code: NakCode::PSN_SEQUENCE_ERROR };
                    let named = if planted("nak_names_the_packet_behind") { expected.next() } else { expected };
                    self.owe(host, qpn, context, named, syndrome);
                }
                Ok(None)
            }
            _ if planted("duplicates_executed") || planted("gap_executed") => Ok(Some(InSequence(packet))),
            _ => self.duplicate(host, qpn, context, packet).map(|()| None),
        }
    }

    /// The first valid packet in RTR tells the driver that the peer is there.
    pub(crate) fn note_established(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        if !context.responder.communication_established || planted("established_again_and_again") {
            context.responder.communication_established = true;
            if context.state == QpState::Rtr && !planted("established_in_silence") {
                self.async_event(host, EventRecord::CommunicationEstablished { qpn: qpn.0 }, Cause::Maintenance);
            }
        }
    }
}
