//! How connections are made, with which numbers, and how one end vanishes.

use crate::commands::Drain;
use crate::connection::*;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::command::*;
use rnic_engine::context::queue_pair::QpState;
use rnic_shim::verbs::*;

/// How long an answer may lie with a sender whose memory is slow.
const LAG_NS: u64 = 20_000_000;

impl Simulation {
    pub(crate) fn profile(&mut self) -> Profile {
        let mtu = self.random.pick(&[256, 512, 1024, 1024, 2048, 4096]);
        let limited = self.plan.wire.rate_gbits > 0;
        Profile {
            mtu,
            timeout: self.random.between(if limited { 10 } else { 8 }, 11) as u8,
            // Where nothing is lost few are enough; where memory is slow they may be too few, and that is seen.
            retry_cnt: if self.plan.wire.is_lossy() {
                self.random.pick(&[7, 7, 7, 2])
            } else {
                self.random.pick(&[1, 3, 7])
            },
            rnr_retry: self.random.pick(&[7, 7, 7, 2]),
            min_rnr_timer: self.random.between(1, 10) as u8,
            rd_atomics: self.random.pick(&[1, 2, 4, 16]),
        }
    }

    /// Near the wrap as often as not.
    pub(crate) fn first_psn(&mut self) -> u32 {
        match self.random.below(2) {
            0 => self.random.below(1 << 24) as u32,
            _ => (0x100_0000 - self.random.between(1, 2000)) as u32,
        }
    }

    pub(crate) fn address_of(&self, host: usize) -> AddressVector {
        let (dest_gid, dest_mac) = (self.hosts[host].gid, self.hosts[host].mac);
        AddressVector { dest_gid, dest_mac, hop_limit: 64, ..AddressVector::zeroed() }
    }

    /// RESET to RTS at both ends, with new numbers.
    pub(crate) fn connect(&mut self, number: usize) -> Result<()> {
        let profile = self.profile();
        let window = self.plan.engine.window_packets;
        // Answers wait behind requests that wait for reads.
        let lag_ns = if self.plan.memory.hold > 0 { LAG_NS } else { 0 };
        let psns = [0, 1].map(|_| self.first_psn());
        let Connection { ends, extended, .. } = self.connections[number];
        let access = ACCESS_LOCAL_WRITE
            | ACCESS_REMOTE_WRITE
            | ACCESS_REMOTE_READ
            | ACCESS_REMOTE_ATOMIC
            | ACCESS_FLUSH_GLOBAL
            | ACCESS_FLUSH_PERSISTENT;
        for end in ends {
            self.hosts[end.host].device.modify_queue_pair(end.qpn, init_attributes(access))?;
        }
        let late = self.random.one_in(3).then(|| (self.random.index(2), self.now_ns + self.random.between(1, 400_000)));
        let connection = &mut self.connections[number];
        (connection.profile, connection.phase, connection.doom) = (profile, Phase::Running, None);
        (connection.gone, connection.late, connection.established) = ([false; 2], late, [false; 2]);
        (connection.last_receive, connection.drains) = ([false; 2], [Drain::No; 2]);
        let selective = connection.selective;
        for (flow, psn) in connection.flows.iter_mut().zip(psns) {
            flow.restart(psn, window, &profile, selective, lag_ns);
        }
        for side in [0, 1] {
            let (own, peer) = (ends[side], ends[1 - side]);
            self.receive_early(number, side)?;
            let rtr = RtrAttributes {
                path_mtu_bytes: profile.mtu,
                dest_qpn: peer.qpn.0,
                rq_psn: psns[1 - side],
                max_dest_rd_atomic: profile.rd_atomics,
                min_rnr_timer: profile.min_rnr_timer,
                av: self.address_of(peer.host),
            };
            let step = of_half(side, extended, rtr_attributes(rtr));
            self.hosts[own.host].device.modify_queue_pair(own.qpn, step)?;
        }
        for side in [0, 1] {
            self.renew_view(number, side)?;
        }
        for side in [0, 1].into_iter().filter(|side| late.is_none_or(|(late, _)| late != *side)) {
            self.make_ready_to_send(number, side)?;
        }
        self.coverage.items(&[81, 106]);
        Ok(())
    }

    /// Receives are posted from INIT on: they are there when the first message comes.
    fn receive_early(&mut self, number: usize, side: usize) -> Result<()> {
        if self.connections[number].shares(side) || !self.random.one_in(3) {
            return Ok(());
        }
        for _ in 0..self.random.between(1, 3) {
            self.post_receive(number, 1 - side).map_err(|what| VerbsError::Missing { what })?;
        }
        let flow = &mut self.connections[number].flows[1 - side];
        flow.early = flow.next_receive;
        Ok(())
    }

    pub(crate) fn make_ready_to_send(&mut self, number: usize, side: usize) -> Result<()> {
        let Connection { ends, flows, profile, extended, .. } = &self.connections[number];
        let rts = RtsAttributes {
            sq_psn: flows[side].next_psn,
            timeout: profile.timeout,
            retry_cnt: profile.retry_cnt,
            rnr_retry: profile.rnr_retry,
            max_rd_atomic: profile.rd_atomics,
        };
        let own = ends[side];
        let step = of_half(side, *extended, rts_attributes(rts));
        self.hosts[own.host].device.modify_queue_pair(own.qpn, step)
    }

    pub(crate) fn state_of(&self, end: End) -> Option<QpState> {
        self.hosts[end.host].adapter.borrow().engine.queue_pair_state(end.qpn.0)
    }

    pub(crate) fn modify(&mut self, end: End, state: u8) -> Checked {
        let device = &mut self.hosts[end.host].device;
        device.modify_queue_pair(end.qpn, state_attributes(state)).map_err(explain("changing a queue pair's state"))
    }

    /// One end goes to RESET and tells nobody.
    pub(crate) fn vanish(&mut self, number: usize, side: usize) -> Checked {
        let end = self.connections[number].ends[side];
        // What has completed is taken first; what has not is never completed.
        self.poll_host(end.host)?;
        self.modify(end, QP_STATE_RESET)?;
        let connection = &mut self.connections[number];
        let posted = connection.flows[side].outstanding.len() + connection.flows[1 - side].receives.len();
        self.hosts[end.host].counted.unseen_most += posted as u64;
        (connection.gone[side], connection.drains[side]) = (true, Drain::No);
        connection.flows[side].forget_sends();
        connection.flows[1 - side].forget_receives();
        self.hosts[end.host].counted.receives_most += 1;
        self.coverage.item(81);
        Ok(())
    }
}

/// A step of one side, which of an extended connection is half a queue pair.
fn of_half(side: usize, extended: bool, step: QpAttributes) -> QpAttributes {
    match (extended, side) {
        (false, _) => step,
        (true, 0) => xrc_initiator(step),
        (true, _) => xrc_target(step),
    }
}
