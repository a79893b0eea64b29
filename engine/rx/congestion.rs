//! Congestion on the way here, and on the way there: marked packets make the peer's notification due, notifications of the
//! peer cut the rate of what is sent.

use crate::blocks::Block;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::planted::planted;
use rnic_wire::{Ecn, Operation, ParsedPacket};

impl Engine {
    /// A packet of a connection has been through the path. If it was marked, its sender is to hear of it, now and then.
    pub(super) fn note_congestion(&mut self, host: &mut Host, qpn: Qpn, packet: &ParsedPacket<'_>) {
        let network = &packet.headers.network;
        if network.ecn() != Ecn::CongestionExperienced || !is_answered(packet) {
            return;
        }
        self.counters.np_ecn_marked_roce_packets += 1;
        let config = &self.config.congestion;
        let Some(qp) = self.queue_pairs.get_mut(qpn).filter(|qp| !qp.service.is_datagram()) else { return };
        let (gid, interval_ns) = (network.source_gid().0, config.cnp_interval_ns);
        let pace_ns = &mut qp.next_cnp_ns;
        let tells = self.notifications.tells(config.cnp_scope, &gid, pace_ns, host.now_ns, interval_ns);
        if tells || planted("notifications_without_pace") {
            qp.cnp_due = true;
            self.requeue_response(qpn);
        }
    }

    /// The peer, or a switch on the way to it, tells of congestion.
    pub(super) fn congestion_told(&mut self, host: &mut Host, qpn: Qpn) {
        self.blocks.touch(host.now_ns, Block::RateLimiter, qpn.0);
        if planted("notifications_unheard") || !self.rate_limits.notified(qpn, host.now_ns) {
            self.counters.rp_cnp_ignored += 1;
        } else {
            self.counters.rp_cnp_handled += 1;
        }
    }
}

/// A notification is never the reason for another one.
fn is_answered(packet: &ParsedPacket<'_>) -> bool {
    packet.description.operation != Operation::CongestionNotification
}
