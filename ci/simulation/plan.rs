//! What a seed means: the fabric's size and the impairments of one run, chosen afresh for each.

use crate::random::Random;
use rnic_engine::EngineConfig;
use rnic_switch::{Displacement, Impairment, Probability, RateLimit, Reorder};

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    pub hosts: usize,
    pub connections: usize,
    /// Connections and queue pairs that acknowledge nothing.
    pub unreliable_connections: usize,
    pub datagram_stations: usize,
    /// Extended connections: each message names its shared receive queue.
    pub extended: usize,
    /// Multicast groups that datagram queue pairs join and leave.
    pub groups: usize,
    /// Of each host.
    pub shared_queues: usize,
    /// Windows and fast regions are used.
    pub views: bool,
    /// The longest message, and roughly what a direction's memory has room for.
    pub reach_bytes: u32,
    pub wire: Wire,
    pub memory: Memory,
    pub engine: EngineConfig,
    pub ring_frames: usize,
    /// Every frame carries its ICRC, as it would outside the process.
    pub seal_all: bool,
    pub ipv6: bool,
    pub vlan: bool,
    /// Entries of a completion queue for each queue pair that uses it, as a logarithm.
    pub log_cqes_per_qp: u8,
    /// A host looks at its completion queues in one of so many turns.
    pub poll_one_in: u64,
    /// One in so many receive queues is kept short, so that senders hear RNR.
    pub dry_one_in: u64,
    /// Of a million messages: those that must fail, connections that are made anew, regions whose key is taken away.
    pub faults: u32,
    pub resets: u32,
    pub rekeys: u32,
    /// Out of a million turns: caches flushed by command, whole adapters reset.
    pub flushes: u32,
    pub adapter_resets: u32,
    /// One in so many connections retransmits selectively.
    pub selective_one_in: u64,
    /// Shares of work requests.
    pub signaled: u32,
    pub inlined: u32,
    pub armed_one_in: u64,
}

/// What the wire does to frames, in parts of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    pub loss: u32,
    pub duplication: u32,
    pub corruption: u32,
    pub reorder: u32,
    pub reorder_frames: u32,
    pub delay_ns: u64,
    pub rate_gbits: u64,
    pub queue_bytes: u64,
    pub held_frames: usize,
}

/// What host memory does to reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub hold: u32,
    pub hold_max_ns: u64,
    pub faults: u32,
}

impl Wire {
    /// What a port does with these numbers.
    pub fn impairment(&self, seed: u64) -> Impairment {
        let chance = |share: u32| Probability::from_fraction(f64::from(share) / 1e6).unwrap_or(Probability::NEVER);
        let by = match self.reorder_frames {
            0 => Displacement::Time { delay_ns: 20_000 },
            count => Displacement::Frames { count, timeout_ns: 50_000 },
        };
        Impairment {
            seed,
            loss: chance(self.loss),
            duplication: chance(self.duplication),
            corruption: chance(self.corruption),
            reorder: (self.reorder > 0).then(|| Reorder { probability: chance(self.reorder), by }),
            delay_ns: self.delay_ns,
            rate_limit: (self.rate_gbits > 0).then(|| RateLimit {
                bits_per_second: self.rate_gbits * 1_000_000_000,
                queue_bytes: self.queue_bytes,
                marking: None,
            }),
            held_frames_max: self.held_frames.max(1),
        }
    }

    /// Frames may be lost, or come in a way that makes the receiver drop them.
    pub fn is_lossy(&self) -> bool {
        self.loss + self.corruption + self.reorder > 0 || self.rate_gbits > 0
    }
}

