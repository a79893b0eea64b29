//! What a driver can do wrong so badly that its queues mean nothing any more.
//!
//! The device then stops, sets DEVICE_NEEDS_RESET, tells the driver by the configuration vector, and logs one line. Each
//! fault has a number; docs/ethernet-function.md lists them.

use rnic_pcie::{DmaFault, Iova};

/// Why the device stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetFault {
    #[error("queue {queue} was enabled with {size} entries: a power of two up to {max} is needed", max = super::QUEUE_SIZE_MAX)]
    QueueSize { queue: u16, size: u16 },
    #[error("queue {queue} was enabled with its {ring} at {address}: misaligned, or past the end of the address space")]
    QueueAddress { queue: u16, ring: &'static str, address: Iova },
    #[error("queue {queue}: the available index went from {from} to {to}, more than the ring holds")]
    AvailableIndex { queue: u16, from: u16, to: u16 },
    #[error("queue {queue}: the available ring names descriptor {head}, the table ends before")]
    HeadBeyondTable { queue: u16, head: u16 },
    #[error("queue {queue}, chain {head}: a descriptor is followed by {next}, the table ends before")]
    NextBeyondTable { queue: u16, head: u16, next: u16 },
    #[error("queue {queue}, chain {head}: more descriptors than the table has, so it runs in a circle")]
    ChainTooLong { queue: u16, head: u16 },
    #[error("queue {queue}, chain {head}: an indirect table where none is allowed, or of {length_bytes} bytes")]
    IndirectTable { queue: u16, head: u16, length_bytes: u32 },
    #[error("queue {queue}, chain {head}: a buffer to be read follows one to be written")]
    ReadableAfterWritable { queue: u16, head: u16 },
    #[error("queue {queue}, chain {head}: its buffers go the wrong way, or have no room for the header")]
    WrongBuffers { queue: u16, head: u16 },
    #[error("queue {queue}: {what} cannot be reached: {fault}")]
    Dma { queue: u16, what: &'static str, fault: DmaFault },
}

impl NetFault {
    /// Numbers never change their meaning.
    pub fn number(&self) -> u16 {
        match self {
            Self::QueueSize { .. } => 1,
            Self::QueueAddress { .. } => 2,
            Self::AvailableIndex { .. } => 3,
            Self::HeadBeyondTable { .. } => 4,
            Self::NextBeyondTable { .. } => 5,
            Self::ChainTooLong { .. } => 6,
            Self::IndirectTable { .. } => 7,
            Self::ReadableAfterWritable { .. } => 8,
            Self::WrongBuffers { .. } => 9,
            Self::Dma { .. } => 10,
        }
    }

    /// The name in the documentation.
    pub fn name(&self) -> &'static str {
        match self {
            Self::QueueSize { .. } => "QueueSize",
            Self::QueueAddress { .. } => "QueueAddress",
            Self::AvailableIndex { .. } => "AvailableIndex",
            Self::HeadBeyondTable { .. } => "HeadBeyondTable",
            Self::NextBeyondTable { .. } => "NextBeyondTable",
            Self::ChainTooLong { .. } => "ChainTooLong",
            Self::IndirectTable { .. } => "IndirectTable",
            Self::ReadableAfterWritable { .. } => "ReadableAfterWritable",
            Self::WrongBuffers { .. } => "WrongBuffers",
            Self::Dma { .. } => "Dma",
        }
    }
}
