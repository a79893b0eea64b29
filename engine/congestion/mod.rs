//! Congestion: when a queue pair may send. The scheduler consults the [`rate_limiter`] before it spends effort on
//! a packet; a packet that is built is never held.
//!
//! The algorithm is DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015). A switch
//! marks packets; the [`notification_point`], where they arrive, tells the sender by a CNP; the [`reaction_point`], one a queue
//! pair that was told, cuts its rate and lets it rise again.

pub(crate) mod notification_point;
pub(crate) mod rate_limiter;
pub(crate) mod reaction_point;

pub use notification_point::CnpScope;

/// What both points of an adapter work with. The defaults are the paper's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    /// Data packets of connections say that they may be marked (ECT), whatever their traffic class says.
    pub ecn: bool,
    /// Notification point: the least time between two CNPs of the same [`cnp_scope`](Self::cnp_scope).
    pub cnp_interval_ns: u64,
    pub cnp_scope: CnpScope,
    /// Reaction point: CNPs that come sooner after a cut than this change nothing.
    pub cut_interval_ns: u64,
    /// The rate of a queue pair that nobody has told of congestion, and the ceiling of the others'.
    pub line_bits_per_second: u64,
    pub min_bits_per_second: u64,
    /// Time without a CNP after which the estimate of congestion, alpha, falls.
    pub alpha_timer_ns: u64,
    /// g, the gain of alpha, is two to the power of minus this.
    pub gain_shift: u32,
    /// The rate rises each time this time has passed, and each time so many bytes have left.
    pub rate_timer_ns: u64,
    pub byte_counter: u64,
    /// F: so many rises of a kind only go half the way back to the rate before the cut.
    pub recovery_stages: u32,
    /// What is added to the rate behind that: while one kind has passed F, and when both have.
    pub additive_bits_per_second: u64,
    pub hyper_bits_per_second: u64,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            ecn: false,
            cnp_interval_ns: 50_000,
            cnp_scope: CnpScope::QueuePair,
            cut_interval_ns: 4_000,
            line_bits_per_second: 100_000_000_000,
            min_bits_per_second: 100_000_000,
            alpha_timer_ns: 55_000,
            gain_shift: 8,
            rate_timer_ns: 55_000,
            byte_counter: 10_000_000,
            recovery_stages: 5,
            additive_bits_per_second: 40_000_000,
            hyper_bits_per_second: 200_000_000,
        }
    }
}
