//! What one side saw, for people and for tests.

use super::spec::{Role, TransactionSpec};
use crate::exchange::Endpoint;
use crate::verbs::{Awaited, Event, WorkCompletion};
use rnic_abi::command::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// A step of the queue pair's state machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    pub to: &'static str,
    /// The attributes given, by name.
    pub given: BTreeMap<&'static str, u64>,
    /// The state the device reports afterwards.
    pub reported: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompletionReport {
    #[serde(flatten)]
    pub completion: WorkCompletion,
    pub opcode_name: String,
    pub status_name: String,
    /// Name and sentence of the rule behind `vendor_err`.
    pub rule: Option<(&'static str, &'static str)>,
}

impl From<WorkCompletion> for CompletionReport {
    fn from(completion: WorkCompletion) -> Self {
        Self {
            opcode_name: format!("{:?}", completion.opcode()),
            status_name: format!("{:?}", completion.status()),
            rule: completion.rule().map(|rule| (rule.name, rule.sentence)),
            completion,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventReport {
    pub event_type: String,
    pub object: u32,
    pub data: u32,
    /// The vector was raised for it.
    pub by_vector: bool,
}

impl EventReport {
    pub(super) fn new(event: Event, by_vector: bool) -> Self {
        Self { event_type: format!("{:?}", event.event_type), object: event.object, data: event.data, by_vector }
    }
}

impl From<Awaited> for EventReport {
    fn from(awaited: Awaited) -> Self {
        Self::new(awaited.event, awaited.by_vector)
    }
}

/// Whether what should have happened did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Everything that is not as it should be, as sentences; empty is good.
    pub faults: Vec<String>,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        self.faults.is_empty()
    }
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub role: Role,
    pub backing: &'static str,
    pub spec: TransactionSpec,
    pub own: Endpoint,
    pub peer: Option<Endpoint>,
    pub cqn: u32,
    pub eqn: u32,
    /// The region's key, as lkey here and as rkey at the peer.
    pub key: u32,
    /// The pages that the region's list names, as the device addresses them.
    pub pages: Vec<u64>,
    pub transitions: Vec<Transition>,
    pub completion: Option<CompletionReport>,
    pub event: Option<EventReport>,
    /// Completions beyond the one that was waited for.
    pub flushed: Vec<CompletionReport>,
    /// What came on the queue of asynchronous events, and events of other objects on the way.
    pub other_events: Vec<EventReport>,
    pub verdict: Option<Verdict>,
}

/// A state's name.
pub(super) fn state_name(state: u8) -> &'static str {
    ["Reset", "Init", "Rtr", "Rts", "Sqd", "Sqe", "Err"].get(usize::from(state)).copied().unwrap_or("unknown")
}

/// The attributes that a mask names.
pub(super) fn given(attributes: &QpAttributes) -> BTreeMap<&'static str, u64> {
    let a = attributes;
    [
        (ATTR_ACCESS_FLAGS, "access", a.access.get().into()),
        (ATTR_PKEY_INDEX, "pkey_index", a.pkey_index.get().into()),
        (ATTR_PORT, "port", a.port.into()),
        (ATTR_PATH_MTU, "path_mtu", a.path_mtu.into()),
        (ATTR_DEST_QPN, "dest_qpn", a.dest_qpn.get().into()),
        (ATTR_RQ_PSN, "rq_psn", a.rq_psn.get().into()),
        (ATTR_SQ_PSN, "sq_psn", a.sq_psn.get().into()),
        (ATTR_TIMEOUT, "timeout", a.timeout.into()),
        (ATTR_RETRY_CNT, "retry_cnt", a.retry_cnt.into()),
        (ATTR_RNR_RETRY, "rnr_retry", a.rnr_retry.into()),
        (ATTR_MIN_RNR_TIMER, "min_rnr_timer", a.min_rnr_timer.into()),
        (ATTR_MAX_QP_RD_ATOMIC, "max_rd_atomic", a.max_rd_atomic.into()),
        (ATTR_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", a.max_dest_rd_atomic.into()),
        (ATTR_AV, "sgid_index", a.av.sgid_index.get().into()),
        (ATTR_AV, "hop_limit", a.av.hop_limit.into()),
        (ATTR_AV, "traffic_class", a.av.traffic_class.into()),
        (ATTR_AV, "flow_label", a.av.flow_label.get().into()),
    ]
    .into_iter()
    .filter(|(bit, _, _)| a.mask.get() & bit != 0)
    .map(|(_, name, value)| (name, value))
    .collect()
}
