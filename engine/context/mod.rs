//! Contexts: what the adapter knows of queue pairs, completion queues, memory keys, and of the READs and atomics that
//! a queue pair has answered.
//!
//! Each kind is a backing table in host memory that the driver handed over ([`table`]) and a working-set cache in
//! the device ([`cache`]), write-allocate and write-back. [`lookup`] joins the two: a hit answers at once, a miss
//! sends a fill over the link and parks the asker. Page lists are walked through one [`translation`] cache.
//! Nothing pins an entry: whoever comes back after a miss asks again.

pub mod access;
pub mod cache;
pub mod completion_queue;
pub mod gid;
pub mod image;
pub(crate) mod in_hand;
mod invalidate;
pub mod key;
pub mod lookup;
pub mod multicast;
pub mod page_list;
pub mod queue_pair;
pub mod rd_atomic;
pub mod shared_receive_queue;
pub mod table;
pub mod translation;

use crate::EngineConfig;
use cache::Cache;
use completion_queue::CqContext;
use gid::GidTable;
use in_hand::InHand;
use key::KeyContext;
use queue_pair::QpContext;
use rd_atomic::RdAtomicContext;
use shared_receive_queue::SrqContext;
use std::collections::BTreeSet;
use table::Table;
use translation::{Owner, TranslationCache};

/// The tables and caches of one adapter.
#[derive(Debug)]
pub(crate) struct Contexts {
    pub queue_pairs: Cache<QpContext>,
    pub completion_queues: Cache<CqContext>,
    pub shared_receive_queues: Cache<SrqContext>,
    pub keys: Cache<KeyContext>,
    pub rd_atomic: Cache<RdAtomicContext>,
    pub queue_pair_table: Option<Table>,
    pub completion_queue_table: Option<Table>,
    pub shared_receive_queue_table: Option<Table>,
    pub key_table: Option<Table>,
    pub rd_atomic_table: Option<Table>,
    pub translations: TranslationCache,
    pub in_hand: InHand,
    /// Which windows are bound to which regions: (region, window), by table index.
    pub windows: BTreeSet<(u32, u32)>,
    pub gids: GidTable,
    /// Changes whenever a key stops being valid: ranges resolved before are resolved again.
    pub keys_epoch: u64,
}

impl Contexts {
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            queue_pairs: Cache::new(config.qp_cache_entries),
            completion_queues: Cache::new(config.cq_cache_entries),
            shared_receive_queues: Cache::new(config.srq_cache_entries),
            keys: Cache::new(config.key_cache_entries),
            rd_atomic: Cache::new(config.rd_atomic_cache_entries),
            queue_pair_table: None,
            completion_queue_table: None,
            shared_receive_queue_table: None,
            key_table: None,
            rd_atomic_table: None,
            translations: TranslationCache::new(config.translation_cache_lines),
            in_hand: InHand::default(),
            windows: BTreeSet::new(),
            gids: GidTable::preset(config.mac, &config.gids),
            keys_epoch: 0,
        }
    }

    /// Windows are bound to this region.
    pub fn has_windows(&self, region: u32) -> bool {
        self.windows.range((region, 0)..=(region, u32::MAX)).next().is_some()
    }

    /// An owner's page list is its driver's again.
    pub fn forget_lines(&mut self, owner: Owner) {
        self.translations.forget(owner);
        self.in_hand.forget_lines(owner);
    }
}
