//! The report: schema `rnic.demo/1`.

use crate::agent::Aftermath;
pub use rnic_device::management::reports::crossing::CrossingRow;
use rnic_device::management::reports::crossing::LinkRow;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub operation: String,
    pub length_bytes: u32,
    pub mtu: u32,
    pub packets: u32,
    pub hosts_kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    pub requester_status: String,
    pub responder_status: String,
    /// Nothing of a request that was refused.
    pub data_verified: Option<bool>,
    /// Nothing of an operation without immediate.
    pub imm_verified: Option<bool>,
    /// Of a request that was refused: nothing was written anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_untouched: Option<bool>,
    /// An immediate arrived that nobody had sent.
    #[serde(skip)]
    pub stray_immediate: bool,
    pub data_sha256: Option<String>,
    /// The responder's refusal, as it was on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak: Option<NakRow>,
    pub hosts: [HostReport; 2],
    /// What the story says the totals are, without what is done again after a loss.
    pub story: [u32; 2],
    /// Crossings of both sides that were made again, because a packet was lost.
    pub repeated: usize,
    pub matches_story: bool,
    pub elapsed_ms: u64,
}

impl Report {
    /// All that can be verified is right.
    pub fn is_right(&self) -> bool {
        let verified = [self.data_verified, self.imm_verified, self.target_untouched];
        self.matches_story && !self.stray_immediate && verified.iter().flatten().all(|right| *right)
    }

    /// What a refusal leaves behind is all there: the NAK on the wire, and both queue pairs in the error state.
    pub fn refusal_is_whole(&self, refused: bool) -> bool {
        let in_error = |host: &HostReport| host.aftermath.as_ref().is_some_and(|after| after.state == "Err");
        !refused || (self.nak.is_some_and(|nak| nak.syndrome == REMOTE_ACCESS_ERROR) && self.hosts.iter().all(in_error))
    }
}

/// The syndrome of the NAK that refuses a key.
const REMOTE_ACCESS_ERROR: u8 = 0x62;

#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    pub name: String,
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    pub link: LinkRow,
    pub crossings: Vec<CrossingRow>,
    pub total: usize,
    pub housekeeping: Vec<CrossingRow>,
    /// Crossings by class between the ledger's two readings.
    pub ledger_delta: BTreeMap<&'static str, u64>,
    /// Crossings that the ledger holds and neither list shows.
    pub remainder: i64,
    /// Broken rules that the adapter has told of since the operation was posted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticRow>,
    /// Doorbell lines that came in pieces: each of their stores then counts for itself.
    #[serde(skip_serializing_if = "none_torn")]
    pub torn_lines: u16,
    /// After a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aftermath: Option<Aftermath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bring_up: Option<serde_json::Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn none_torn(lines: &u16) -> bool {
    *lines == 0
}

#[derive(Clone, Debug, Serialize)]
pub struct DiagnosticRow {
    pub number: u32,
    pub name: &'static str,
    pub rule: &'static str,
    pub object: u32,
    pub value: u64,
}

/// A negative acknowledgement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NakRow {
    pub syndrome: u8,
    pub meaning: &'static str,
    pub psn: u32,
    pub msn: u32,
    /// To whom: the requester's queue pair.
    pub dest_qp: u32,
}
