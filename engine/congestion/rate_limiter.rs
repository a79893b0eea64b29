//! The rate limiter table: an entry a queue pair. The gate is open while nothing has signalled congestion.

use crate::numbers::Qpn;
use std::collections::BTreeMap;

/// Whether the queue pair's turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    ClosedUntil(u64),
}

/// A queue pair that is held to a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    bytes_per_second: u64,
    next_ns: u64,
}

/// Queue pairs without an entry send at the line's rate.
#[derive(Debug, Default)]
pub(crate) struct RateLimiterTable {
    limits: BTreeMap<Qpn, Limit>,
}

impl RateLimiterTable {
    /// Holds a queue pair to a rate, or lets it go.
    pub fn set(&mut self, qpn: Qpn, bytes_per_second: Option<u64>) {
        match bytes_per_second.filter(|rate| *rate > 0) {
            Some(bytes_per_second) => {
                self.limits.insert(qpn, Limit { bytes_per_second, next_ns: 0 });
            }
            None => {
                self.limits.remove(&qpn);
            }
        }
    }

    pub fn consult(&self, qpn: Qpn, now_ns: u64) -> Gate {
        if self.limits.is_empty() {
            return Gate::Open;
        }
        match self.limits.get(&qpn) {
            Some(limit) if limit.next_ns > now_ns => Gate::ClosedUntil(limit.next_ns),
            _ => Gate::Open,
        }
    }

    /// A packet has left: the next one's turn comes when this one would be through at the rate.
    pub fn charge(&mut self, qpn: Qpn, now_ns: u64, bytes: u32) {
        if let Some(limit) = self.limits.get_mut(&qpn) {
            let duration = u64::from(bytes).saturating_mul(1_000_000_000) / limit.bytes_per_second;
            limit.next_ns = limit.next_ns.max(now_ns).saturating_add(duration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_queue_pair_waits_for_its_turn_and_others_do_not() {
        let mut table = RateLimiterTable::default();
        table.set(Qpn(1), Some(1_000_000_000));
        table.charge(Qpn(1), 100, 4096);
        table.charge(Qpn(2), 100, 4096);
        assert_eq!(table.consult(Qpn(1), 100), Gate::ClosedUntil(4196));
        assert_eq!(table.consult(Qpn(1), 4196), Gate::Open);
        assert_eq!(table.consult(Qpn(2), 100), Gate::Open);
        table.set(Qpn(1), None);
        assert_eq!(table.consult(Qpn(1), 100), Gate::Open);
    }
}
