//! What can be seen of an adapter from outside.

use crate::blocks::BlockTouch;
use crate::config::EngineConfig;
use crate::context::queue_pair::QpState;
use crate::counters::Counters;
use crate::diagnostics::{DiagnosticReading, DiagnosticRecord};
use crate::engine::Engine;
use crate::numbers::Qpn;

impl Engine {
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The driver's mark register.
    pub fn mark(&self) -> u64 {
        self.front_end.mark()
    }

    /// What the driver has written to its mark register since this was asked last.
    pub fn take_mark(&mut self) -> Option<u64> {
        self.marked.take()
    }

    /// Appends up to `limit` diagnostics from `sequence` on to `into`; they stay for other readers.
    pub fn read_diagnostics(&self, sequence: u64, limit: usize, into: &mut Vec<DiagnosticRecord>) -> DiagnosticReading {
        self.diagnostics.read(sequence, limit, into)
    }

    /// The queue pair whose frame [`poll_transmit`](Self::poll_transmit) has built latest.
    pub fn last_sender(&self) -> u32 {
        self.last_sender.0
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Starts or stops the record of touched blocks; starting empties it.
    pub fn watch_blocks(&mut self, on: bool) {
        self.blocks.watch(on);
    }

    pub fn block_touches(&self) -> &[BlockTouch] {
        self.blocks.touches()
    }

    /// The addresses that the port answers to.
    pub fn owns_gid(&self, gid: &[u8; 16]) -> bool {
        self.contexts.gids.iter().any(|entry| entry.gid == *gid)
    }

    /// Queue pairs are attached to this group.
    pub fn joined_group(&self, gid: &[u8; 16]) -> bool {
        self.multicast.has_members(gid)
    }

    /// Queue pairs, completion queues, event queues, shared receive queues and keys that exist.
    pub fn object_counts(&self) -> [usize; 5] {
        let keys = self.keys_present.iter().map(|word| word.count_ones() as usize).sum();
        let (queue_pairs, shared) = (self.queue_pairs.len(), self.shared_receive_queues.len());
        [queue_pairs, self.completion_queues.len(), self.event_queues.len(), shared, keys]
    }

    /// A queue pair's state.
    pub fn queue_pair_state(&self, qpn: u32) -> Option<QpState> {
        self.queue_pairs.get(Qpn(qpn)).map(|qp| qp.state)
    }

    /// Holds a queue pair to a rate in bytes per second, or lets it go.
    pub fn set_rate_limit(&mut self, qpn: u32, bytes_per_second: Option<u64>) {
        self.rate_limits.set(Qpn(qpn), bytes_per_second);
    }
}