impl Plan {
    pub fn new(seed: u64, operations: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5157_4d00_0000_0000);
        let random = &mut random;
        let hosts = random.pick(&[2, 2, 2, 2, 3, 3, 4, 5, 6, 8]);
        let connections = random.pick(&[1, 2, 4, 6, 10, 16, 24]).max(hosts / 2);
        let reach_bytes = match connections {
            0..=4 => 1 << 20,
            5..=10 => 256 << 10,
            _ => 64 << 10,
        };
        let window_packets = random.pick(&[16, 64, 64, 256]);
        Self {
            seed,
            operations,
            hosts,
            connections,
            reach_bytes,
            wire: wire(random, window_packets),
            memory: memory(random),
            engine: engine(random, window_packets),
            ring_frames: random.pick(&[2, 4, 16, 256, 256]),
            seal_all: random.one_in(8),
            ipv6: random.one_in(3),
            vlan: random.one_in(4),
            log_cqes_per_qp: random.pick(&[2, 4, 6, 6]),
            poll_one_in: random.pick(&[1, 1, 4, 32]),
            dry_one_in: random.pick(&[3, 10, 1_000_000]),
            faults: random.pick(&[0, 2000, 12_000]),
            resets: random.pick(&[0, 200, 1000]),
            rekeys: random.pick(&[0, 1000, 5000]),
            flushes: random.pick(&[0, 0, 300, 3000]),
            adapter_resets: random.pick(&[0, 0, 60, 400]),
            signaled: random.pick(&[1_000_000, 500_000, 100_000]),
            inlined: random.pick(&[0, 200_000]),
            armed_one_in: random.pick(&[1, 3, 1_000_000]),
            unreliable_connections: random.pick(&[0, 0, 1, 2, 4]),
            datagram_stations: random.pick(&[0, 0, 2, 4]),
            shared_queues: random.pick(&[0, 0, 1, 2]),
            views: random.one_in(2),
            selective_one_in: random.pick(&[1, 3, 1_000_000, 1_000_000]),
            groups: random.pick(&[0, 1, 3]),
            extended: random.pick(&[0, 0, 1, 2, 4]),
        }
    }

    /// Of each host: shared receive queues of its extended domain.
    pub fn extended_queues(&self) -> usize {
        if self.extended > 0 { 2 } else { 0 }
    }

    /// The same run, over a wire and memory that do nothing to it: for tests of the checkers themselves.
    pub fn calm(mut self) -> Self {
        (self.wire, self.memory) = (Wire { held_frames: 1024, ..Wire::default() }, Memory::default());
        (self.faults, self.resets, self.rekeys, self.adapter_resets) = (0, 0, 0, 0);
        self
    }
}

fn wire(random: &mut Random, window_packets: u32) -> Wire {
    // Going back over a wide window is dear: what is lost is chosen so that a run stays short.
    let most = 500_000 / (window_packets + 34);
    let mut some = |most: u32| if random.one_in(2) { random.between(1, most.into()) as u32 } else { 0 };
    let (loss, duplication, corruption, reorder) = (some(most), some(50_000), some(most / 2), some(most / 2));
    Wire {
        loss,
        duplication,
        corruption,
        reorder,
        reorder_frames: random.pick(&[0, 1, 3]),
        delay_ns: random.pick(&[0, 0, 1_000, 10_000]),
        rate_gbits: random.pick(&[0, 0, 25, 100]),
        queue_bytes: random.pick(&[64 << 10, 256 << 10, 4 << 20]),
        held_frames: random.pick(&[16, 1024, 1024]),
    }
}

fn memory(random: &mut Random) -> Memory {
    Memory {
        hold: random.pick(&[0, 0, 20_000, 200_000, 700_000]),
        hold_max_ns: random.pick(&[1_000, 20_000, 60_000]),
        faults: random.pick(&[0, 0, 0, 50, 1000]),
    }
}

fn engine(random: &mut Random, window_packets: u32) -> EngineConfig {
    let roomy = EngineConfig::default();
    EngineConfig {
        doorbell_pages: 16,
        qp_cache_entries: random.pick(&[2, 4, 16, roomy.qp_cache_entries, roomy.qp_cache_entries]),
        cq_cache_entries: random.pick(&[2, 4, roomy.cq_cache_entries]),
        key_cache_entries: random.pick(&[4, 16, roomy.key_cache_entries, roomy.key_cache_entries]),
        translation_cache_lines: random.pick(&[8, 64, roomy.translation_cache_lines]),
        fetched_wqes: random.pick(&[32, 256, roomy.fetched_wqes]),
        window_packets,
        parked_frames: random.pick(&[4, 64, roomy.parked_frames]),
        ..roomy
    }
}
