//! Congestion: when a queue pair may send. The scheduler consults the [`rate_limiter`] before it spends effort on
//! a packet; a packet that is built is never held.

pub(crate) mod rate_limiter;
