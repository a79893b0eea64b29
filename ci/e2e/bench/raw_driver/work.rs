//! Send work requests, segment by segment.

use super::{KEY, VIRTUAL};
use rnic_abi::{AtomicSegment, ControlSegment, DataSegment, RemoteSegment, WorkOpcode, work_request};
use zerocopy::IntoBytes;

/// A send work request to be encoded.
#[derive(Clone, Debug)]
pub struct Work {
    pub opcode: WorkOpcode,
    pub elements: Vec<(u64, u32, u32)>,
    pub remote: (u64, u32),
    /// Immediate data, or the key that is to be invalidated.
    pub immediate: u32,
    /// Beside `WQE_SIGNALED`.
    pub flags: u8,
}

impl Work {
    pub fn new(opcode: WorkOpcode, length_bytes: u32) -> Work {
        let elements = vec![(VIRTUAL, length_bytes, KEY)];
        Work { opcode, elements, remote: (VIRTUAL + 0x8_0000, KEY), immediate: 0, flags: 0 }
    }

    pub fn write() -> Work {
        Work::new(WorkOpcode::WRITE, 8)
    }

    pub fn send() -> Work {
        Work::new(WorkOpcode::SEND, 8)
    }

    pub fn read(length_bytes: u32) -> Work {
        Work::new(WorkOpcode::READ, length_bytes)
    }

    pub fn fetch_add() -> Work {
        Work::new(WorkOpcode::FETCH_ADD, 8)
    }

    pub fn invalidate(key: u32) -> Work {
        Work { elements: Vec::new(), immediate: key, ..Work::new(WorkOpcode::LOCAL_INV, 0) }
    }

    pub(super) fn encode(&self, qpn: u32, index: u16) -> Vec<u8> {
        let mut rest: Vec<u8> = Vec::new();
        let is_atomic = matches!(self.opcode, WorkOpcode::CMP_SWAP | WorkOpcode::FETCH_ADD);
        if is_atomic || matches!(self.opcode, WorkOpcode::WRITE | WorkOpcode::WRITE_IMM | WorkOpcode::READ) {
            let mut remote = RemoteSegment::zeroed();
            (remote.address, remote.rkey) = (self.remote.0.into(), self.remote.1.into());
            rest.extend(remote.as_bytes());
        }
        if is_atomic {
            let mut operands = AtomicSegment::zeroed();
            operands.swap_or_add = 1.into();
            rest.extend(operands.as_bytes());
        }
        for (address, length_bytes, lkey) in &self.elements {
            rest.extend(data_segment(*address, *length_bytes, *lkey).as_bytes());
        }
        let mut control = ControlSegment::zeroed();
        control.opcode = self.opcode.0;
        control.qpn.copy_from_slice(&qpn.to_le_bytes()[..3]);
        control.slot_index = index.into();
        control.segments = 1 + (rest.len() / 16) as u8;
        control.flags = work_request::WQE_SIGNALED | self.flags;
        control.immediate = self.immediate.into();
        let mut bytes = control.as_bytes().to_vec();
        bytes.extend(rest);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes
    }
}

pub(super) fn data_segment(address: u64, length_bytes: u32, lkey: u32) -> DataSegment {
    DataSegment { address: address.into(), length_bytes: length_bytes.into(), lkey: lkey.into() }
}
