//! The receive path: a packet becomes bytes in memory.
//!
//! `parse -> psn_check -> opcode_check -> (receive_wqe) -> key_check -> scatter -> acknowledge`, and [`fault`]: one
//! table from what went wrong to NAK, completion and event. In: a frame. Out: memory written, a completion, a
//! [`crate::reliability::ResponseDue`]. An acknowledgement takes the other branch after the PSN: to `reliability`.
//!
//! A packet that misses a context, a key or a receive work request waits at the head of its queue pair's inbound
//! list and runs again; nothing is changed before the stage that cannot be blocked any more.

pub(crate) mod acknowledge;
pub(crate) mod complete;
pub(crate) mod doorbell;
pub(crate) mod fault;
pub(crate) mod key_check;
pub(crate) mod opcode_check;
pub(crate) mod parse;
pub(crate) mod psn_check;
pub(crate) mod receive_wqe;
pub(crate) mod responder;
pub(crate) mod scatter;
