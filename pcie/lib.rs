//! The PCIe boundary of an emulated function: the only code that touches guest RAM or raises a vector.
//!
//! It knows PCIe, not RDMA. A device's logic reaches host memory through [`DmaPort`] alone; each transfer is
//! split into TLPs, counted once in the ledger and recorded in the trace, with its class and its cause.

mod books;
pub mod config_space;
pub mod crossing;
pub mod dma_port;
pub mod dma_window;
mod guest_copy;
pub mod guest_region;
pub mod ledger;
pub mod link;
mod lost_memory;
pub mod msix;
pub mod outbound;
mod planted;
#[cfg(test)]
mod properties;
pub mod queue_totals;
#[cfg(test)]
#[path = "../ci/search.rs"]
mod search;
pub mod tlp;
pub mod trace;
pub mod write_combine;

pub use crossing::{Cause, Class, Crossing, Direction, Observed, Origin, Role, Tlps, WireBytes};
pub use dma_port::{DmaFault, DmaPort, DmaRange, DmaTag, HostAccess, Iova, Submitted};
pub use link::{Link, ReadPolicy, Revocation, Verdict};
pub use outbound::{MessageId, MessageKind, OutboundMessage};
pub use tlp::LinkSettings;
