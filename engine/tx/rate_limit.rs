//! The rate limiter's gate: passed before any effort is spent on a packet.

use crate::blocks::Block;
use crate::congestion::rate_limiter::Gate;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::reliability::timer::Timer;

impl Engine {
    /// True when the queue pair may send now; otherwise it is scheduled for when it may.
    pub(crate) fn gate_open(&mut self, host: &mut Host, qpn: Qpn) -> bool {
        self.blocks.touch(host.now_ns, Block::RateLimiter, qpn.0);
        match self.rate_limits.consult(qpn, host.now_ns) {
            Gate::Open => true,
            Gate::ClosedUntil(until_ns) => {
                self.start_timer(qpn, Timer::Rate, until_ns);
                false
            }
        }
    }
}
