//! Shared receive queues: receives that several queue pairs of a host take, each once, and a limit that tells when few
//! are left.

use crate::connection::Posted;
use crate::host::{Host, Region};
use crate::run::{Checked, Simulation, explain};
use crate::unreliable::Station;
use rnic_shim::verbs::*;
use std::collections::BTreeMap;

/// A shared receive queue and what its driver knows of it.
#[derive(Debug)]
pub struct SharedQueue {
    pub host: usize,
    pub srqn: Srqn,
    pub arena: Region,
    pub entry_bytes: u32,
    /// Of an extended domain: where its receives complete.
    pub cqn: Option<Cqn>,
    /// A read for one of its users was refused: it may have been one of its index ring, which ends it for good.
    pub suspect: bool,
    slots: usize,
    /// Places in the arena that no receive has.
    free: Vec<u32>,
    /// Posted and not completed, by `wr_id`.
    posted: BTreeMap<u64, u32>,
    next: u64,
    /// Queue pairs that may have one in hand; and those of them that keep it when their message is lost.
    pub(crate) users: usize,
    keepers: usize,
    pub(crate) limit: Option<Limit>,
    /// Receives are posted late.
    dry: bool,
}

/// A limit that is armed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub receives: u16,
    /// The fewest that can have been left since it was armed.
    pub fewest: i64,
    /// Fewer than the limit were posted: the event must come.
    pub due: bool,
}

/// Receives are numbered for each queue; the bits above say which one.
const NUMBER_BITS: u32 = 32;
/// The extended domain of every host.
pub(crate) const DOMAIN: u32 = 0x77;

/// The queue that a receive of this number was posted to.
pub fn queue_of(wr_id: u64) -> usize {
    (wr_id >> NUMBER_BITS) as usize
}

impl Simulation {
    /// Those of every host, before the queue pairs that use them; and those of its extended domain, with the completion
    /// queue of each.
    pub(crate) fn build_shared(&mut self, extended: &[Vec<usize>]) -> Result<()> {
        for (host, queues) in extended.iter().enumerate() {
            let queues = queues.iter().map(|queue| Some(self.hosts[host].queues[*queue].cqn));
            let queues: Vec<Option<Cqn>> = (0..self.plan.shared_queues).map(|_| None).chain(queues).collect();
            for cqn in queues {
                self.build_shared_queue(host, cqn)?;
            }
        }
        Ok(())
    }

    fn build_shared_queue(&mut self, host: usize, cqn: Option<Cqn>) -> Result<()> {
        let slots = 1usize << self.plan.log_cqes_per_qp;
        let entry_bytes = self.random.pick(&[64, 1024, 4096 + 40]);
        let layout = self.random.pick(&[MrLayout::Contiguous, MrLayout::List]);
        let arena = self.hosts[host].open_region(slots as u64 * u64::from(entry_bytes), layout)?;
        let srqn = self.create_shared_queue(host, None, cqn)?;
        self.shared.push(SharedQueue {
            host,
            srqn,
            arena,
            entry_bytes,
            cqn,
            suspect: false,
            slots,
            free: (0..slots as u32).rev().map(|slot| slot * entry_bytes).collect(),
            posted: BTreeMap::new(),
            next: (self.shared.len() as u64) << NUMBER_BITS,
            users: 0,
            keepers: 0,
            limit: None,
            dry: self.random.one_in(self.plan.dry_one_in),
        });
        Ok(())
    }

    fn create_shared_queue(&mut self, host: usize, srqn: Option<u32>, cqn: Option<Cqn>) -> Result<Srqn> {
        let log_slots = self.plan.log_cqes_per_qp;
        let Host { device, pd, .. } = &mut self.hosts[host];
        let spec = SrqSpec { srqn, pd: *pd, log_slots, log_stride: 2, limit: 0, doorbell_page: 1 };
        match cqn {
            None => device.create_shared_receive_queue(spec),
            Some(cqn) => device.create_xrc_shared_receive_queue(spec, DOMAIN, cqn),
        }
    }

    /// Those of a host whose adapter has begun anew: what was posted is forgotten.
    pub(crate) fn renew_shared(&mut self, host: usize) -> Result<()> {
        for number in 0..self.shared.len() {
            let queue = &mut self.shared[number];
            if queue.host != host {
                continue;
            }
            let opened = &mut self.hosts[host];
            opened.renew(&mut queue.arena)?;
            opened.counted.unseen_most += queue.posted.len() as u64;
            queue.free.extend(std::mem::take(&mut queue.posted).into_values());
            (queue.limit, queue.suspect) = (None, false);
            let (srqn, cqn) = (queue.srqn.0, queue.cqn);
            self.create_shared_queue(host, Some(srqn), cqn)?;
        }
        Ok(())
    }

    /// A queue pair of this host may use one of them. Those that keep receives leave some to the others.
    pub(crate) fn choose_shared(&mut self, host: usize, keeps: bool) -> Option<usize> {
        let leaves = |queue: &SharedQueue| !keeps || queue.keepers < queue.slots / 2;
        let fitting = |queue: &SharedQueue| queue.host == host && queue.cqn.is_none() && leaves(queue);
        let queues: Vec<usize> = (0..self.shared.len()).filter(|at| fitting(&self.shared[*at])).collect();
        if queues.is_empty() || self.random.one_in(2) {
            return None;
        }
        let chosen = self.random.pick(&queues);
        self.shared[chosen].users += 1;
        self.shared[chosen].keepers += usize::from(keeps);
        Some(chosen)
    }

