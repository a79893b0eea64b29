//! What an adapter is built with.

use crate::congestion::CongestionConfig;

/// Capacities and identity of one adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The port's MAC address.
    pub mac: [u8; 6],
    pub doorbell_pages: u32,
    pub vectors: u16,
    pub qp_cache_entries: usize,
    pub cq_cache_entries: usize,
    pub srq_cache_entries: usize,
    pub key_cache_entries: usize,
    /// Queue pairs whose answered READs and atomics are remembered in the device.
    pub rd_atomic_cache_entries: usize,
    /// Lines of 64 bytes, eight page addresses each.
    pub translation_cache_lines: usize,
    /// Send work requests that are fetched and not finished, over all queues.
    pub fetched_wqes: usize,
    /// Packets of one queue pair that may be under way without acknowledgement.
    pub window_packets: u32,
    /// Inbound frames that may wait for context, keys or receive work requests, over all queues.
    pub parked_frames: usize,
    /// Frames that came ahead of a gap and are kept, of all queue pairs that retransmit selectively.
    pub ahead_frames: usize,
    /// A diagnostic of severity warning stops the device.
    pub strict: bool,
    /// Largest path MTU of the port: 256 to 4096, a power of two.
    pub port_mtu_bytes: u32,
    pub congestion: CongestionConfig,
    /// Entries that the GID table has from index 0 on, at the start and after a reset; the driver may replace them.
    pub gids: Vec<[u8; 16]>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            mac: [0x02, 0, 0, 0, 0, 1],
            doorbell_pages: 1024,
            vectors: 32,
            qp_cache_entries: 1024,
            cq_cache_entries: 1024,
            srq_cache_entries: 256,
            key_cache_entries: 4096,
            rd_atomic_cache_entries: 1024,
            translation_cache_lines: 4096,
            fetched_wqes: 8192,
            window_packets: 256,
            parked_frames: 256,
            ahead_frames: 2048,
            strict: false,
            port_mtu_bytes: 4096,
            congestion: CongestionConfig::default(),
            gids: Vec::new(),
        }
    }
}
