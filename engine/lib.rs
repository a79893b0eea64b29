//! The adapter's engine: a pure state machine between doorbells, host memory and the wire.
//!
//! Inputs are `handle_*`, outputs are `poll_*`; time and seeds are arguments; host memory is reached through
//! [`rnic_pcie::DmaPort`] alone. No thread, socket, clock or random source is in here, so that one seed replays a
//! whole fabric byte for byte.
//!
//! The folders follow a work request's life: [`front_end`] understands the host's bytes; [`command`] makes and
//! changes objects, whose contexts live in [`context`]; `tx` turns work into packets; `rx` turns packets into
//! memory; `reliability` remembers what may have to be sent again; `congestion` decides when; `completion` tells
//! the host.

#[cfg(test)]
extern crate self as rnic_engine;

pub mod blocks;
pub mod command;
mod completion;
mod config;
mod congestion;
pub mod context;
pub mod counters;
pub mod diagnostics;
mod engine;
mod flush;
pub mod front_end;
mod host;
mod host_access;
#[cfg(test)]
mod hostile;
pub mod inspect;
mod numbered;
pub mod numbers;
mod pending;
mod planted;
mod queues;
mod reliability;
#[cfg(test)]
#[path = "tests/rig/mod.rs"]
mod rig;
mod rx;
#[cfg(test)]
#[path = "../ci/search.rs"]
mod search;
mod strict;
mod tx;
mod views;
mod wqe_pool;

pub use blocks::{Block, BlockTouch};
pub use config::EngineConfig;
pub use congestion::{CnpScope, CongestionConfig};
pub use counters::Counters;
pub use diagnostics::{DiagnosticReading, DiagnosticRecord};
pub use engine::Engine;
pub use host_access::HostWrite;
