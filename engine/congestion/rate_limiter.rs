//! The rate limiter table: an entry for each queue pair that is held to a rate, by its user or by its
//! [reaction point](super::reaction_point). Those without one send at the line's rate.

use super::CongestionConfig;
use super::reaction_point::{Progress, ReactionPoint};
use crate::numbers::Qpn;
use std::collections::BTreeMap;

/// Whether the queue pair's turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    ClosedUntil(u64),
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// What the user allows.
    bytes_per_second: Option<u64>,
    reaction: Option<ReactionPoint>,
    /// The last packet's turn began here, and it has so many bits: how long it takes is a question of the rate.
    begun_ns: u64,
    bits: u64,
}

impl Entry {
    fn bits_per_second(&self) -> Option<u64> {
        let user = self.bytes_per_second.map(|bytes| bytes.saturating_mul(8));
        user.into_iter().chain(self.reaction.as_ref().map(ReactionPoint::bits_per_second)).min()
    }

    /// When the last packet is through.
    fn next_ns(&self) -> u64 {
        let Some(rate) = self.bits_per_second() else { return 0 };
        let duration_ns = u128::from(self.bits) * 1_000_000_000 / u128::from(rate.max(1));
        self.begun_ns.saturating_add(u64::try_from(duration_ns).unwrap_or(u64::MAX))
    }

    fn begin_anew(&mut self) {
        (self.begun_ns, self.bits) = (0, 0);
    }
}

#[derive(Debug)]
pub(crate) struct RateLimiterTable {
    config: CongestionConfig,
    entries: BTreeMap<Qpn, Entry>,
}

impl RateLimiterTable {
    pub fn new(config: CongestionConfig) -> Self {
        Self { config, entries: BTreeMap::new() }
    }

    /// Holds a queue pair to a rate, or lets it go.
    pub fn set(&mut self, qpn: Qpn, bytes_per_second: Option<u64>) {
        let entry = self.entries.entry(qpn).or_default();
        entry.bytes_per_second = bytes_per_second.filter(|rate| *rate > 0);
        entry.begin_anew();
        self.drop_if_free(qpn);
    }

    /// A CNP has come for this queue pair. False when it changes nothing.
    pub fn notified(&mut self, qpn: Qpn, now_ns: u64) -> bool {
        let Self { config, entries } = self;
        let entry = entries.entry(qpn).or_default();
        let reaction = entry.reaction.get_or_insert_with(|| ReactionPoint::new(config));
        if reaction.catch_up(config, now_ns) == Progress::Recovered {
            *reaction = ReactionPoint::new(config);
        }
        reaction.cut(config, now_ns)
    }

    /// The connection begins anew.
    pub fn end_reaction(&mut self, qpn: Qpn) {
        if let Some(entry) = self.entries.get_mut(&qpn) {
            entry.reaction = None;
            entry.begin_anew();
        }
        self.drop_if_free(qpn);
    }

    pub fn forget(&mut self, qpn: Qpn) {
        self.entries.remove(&qpn);
    }

    fn drop_if_free(&mut self, qpn: Qpn) {
        if self.entries.get(&qpn).is_some_and(|entry| entry.bits_per_second().is_none()) {
            self.entries.remove(&qpn);
        }
    }

    /// What a queue pair is held to.
    pub fn bits_per_second(&self, qpn: Qpn) -> Option<u64> {
        self.entries.get(&qpn)?.bits_per_second()
    }

    pub fn consult(&mut self, qpn: Qpn, now_ns: u64) -> Gate {
        if self.entries.is_empty() {
            return Gate::Open;
        }
        let Some(entry) = self.entries.get_mut(&qpn) else { return Gate::Open };
        let reaction = entry.reaction.as_mut();
        if reaction.is_some_and(|reaction| reaction.catch_up(&self.config, now_ns) == Progress::Recovered) {
            self.end_reaction(qpn);
            return Gate::Open;
        }
        let next_ns = entry.next_ns();
        if next_ns <= now_ns {
            return Gate::Open;
        }
        // A rate that rises meanwhile shortens the wait.
        Gate::ClosedUntil(entry.reaction.as_ref().map_or(next_ns, |reaction| next_ns.min(reaction.next_change_ns())))
    }

    /// A packet has left: the next one's turn comes when this one would be through at the rate.
    pub fn charge(&mut self, qpn: Qpn, now_ns: u64, bytes: u32) {
        if self.entries.is_empty() {
            return;
        }
        let Some(entry) = self.entries.get_mut(&qpn) else { return };
        if let Some(reaction) = &mut entry.reaction {
            reaction.sent(&self.config, bytes);
        }
        entry.begun_ns = entry.next_ns().max(now_ns);
        entry.bits = u64::from(bytes) * 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_queue_pair_waits_for_its_turn_and_others_do_not() {
        let mut table = RateLimiterTable::new(CongestionConfig::default());
        table.set(Qpn(1), Some(1_000_000_000));
        table.charge(Qpn(1), 100, 4096);
        table.charge(Qpn(2), 100, 4096);
        assert_eq!(table.consult(Qpn(1), 100), Gate::ClosedUntil(4196));
        assert_eq!(table.consult(Qpn(1), 4196), Gate::Open);
        assert_eq!(table.consult(Qpn(2), 100), Gate::Open);
        table.set(Qpn(1), None);
        assert_eq!(table.consult(Qpn(1), 100), Gate::Open);
        assert!(table.entries.is_empty());
    }

    #[test]
    fn whoever_is_told_of_congestion_waits_until_it_has_recovered() {
        let line_bits_per_second = 8_000_000_000;
        let config = CongestionConfig { line_bits_per_second, ..CongestionConfig::default() };
        let mut table = RateLimiterTable::new(config);
        assert!(table.notified(Qpn(1), 0));
        table.charge(Qpn(1), 0, 1000);
        assert_eq!(table.consult(Qpn(1), 0), Gate::ClosedUntil(2000), "half of a byte a nanosecond");
        assert_eq!(table.bits_per_second(Qpn(1)), Some(line_bits_per_second / 2));
        // The user's limit, which is lower, holds as well, and stays when the other is over.
        table.set(Qpn(1), Some(1000));
        assert_eq!(table.bits_per_second(Qpn(1)), Some(8000));
        assert_eq!(table.consult(Qpn(1), 10_000_000), Gate::Open);
        assert_eq!(table.bits_per_second(Qpn(1)), Some(8000));
        table.forget(Qpn(1));
        assert!(table.entries.is_empty());
    }
}
