//! How connections fail, end and are made anew; and what must hold at the end of a run.

use crate::connection::*;
use crate::message::pool;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::command::*;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::Class;
use rnic_shim::verbs::*;

/// Longer than any frame stays in the fabric.
pub(crate) const REST_NS: u64 = 3_000_000;

impl Simulation {
    pub(crate) fn profile(&mut self) -> Profile {
        let mtu = self.random.pick(&[256, 512, 1024, 1024, 2048, 4096]);
        let limited = self.plan.wire.rate_gbits > 0;
        // A receiver whose memory is slow may need more than one timeout.
        let slow = self.plan.memory.hold >= 200_000;
        Profile {
            mtu,
            timeout: self.random.between(if limited || slow { 10 } else { 8 }, 11) as u8,
            retry_cnt: if self.plan.wire.is_lossy() || slow { 7 } else { self.random.pick(&[1, 3, 7]) },
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
        let psns = [0, 1].map(|_| self.first_psn());
        let ends = self.connections[number].ends;
        let access = ACCESS_LOCAL_WRITE
            | ACCESS_REMOTE_WRITE
            | ACCESS_REMOTE_READ
            | ACCESS_REMOTE_ATOMIC
            | ACCESS_FLUSH_GLOBAL
            | ACCESS_FLUSH_PERSISTENT;
        for side in [0, 1] {
            let (own, peer) = (ends[side], ends[1 - side]);
            let av = self.address_of(peer.host);
            let device = &mut self.hosts[own.host].device;
            device.modify_queue_pair(own.qpn, init_attributes(access))?;
            let rtr = RtrAttributes {
                path_mtu_bytes: profile.mtu,
                dest_qpn: peer.qpn.0,
                rq_psn: psns[1 - side],
                max_dest_rd_atomic: profile.rd_atomics,
                min_rnr_timer: profile.min_rnr_timer,
                av,
            };
            device.modify_queue_pair(own.qpn, rtr_attributes(rtr))?;
        }
        let late = self.random.one_in(3).then(|| (self.random.index(2), self.now_ns + self.random.between(1, 400_000)));
        let connection = &mut self.connections[number];
        (connection.profile, connection.phase, connection.doom) = (profile, Phase::Running, None);
        (connection.gone, connection.late, connection.established) = (None, late, [false; 2]);
        connection.last_receive = [false; 2];
        let selective = connection.selective;
        for (flow, psn) in connection.flows.iter_mut().zip(psns) {
            flow.restart(psn, window, &profile, selective);
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

    fn make_ready_to_send(&mut self, number: usize, side: usize) -> Result<()> {
        let Connection { ends, flows, profile, .. } = &self.connections[number];
        let rts = RtsAttributes {
            sq_psn: flows[side].next_psn,
            timeout: profile.timeout,
            retry_cnt: profile.retry_cnt,
            rnr_retry: profile.rnr_retry,
            max_rd_atomic: profile.rd_atomics,
        };
        let own = ends[side];
        self.hosts[own.host].device.modify_queue_pair(own.qpn, rts_attributes(rts))
    }

    fn state_of(&self, end: End) -> Option<QpState> {
        self.hosts[end.host].adapter.borrow().engine.queue_pair_state(end.qpn.0)
    }

    fn modify(&mut self, end: End, state: u8) -> Checked {
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
        connection.gone = Some(side);
        connection.flows[side].forget_sends();
        connection.flows[1 - side].forget_receives();
        self.hosts[end.host].counted.receives_most += 1;
        self.coverage.item(81);
        Ok(())
    }

    /// Lets connections live: mistakes of the driver, failures that have been noticed, ends and new beginnings.
    pub(crate) fn keep_connections(&mut self) -> Checked<bool> {
        let mut any = false;
        for number in 0..self.connections.len() {
            any |= self.keep(number)?;
        }
        if self.healed_ns.is_none() && self.random.per_million(self.plan.flushes) {
            let host = self.random.index(self.hosts.len());
            let mask = self.random.pick(&[FLUSH_QP, FLUSH_CQ, FLUSH_KEY, FLUSH_TRANSLATION, FLUSH_QP | FLUSH_KEY]);
            self.hosts[host].device.flush_caches(mask).map_err(explain("flushing caches"))?;
            self.coverage.note("cache flushes", 1);
        }
        Ok(any)
    }

    fn keep(&mut self, number: usize) -> Checked<bool> {
        let connection = &mut self.connections[number];
        match connection.phase {
            Phase::Running => {
                if let Some((side, _)) = connection.late.filter(|(_, until_ns)| self.now_ns >= *until_ns) {
                    connection.late = None;
                    let end = connection.ends[side];
                    // It may have failed meanwhile, or gone; or fail of what comes home while the command waits.
                    if self.state_of(end) == Some(QpState::Rtr)
                        && let Err(error) = self.make_ready_to_send(number, side)
                        && self.state_of(end) != Some(QpState::Err)
                    {
                        return Err(format!("going to RTS: {error}"));
                    }
                    return Ok(true);
                }
                let failed = connection.flows.iter().any(|flow| flow.failed || flow.receive_failed);
                self.forgive(number);
                // The one that must fail gets its time to.
                let waits = match self.connections[number].doom {
                    Some(Doom::Fault { flow, .. }) => !self.connections[number].flows[flow].failed,
                    _ => false,
                };
                if failed && (!waits || self.connections[number].flows.iter().any(|flow| flow.failed)) {
                    self.end_connection(number)?;
                    return Ok(true);
                }
                Ok(self.keep_view(number, 0)? | self.keep_view(number, 1)? | self.disturb(number)?)
            }
            Phase::Ending => {
                if !connection.flows.iter().all(Flow::is_idle)
                    || ![0, 1].iter().all(|side| connection.has_let_go(*side))
                {
                    return Ok(false);
                }
                self.settle_doubtful(number)?;
                for end in self.connections[number].ends {
                    self.modify(end, QP_STATE_RESET)?;
                    // Its own, or one of a shared queue with its place in the index ring.
                    self.hosts[end.host].counted.receives_most += 2;
                }
                self.connections[number].phase = Phase::Resting { until_ns: self.now_ns + REST_NS };
                Ok(true)
            }
            Phase::Resting { until_ns } if self.now_ns >= until_ns => {
                self.connect(number).map_err(explain("connecting"))?;
                Ok(true)
            }
            Phase::Resting { .. } => Ok(false),
        }
    }

    /// A key that went away hurts nobody who did not use it.
    fn forgive(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let over = match connection.doom {
            Some(Doom::Rekey { flow, before, .. }) => {
                let flow = &connection.flows[flow];
                !flow.failed && flow.outstanding.front().is_none_or(|message| message.number >= before)
            }
            Some(Doom::Memory) => {
                self.healed_ns.is_some() && connection.flows.iter().all(|flow| flow.outstanding.is_empty())
            }
            _ => false,
        };
        if over {
            connection.doom = None;
        }
    }

    /// The driver ends a connection for no reason, or takes a key away under traffic.
    fn disturb(&mut self, number: usize) -> Checked<bool> {
        if self.healed_ns.is_some() || self.connections[number].doom.is_some() {
            return Ok(false);
        }
        let share = self.connections.len() as u32;
        if self.random.per_million(self.plan.resets / share) {
            self.coverage.note("resets of a connection", 1);
            self.end_connection(number)?;
            return Ok(true);
        }
        if !self.random.per_million(self.plan.rekeys / share) {
            return Ok(false);
        }
        let side = self.random.index(2);
        let connection = &mut self.connections[number];
        let receiver = connection.ends[1 - side].host;
        let flow = &mut connection.flows[side];
        let Some(region) = flow.target.take() else { return Ok(false) };
        let used = flow.outstanding.iter().any(|message| message.writes());
        let before = flow.next_number;
        let region = self.hosts[receiver].rekey(region).map_err(explain("changing a region's key"))?;
        let connection = &mut self.connections[number];
        connection.flows[side].target = Some(region);
        if used {
            connection.doom = Some(Doom::Rekey { flow: side, before, view: false });
            self.coverage.note("keys taken away under traffic", 1);
        }
        self.coverage.item(82);
        Ok(true)
    }

    fn end_connection(&mut self, number: usize) -> Checked {
        let Connection { ends, gone, .. } = self.connections[number];
        for side in [0, 1] {
            if gone != Some(side) {
                self.modify(ends[side], QP_STATE_ERR)?;
            }
        }
        (self.connections[number].phase, self.connections[number].late) = (Phase::Ending, None);
        Ok(())
    }

    /// What a failed message left behind: old bytes or its own, and nothing else.
    fn settle_doubtful(&mut self, number: usize) -> Checked {
        for side in [0, 1] {
            self.settle_words(number, side)?;
            self.settle_view(number, side)?;
            let connection = &mut self.connections[number];
            let doubtful = std::mem::take(&mut connection.flows[side].doubtful);
            if doubtful.is_empty() {
                continue;
            }
            let (sender, found) = (connection.ends[side].host, self.target_bytes(number, side)?);
            let flow = &mut self.connections[number].flows[side];
            for (at, byte) in found.iter().enumerate().filter(|(at, byte)| flow.shadow[*at] != **byte) {
                let at = at as u32;
                let mut candidates = doubtful.iter().filter(|message| message.overlaps(at, 1));
                if !candidates.any(|message| message.byte(pool(sender), at - message.at) == Some(*byte)) {
                    return Err(format!(
                        "connection {number}, flow {side}: byte {at} of the region is {byte:#x}, which nobody sent"
                    ));
                }
            }
            flow.shadow.copy_from_slice(&found);
        }
        Ok(())
    }

    /// Each word is what the last atomic that was executed left, and that is none before those that completed.
    fn settle_words(&mut self, number: usize, side: usize) -> Checked {
        let connection = &mut self.connections[number];
        let receiver = connection.ends[1 - side].host;
        let flow = &mut connection.flows[side];
        let (doubtful, iova) = (std::mem::take(&mut flow.doubtful_atomics), flow.words.buffer.iova);
        let mut bytes = vec![0; 8 * flow.word_values.len()];
        self.hosts[receiver].read(iova, &mut bytes).map_err(explain("reading words"))?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        for (word, found) in words.enumerate() {
            let mut of_word = doubtful.iter().filter(|work| work.word == word).peekable();
            let known = of_word.peek().map_or(flow.word_values[word], |work| work.before);
            if found != known && !of_word.any(|work| work.after == found) {
                return Err(format!("connection {number}, flow {side}: word {word} is {found:#x}, not {known:#x}"));
            }
            flow.word_values[word] = found;
        }
        Ok(())
    }

    fn target_bytes(&mut self, number: usize, side: usize) -> Checked<Vec<u8>> {
        let connection = &self.connections[number];
        let receiver = connection.ends[1 - side].host;
        let Some(target) = &connection.flows[side].target else { return Ok(Vec::new()) };
        let buffer = target.buffer;
        let mut bytes = vec![0; buffer.length_bytes as usize];
        self.hosts[receiver].read(buffer.iova, &mut bytes).map_err(explain("reading a region"))?;
        Ok(bytes)
    }

    /// Everything is done: data, crossings and counters agree.
    pub(crate) fn check_end(&mut self) -> Checked {
        for host in 0..self.hosts.len() {
            self.poll_host(host)?;
            self.hosts[host].check_guards().map_err(|what| format!("host {host}: {what}"))?;
            if let Some(queue) = self.hosts[host].queues.iter().find(|queue| queue.due) {
                return Err(format!("host {host}: {} was armed, had an entry, and raised no event", queue.cqn));
            }
        }
        for number in 0..self.connections.len() {
            self.settle_doubtful(number)?;
            for side in [0, 1] {
                if self.target_bytes(number, side)? != self.connections[number].flows[side].shadow {
                    return Err(format!(
                        "connection {number}, flow {side}: the region is not what the messages made it"
                    ));
                }
                let flow = &self.connections[number].flows[side];
                if !flow.arriving.is_empty() {
                    return Err(format!(
                        "connection {number}, flow {side}: {} messages never arrived",
                        flow.arriving.len()
                    ));
                }
            }
        }
        self.check_stations()?;
        self.check_shared()?;
        (0..self.hosts.len()).try_for_each(|host| self.check_crossings(host))?;
        self.note_surroundings();
        Ok(())
    }

    /// The ledger against the program and the frames.
    fn check_crossings(&mut self, number: usize) -> Checked {
        let host = &self.hosts[number];
        let adapter = host.adapter.borrow();
        let ledger = adapter.link.ledger();
        let counted = host.counted;
        let exactly = |class: Class, right: u64| (class, right, right);
        let held = adapter.held_reads + adapter.failed_reads;
        let rows = [
            exactly(Class::Doorbell, counted.send_doorbells),
            exactly(Class::RecvDoorbell, counted.receive_doorbells),
            exactly(Class::CqArm, counted.arms),
            (Class::CqeWrite, counted.completions, counted.completions + counted.unseen_most),
            exactly(Class::Event, counted.events),
            exactly(Class::CommandCompletion, ledger.class(Class::CommandFetch).crossings),
            // A gather that came back late may have been for nothing.
            (Class::PayloadRead, counted.gathered, counted.gathered + held),
            (Class::PayloadWrite, counted.placed_least, counted.placed_most),
            (Class::AtomicRead, counted.atomics_least, counted.atomics_most + held),
            (
                Class::AtomicWrite,
                counted.atomics_least + counted.atomic_writes_least,
                counted.atomics_most + counted.atomic_writes_most,
            ),
            (Class::FlushRead, counted.flushes_least, counted.flushes_most + held),
            (Class::RecvWqeFetch, counted.receives_least, counted.receives_most + held),
        ];
        for (class, least, most) in rows {
            let found = ledger.class(class).crossings;
            if !(least..=most).contains(&found) {
                return Err(format!(
                    "host {number}: {found} crossings of class {}; the program and the frames make it {least} to {most}",
                    class.name()
                ));
            }
        }
        let counters = adapter.engine.counters();
        for (name, count) in
            [("cqe_lost", counters.cqe_lost), ("eqe_lost", counters.eqe_lost), ("msn_mismatch", counters.msn_mismatch)]
        {
            if count > 0 {
                return Err(format!("host {number}: {name} is {count}"));
            }
        }
        Ok(())
    }

    fn note_surroundings(&mut self) {
        let mut totals: std::collections::BTreeMap<&'static str, u64> = std::collections::BTreeMap::new();
        for host in &self.hosts {
            let adapter = host.adapter.borrow();
            let port = adapter.port.statistics();
            let ledger = adapter.link.ledger();
            let counters = adapter.engine.counters();
            for (name, times) in [
                ("lost frames", port.dropped(rnic_switch::DropReason::Loss)),
                ("frames beyond the queue", port.dropped(rnic_switch::DropReason::QueueFull)),
                ("duplicated frames", port.duplicated_frames),
                ("reordered frames", port.reordered_frames),
                ("held reads", adapter.held_reads),
                ("context fetches", ledger.class(Class::ContextFetch).crossings),
                ("key fetches", ledger.class(Class::KeyFetch).crossings),
                ("translation fetches", ledger.class(Class::TranslationFetch).crossings),
                ("consumer records read", ledger.class(Class::RecordFetch).crossings),
                ("packets sent again", counters.retransmitted_pkts),
            ] {
                *totals.entry(name).or_default() += times;
            }
        }
        totals.into_iter().for_each(|(name, times)| self.coverage.note(name, times));
    }
}
