//! The receive path: a packet becomes bytes in memory.
//!
//! `parse -> psn_check -> opcode_check -> (shared_receive, receive_wqe) -> key_check -> scatter | read_reply | atomic_reply | placement ->
//! acknowledge`, and [`fault`]: one
//! table from what went wrong to NAK, completion and event. In: a frame. Out: memory written, a completion, a
//! [`crate::reliability::ResponseDue`] or a reply. What answers this side's own requests takes the other branch after
//! the PSN: [`response`], which scatters what a READ brings, and `reliability`. A [`duplicate`] is answered from what is
//! remembered, and never executed again.
//!
//! A request of an extended connection names the shared receive queue it is for: [`xrc`], behind the opcode check.
//!
//! Packets of the unreliable transports take the same stages but for PSN and answers: [`unreliable`], [`datagram`];
//! [`multicast`] gives each queue pair of a group its copy.
//!
//! Where both ends retransmit selectively, a packet that comes before its turn is kept: [`ahead`].
//!
//! A packet that misses a context, a key or a receive work request waits at the head of its queue pair's inbound
//! list and runs again; nothing is changed before the stage that cannot be blocked any more.

pub(crate) mod acknowledge;
pub(crate) mod ahead;
pub(crate) mod atomic_reply;
pub(crate) mod complete;
pub(crate) mod congestion;
mod datagram;
pub(crate) mod doorbell;
pub(crate) mod duplicate;
pub(crate) mod fault;
pub(crate) mod key_check;
pub(crate) mod multicast;
pub(crate) mod opcode_check;
pub(crate) mod parse;
pub(crate) mod placement;
pub(crate) mod psn_check;
pub(crate) mod read_reply;
pub(crate) mod receive_wqe;
pub(crate) mod responder;
pub(crate) mod response;
pub(crate) mod scatter;
pub(crate) mod shared_receive;
pub(crate) mod unreliable;
pub(crate) mod xrc;
