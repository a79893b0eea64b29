//! Completions: how the host learns that work is done.
//!
//! `cqe -> cq -> arm -> moderation -> eq -> MSI-X`. In: a neutral completion and its cause. Out: an entry in the completion
//! queue, and for an armed queue an event. Nothing here overtakes: an entry is written after the payload that it
//! tells of, an event after its entry, a message after its event.

pub(crate) mod arm;
pub(crate) mod cq;
pub(crate) mod cqe;
pub(crate) mod eq;
pub(crate) mod moderation;
