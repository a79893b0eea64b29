//! The reaction point: the rate of one queue pair that was told of congestion.
//!
//! In: CNPs, bytes that leave, time. Out: the rate. Nothing runs meanwhile: what timers would have done is caught up with
//! when somebody asks, in the order in which they would have ended.

use super::CongestionConfig;

/// 1.0 of alpha.
const ONE: u64 = 1 << 30;
/// Whoever is silent for so many steps begins anew, as a queue pair that was never told.
const STEPS_CAUGHT_UP: usize = 1 << 14;

/// What has become of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Limited,
    /// It is the line's again.
    Recovered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReactionPoint {
    current_bps: u64,
    /// What the current rate rises to.
    target_bps: u64,
    /// The estimate of congestion, in parts of [`ONE`].
    alpha: u64,
    alpha_due_ns: u64,
    rate_due_ns: u64,
    /// Earlier CNPs are part of what led to the last cut.
    deaf_until_ns: u64,
    bytes: u64,
    time_stages: u32,
    byte_stages: u32,
}

impl ReactionPoint {
    /// At the line's rate, as every queue pair begins: the first CNP cuts it.
    pub fn new(config: &CongestionConfig) -> Self {
        Self {
            current_bps: config.line_bits_per_second,
            target_bps: config.line_bits_per_second,
            alpha: ONE,
            alpha_due_ns: u64::MAX,
            rate_due_ns: u64::MAX,
            deaf_until_ns: 0,
            bytes: 0,
            time_stages: 0,
            byte_stages: 0,
        }
    }

    pub const fn bits_per_second(&self) -> u64 {
        self.current_bps
    }

    /// When the rate rises by time.
    pub const fn next_change_ns(&self) -> u64 {
        self.rate_due_ns
    }

    /// A CNP has come. False when it comes too soon after the last one to say anything new.
    pub fn cut(&mut self, config: &CongestionConfig, now_ns: u64) -> bool {
        if now_ns < self.deaf_until_ns {
            return false;
        }
        self.catch_up(config, now_ns);
        self.deaf_until_ns = now_ns.saturating_add(config.cut_interval_ns);
        self.target_bps = self.current_bps;
        let cut = (u128::from(self.current_bps) * u128::from(self.alpha) / u128::from(2 * ONE)) as u64;
        self.current_bps = (self.current_bps - cut).max(config.min_bits_per_second);
        self.alpha = self.alpha - (self.alpha >> config.gain_shift) + (ONE >> config.gain_shift);
        (self.bytes, self.time_stages, self.byte_stages) = (0, 0, 0);
        self.alpha_due_ns = now_ns.saturating_add(config.alpha_timer_ns);
        self.rate_due_ns = now_ns.saturating_add(config.rate_timer_ns);
        true
    }

    /// What time alone has changed until now.
    pub fn catch_up(&mut self, config: &CongestionConfig, now_ns: u64) -> Progress {
        for _ in 0..STEPS_CAUGHT_UP {
            if self.alpha_due_ns.min(self.rate_due_ns) > now_ns {
                return self.progress(config);
            }
            if self.alpha_due_ns <= self.rate_due_ns {
                self.alpha -= self.alpha >> config.gain_shift;
                self.alpha_due_ns = self.alpha_due_ns.saturating_add(config.alpha_timer_ns.max(1));
            } else {
                self.time_stages += 1;
                self.rise(config);
                self.rate_due_ns = self.rate_due_ns.saturating_add(config.rate_timer_ns.max(1));
            }
        }
        Progress::Recovered
    }

    /// A packet has left.
    pub fn sent(&mut self, config: &CongestionConfig, bytes: u32) {
        self.bytes += u64::from(bytes);
        if self.bytes >= config.byte_counter {
            self.bytes -= config.byte_counter;
            self.byte_stages += 1;
            self.rise(config);
        }
    }

