//! The process's clock: one for all adapters, so that what they note can be put in one order.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

static BEGINNING: OnceLock<(Instant, SystemTime)> = OnceLock::new();

fn beginning() -> &'static (Instant, SystemTime) {
    BEGINNING.get_or_init(|| (Instant::now(), SystemTime::now()))
}

/// Nanoseconds since the clock was first asked for.
pub fn now_ns() -> u64 {
    beginning().0.elapsed().as_nanos() as u64
}

/// The clock's zero as the time of day, in nanoseconds since 1970.
pub fn epoch_ns() -> u64 {
    beginning().1.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
