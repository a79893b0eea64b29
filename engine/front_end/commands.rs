//! Neutral commands and their answers.

use crate::context::gid::GidEntry;
use crate::context::page_list::PageList;
use crate::context::queue_pair::{AddressVector, QpState};
use crate::numbers::{Cqn, Eqn, Key, Pdn, Qpn};
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
    Key,
    /// What responders remember of READs and atomics.
    RdAtomic,
}

/// Which caches to flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    pub queue_pairs: bool,
    pub completion_queues: bool,
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
pub struct NewQp {
    pub qpn: Qpn,
    pub signal_all: bool,
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

/// A command as the engine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    QueryDevice,
    SetTable { kind: TableKind, log_entries: u8, pages: PageList },
    FlushCaches(Flush),
    SetGid { index: u16, entry: Option<GidEntry> },
    CreateEq(NewEq),
    DestroyEq(Eqn),
    CreateCq(NewCq),
    DestroyCq(Cqn),
    CreateQp(NewQp),
    ModifyQp(QpChange),
    QueryQp(Qpn),
    DestroyQp(Qpn),
    RegisterKey(NewKey),
    DeregisterKey(Key),
}

/// What QUERY_DEVICE tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub vectors: u16,
    pub doorbell_pages: u32,
    pub qp_cache_entries: u32,
    pub cq_cache_entries: u32,
    pub key_cache_entries: u32,
    pub rd_atomic_cache_entries: u32,
}

/// What a command that succeeded answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Device(Limits),
    QueuePair { attributes: QpChange, sq_consumer: u16, rq_consumer: u16 },
}
