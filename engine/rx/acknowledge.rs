//! Response generation: what the peer is owed. Nothing is sent from here: a [`ResponseDue`] waits with the queue
//! pair until the transmit side builds it, behind the READs and atomics that were asked for before; a later
//! acknowledgement replaces an earlier one.

use crate::blocks::Block;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::reliability::ResponseDue;
use rnic_wire::{CreditCode, Psn, Syndrome};

impl Engine {
    /// An acknowledgement of everything up to `psn`.
    pub(crate) fn owe_ack(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext, psn: Psn) {
        self.owe(host, qpn, context, psn, Syndrome::Ack { credits: CreditCode::NONE });
    }

    pub(crate) fn note_response_generation(&mut self, host: &mut Host, qpn: Qpn) {
        self.blocks.touch(host.now_ns, Block::ResponseGeneration, qpn.0);
    }

    pub(crate) fn owe(&mut self, host: &mut Host, qpn: Qpn, context: &QpContext, psn: Psn, syndrome: Syndrome) {
        self.note_response_generation(host, qpn);
        let due = ResponseDue { psn, syndrome, msn: context.responder.msn };
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if is_ack(syndrome) && qp.owed.is_some_and(|owed| !is_ack(owed.syndrome) && owed.psn.is_after(psn)) {
            // The refusal that waits acknowledges as much, and must not be lost.
            return;
        }
        qp.owed = Some(due);
        if !qp.owed_queued {
            qp.owed_queued = true;
            self.responses.push_back(qpn);
        }
    }
}

const fn is_ack(syndrome: Syndrome) -> bool {
    matches!(syndrome, Syndrome::Ack { .. })
}
