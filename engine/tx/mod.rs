//! The transmit path: a work request becomes packets.
//!
//! `doorbell -> wqe_fetch -> schedule (context lookup) -> rate_limit -> segment -> key_check -> gather ->
//! packet_build -> transmit`. In: a doorbell. Out: a frame in the port's hands, and in that same step its replay
//! entry and timer. Answers that the receive path owes leave through the same [`packet_build`]:
//! acknowledgements by [`respond`], responses of READs and atomics by [`reply`]. What [`unreliable`] transports do
//! otherwise stands apart.

pub(crate) mod doorbell;
pub(crate) mod gather;
pub(crate) mod key_check;
pub(crate) mod key_work;
pub(crate) mod local;
pub(crate) mod packet_build;
pub(crate) mod rate_limit;
pub(crate) mod reply;
pub(crate) mod respond;
pub(crate) mod schedule;
pub(crate) mod segment;
pub(crate) mod transmit;
pub(crate) mod unreliable;
pub(crate) mod wqe_fetch;
