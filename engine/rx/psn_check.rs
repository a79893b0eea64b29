//! RX PSN check: in order, a duplicate, or a gap; and the way of an acknowledgement to `reliability`.

use crate::blocks::Block;
use crate::context::queue_pair::{QpContext, QpState};
use crate::engine::Engine;
use crate::front_end::EventRecord;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::planted::planted;
use rnic_pcie::Cause;
use rnic_wire::{NakCode, Opcode, ParsedPacket, Syndrome};

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
    ) -> Option<InSequence<'a, 'b>> {
        self.blocks.touch(host.now_ns, Block::RxPsnCheck, qpn.0);
        let expected = context.responder.expected_psn;
        match packet.headers.bth.psn.compare(expected) {
            0 => Some(InSequence(packet)),
            ahead if ahead > 0 => {
                self.counters.out_of_seq_request += 1;
                // One NAK for a gap: everything until it closes is dropped in silence.
                if !context.responder.nak_outstanding {
                    context.responder.nak_outstanding = true;
                    self.counters.send_seq_err += 1;
                    let syndrome = Syndrome::Nak { code: NakCode::PSN_SEQUENCE_ERROR };
                    self.owe(host, qpn, context, expected, syndrome);
                }
                None
            }
            _ if planted("duplicates_executed") => Some(InSequence(packet)),
            _ => {
                // Never executed again: the peer hears once more how far we are.
                self.counters.duplicate_request += 1;
                self.owe_ack(host, qpn, context, expected.subtract(1));
                None
            }
        }
    }

    /// The first valid packet in RTR tells the driver that the peer is there.
    pub(crate) fn note_established(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        if !context.responder.communication_established {
            context.responder.communication_established = true;
            if context.state == QpState::Rtr {
                self.async_event(host, EventRecord::CommunicationEstablished { qpn: qpn.0 }, Cause::Maintenance);
            }
        }
    }

    /// Responses: acknowledgements of what this queue pair has sent.
    pub(crate) fn response(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext, packet: &ParsedPacket<'_>) {
        self.blocks.touch(host.now_ns, Block::RxPsnCheck, qpn.0);
        if !context.state.requests_outstanding() {
            self.counters.rx_dropped_state += 1;
            return;
        }
        if packet.headers.bth.opcode != Opcode::RC_ACKNOWLEDGE {
            // No request of ours asks for another kind of answer yet: nothing is outstanding that it could match.
            self.counters.ghost_acks += 1;
            return;
        }
        let aeth = &packet.headers.extension.aeth;
        self.acknowledged(host, qpn, context, packet.headers.bth.psn, aeth.syndrome, aeth.msn);
    }
}
