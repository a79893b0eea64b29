//! One host: a driver over its adapter's socket, with one queue pair and one region.

use super::Failure;
use rnic_abi::command::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, AddressVector};
use rnic_shim::backing::DmaBuffer;
use rnic_shim::backings::in_process::ModelHost;
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::verbs::{
    CqSpec, Cqn, Device, MrLayout, OpenOptions, QpSpec, Qpn, RegionSpec, RtrAttributes, RtsAttributes, Sge,
    WorkCompletion, init_attributes, rtr_attributes, rts_attributes,
};
use std::path::Path;
use std::time::Duration;

/// Bytes of the buffer that messages stand in, one behind the other: four of the longest.
pub const SPAN_BYTES: u64 = 4 << 20;
/// Slots of the send ring, entries of the receive ring, and the largest number of messages under way.
pub const LOG_SLOTS: u8 = 8;
const LOG_CQ_ENTRIES: u8 = 10;
const COMPLETION_VECTOR: u16 = 1;
const PSN: u32 = 1000;
pub const LIMIT: Duration = Duration::from_secs(20);

/// Where a peer is found.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub gid: [u8; 16],
    pub mac: [u8; 6],
    pub qpn: u32,
    pub start: u64,
    pub key: u32,
}

pub struct Station {
    pub device: Device,
    pub cqn: Cqn,
    pub qpn: Qpn,
    pub address: Address,
    buffer: DmaBuffer,
}

impl Station {
    pub fn open(socket: &Path, ip: [u8; 4]) -> Result<Self, Failure> {
        let backing = Socket::connect(socket, ModelHost::default(), MemoryAccess::Shared, LIMIT)?;
        let mut device = Device::open(Box::new(backing), OpenOptions::default())?;
        let mac = device.mac()?;
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&ip);
        device.set_gid(0, gid, mac, None)?;
        let eqn = device.create_event_queue(None, Some(COMPLETION_VECTOR), 6)?;
        let spec = CqSpec { cqn: None, log_entries: LOG_CQ_ENTRIES, eqn: Some(eqn), doorbell_page: 1 };
        let cqn = device.create_completion_queue(spec)?;
        let pd = device.allocate_pd()?;
        let buffer = device.backing().allocate(SPAN_BYTES, 4096)?;
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE;
        let region = device.register_memory(pd, RegionSpec::of_buffer(buffer, access, MrLayout::Contiguous))?;
        let qpn = device.create_queue_pair(QpSpec {
            qpn: None,
            pd,
            send_cq: cqn,
            receive_cq: cqn,
            log_send_slots: LOG_SLOTS,
            log_receive_entries: LOG_SLOTS,
            log_receive_stride: 0,
            doorbell_page: 1,
            signal_all: false,
            qp_type: rnic_abi::command::QP_TYPE_RC,
        })?;
        device.modify_queue_pair(qpn, init_attributes(access))?;
        let address = Address { gid, mac, qpn: qpn.0, start: region.start(), key: region.key };
        Ok(Self { device, cqn, qpn, address, buffer })
    }

    pub fn connect(&mut self, peer: &Address, path_mtu_bytes: u32) -> Result<(), Failure> {
        let av = AddressVector { dest_gid: peer.gid, dest_mac: peer.mac, hop_limit: 64, ..AddressVector::zeroed() };
        let rtr = RtrAttributes {
            path_mtu_bytes,
            dest_qpn: peer.qpn,
            rq_psn: PSN,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            av,
        };
        self.device.modify_queue_pair(self.qpn, rtr_attributes(rtr))?;
        // A retry timer of half a second: a busy machine is no loss.
        let rts = RtsAttributes { sq_psn: PSN, timeout: 17, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        Ok(self.device.modify_queue_pair(self.qpn, rts_attributes(rts))?)
    }

    /// Puts these bytes into the buffer.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.device.backing().copy_in(self.buffer.iova, bytes)?)
    }

    /// The first bytes of the buffer.
    pub fn contents(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; length];
        self.device.backing().copy_out(self.buffer.iova, &mut bytes)?;
        Ok(bytes)
    }

    /// An element of the own buffer.
    pub fn element(&self, offset: u64, length_bytes: u32) -> Sge {
        Sge { address: self.address.start + offset, length_bytes, lkey: self.address.key }
    }

    /// Takes completions, all of which must be successes.
    pub fn poll(&mut self, taken: &mut [WorkCompletion]) -> Result<usize, Failure> {
        let count = self.device.poll(self.cqn, taken)?;
        match taken[..count].iter().find(|completion| completion.status != 0) {
            None => Ok(count),
            Some(failed) => Err(Failure::Wrong(format!(
                "a work request ended with {:?}: {}",
                failed.status(),
                failed.rule().map_or("no diagnostic", |rule| rule.sentence)
            ))),
        }
    }
}