    pub(crate) fn create_pair(&mut self, host: usize, spec: QpSpec, shared: Option<usize>) -> Result<Qpn> {
        let device = &mut self.hosts[host].device;
        match shared {
            None => device.create_queue_pair(spec),
            Some(at) => device.create_queue_pair_on_srq(spec, self.shared[at].srqn),
        }
    }

    /// Messages that have taken a receive of this queue, or will.
    fn takers(&self, number: usize) -> usize {
        let flows = self.connections.iter().flat_map(|connection| &connection.flows);
        let arriving = flows.flat_map(|flow| &flow.arriving).filter(|message| message.queue == Some(number)).count();
        let stations = self.unreliable.stations.iter().filter(|station| station.shared == Some(number));
        arriving + stations.map(Station::takers).sum::<usize>()
    }

    /// Receives that nobody can have taken; below 0 when all may be.
    pub(crate) fn surely_left(&self, number: usize) -> i64 {
        let queue = &self.shared[number];
        queue.posted.len() as i64 - self.takers(number) as i64 - queue.users as i64
    }

    pub(crate) fn post_shared(&mut self) -> Checked<bool> {
        let mut any = false;
        for number in 0..self.shared.len() {
            let takers = self.takers(number);
            let left = self.surely_left(number);
            let queue = &mut self.shared[number];
            if let Some(limit) = &mut queue.limit {
                limit.fewest = limit.fewest.min(left);
            }
            let free = queue.slots - queue.posted.len();
            let missing = takers > 0 && takers + queue.keepers > queue.posted.len();
            let wanted = match self.healed_ns {
                // In the end no more than what is waited for.
                Some(_) if missing => free,
                Some(_) => 0,
                None if queue.dry && !self.random.one_in(20) => 0,
                None if self.random.one_in(if missing { 2 } else { 6 }) => self.random.index(5).min(free),
                None => 0,
            };
            if wanted > 0 {
                self.post_shared_receives(number, wanted)?;
                any = true;
            }
            any |= self.arm_limit(number)?;
        }
        Ok(any)
    }

    fn post_shared_receives(&mut self, number: usize, count: usize) -> Checked {
        let mut batch: Vec<(u64, Vec<Sge>)> = Vec::new();
        for _ in 0..count {
            let queue = &mut self.shared[number];
            let Some(at) = queue.free.pop() else { break };
            let first = self.random.between(1, queue.entry_bytes.into()) as u32;
            let pieces = [(at, first), (at + first, queue.entry_bytes - first)];
            let pieces = pieces.iter().filter(|(_, length)| *length > 0);
            let elements = pieces.map(|(from, length)| queue.arena.memory.sge((*from).into(), *length)).collect();
            batch.push((queue.next, elements));
            queue.posted.insert(queue.next, at);
            queue.next += 1;
        }
        let requests: Vec<ReceiveRequest> =
            batch.iter().map(|(wr_id, elements)| ReceiveRequest { wr_id: *wr_id, elements }).collect();
        let (host, srqn) = (self.shared[number].host, self.shared[number].srqn);
        let opened = &mut self.hosts[host];
        opened.device.post_shared_receive(srqn, &requests).map_err(explain("posting to a shared receive queue"))?;
        opened.counted.receive_doorbells += 1;
        self.enter("shares", host, [srqn.0.into(), batch.first().map_or(0, |(wr_id, _)| *wr_id), count as u64, 0]);
        Ok(())
    }

    fn arm_limit(&mut self, number: usize) -> Checked<bool> {
        let left = self.surely_left(number);
        let queue = &self.shared[number];
        if queue.limit.is_some() || self.healed_ns.is_some() || !self.random.one_in(300) {
            return Ok(false);
        }
        let receives = self.random.between(1, queue.slots as u64) as u16;
        let (host, srqn, posted) = (queue.host, queue.srqn, queue.posted.len());
        let device = &mut self.hosts[host].device;
        device.modify_shared_receive_queue(srqn, receives).map_err(explain("arming a limit"))?;
        let due = posted < receives.into();
        self.shared[number].limit = Some(Limit { receives, fewest: left, due });
        Ok(true)
    }

    /// The receive of a completion: posted, and taken by nobody before.
    pub(crate) fn take_shared(&mut self, number: usize, wr_id: u64) -> Checked<Posted> {
        let left = self.surely_left(number);
        let queue = &mut self.shared[number];
        let Some(at) = queue.posted.remove(&wr_id) else {
            return Err(format!("{} has no such receive, or it has completed before", queue.srqn));
        };
        queue.free.push(at);
        if let Some(limit) = &mut queue.limit {
            limit.fewest = limit.fewest.min(left);
            limit.due |= queue.posted.len() < limit.receives.into();
        }
        self.coverage.note("receives of a shared queue", 1);
        self.coverage.item(101);
        Ok(Posted { number: wr_id, at, size: queue.entry_bytes })
    }
}
