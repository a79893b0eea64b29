//! Send work requests as a driver writes them.

use super::{VIRTUAL, gid};
use rnic_abi::command::*;
use rnic_abi::{
    AtomicSegment, ControlSegment, DataSegment, DatagramSegment, FlushSegment, RemoteSegment, WorkOpcode, XrcSegment,
    work_request,
};
use zerocopy::IntoBytes;

pub const fn all_rights() -> u32 {
    ACCESS_LOCAL_WRITE
        | ACCESS_REMOTE_WRITE
        | ACCESS_REMOTE_READ
        | ACCESS_REMOTE_ATOMIC
        | ACCESS_FLUSH_GLOBAL
        | ACCESS_FLUSH_PERSISTENT
}

pub fn data_segment(address: u64, length: u32, key: u32) -> DataSegment {
    DataSegment { address: address.into(), length_bytes: length.into(), lkey: key.into() }
}

/// A send work request to be encoded.
#[derive(Clone)]
pub struct Request {
    pub qpn: Option<u32>,
    pub opcode: WorkOpcode,
    pub elements: Vec<(u64, u32, u32)>,
    pub inline: Option<Vec<u8>>,
    pub remote: (u64, u32),
    /// What an atomic swaps in or adds, and what it compares.
    pub operands: (u64, u64),
    /// Bytes and placement of a FLUSH.
    pub flush: (u32, u32),
    pub immediate: u32,
    pub flags: u8,
    /// Where a datagram goes.
    pub datagram: Option<DatagramSegment>,
    /// On an XRC initiator: the peer's shared receive queue.
    pub srqn: Option<u32>,
}

impl Request {
    pub fn new(opcode: WorkOpcode, length: u32) -> Self {
        Self {
            qpn: None,
            opcode,
            elements: vec![(VIRTUAL, length, 0x100)],
            inline: None,
            remote: (VIRTUAL + 0x8_0000, 0x100),
            operands: (0, 0),
            flush: (0, 0),
            immediate: 0x2a,
            flags: work_request::WQE_SIGNALED,
            datagram: None,
            srqn: None,
        }
    }

    /// A SEND of a datagram queue pair.
    pub fn datagram(qpn: u32, to: [u8; 4], dest_qpn: u32, qkey: u32, length: u32) -> Self {
        let mut segment = DatagramSegment::zeroed();
        (segment.av.dest_gid, segment.av.dest_mac) = (gid(to), [2, 0, 0, 0, 0, to[3]]);
        (segment.dest_qpn, segment.qkey) = (dest_qpn.into(), qkey.into());
        Self { qpn: Some(qpn), datagram: Some(segment), ..Self::new(WorkOpcode::SEND, length) }
    }

    pub fn encode(&self, qpn: u32, index: u16) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Some(segment) = &self.datagram {
            rest.extend(segment.as_bytes());
        }
        if let Some(srqn) = self.srqn {
            rest.extend(XrcSegment { srqn: srqn.into(), ..XrcSegment::zeroed() }.as_bytes());
        }
        let atomic = matches!(self.opcode, WorkOpcode::CMP_SWAP | WorkOpcode::FETCH_ADD);
        let others = [WorkOpcode::WRITE, WorkOpcode::WRITE_IMM, WorkOpcode::READ, WorkOpcode::ATOMIC_WRITE];
        if atomic || self.opcode == WorkOpcode::FLUSH || others.contains(&self.opcode) {
            let mut remote = RemoteSegment::zeroed();
            (remote.address, remote.rkey) = (self.remote.0.into(), self.remote.1.into());
            rest.extend(remote.as_bytes());
        }
        if atomic {
            let (swap_or_add, compare) = (self.operands.0.into(), self.operands.1.into());
            rest.extend(AtomicSegment { swap_or_add, compare }.as_bytes());
        }
        if self.opcode == WorkOpcode::FLUSH {
            let (length_bytes, placement) = (self.flush.0.into(), self.flush.1.into());
            rest.extend(FlushSegment { length_bytes, placement, reserved: 0.into() }.as_bytes());
        }
        let mut control = ControlSegment::zeroed();
        match &self.inline {
            Some(data) => {
                rest.extend(data);
                rest.resize(rest.len().next_multiple_of(16), 0);
                control.inline_bytes = (data.len() as u16).into();
            }
            None => {
                for (address, length, key) in &self.elements {
                    rest.extend(data_segment(*address, *length, *key).as_bytes());
                }
            }
        }
        control.opcode = self.opcode.0;
        control.qpn.copy_from_slice(&qpn.to_le_bytes()[..3]);
        control.slot_index = index.into();
        control.segments = 1 + (rest.len() / 16) as u8;
        control.flags = self.flags | if self.inline.is_some() { work_request::WQE_INLINE } else { 0 };
        control.immediate = self.immediate.into();
        let mut bytes = control.as_bytes().to_vec();
        bytes.extend(rest);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes
    }
}
