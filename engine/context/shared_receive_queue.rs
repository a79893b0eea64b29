//! Shared receive queue contexts. Rings and producer index are resident, as a queue pair's are: a doorbell needs no
//! context.

use super::image::{Image, Reader, Writer};
use rnic_abi::limits::SRQ_CONTEXT_BYTES;

/// What the next receive of a queue needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqContext {
    /// Position in the index ring of the next receive to be taken, free-running.
    pub consumer: u16,
    /// While it is not 0, fewer receives than this raise one event.
    pub limit: u16,
}

impl Image for SrqContext {
    const BYTES: usize = SRQ_CONTEXT_BYTES as usize;

    fn encode(&self, out: &mut Writer<'_>) {
        out.u16(self.consumer);
        out.u16(self.limit);
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        Some(Self { consumer: bytes.u16()?, limit: bytes.u16()? })
    }
}
