//! Queue pairs, completion queues, event queues, shared receive queues and keys of a live adapter as rows.

use super::Name;
use super::adapter::mac_text;
use rnic_engine::context::completion_queue::CqContext;
use rnic_engine::context::key::{KeyContext, KeyKind, WindowType};
use rnic_engine::context::page_list::PageList;
use rnic_engine::context::queue_pair::{QpContext, QpState};
use rnic_engine::inspect::{
    CompletionQueueView, EventQueueView, KeyView, QueuePairView, RingView, SharedReceiveQueueView,
};
use rnic_wire::Gid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A ring and its indices, free-running as in the doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRow {
    pub entries: u32,
    pub entry_bytes: u16,
    pub producer: u32,
    pub fetch: u32,
    pub consumer: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairRow {
    pub qpn: u32,
    /// RC, UC, UD, GSI, XRC_INI or XRC_TGT.
    pub qp_type: Name,
    pub state: Name,
    pub pdn: u32,
    pub doorbell_page: u32,
    /// Absent where there is no such queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_cqn: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_cqn: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srqn: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xrc_domain: Option<u32>,
    #[serde(default)]
    pub privileged: bool,
    /// What its sending is held to, by its user or by congestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_bits_per_second: Option<u64>,
    /// Of one that retransmits selectively: packets that are kept ahead of a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_ahead: Option<usize>,
    pub send_queue: RingRow,
    pub receive_queue: RingRow,
    pub waiting_sends: usize,
    pub unacknowledged_messages: usize,
    pub inbound_frames: usize,
    pub transmit: Name,
    /// Timers that run, by kind, with the time at which they are due.
    pub timers_due_ns: BTreeMap<Name, u64>,
    /// Absent while the context is in host memory alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<QpContextRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpContextRow {
    pub dest_qpn: u32,
    pub dest_gid: String,
    pub dest_mac: String,
    pub sgid_index: u16,
    pub path_mtu_bytes: u32,
    pub access: u32,
    /// Datagrams: what a packet must carry.
    pub qkey: u32,
    /// Oldest PSN that is not acknowledged, next to leave, first that has never left.
    pub unacked_psn: u32,
    pub send_psn: u32,
    pub fresh_psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub retries_left: u8,
    pub rnr_retry: u8,
    pub rnr_retries_left: u8,
    /// Receives that the peer's newest acknowledgement promised; absent where it says nothing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<u32>,
    pub expected_psn: u32,
    pub msn: u32,
    pub nak_outstanding: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionQueueRow {
    pub cqn: u32,
    pub eqn: Option<u32>,
    pub doorbell_page: u32,
    /// Send and receive queues that complete here: two of a queue pair that has it for both.
    pub work_queues: u32,
    pub waiting: usize,
    pub failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CqContextRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CqContextRow {
    pub entries: u32,
    pub producer: u32,
    /// As last heard of: the device reads the consumer record when the queue looks full.
    pub consumer: u32,
    pub consumer_record_iova: u64,
    pub armed: bool,
    pub solicited_only: bool,
    pub arm_sequence: Option<u8>,
    /// Index of the entry that stands first in the ring; not 0 once it was resized.
    pub first_index: u32,
    pub moderation_count: u16,
    pub moderation_period_us: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedReceiveQueueRow {
    pub srqn: u32,
    /// Of an XRC queue, as is the completion queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xrc_domain: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cqn: Option<u32>,
    pub pdn: u32,
    pub doorbell_page: u32,
    pub queue_pairs: u32,
    pub slots: u32,
    pub slot_bytes: u16,
    pub producer: u16,
    /// Receives that came back from queue pairs that were reset or destroyed.
    pub returned: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Name>,
    /// Position of the next receive, and the limit while it is armed; absent while the context is in host memory alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventQueueRow {
    pub eqn: u32,
    pub vector: Option<u16>,
    pub ring: RingRow,
    pub armed: bool,
    pub completion_queues: u32,
    pub waiting: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    pub index: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<KeyContextRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyContextRow {
    pub key: u32,
    pub kind: Name,
    /// Free, or taken out of use: it allows nothing.
    pub valid: bool,
    pub pdn: u32,
    pub access: u32,
    pub start: u64,
    pub length_bytes: u64,
    pub pages: PageListRow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageListRow {
    pub root_iova: u64,
    pub page_bytes: u64,
    pub levels: u8,
}

/// A page of one kind of object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectRows {
    QueuePairs(Vec<QueuePairRow>),
    CompletionQueues(Vec<CompletionQueueRow>),
    EventQueues(Vec<EventQueueRow>),
    SharedReceiveQueues(Vec<SharedReceiveQueueRow>),
    Keys(Vec<KeyRow>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsReport {
    pub adapter: String,
    pub objects: ObjectRows,
    /// The number from which more can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl QueuePairRow {
    /// Each of its work requests names where it goes.
    pub fn is_datagram(&self) -> bool {
        ["UD", "GSI"].contains(&&*self.qp_type)
    }
}

const fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}

impl From<RingView> for RingRow {
    fn from(ring: RingView) -> Self {
        Self {
            entries: ring.entries,
            entry_bytes: ring.entry_bytes,
            producer: ring.producer,
            fetch: ring.fetch,
            consumer: ring.consumer,
        }
    }
}

impl From<QueuePairView> for QueuePairRow {
    fn from(view: QueuePairView) -> Self {
        Self {
            qpn: view.qpn,
            qp_type: view.service.name().into(),
            state: state_name(view.state).into(),
            pdn: view.pdn,
            doorbell_page: view.doorbell_page,
            send_cqn: view.send_cqn,
            receive_cqn: view.receive_cqn,
            srqn: view.srqn,
            xrc_domain: view.xrc_domain,
            privileged: view.privileged,
            limited_bits_per_second: view.limited_bits_per_second,
            kept_ahead: view.selective,
            send_queue: view.send_queue.into(),
            receive_queue: view.receive_queue.into(),
            waiting_sends: view.waiting_sends,
            unacknowledged_messages: view.unacknowledged_messages,
            inbound_frames: view.inbound_frames,
            transmit: view.transmit.into(),
            timers_due_ns: view.timers.into_iter().map(|(timer, due_ns)| (timer.into(), due_ns)).collect(),
            context: view.context.as_ref().map(QpContextRow::from),
        }
    }
}

impl From<&QpContext> for QpContextRow {
    fn from(context: &QpContext) -> Self {
        let (requester, responder) = (&context.requester, &context.responder);
        Self {
            dest_qpn: context.dest_qpn.0,
            dest_gid: Gid(context.av.dest_gid).to_string(),
            dest_mac: mac_text(&context.av.dest_mac),
            sgid_index: context.av.sgid_index,
            path_mtu_bytes: context.path_mtu_bytes(),
            access: context.access,
            qkey: context.qkey,
            unacked_psn: requester.unacked_psn.get(),
            send_psn: requester.send_psn.get(),
            fresh_psn: requester.fresh_psn.get(),
            timeout: requester.timeout,
            retry_cnt: requester.retry_cnt,
            retries_left: requester.retries_left,
            rnr_retry: requester.rnr_retry,
            rnr_retries_left: requester.rnr_retries_left,
            credits: requester.credits.credits(),
            expected_psn: responder.expected_psn.get(),
            msn: responder.msn.get(),
            nak_outstanding: responder.nak_outstanding,
        }
    }
}

impl From<CompletionQueueView> for CompletionQueueRow {
    fn from(view: CompletionQueueView) -> Self {
        Self {
            cqn: view.cqn,
            eqn: view.eqn,
            doorbell_page: view.doorbell_page,
            work_queues: view.queue_pairs,
            waiting: view.waiting,
            failed: view.failed,
            context: view.context.as_ref().map(CqContextRow::from),
        }
    }
}

impl From<&CqContext> for CqContextRow {
    fn from(context: &CqContext) -> Self {
        Self {
            entries: context.entries(),
            producer: context.producer,
            consumer: context.consumer,
            consumer_record_iova: context.consumer_record,
            armed: context.arm.armed,
            solicited_only: context.arm.solicited_only,
            arm_sequence: context.arm.sequence,
            first_index: context.first_index,
            moderation_count: context.moderation.count,
            moderation_period_us: context.moderation.period_us,
        }
    }
}

impl From<EventQueueView> for EventQueueRow {
    fn from(view: EventQueueView) -> Self {
        Self {
            eqn: view.eqn,
            vector: view.vector,
            ring: view.ring.into(),
            armed: view.armed,
            completion_queues: view.completion_queues,
            waiting: view.waiting,
        }
    }
}

impl From<SharedReceiveQueueView> for SharedReceiveQueueRow {
    fn from(view: SharedReceiveQueueView) -> Self {
        Self {
            srqn: view.srqn,
            xrc_domain: view.xrc.map(|(domain, _)| domain),
            cqn: view.xrc.map(|(_, cqn)| cqn),
            pdn: view.pdn,
            doorbell_page: view.doorbell_page,
            queue_pairs: view.queue_pairs,
            slots: view.slots,
            slot_bytes: view.slot_bytes,
            producer: view.producer,
            returned: view.returned,
            failed: view.failed.map(Into::into),
            consumer: view.context.map(|context| context.consumer),
            limit: view.context.map(|context| context.limit),
        }
    }
}

const fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Region => "region",
        KeyKind::FastRegion { .. } => "fast region",
        KeyKind::Window { window: WindowType::One, .. } => "window of type 1",
        KeyKind::Window { window: WindowType::TwoA, .. } => "window of type 2A",
        KeyKind::Window { window: WindowType::TwoB, .. } => "window of type 2B",
    }
}

impl From<KeyView> for KeyRow {
    fn from(view: KeyView) -> Self {
        let context = view.context.as_ref().map(|context| KeyContextRow::of(view.index, context));
        Self { index: view.index, context }
    }
}

impl KeyContextRow {
    fn of(index: u32, context: &KeyContext) -> Self {
        Self {
            key: index << 8 | u32::from(context.variant),
            kind: kind_name(context.kind).into(),
            valid: context.valid,
            pdn: context.pdn.0,
            access: context.access,
            start: context.start,
            length_bytes: context.length_bytes,
            pages: (&context.pages).into(),
        }
    }
}

impl From<&PageList> for PageListRow {
    fn from(pages: &PageList) -> Self {
        Self { root_iova: pages.root, page_bytes: pages.page_bytes(), levels: pages.levels }
    }
}
