//! RoCEv2 wire formats: Ethernet to ICRC, and the opcode table.
//!
//! In: bytes of one Ethernet frame ([`parse`]), or the values of its headers ([`emit`]). Out: the other of the two.
//! The crate knows no queue pair, does no I/O and has no clock. Input is judged by [`parse`] alone, which answers with
//! the headers or with the reason for the [`Drop`]; nothing a peer can put on the wire panics here.
//!
//! One header a module, each with a `Layout` (the bytes, field by field, no judgement) and a value type (the meaning);
//! the modules stand in the order of the headers on the wire.

pub mod header;

pub mod ethernet;
pub mod vlan;

pub mod ipv4;
pub mod ipv6;

pub mod udp;

pub mod bth;
pub mod opcode;
pub mod psn;

pub mod xrceth;

pub mod deth;

pub mod feth;
pub mod reth;

pub mod aeth;

pub mod atomic;

pub mod immdt;

pub mod ieth;

pub mod cnp;

pub mod icrc;

pub mod gid;

pub mod frame;

pub mod roce;

mod classify;
mod drop;
mod emit;
mod parse;
mod planted;

#[cfg(test)]
mod checks;
#[cfg(test)]
#[path = "../../ci/search.rs"]
mod search;

pub use aeth::{Aeth, CreditCode, NakCode, RnrTimer, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use classify::is_roce;
pub use deth::Deth;
pub use drop::Drop;
pub use emit::{emit, frame_length, payload_room};
pub use feth::Feth;
pub use frame::{Frame, IcrcState};
pub use gid::Gid;
pub use header::Header;
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use opcode::{Headers, Opcode, OpcodeDescription, Operation, Position, Transport};
pub use parse::{IcrcCheck, ParsedPacket, parse};
pub use psn::{Msn, Psn};
pub use reth::Reth;
pub use roce::{Ecn, Extension, LinkHeaders, Network, RoceHeaders};
pub use vlan::Vlan;
pub use xrceth::XrcEth;
