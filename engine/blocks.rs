//! The adapter's blocks by the names of the hardware literature, and a record of which of them an operation
//! touched. `docs/architecture.md` maps each to its module.

/// A block of the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Block {
    WqeFetch,
    Scheduler,
    QpCache,
    RateLimiter,
    KeyCache,
    DmaEngine,
    SystemIommu,
    TxPacketBuild,
    ReplayBuffer,
    RetryTimer,
    RxParser,
    RxPsnCheck,
    ResponseGeneration,
    CqeGeneration,
    CqStorage,
    EventArbitration,
}

impl Block {
    /// Every block with its name and its module, in the order of the path.
    pub const ALL: &'static [(Block, &'static str, &'static str)] = &[
        (Block::WqeFetch, "WQE Fetch", "engine/tx/wqe_fetch.rs"),
        (Block::Scheduler, "Scheduler", "engine/tx/schedule.rs"),
        (Block::QpCache, "QP Table and QP Cache", "engine/context/lookup.rs"),
        (Block::RateLimiter, "Rate Limiter Table", "engine/congestion/rate_limiter.rs"),
        (Block::KeyCache, "Key Table and Key Cache", "engine/context/access.rs"),
        (Block::DmaEngine, "DMA Engine", "pcie/link.rs"),
        (Block::SystemIommu, "system IOMMU", "pcie/dma_window.rs"),
        (Block::TxPacketBuild, "TX Packet Build", "engine/tx/packet_build.rs"),
        (Block::ReplayBuffer, "Replay Buffer", "engine/reliability/replay_buffer.rs"),
        (Block::RetryTimer, "Retry Timer", "engine/reliability/timer.rs"),
        (Block::RxParser, "RX Parser", "engine/rx/parse.rs"),
        (Block::RxPsnCheck, "RX PSN Check", "engine/rx/psn_check.rs"),
        (Block::ResponseGeneration, "Response Generation", "engine/rx/acknowledge.rs"),
        (Block::CqeGeneration, "CQE Generation", "engine/completion/cqe.rs"),
        (Block::CqStorage, "CQ Storage", "engine/completion/cq.rs"),
        (Block::EventArbitration, "Event and Multi-CQ Arbitration", "engine/completion/eq.rs"),
    ];
}

/// One touch, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTouch {
    pub time_ns: u64,
    pub block: Block,
    /// QPN, CQN or key index, by block.
    pub object: u32,
}

/// Touches kept while somebody watches.
const KEPT: usize = 65_536;

/// The record: nothing but one branch while nobody watches.
#[derive(Debug, Default)]
pub(crate) struct BlockLog {
    watched: bool,
    touches: Vec<BlockTouch>,
}

impl BlockLog {
    pub fn watch(&mut self, on: bool) {
        self.watched = on;
        self.touches.clear();
    }

    #[inline]
    pub fn touch(&mut self, time_ns: u64, block: Block, object: u32) {
        if self.watched && self.touches.len() < KEPT {
            self.touches.push(BlockTouch { time_ns, block, object });
        }
    }

    pub fn touches(&self) -> &[BlockTouch] {
        &self.touches
    }
}
