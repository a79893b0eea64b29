//! What a step has really done, counted where it is done: guests that booted, packets that judges not ours have seen,
//! connections with Linux' rdma_rxe that carried data, simulated fabrics.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static GUESTS_BOOTED: AtomicU64 = AtomicU64::new(0);
static PACKETS_JUDGED: AtomicU64 = AtomicU64::new(0);
static RXE_PEERS: AtomicU64 = AtomicU64::new(0);
static SIM_SEEDS: AtomicU64 = AtomicU64::new(0);

/// The sums of a step, or of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub guests_booted: u64,
    pub packets_judged_outside: u64,
    pub rxe_peers: u64,
    pub sim_seeds: u64,
}

/// Guests that have answered.
pub fn guests_booted(count: usize) {
    GUESTS_BOOTED.fetch_add(count as u64, Ordering::Relaxed);
}

/// Packets that a program of others has read or built: twice, if two have.
pub fn packets_judged(count: usize) {
    PACKETS_JUDGED.fetch_add(count as u64, Ordering::Relaxed);
}

/// An end on rdma_rxe that has exchanged data with one of ours.
pub fn rxe_peer() {
    RXE_PEERS.fetch_add(1, Ordering::Relaxed);
}

/// Fabrics that were simulated to their end.
pub fn sim_seeds(count: u64) {
    SIM_SEEDS.fetch_add(count, Ordering::Relaxed);
}

impl Tally {
    /// Every count with its name.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("guests booted", self.guests_booted),
            ("packets judged outside", self.packets_judged_outside),
            ("rxe peers", self.rxe_peers),
            ("sim seeds", self.sim_seeds),
        ]
    }

    /// What this process has counted.
    pub fn here() -> Tally {
        Tally {
            guests_booted: GUESTS_BOOTED.load(Ordering::Relaxed),
            packets_judged_outside: PACKETS_JUDGED.load(Ordering::Relaxed),
            rxe_peers: RXE_PEERS.load(Ordering::Relaxed),
            sim_seeds: SIM_SEEDS.load(Ordering::Relaxed),
        }
    }

    pub fn add(&mut self, other: Tally) {
        self.guests_booted += other.guests_booted;
        self.packets_judged_outside += other.packets_judged_outside;
        self.rxe_peers += other.rxe_peers;
        self.sim_seeds += other.sim_seeds;
    }

    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, self.named().map(|(_, count)| count.to_string()).join(" "))
    }

    /// A step that was killed has written nothing, and counts for nothing.
    pub fn read(path: &Path) -> Tally {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Tally { guests_booted: next(), packets_judged_outside: next(), rxe_peers: next(), sim_seeds: next() }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.named().map(|(name, count)| format!("{name} {count}")).join(", "))
    }
}