    /// Fast recovery, additive increase, hyper increase.
    fn rise(&mut self, config: &CongestionConfig) {
        let (more, less) = (self.time_stages.max(self.byte_stages), self.time_stages.min(self.byte_stages));
        let added = if more <= config.recovery_stages {
            0
        } else if less <= config.recovery_stages {
            config.additive_bits_per_second
        } else {
            config.hyper_bits_per_second.saturating_mul(u64::from(less - config.recovery_stages))
        };
        self.target_bps = self.target_bps.saturating_add(added).min(config.line_bits_per_second);
        self.current_bps = u64::midpoint(self.current_bps, self.target_bps);
    }

    /// What is missing of the line's rate would be added by the next step.
    fn progress(&self, config: &CongestionConfig) -> Progress {
        let missing = config.line_bits_per_second.saturating_sub(self.current_bps);
        if missing <= config.additive_bits_per_second { Progress::Recovered } else { Progress::Limited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn config() -> CongestionConfig {
        CongestionConfig { line_bits_per_second: 40_000 * MBPS, ..CongestionConfig::default() }
    }

    /// From the line's rate the first cut is by half, and five steps go half the way back each.
    #[test]
    fn a_cut_is_recovered_from_in_five_steps_and_then_by_addition() {
        let config = config();
        let mut point = ReactionPoint::new(&config);
        assert!(point.cut(&config, 1000));
        let mut rates = vec![point.bits_per_second()];
        for step in 1..=5 {
            point.catch_up(&config, 1000 + step * 55_000);
            rates.push(point.bits_per_second());
        }
        assert_eq!(rates, [20_000, 30_000, 35_000, 37_500, 38_750, 39_375].map(|rate| rate * MBPS));
        let steps = (6..).find(|step| point.catch_up(&config, 1000 + step * 55_000) == Progress::Recovered);
        assert_eq!(steps, Some(9), "39.375, and then half of what is missing each time, to less than 40 Mb/s");
    }

    /// (255/256)^n.
    #[test]
    fn alpha_falls_by_its_gain_while_nobody_tells() {
        let config = CongestionConfig { rate_timer_ns: u64::MAX, ..config() };
        let mut point = ReactionPoint::new(&config);
        point.cut(&config, 0);
        for (steps, alpha) in [(1, 0.99609), (2, 0.9922), (10, 0.96162), (100, 0.67612), (177, 0.50019)] {
            point.catch_up(&config, steps * 55_000);
            let found = point.alpha as f64 / ONE as f64;
            assert!((found - alpha).abs() < 0.00001, "{steps} steps: {found}");
        }
        point.cut(&config, 177 * 55_000);
        // The target is where it was cut, and a quarter of 20 Gb/s goes.
        assert_eq!((point.target_bps, point.current_bps / MBPS), (20_000 * MBPS, 14_998));
    }

    #[test]
    fn bytes_raise_as_time_does_and_both_together_faster() {
        let config = CongestionConfig { byte_counter: 1000, additive_bits_per_second: MBPS, ..config() };
        let mut point = ReactionPoint::new(&config);
        [0, 10_000, 20_000].iter().for_each(|now_ns| assert!(point.cut(&config, *now_ns)));
        let (cut, target) = (point.current_bps, point.target_bps);
        assert!(cut < 6000 * MBPS && target < 11_000 * MBPS);
        (0..9).for_each(|_| point.sent(&config, 999));
        (0..5).for_each(|_| point.sent(&config, 1000));
        assert_eq!((point.byte_stages, point.target_bps), (13, target + 8 * MBPS), "beyond F it is additive");
        point.catch_up(&config, 20_000 + 5 * 55_000);
        assert_eq!((point.time_stages, point.target_bps), (5, target + 13 * MBPS));
        point.catch_up(&config, 20_000 + 6 * 55_000);
        assert_eq!(point.target_bps, target + 213 * MBPS, "both beyond F");
    }

    #[test]
    fn it_never_falls_below_its_least_nor_hears_what_comes_at_once() {
        let config = config();
        let mut point = ReactionPoint::new(&config);
        assert!(point.cut(&config, 0));
        assert!(!point.cut(&config, 3_999));
        (1..100).for_each(|times| assert!(point.cut(&config, times * 4_000)));
        assert_eq!(point.bits_per_second(), 100 * MBPS);
        assert_eq!(point.catch_up(&config, 3_600_000_000_000), Progress::Recovered, "an hour later");
    }
}
