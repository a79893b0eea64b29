//! Totals: by class and function, by role, by queue pair.

use super::Name;
use super::crossing::LinkRow;
use rnic_pcie::ledger::{Ledger, Totals};
use rnic_pcie::queue_totals::QueueShares;
use rnic_pcie::{Class, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatReport {
    pub adapter: String,
    /// Where counting begins.
    pub since: Moment,
    /// Where it ends.
    pub until: Moment,
    pub functions: Vec<FunctionStat>,
    pub operations: Operations,
    /// Queue pairs that caused something, from the number asked for on.
    pub queues: Vec<QueueStat>,
    /// They are not known: between the marks so many changed that not all is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queues_missing: bool,
    /// The number from which more can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_queues_from: Option<u32>,
    /// The engine's counters, by name.
    pub counters: BTreeMap<Name, u64>,
    /// The Ethernet function's.
    #[serde(default)]
    pub ethernet_counters: BTreeMap<Name, u64>,
}

/// A place in the stream of crossings of function 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// `start`, `zero`, `mark` or `now`.
    pub what: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u64>,
    /// Of the latest crossing before it.
    pub sequence: u64,
    /// The adapter's own clock, as in its TIME register; 0 is its start.
    pub time_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionStat {
    pub function: u8,
    pub name: Name,
    pub link: LinkRow,
    /// Classes that occurred, by name.
    pub classes: BTreeMap<Name, TotalsRow>,
    pub total: TotalsRow,
    /// What of the classes operations caused, by role; the rest is housekeeping.
    pub roles: BTreeMap<Name, BTreeMap<Name, ShareRow>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalsRow {
    pub crossings: u64,
    pub bytes: u64,
    pub mrd: u64,
    pub mwr: u64,
    pub cpld: u64,
    pub wire_down_bytes: u64,
    pub wire_up_bytes: u64,
    /// How host accesses were seen to arrive.
    pub observed_messages: u64,
    pub observed_bytes: u64,
    pub faults: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRow {
    pub crossings: u64,
    pub bytes: u64,
}

/// Operations that ended, which totals are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Send work requests, well or not, signaled or not.
    pub finished_sends: u64,
    /// Messages of peers.
    pub executed_messages: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStat {
    pub qpn: u32,
    pub requester: TotalsRow,
    pub responder: TotalsRow,
}

impl From<&Totals> for TotalsRow {
    fn from(totals: &Totals) -> Self {
        Self {
            crossings: totals.crossings,
            bytes: totals.bytes,
            mrd: totals.mrd,
            mwr: totals.mwr,
            cpld: totals.cpld,
            wire_down_bytes: totals.wire_down_bytes,
            wire_up_bytes: totals.wire_up_bytes,
            observed_messages: totals.observed_messages,
            observed_bytes: totals.observed_bytes,
            faults: totals.faults,
        }
    }
}

impl TotalsRow {
    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let added = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        Self {
            crossings: added(|row| row.crossings),
            bytes: added(|row| row.bytes),
            mrd: added(|row| row.mrd),
            mwr: added(|row| row.mwr),
            cpld: added(|row| row.cpld),
            wire_down_bytes: added(|row| row.wire_down_bytes),
            wire_up_bytes: added(|row| row.wire_up_bytes),
            observed_messages: added(|row| row.observed_messages),
            observed_bytes: added(|row| row.observed_bytes),
            faults: added(|row| row.faults),
        }
    }
}

impl FunctionStat {
    pub fn new(function: u8, name: &'static str, link: LinkRow, ledger: &Ledger) -> Self {
        let occurred = || ledger.classes().filter(|(_, totals)| totals.crossings > 0);
        let share = |role: Role, class: Class| {
            let share = ledger.share(role, class);
            ShareRow { crossings: share.crossings, bytes: share.bytes }
        };
        let shares = |role: Role| -> BTreeMap<Name, ShareRow> {
            let shares = occurred().map(|(class, _)| (Name::from(class.name()), share(role, class)));
            shares.filter(|(_, share)| share.crossings > 0).collect()
        };
        Self {
            function,
            name: name.into(),
            link,
            classes: occurred().map(|(class, totals)| (class.name().into(), totals.into())).collect(),
            total: TotalsRow::from(&ledger.total()),
            roles: Role::ALL.map(|role| (role.name().into(), shares(role))).into(),
        }
    }
}

impl QueueStat {
    pub fn since(qpn: u32, now: &QueueShares, then: &QueueShares) -> Self {
        let row = |role: Role| TotalsRow::from(&now[role as usize].since(&then[role as usize]));
        Self { qpn, requester: row(Role::Requester), responder: row(Role::Responder) }
    }

    pub fn is_empty(&self) -> bool {
        self.requester.crossings + self.responder.crossings == 0
    }
}

/// The driver's marks, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarksReport {
    pub adapter: String,
    pub marks: Vec<MarkRow>,
    /// Older marks that are not kept.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRow {
    pub value: u64,
    pub time_ns: u64,
    pub sequence: u64,
}
