//! The host as a step of the engine sees it: the port to its memory, and the time.

use rnic_pcie::DmaPort;

/// Handed down through every stage of a step.
pub(crate) struct Host<'a> {
    pub port: &'a mut dyn DmaPort,
    pub now_ns: u64,
}
