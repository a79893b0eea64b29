//! What there is one of in a live adapter: its state, its command queue, caches, GIDs, timers.

use super::Name;
use super::crossing::LinkRow;
use super::ethernet::EthernetRow;
use crate::adapter::Adapter;
use rnic_engine::inspect::{AdapterView, CacheView, CommandQueueView};
use rnic_wire::Gid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterReport {
    pub adapter: String,
    pub attached: bool,
    /// Clients that have come and gone.
    pub clients: u64,
    pub resets: u64,
    pub time_ns: u64,
    pub mark: u64,
    pub enabled: bool,
    pub fatal: bool,
    pub link_up: bool,
    pub strict: bool,
    pub bus_master: bool,
    pub link: LinkRow,
    pub dma_maps: usize,
    pub unanswered_messages: usize,
    /// Of the trace: a record is kept.
    pub recording: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_queue: Option<CommandQueueRow>,
    /// Objects that exist, by kind.
    pub objects: BTreeMap<Name, usize>,
    pub caches: BTreeMap<Name, CacheRow>,
    pub gids: Vec<GidRow>,
    /// Multicast groups that queue pairs are attached to.
    #[serde(default)]
    pub groups: Vec<GroupRow>,
    pub timers: TimersRow,
    pub scheduled: ScheduledRow,
    /// Function 1.
    pub ethernet: EthernetRow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandQueueRow {
    pub commands_iova: u64,
    pub completions_iova: u64,
    pub slots: u32,
    pub producer: u16,
    pub consumer: u16,
    pub busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRow {
    pub used: usize,
    pub capacity: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidRow {
    pub index: u16,
    pub gid: String,
    pub mac: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    pub gid: String,
    pub qpns: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimersRow {
    pub running: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due_ns: Option<u64>,
}

/// Queue pairs that want to send, and what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledRow {
    pub requests: usize,
    pub responses: usize,
    pub late_payloads: usize,
    pub parked_frames: usize,
    pub waiting_completions: usize,
}

pub fn mac_text(mac: &[u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl AdapterReport {
    pub fn of(adapter: &Adapter) -> Self {
        let function = &adapter.function;
        let view: AdapterView = function.engine.inspect();
        let [queue_pairs, completion_queues, event_queues, shared_receive_queues, keys] = view.object_counts;
        let objects = [
            ("queue_pairs", queue_pairs),
            ("completion_queues", completion_queues),
            ("event_queues", event_queues),
            ("shared_receive_queues", shared_receive_queues),
            ("keys", keys),
        ];
        let cache = |cache: &CacheView| (cache.name.into(), CacheRow { used: cache.used, capacity: cache.capacity });
        let gid = |(index, entry): &(u16, rnic_engine::context::gid::GidEntry)| GidRow {
            index: *index,
            gid: Gid(entry.gid).to_string(),
            mac: mac_text(&entry.mac),
            vlan_id: entry.vlan_id,
        };
        Self {
            adapter: adapter.name.clone(),
            attached: adapter.is_attached(),
            clients: adapter.clients(),
            resets: function.resets(),
            time_ns: function.now_ns(),
            mark: function.engine.mark(),
            enabled: view.enabled,
            fatal: view.fatal,
            link_up: view.link_up,
            strict: view.strict,
            bus_master: function.link.bus_master(),
            link: function.link.settings().into(),
            dma_maps: function.link.window().map_count(),
            unanswered_messages: function.link.unanswered_messages(),
            recording: function.link.trace().is_watched(),
            command_queue: view.command_queue.map(CommandQueueRow::from),
            objects: objects.map(|(name, count)| (name.into(), count)).into(),
            caches: view.caches.iter().map(cache).collect(),
            gids: view.gids.iter().map(gid).collect(),
            groups: view
                .groups
                .into_iter()
                .map(|(group, qpns)| GroupRow { gid: Gid(group).to_string(), qpns })
                .collect(),
            timers: TimersRow { running: view.timers, next_due_ns: view.next_timer_ns },
            scheduled: ScheduledRow {
                requests: view.scheduled[0],
                responses: view.scheduled[1],
                late_payloads: view.scheduled[2],
                parked_frames: view.parked_frames,
                waiting_completions: view.waiting_completions,
            },
            ethernet: EthernetRow::of(adapter),
        }
    }
}

impl From<CommandQueueView> for CommandQueueRow {
    fn from(view: CommandQueueView) -> Self {
        Self {
            commands_iova: view.commands,
            completions_iova: view.completions,
            slots: view.slots,
            producer: view.producer,
            consumer: view.consumer,
            busy: view.busy,
        }
    }
}
