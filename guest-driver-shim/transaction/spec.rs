//! What one transaction is.

use crate::verbs::{DoorbellForm, MrLayout};
use rnic_abi::WorkOpcode;
use rnic_abi::command::{QP_TYPE_RC, QP_TYPE_UC, QP_TYPE_UD};
use rnic_abi::work_request::GRH_BYTES;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which side this program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Requester,
    Responder,
}

/// What the requester asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Write,
    #[default]
    WriteImm,
    Send,
    SendImm,
    SendInv,
    Read,
    CompareSwap,
    FetchAdd,
}

impl Operation {
    pub fn opcode(self) -> WorkOpcode {
        match self {
            Self::Write => WorkOpcode::WRITE,
            Self::WriteImm => WorkOpcode::WRITE_IMM,
            Self::Send => WorkOpcode::SEND,
            Self::SendImm => WorkOpcode::SEND_IMM,
            Self::SendInv => WorkOpcode::SEND_INV,
            Self::Read => WorkOpcode::READ,
            Self::CompareSwap => WorkOpcode::CMP_SWAP,
            Self::FetchAdd => WorkOpcode::FETCH_ADD,
        }
    }

    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// It names memory of the peer.
    pub fn names_remote(self) -> bool {
        self.is_write() || self.fetches()
    }

    /// Something comes back from the peer's memory.
    pub fn fetches(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    pub fn has_immediate(self) -> bool {
        matches!(self, Self::WriteImm | Self::SendImm)
    }

    /// The responder needs a receive work request and gets a completion.
    pub fn consumes_receive(self) -> bool {
        !(self == Self::Write || self.fetches())
    }
}

/// The transport service of both queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    #[default]
    Rc,
    Uc,
    Ud,
}

impl Transport {
    pub fn qp_type(self) -> u8 {
        match self {
            Self::Rc => QP_TYPE_RC,
            Self::Uc => QP_TYPE_UC,
            Self::Ud => QP_TYPE_UD,
        }
    }

    /// Whether its queue pairs take the operation.
    pub fn allows(self, operation: Operation) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => !operation.fetches() && operation != Operation::SendInv,
            Self::Ud => matches!(operation, Operation::Send | Operation::SendImm),
        }
    }
}

/// What goes wrong on purpose, with the memory that is named at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The requester names a key that was never registered.
    BadRkey,
    /// The requester's range ends one byte beyond the region; of an atomic, which is aligned, one word.
    OutOfBounds,
    /// The responder's region does not grant what the peer wants to do.
    #[serde(alias = "no_remote_write")]
    NoRemoteRight,
}

/// One transaction; both sides get the same but for what is their own choice (`armed`, `signaled`, layout).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransactionSpec {
    pub transport: Transport,
    pub operation: Operation,
    pub length_bytes: u32,
    pub path_mtu_bytes: u32,
    /// Scatter-gather elements the message is split into, at both sides.
    pub elements: u8,
    /// This side arms its completion queue.
    pub armed: bool,
    pub signaled: bool,
    pub solicited: bool,
    pub inline: bool,
    pub doorbell: DoorbellForm,
    pub layout: MrLayout,
    pub fault: Option<Fault>,
    pub immediate: u32,
    /// Decides the message's bytes.
    pub seed: u64,
    pub requester_qpn: u32,
    pub responder_qpn: u32,
    /// The first PSN of both sides.
    pub psn: u32,
    pub requester_gid: [u8; 16],
    pub responder_gid: [u8; 16],
    pub log_send_slots: u8,
    pub log_receive_entries: u8,
    pub log_cq_entries: u8,
    pub doorbell_page: u32,
    /// Local ACK timeout, 4.096 us << timeout, and how often it may pass.
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    /// How long any wait may take.
    pub limit_ms: u64,
}

impl Default for TransactionSpec {
    /// The story: 4096 bytes, PSN 1000, queue pairs 0x11 and 0x12.
    fn default() -> Self {
        Self {
            transport: Transport::Rc,
            operation: Operation::WriteImm,
            length_bytes: 4096,
            path_mtu_bytes: 4096,
            elements: 1,
            armed: false,
            signaled: true,
            solicited: false,
            inline: false,
            doorbell: DoorbellForm::Line,
            layout: MrLayout::Contiguous,
            fault: None,
            immediate: 0x2a,
            seed: 1,
            requester_qpn: 0x11,
            responder_qpn: 0x12,
            psn: 1000,
            requester_gid: ipv4_gid([10, 0, 0, 1]),
            responder_gid: ipv4_gid([10, 0, 0, 2]),
            log_send_slots: 6,
            log_receive_entries: 6,
            log_cq_entries: 6,
            doorbell_page: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            limit_ms: 10_000,
        }
    }
}

impl TransactionSpec {
    pub(super) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms)
    }

    /// What stands in front of the message in this side's buffer.
    pub(super) fn header_bytes(&self, role: Role) -> u32 {
        if (self.transport, role) == (Transport::Ud, Role::Responder) { GRH_BYTES } else { 0 }
    }

    pub(super) fn own_qpn(&self, role: Role) -> u32 {
        match role {
            Role::Requester => self.requester_qpn,
            Role::Responder => self.responder_qpn,
        }
    }

    pub(super) fn own_gid(&self, role: Role) -> [u8; 16] {
        match role {
            Role::Requester => self.requester_gid,
            Role::Responder => self.responder_gid,
        }
    }
}

/// The GID of an IPv4 address: ::ffff:a.b.c.d.
pub fn ipv4_gid([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}
