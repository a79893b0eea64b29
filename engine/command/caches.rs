//! QUERY_DEVICE, FLUSH_CACHES and SET_GID.

use super::Halt;
use crate::context::gid::GidEntry;
use crate::engine::Engine;
use crate::front_end::commands::{Flush, Limits, TableKind};
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use rnic_abi::{CommandStatus, Diagnostic};

impl Engine {
    pub(super) fn query_device(&self) -> Answer {
        Answer::Device(Limits {
            vectors: self.config.vectors,
            doorbell_pages: self.config.doorbell_pages,
            qp_cache_entries: self.contexts.queue_pairs.capacity() as u32,
            cq_cache_entries: self.contexts.completion_queues.capacity() as u32,
            srq_cache_entries: self.contexts.shared_receive_queues.capacity() as u32,
            key_cache_entries: self.contexts.keys.capacity() as u32,
            rd_atomic_cache_entries: self.contexts.rd_atomic.capacity() as u32,
        })
    }

    pub(super) fn set_gid(&mut self, index: u16, entry: Option<GidEntry>) -> Result<Answer, Halt> {
        if entry.is_some_and(|entry| self.contexts.gids.is_elsewhere(index, &entry)) {
            let object = index.into();
            return Err(CommandError::new(CommandStatus::EXISTS, Diagnostic::GidExists, object).into());
        }
        if self.contexts.gids.set(index, entry) {
            Ok(Answer::Done)
        } else {
            Err(CommandError::range(index.into()).into())
        }
    }

    /// Everything dirty goes home; the next use fetches.
    pub(super) fn flush_caches(&mut self, host: &mut Host, flush: Flush) -> Result<Answer, Halt> {
        if flush.queue_pairs {
            self.contexts.in_hand.flush_queue_pairs();
            for entry in self.contexts.queue_pairs.flush() {
                self.write_back(host, TableKind::QueuePair, entry.index, &entry.value);
            }
        }
        if flush.completion_queues {
            for entry in self.contexts.completion_queues.flush() {
                self.write_back(host, TableKind::CompletionQueue, entry.index, &entry.value);
            }
        }
        if flush.shared_receive_queues {
            self.contexts.in_hand.flush_srqs();
            for entry in self.contexts.shared_receive_queues.flush() {
                self.write_back(host, TableKind::SharedReceiveQueue, entry.index, &entry.value);
            }
        }
        if flush.keys {
            self.contexts.in_hand.flush_keys();
            for entry in self.contexts.keys.flush() {
                self.write_back(host, TableKind::Key, entry.index, &entry.value);
            }
        }
        if flush.rd_atomic {
            self.contexts.in_hand.flush_rd_atomics();
            for entry in self.contexts.rd_atomic.flush() {
                self.write_back(host, TableKind::RdAtomic, entry.index, &entry.value);
            }
        }
        if flush.translations {
            self.contexts.translations.flush();
            self.contexts.in_hand.flush_lines();
        }
        Ok(Answer::Done)
    }
}
