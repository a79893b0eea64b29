//! Congestion control of an adapter, as the TOML file has it.

use super::values::{BitRate, GainShift, Microseconds, Period, QueueBytes, Stages};
use rnic_engine::{CnpScope, CongestionConfig};
use serde::{Deserialize, Serialize};

/// DCQCN, with the names of the paper; those of Mellanox adapters are in docs/congestion-control.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CongestionSettings {
    /// Packets of connections may be marked by a queue on their way.
    pub ecn: bool,
    pub cnp_interval_us: Microseconds,
    pub cnp_scope: Scope,
    pub cut_interval_us: Microseconds,
    pub line_bits_per_second: BitRate,
    pub min_bits_per_second: BitRate,
    pub alpha_timer_us: Period,
    pub gain_shift: GainShift,
    pub rate_timer_us: Period,
    pub byte_counter: QueueBytes,
    pub recovery_stages: Stages,
    pub additive_bits_per_second: BitRate,
    pub hyper_bits_per_second: BitRate,
}

/// What has at most one notification in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    QueuePair,
    Destination,
    Port,
}

const SCOPES: [(Scope, CnpScope); 3] = [
    (Scope::QueuePair, CnpScope::QueuePair),
    (Scope::Destination, CnpScope::Destination),
    (Scope::Port, CnpScope::Port),
];

const fn microseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1000) as u32
}

impl Default for CongestionSettings {
    fn default() -> Self {
        let config = CongestionConfig::default();
        let scope = SCOPES.into_iter().find(|(_, scope)| *scope == config.cnp_scope);
        Self {
            ecn: config.ecn,
            cnp_interval_us: Microseconds(microseconds(config.cnp_interval_ns)),
            cnp_scope: scope.map_or(Scope::QueuePair, |(scope, _)| scope),
            cut_interval_us: Microseconds(microseconds(config.cut_interval_ns)),
            line_bits_per_second: BitRate(config.line_bits_per_second),
            min_bits_per_second: BitRate(config.min_bits_per_second),
            alpha_timer_us: Period(microseconds(config.alpha_timer_ns)),
            gain_shift: GainShift(config.gain_shift),
            rate_timer_us: Period(microseconds(config.rate_timer_ns)),
            byte_counter: QueueBytes(config.byte_counter),
            recovery_stages: Stages(config.recovery_stages),
            additive_bits_per_second: BitRate(config.additive_bits_per_second),
            hyper_bits_per_second: BitRate(config.hyper_bits_per_second),
        }
    }
}

impl CongestionSettings {
    pub fn config(&self) -> CongestionConfig {
        let nanoseconds = |microseconds: u32| u64::from(microseconds) * 1000;
        let scope = SCOPES.into_iter().find(|(scope, _)| *scope == self.cnp_scope);
        CongestionConfig {
            ecn: self.ecn,
            cnp_interval_ns: nanoseconds(self.cnp_interval_us.0),
            cnp_scope: scope.map_or(CnpScope::default(), |(_, scope)| scope),
            cut_interval_ns: nanoseconds(self.cut_interval_us.0),
            line_bits_per_second: self.line_bits_per_second.0,
            min_bits_per_second: self.min_bits_per_second.0,
            alpha_timer_ns: nanoseconds(self.alpha_timer_us.0),
            gain_shift: self.gain_shift.0,
            rate_timer_ns: nanoseconds(self.rate_timer_us.0),
            byte_counter: self.byte_counter.0,
            recovery_stages: self.recovery_stages.0,
            additive_bits_per_second: self.additive_bits_per_second.0,
            hyper_bits_per_second: self.hyper_bits_per_second.0,
        }
    }
}
