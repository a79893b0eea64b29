//! Replication: each queue pair that is attached to a group takes a copy of the group's packets.

use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use rnic_wire::{Frame, IcrcCheck, parse};

impl Engine {
    /// A packet for a group. Its copies run one after the other, each with a receive work request of its own; only one that
    /// has to wait is copied indeed.
    pub(crate) fn receive_for_group(&mut self, host: &mut Host, group: [u8; 16], frame: &Frame) {
        if !self.multicast.has_members(&group) {
            self.counters.rx_dropped_no_qp += 1;
            return;
        }
        for at in 0.. {
            let Some(qpn) = self.multicast.member(&group, at) else { return };
            let Ok(packet) = parse(frame.bytes(), IcrcCheck::Trusted) else { return };
            if self.admit(host, qpn, &packet).is_none() {
                continue;
            }
            self.counters.rx_group_copies += 1;
            self.deliver_copy(host, qpn, frame);
            if planted("first_member_only") {
                return;
            }
        }
    }

    fn deliver_copy(&mut self, host: &mut Host, qpn: Qpn, frame: &Frame) {
        if self.queue_pairs.get(qpn).is_some_and(|qp| qp.inbound_blocked) {
            self.line_up(qpn, || frame.clone());
        } else if self.run_packet(host, qpn, frame) == Err(Stop::Blocked) {
            self.park(qpn, frame.clone());
        }
    }
}
