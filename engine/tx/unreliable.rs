//! What is different where nothing is acknowledged: a datagram's length and address are checked before it leaves, and a
//! message is done with its last packet.

use super::segment::Segment;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use rnic_abi::Diagnostic;

impl Engine {
    /// A datagram is one packet, to an address that the port can send to.
    pub(crate) fn check_datagram(&self, context: &QpContext, segment: &Segment) -> Result<(), Stop> {
        let work = self.wqes.get(segment.wqe).and_then(|wqe| wqe.work.as_ref().ok());
        let to = work.and_then(|work| work.destination.as_ref());
        if to.is_none_or(|to| self.contexts.gids.get(to.av.sgid_index).is_none()) {
            return Err(Stop::Broken(Diagnostic::DatagramAddress));
        }
        let too_long = work.is_some_and(|work| work.length_bytes > context.path_mtu_bytes());
        if too_long && !planted("datagram_cut_short") {
            return Err(Stop::Broken(Diagnostic::DatagramTooLong));
        }
        Ok(())
    }

    /// A packet has left that will never be sent again; behind its last one the message is complete.
    pub(crate) fn left_for_good(&mut self, host: &mut Host, qpn: Qpn, context: &mut QpContext) {
        let next = context.requester.send_psn;
        context.requester.unacked_psn = next;
        self.retire(host, qpn, next, context.requester.message_count);
        self.note_drained(host, qpn);
    }
}
