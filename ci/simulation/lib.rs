//! Deterministic simulation: whole fabrics of adapters, drivers and the switch, in one thread and virtual time.
//!
//! A seed chooses a fabric, a random valid program and what goes wrong on the wire and in host memory ([`plan`]); the
//! same seed gives the same run, byte for byte. The engines, links and switch are the real ones; the drivers are
//! those of the shim. Judged is from outside: frames by [`check`], completions and data against the program, crossings
//! against both. At the end everything becomes whole, and all work has to be done.

pub mod adapter;
mod aim;
mod arrivals;
pub mod check;
pub mod checklist;
mod commands;
mod compose;
mod connecting;
pub mod connection;
pub mod coverage;
mod crossings;
pub mod debug_kernel;
mod ending;
mod events;
mod extended;
mod fabric;
pub mod flow;
mod frames;
pub mod goodput;
pub mod host;
mod inbound;
pub mod incast;
pub mod log;
pub mod matrix;
pub mod message;
pub mod mutants;
pub mod operations;
pub mod plan;
mod polling;
mod program;
pub mod random;
mod receives;
mod resets;
pub mod run;
mod sends;
pub mod shared;
mod shared_events;
mod stream;
pub mod suite;
pub mod unread;
pub mod unreliable;
pub mod views;
