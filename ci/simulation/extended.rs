//! Extended connections: an initiator at one host, a target at the other, and the queues of its domain.

use crate::connection::{Connection, End};
use crate::run::Simulation;
use crate::shared::DOMAIN;
use rnic_shim::verbs::*;

impl Simulation {
    /// Queues of an extended domain at a host.
    pub(crate) fn extended_queues_of(&self, host: usize) -> Vec<usize> {
        let of_host = |at: &usize| self.shared[*at].host == host && self.shared[*at].cqn.is_some();
        (0..self.shared.len()).filter(of_host).collect()
    }

    /// An initiator at one host, a target at the other, which may have a receive of any queue of its domain in hand.
    pub(crate) fn build_extended_ends(
        &mut self,
        pair: [usize; 2],
        choice: [[usize; 2]; 2],
        _selective: bool,
    ) -> Result<[End; 2]> {
        let end = |host: usize, choice: [usize; 2]| {
            let [send_cq, receive_cq] = choice.map(|queue| self.hosts[host].queues[queue].cqn);
            End { host, qpn: Qpn(0), send_cq, receive_cq, shared: None }
        };
        let mut ends = [end(pair[0], choice[0]), end(pair[1], choice[1])];
        let spec = QpSpec { qpn: None, ..self.spec_of(ends[0], false) };
        ends[0].qpn = self.hosts[pair[0]].device.create_xrc_initiator(spec)?;
        ends[1].qpn = self.hosts[pair[1]].device.create_xrc_target(None, DOMAIN)?;
        for queue in self.extended_queues_of(pair[1]) {
            self.shared[queue].users += 1;
        }
        Ok(ends)
    }

    /// One end of a connection under its number, after its adapter has begun anew.
    pub(crate) fn create_again(&mut self, number: usize, side: usize) -> Result<()> {
        let Connection { ends, selective, extended, .. } = self.connections[number];
        let end = ends[side];
        let spec = self.spec_of(end, selective);
        let device = &mut self.hosts[end.host].device;
        match (extended, side) {
            (false, _) => self.create_pair(end.host, spec, end.shared)?,
            (true, 0) => device.create_xrc_initiator(spec)?,
            (true, _) => device.create_xrc_target(Some(end.qpn.0), DOMAIN)?,
        };
        Ok(())
    }
}
