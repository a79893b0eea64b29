//! What there is of an adapter's Ethernet function: its state, its link and its virtqueues.

use super::Name;
use super::crossing::LinkRow;
use crate::adapter::Adapter;
use crate::function::ethernet::{NO_VECTOR, NetFault, VirtqueueView};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthernetRow {
    pub attached: bool,
    /// Clients that have come and gone.
    pub clients: u64,
    pub resets: u64,
    /// A driver is at work, and nothing is broken.
    pub running: bool,
    /// Why it stands still until the driver resets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultRow>,
    pub link_up: bool,
    /// The virtio features that the driver has accepted.
    pub driver_features: u64,
    pub bus_master: bool,
    pub link: LinkRow,
    pub dma_maps: usize,
    pub unanswered_messages: usize,
    pub queues: Vec<VirtqueueRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRow {
    pub number: u16,
    pub name: Name,
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtqueueRow {
    pub queue: u16,
    pub name: Name,
    pub enabled: bool,
    pub entries: u16,
    pub descriptors_iova: u64,
    pub available_iova: u64,
    pub used_iova: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<u16>,
    /// The available ring's index, as last read, and of the next entry to be read.
    pub available_index: u16,
    pub taken_index: u16,
    /// The used ring's, as last written.
    pub used_index: u16,
}

impl EthernetRow {
    pub fn of(adapter: &Adapter) -> Self {
        let (function, device) = (&adapter.ethernet, &adapter.ethernet.device);
        Self {
            attached: adapter.is_ethernet_attached(),
            clients: adapter.ethernet_clients(),
            resets: function.resets(),
            running: device.is_running(),
            fault: device.fault().as_ref().map(FaultRow::from),
            link_up: device.is_link_up(),
            driver_features: device.driver_features(),
            bus_master: function.link.bus_master(),
            link: function.link.settings().into(),
            dma_maps: function.link.window().map_count(),
            unanswered_messages: function.link.unanswered_messages(),
            queues: device.view_queues().map(VirtqueueRow::from).to_vec(),
        }
    }
}

impl From<&NetFault> for FaultRow {
    fn from(fault: &NetFault) -> Self {
        Self { number: fault.number(), name: fault.name().into(), sentence: fault.to_string() }
    }
}

impl From<VirtqueueView> for VirtqueueRow {
    fn from(view: VirtqueueView) -> Self {
        let settings = view.settings;
        Self {
            queue: view.number,
            name: view.name.into(),
            enabled: view.enabled,
            entries: settings.size,
            descriptors_iova: settings.descriptors,
            available_iova: settings.available,
            used_iova: settings.used,
            vector: Some(settings.vector).filter(|vector| *vector != NO_VECTOR),
            available_index: view.available_index,
            taken_index: view.taken_index,
            used_index: view.used_index,
        }
    }
}
