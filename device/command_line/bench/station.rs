//! One host: a driver over its adapter's socket, with one queue pair and one region, or many.

use super::Failure;
use super::scale::Size;
use rnic_abi::command::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, AddressVector};
use rnic_shim::backing::DmaBuffer;
use rnic_shim::backings::in_process::ModelHost;
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use rnic_shim::verbs::{
    CqSpec, Cqn, Device, MrLayout, OpenOptions, Pdn, QpSpec, Qpn, RegionSpec, RtrAttributes, RtsAttributes, Sge,
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
const ACCESS: u32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE;
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
    /// More of them, all over the same buffer.
    pub queue_pairs: Vec<Qpn>,
    pub keys: Vec<u32>,
    pd: Pdn,
    buffer: DmaBuffer,
}

impl Station {
    pub fn open(socket: &Path, ip: [u8; 4], size: Option<Size>) -> Result<Self, Failure> {
        let (mut host, mut options) = (ModelHost::default(), OpenOptions::default());
        if let Some(size) = size {
            let log = |count: u32| (count + 16).next_power_of_two().ilog2() as u8;
            (options.log_qps, options.log_keys) = (log(size.queue_pairs), log(size.regions));
            host.memory_bytes += u64::from(size.queue_pairs) * 2 * 4096 + (64 << 20);
        }
        let backing = Socket::connect(socket, host, MemoryAccess::Shared, LIMIT)?;
        let mut device = Device::open(Box::new(backing), options)?;
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
        let region = device.register_memory(pd, RegionSpec::of_buffer(buffer, ACCESS, MrLayout::Contiguous))?;
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
            privileged: false,
            selective: false,
            qp_type: rnic_abi::command::QP_TYPE_RC,
        })?;
        device.modify_queue_pair(qpn, init_attributes(ACCESS))?;
        let address = Address { gid, mac, qpn: qpn.0, start: region.start(), key: region.key };
        Ok(Self { device, cqn, qpn, address, queue_pairs: Vec::new(), keys: Vec::new(), pd, buffer })
    }

    /// So many more queue pairs and regions.
    pub fn grow(&mut self, size: Size) -> Result<(), Failure> {
        for _ in 0..size.regions {
            let spec = RegionSpec::of_buffer(self.buffer, ACCESS, MrLayout::Contiguous);
            self.keys.push(self.device.register_memory(self.pd, spec)?.key);
        }
        for _ in 0..size.queue_pairs {
            let qpn = self.device.create_queue_pair(QpSpec {
                qpn: None,
                qp_type: rnic_abi::command::QP_TYPE_RC,
                pd: self.pd,
                send_cq: self.cqn,
                receive_cq: self.cqn,
                log_send_slots: 3,
                log_receive_entries: 2,
                log_receive_stride: 0,
                doorbell_page: 1,
                signal_all: false,
                privileged: false,
                selective: false,
            })?;
            self.device.modify_queue_pair(qpn, init_attributes(ACCESS))?;
            self.queue_pairs.push(qpn);
        }
        Ok(())
    }

    pub fn connect(&mut self, peer: &Address, path_mtu_bytes: u32) -> Result<(), Failure> {
        self.connect_queue_pair(self.qpn, peer, path_mtu_bytes)
    }

    pub fn connect_queue_pair(&mut self, qpn: Qpn, peer: &Address, path_mtu_bytes: u32) -> Result<(), Failure> {
        let av = AddressVector { dest_gid: peer.gid, dest_mac: peer.mac, hop_limit: 64, ..AddressVector::zeroed() };
        let rtr = RtrAttributes {
            path_mtu_bytes,
            dest_qpn: peer.qpn,
            rq_psn: PSN,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            av,
        };
        self.device.modify_queue_pair(qpn, rtr_attributes(rtr))?;
        // A retry timer of half a second: a busy machine is no loss.
        let rts = RtsAttributes { sq_psn: PSN, timeout: 17, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        Ok(self.device.modify_queue_pair(qpn, rts_attributes(rts))?)
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
