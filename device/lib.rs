//! The device process: vfio-user server, functions, engine threads, management.
//!
//! In: QEMU's requests on a socket per function. Out: an adapter that behaves as a PCIe device, on one switch with
//! others. `server -> adapter -> function -> (engine, pcie)`; `vfio_user` is the protocol alone.

pub mod adapter;
mod bell;
pub mod clock;
pub mod function;
pub mod management;
pub mod plain_port;
mod planted;
#[cfg(test)]
#[path = "../ci/search.rs"]
mod search;
pub mod server;
pub mod vfio_user;
