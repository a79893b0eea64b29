//! One side of one RDMA operation, step by step, over any backing: the story as a test body.
//!
//! In: a backing, a [`TransactionSpec`] and a [`Role`]. Out: a [`Report`]. The steps are separate, because whoever
//! watches reads the device's ledger between them: `open`, `bring_up`, `connect`, `arm`, `post`, `wait`, `verify`,
//! `close`. Every wait has the spec's limit.

mod buffer;
mod contents;
mod operate;
mod report;
mod side;
mod spec;

pub use buffer::{CANARY, GUARD_BYTES, HostBuffer, payload};
pub use report::{CompletionReport, EventReport, Report, Transition, Verdict};
pub use side::{Side, TransactionError};
pub use spec::{Fault, Operation, Role, TransactionSpec, Transport, ipv4_gid};

#[cfg(test)]
mod tests;
