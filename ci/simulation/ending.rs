//! How connections fail, end and are made anew; and what must hold at the end of a run.

use crate::connection::*;
use crate::message::pool;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::command::*;
use rnic_engine::context::queue_pair::QpState;

/// Longer than any frame stays in the fabric.
pub(crate) const REST_NS: u64 = 3_000_000;

/// The driver notices in one of so many turns that a queue pair has fallen; meanwhile its peer finds out by itself.
const FALLEN_ONE_IN: u64 = 100;

impl Simulation {
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
                // Receives that are shared are not flushed, and what nobody waits for tells of nothing.
                if connection.is_excused() && self.random.one_in(FALLEN_ONE_IN) && self.has_fallen(number) {
                    self.end_connection(number)?;
                    return Ok(true);
                }
                let connection = &self.connections[number];
                let reset = matches!(connection.doom, Some(Doom::Reset));
                if reset && connection.flows.iter().all(|flow| flow.outstanding.is_empty()) {
                    // Nobody waits for anything that could tell of it.
                    self.end_connection(number)?;
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
                Ok(self.keep_view(number, 0)?
                    | self.keep_view(number, 1)?
                    | self.command(number)?
                    | self.disturb(number)?)
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
                if self.connections[number].extended {
                    // What a target had in hand has ended with it.
                    self.poll_host(self.connections[number].ends[1].host)?;
                }
                self.destroy_some(number)?;
                self.connections[number].phase = Phase::Resting { until_ns: self.now_ns + REST_NS };
                Ok(true)
            }
            Phase::Resting { until_ns } if self.now_ns >= until_ns => {
                self.revive(number).map_err(|what| format!("connection {number}, {what}"))?;
                self.connect(number).map_err(explain("connecting"))?;
                Ok(true)
            }
            Phase::Resting { .. } => Ok(false),
        }
    }

    /// A queue pair of it is in the error state.
    fn has_fallen(&self, number: usize) -> bool {
        self.connections[number].ends.iter().any(|end| self.state_of(*end) == Some(QpState::Err))
    }

    /// A key that went away hurts nobody who did not use it.
    fn forgive(&mut self, number: usize) {
        let fallen = self.connections[number].is_excused() && self.has_fallen(number);
        let connection = &mut self.connections[number];
        let over = match connection.doom {
            Some(Doom::Rekey { flow, before, .. }) => {
                let flow = &connection.flows[flow];
                !flow.failed && flow.outstanding.front().is_none_or(|message| message.number >= before)
            }
            Some(Doom::Memory) => {
                !fallen && self.healed_ns.is_some() && connection.flows.iter().all(|flow| flow.outstanding.is_empty())
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
            connection.flows[side].rekeyed = true;
            self.coverage.note("keys taken away under traffic", 1);
        }
        self.coverage.item(82);
        Ok(true)
    }

    pub(crate) fn end_connection(&mut self, number: usize) -> Checked {
        let Connection { ends, gone, .. } = self.connections[number];
        for side in [0, 1] {
            if !gone[side] {
                self.modify(ends[side], QP_STATE_ERR)?;
            }
        }
        (self.connections[number].phase, self.connections[number].late) = (Phase::Ending, None);
        Ok(())
    }

    /// What a failed message left behind: old bytes or its own, and nothing else.
    pub(crate) fn settle_doubtful(&mut self, number: usize) -> Checked {
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

    pub(crate) fn target_bytes(&mut self, number: usize, side: usize) -> Checked<Vec<u8>> {
        let connection = &self.connections[number];
        let receiver = connection.ends[1 - side].host;
        let Some(target) = &connection.flows[side].target else { return Ok(Vec::new()) };
        let buffer = target.buffer;
        let mut bytes = vec![0; buffer.length_bytes as usize];
        self.hosts[receiver].read(buffer.iova, &mut bytes).map_err(explain("reading a region"))?;
        Ok(bytes)
    }
}
