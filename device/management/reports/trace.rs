//! Crossings and packets in one order.

use super::Name;
use super::crossing::{CrossingRow, LinkRow};
use crate::adapter::{Packet, PacketDirection};
use rnic_pcie::{Crossing, Role};
use rnic_wire::Syndrome;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReport {
    pub adapter: String,
    pub link: LinkRow,
    /// This request began the record: nothing of before is in it.
    pub began: bool,
    pub entries: Vec<TraceEntry>,
    /// Between the places asked for and the first entries given.
    pub lost: Lost,
    /// Where to go on.
    pub next: Places,
    /// The latest entries that there are.
    pub last: Places,
    /// There are more entries now.
    pub more: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    pub crossings: u64,
    pub packets: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    pub crossings: u64,
    pub packets: u64,
}

/// Whose operation an entry belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub qpn: u32,
    pub role: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TraceEntry {
    Crossing {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<Owner>,
        #[serde(flatten)]
        row: CrossingRow,
    },
    Packet(PacketRow),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRow {
    /// `sent` or `received`.
    pub direction: Name,
    /// This adapter's queue pair.
    pub qpn: u32,
    pub sequence: u64,
    pub time_ns: u64,
    pub after_crossing: u64,
    pub frame_bytes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportRow>,
    /// Why it is no packet for a queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportRow {
    pub opcode: Name,
    pub dest_qp: u32,
    pub psn: u32,
    pub ack_req: bool,
    pub payload_bytes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syndrome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msn: Option<u32>,
}

impl From<&Crossing> for TraceEntry {
    fn from(crossing: &Crossing) -> Self {
        let owner = |(qpn, role): (u32, Role)| Owner { qpn, role: role.name().into() };
        Self::Crossing { operation: crossing.origin.cause.operation().map(owner), row: crossing.into() }
    }
}

impl From<&Packet> for TraceEntry {
    fn from(packet: &Packet) -> Self {
        let transport = packet.transport.ok().map(|headers| TransportRow {
            opcode: headers.description.name.into(),
            dest_qp: headers.dest_qp,
            psn: headers.psn,
            ack_req: headers.ack_req,
            payload_bytes: headers.payload_bytes,
            syndrome: headers.aeth.map(|aeth| syndrome_text(aeth.syndrome)),
            msn: headers.aeth.map(|aeth| aeth.msn.get()),
        });
        Self::Packet(PacketRow {
            direction: match packet.direction {
                PacketDirection::Sent => "sent".into(),
                PacketDirection::Received => "received".into(),
            },
            qpn: packet.qpn,
            sequence: packet.sequence,
            time_ns: packet.time_ns,
            after_crossing: packet.after_crossing,
            frame_bytes: packet.frame_bytes,
            transport,
            dropped: packet.transport.err().map(|drop| drop.to_string()),
        })
    }
}

fn syndrome_text(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack { .. } => "ACK".to_owned(),
        Syndrome::RnrNak { .. } => "RNR NAK".to_owned(),
        Syndrome::Nak { .. } => format!("NAK {:#04x}", syndrome.to_byte()),
        Syndrome::Reserved(byte) => format!("reserved {byte:#04x}"),
    }
}

impl TraceEntry {
    /// The queue pair it belongs to; nobody's is housekeeping.
    pub fn qpn(&self) -> Option<u32> {
        match self {
            Self::Crossing { operation, .. } => operation.as_ref().map(|owner| owner.qpn),
            Self::Packet(row) => Some(row.qpn),
        }
    }

    pub fn time_ns(&self) -> u64 {
        match self {
            Self::Crossing { row, .. } => row.time_ns,
            Self::Packet(row) => row.time_ns,
        }
    }
}

/// Merges both records: a packet stands behind the crossing that was the latest when it passed. The places say how far
/// both have been used, at most `limit` entries in all.
pub fn merge(crossings: &[Crossing], packets: &[Packet], limit: usize) -> (Vec<TraceEntry>, usize, usize) {
    let (mut entries, mut used_crossings, mut used_packets) = (Vec::new(), 0, 0);
    while entries.len() < limit {
        let (crossing, packet) = (crossings.get(used_crossings), packets.get(used_packets));
        let crossing_first = match (crossing, packet) {
            (Some(crossing), Some(packet)) => crossing.sequence <= packet.after_crossing,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        if crossing_first {
            entries.extend(crossing.map(TraceEntry::from));
            used_crossings += 1;
        } else {
            entries.extend(packet.map(TraceEntry::from));
            used_packets += 1;
        }
    }
    (entries, used_crossings, used_packets)
}
