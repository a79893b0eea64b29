//! A verbs-like driver for rnic over several ways to reach the device.
//!
//! [`backing::Backing`] is the one door to a device: BAR accesses, DMA memory, configuration space, vectors.
//! [`verbs::Device`] drives the device through it and knows `rnic-abi` only; [`transaction`] is one side of one RDMA
//! operation as a test body that runs over every backing; [`c_header`] writes the interface down for C drivers.

pub mod backing;
pub mod backings;
pub mod c_header;
pub mod exchange;
pub mod memory;
pub mod pci;
mod planted;
pub mod transaction;
pub mod verbs;

#[cfg(test)]
mod properties;
#[cfg(test)]
#[path = "../ci/search.rs"]
mod search;
