//! Neutral commands and their answers.

use crate::context::completion_queue::Moderation;
use crate::context::gid::GidEntry;
use crate::context::key::KeyKind;
use crate::context::page_list::PageList;
use crate::context::queue_pair::{AddressVector, QpState, Service};
use crate::numbers::{Cqn, Eqn, Key, Pdn, Qpn, Srqn, XrcDomain};
use rnic_abi::{CommandStatus, Diagnostic};

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub status: CommandStatus,
    pub diagnostic: Diagnostic,
    pub object: u32,
}

impl CommandError {
    pub const fn new(status: CommandStatus, diagnostic: Diagnostic, object: u32) -> Self {
        Self { status, diagnostic, object }
    }

    /// A parameter outside its range.
    pub const fn range(object: u32) -> Self {
        Self::new(CommandStatus::BAD_PARAMETER, Diagnostic::ParameterRange, object)
    }
}

/// Which table of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    QueuePair,
    CompletionQueue,
    SharedReceiveQueue,
    Key,
    /// What responders remember of READs and atomics.
    RdAtomic,
}

/// Which caches to flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    pub queue_pairs: bool,
    pub completion_queues: bool,
    pub shared_receive_queues: bool,
    pub keys: bool,
    pub translations: bool,
    pub rd_atomic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEq {
    pub eqn: Eqn,
    pub vector: Option<u16>,
    pub log_entries: u8,
    pub pages: PageList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewCq {
    pub cqn: Cqn,
    pub eqn: Option<Eqn>,
    pub doorbell_page: u32,
    pub log_entries: u8,
    pub pages: PageList,
    pub consumer_record: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSrq {
    pub srqn: Srqn,
    pub privileged: bool,
    pub log_slots: u8,
    pub stride_bytes: u16,
    pub pdn: Pdn,
    pub doorbell_page: u32,
    pub limit: u16,
    /// Of an XRC queue.
    pub xrc: Option<Xrc>,
    pub wqe_pages: PageList,
    pub index_pages: PageList,
}

/// What an XRC shared receive queue has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrc {
    /// Targets of this domain alone may receive here.
    pub domain: XrcDomain,
    pub cqn: Cqn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewQp {
    pub qpn: Qpn,
    pub service: Service,
    pub signal_all: bool,
    /// It may name the local DMA key and register regions by work request.
    pub privileged: bool,
    /// Both ends retransmit selectively.
    pub selective: bool,
    /// Where its receives come from; without it from its own ring.
    pub srqn: Option<Srqn>,
    /// Of an XRC target.
    pub xrc_domain: Option<XrcDomain>,
    pub log_sq_slots: u8,
    pub log_rq_entries: u8,
    pub rq_stride_bytes: u16,
    pub pdn: Pdn,
    pub send_cqn: Cqn,
    pub receive_cqn: Cqn,
    pub doorbell_page: u32,
    pub sq_pages: PageList,
    pub rq_pages: PageList,
}

/// The attributes of a queue pair; `mask` says which are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpChange {
    pub qpn: Qpn,
    pub mask: u32,
    pub state: Option<QpState>,
    pub current_state: Option<QpState>,
    pub path_mtu: u8,
    pub port: u8,
    pub access: u32,
    pub pkey_index: u16,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qpn: u32,
    pub qkey: u32,
    pub av: AddressVector,
    pub sqd_notify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewKey {
    pub key: Key,
    pub pdn: Pdn,
    pub access: u32,
    pub start: u64,
    pub length_bytes: u64,
    pub pages: PageList,
}

/// What of a region changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    pub translation: bool,
    pub pd: bool,
    pub access: bool,
}

/// A command as the engine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    QueryDevice,
    SetTable { kind: TableKind, log_entries: u8, pages: PageList },
    FlushCaches(Flush),
    SetGid { index: u16, entry: Option<GidEntry> },
    QueryCounters { group: CounterGroup, first: u16 },
    CreateEq(NewEq),
    DestroyEq(Eqn),
    CreateCq(NewCq),
    DestroyCq(Cqn),
    ModifyCq { cqn: Cqn, moderation: Moderation },
    ResizeCq { cqn: Cqn, log_entries: u8, pages: PageList },
    CreateQp(NewQp),
    ModifyQp(QpChange),
    QueryQp(Qpn),
    DestroyQp(Qpn),
    AttachMulticast { qpn: Qpn, gid: [u8; 16] },
    DetachMulticast { qpn: Qpn, gid: [u8; 16] },
    CreateSrq(NewSrq),
    ModifySrq { srqn: Srqn, limit: u16 },
    QuerySrq(Srqn),
    DestroySrq(Srqn),
    RegisterKey(NewKey),
    DeregisterKey(Key),
    ReregisterKey(NewKey, KeyChanges),
    AllocateKey { key: Key, pdn: Pdn, kind: KeyKind },
}

/// Which of the device's counters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterGroup {
    Port,
    Crossings,
}

/// Counters in one answer.
pub const COUNTERS_AN_ANSWER: usize = 12;

/// What QUERY_DEVICE tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub vectors: u16,
    pub doorbell_pages: u32,
    pub qp_cache_entries: u32,
    pub cq_cache_entries: u32,
    pub srq_cache_entries: u32,
    pub key_cache_entries: u32,
    pub rd_atomic_cache_entries: u32,
}

/// What a command that succeeded answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Device(Limits),
    QueuePair {
        attributes: QpChange,
        sq_consumer: u16,
        rq_consumer: u16,
    },
    /// Of a group that has `total`: `count` values.
    Counters {
        total: u16,
        count: u16,
        values: [u64; COUNTERS_AN_ANSWER],
    },
    /// Of a resized completion queue: the first entry in its new ring.
    FirstIndex(u32),
    SharedReceiveQueue {
        limit: u16,
        available: u16,
        consumer: u16,
    },
}
