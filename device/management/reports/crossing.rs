//! One crossing as a row, and the settings of the link that it crossed.

use super::Name;
use rnic_pcie::{Cause, Crossing, LinkSettings};
use serde::{Deserialize, Serialize};

/// What decides how a transfer is split. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    #[serde(rename = "gen")]
    pub generation: u8,
    pub width: u8,
    pub mps: u32,
    pub mrrs: u32,
    pub rcb: u32,
}

impl From<LinkSettings> for LinkRow {
    fn from(link: LinkSettings) -> Self {
        Self {
            generation: link.generation,
            width: link.width,
            mps: link.mps_bytes,
            mrrs: link.mrrs_bytes,
            rcb: link.rcb_bytes,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossingRow {
    pub class: Name,
    pub bytes: u32,
    pub ranges: u16,
    pub tlps: TlpRow,
    pub wire_bytes: WireRow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedRow>,
    pub cause: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    pub sequence: u64,
    pub time_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlpRow {
    pub mrd: u32,
    pub mwr: u32,
    pub cpld: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRow {
    pub down: u64,
    pub up: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedRow {
    pub messages: u32,
    pub bytes: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &u16) -> bool {
    *value == 0
}

impl From<&Crossing> for CrossingRow {
    fn from(crossing: &Crossing) -> Self {
        let (cause, attempt) = cause_text(crossing.origin.cause);
        Self {
            class: crossing.origin.class.name().into(),
            bytes: crossing.bytes,
            ranges: crossing.ranges,
            tlps: TlpRow { mrd: crossing.tlps.mrd, mwr: crossing.tlps.mwr, cpld: crossing.tlps.cpld },
            wire_bytes: WireRow { down: crossing.wire_bytes.down, up: crossing.wire_bytes.up },
            observed: crossing.observed.map(|seen| ObservedRow { messages: seen.messages, bytes: seen.bytes }),
            cause,
            attempt,
            fault: crossing.fault.map(|fault| fault.to_string()),
            sequence: crossing.sequence,
            time_ns: crossing.time_ns,
        }
    }
}

fn cause_text(cause: Cause) -> (String, u16) {
    match cause {
        Cause::Send { qpn, index, attempt, .. } => (format!("send {qpn:#x}[{index}]"), attempt),
        Cause::Receive { qpn_or_srqn, index } => (format!("receive {qpn_or_srqn:#x}[{index}]"), 0),
        Cause::Packet { qpn, psn, attempt } => (format!("packet {qpn:#x} PSN {psn}"), attempt),
        Cause::Command { slot } => (format!("command {slot}"), 0),
        Cause::Event { eqn, index } => (format!("event {eqn}[{index}]"), 0),
        Cause::Net { queue, index } => (format!("net {queue}[{index}]"), 0),
        Cause::Maintenance => ("housekeeping".to_owned(), 0),
    }
}
