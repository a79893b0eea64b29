//! A driver with any number of queue pairs on one device: for what [`rnic_shim::transaction`] has no step.

use rnic_abi::command::*;
use rnic_shim::backing::{Backing, DmaBuffer};
use rnic_shim::exchange::Endpoint;
use rnic_shim::verbs::*;
use std::time::{Duration, Instant};

pub const PSN: u32 = 1000;
const BUFFER_BYTES: u64 = 1 << 20;

/// How a queue pair repeats.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    pub timeout: u8,
    pub retry_cnt: u8,
}

impl Default for Retries {
    /// Half a second a timeout: a busy machine must not look like a loss.
    fn default() -> Self {
        Retries { timeout: 17, retry_cnt: 7 }
    }
}

/// What peers may do.
const RIGHTS: u32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

/// An open device with one completion queue and one region, which peers may use as they like.
pub struct Station {
    pub device: Device,
    pub cqn: Cqn,
    pub region: MemoryRegion,
    pub pd: Pdn,
    pub buffer: DmaBuffer,
    gid: [u8; 16],
    mac: [u8; 6],
}

impl Station {
    pub fn open(backing: Box<dyn Backing>, gid: [u8; 16]) -> Station {
        let mut device = Device::open(backing, OpenOptions::default()).expect("the device opens");
        let mac = device.mac().expect("a MAC address");
        device.set_gid(0, gid, mac, None).expect("a GID");
        Station::of(device, gid)
    }

    /// On an open device, whose GID table has this entry already, or none.
    pub fn of(mut device: Device, gid: [u8; 16]) -> Station {
        let mac = device.mac().expect("a MAC address");
        let eqn = device.create_event_queue(None, Some(1), 6).expect("an event queue");
        let spec = CqSpec { cqn: None, log_entries: 8, eqn: Some(eqn), doorbell_page: 1 };
        let cqn = device.create_completion_queue(spec).expect("a completion queue");
        let pd = device.allocate_pd().expect("a protection domain");
        let buffer = device.backing().allocate(BUFFER_BYTES, 4096).expect("memory");
        let spec = RegionSpec::of_buffer(buffer, RIGHTS, MrLayout::Contiguous);
        let region = device.register_memory(pd, spec).expect("a region");
        Station { device, cqn, region, pd, buffer, gid, mac }
    }

    /// A queue pair in INIT, and how a peer reaches it.
    pub fn create_queue_pair(&mut self) -> Endpoint {
        let qpn = self.device.create_queue_pair(self.spec()).expect("a queue pair");
        self.initialize(qpn)
    }

    /// What its queue pairs are made like.
    pub fn spec(&self) -> QpSpec {
        QpSpec {
            qpn: None,
            pd: self.pd,
            send_cq: self.cqn,
            receive_cq: self.cqn,
            log_send_slots: 6,
            log_receive_entries: 4,
            log_receive_stride: 0,
            doorbell_page: 1,
            signal_all: false,
            privileged: false,
            selective: false,
            qp_type: rnic_abi::command::QP_TYPE_RC,
        }
    }

    /// RESET to INIT, and how a peer reaches the queue pair.
    pub fn initialize(&mut self, qpn: Qpn) -> Endpoint {
        self.device.modify_queue_pair(qpn, init_attributes(RIGHTS)).expect("INIT");
        Endpoint {
            gid: self.gid,
            mac: self.mac,
            qpn: qpn.0,
            psn: PSN,
            address: self.region.start(),
            rkey: self.region.key,
            length_bytes: self.region.length_bytes(),
        }
    }

    pub fn connect(&mut self, own: &Endpoint, peer: &Endpoint, retries: Retries) {
        self.connect_as(own, peer, retries, |step| step);
    }

    /// The same for a queue pair that takes other attributes than a reliable connection.
    pub fn connect_as(
        &mut self,
        own: &Endpoint,
        peer: &Endpoint,
        retries: Retries,
        form: fn(QpAttributes) -> QpAttributes,
    ) {
        let qpn = Qpn(own.qpn);
        let av = AddressVector { dest_gid: peer.gid, dest_mac: peer.mac, hop_limit: 64, ..AddressVector::zeroed() };
        let rtr = RtrAttributes {
            path_mtu_bytes: 1024,
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            av,
        };
        self.device.modify_queue_pair(qpn, form(rtr_attributes(rtr))).expect("RTR");
        let Retries { timeout, retry_cnt } = retries;
        let rts = RtsAttributes { sq_psn: own.psn, timeout, retry_cnt, rnr_retry: 7, max_rd_atomic: 1 };
        self.device.modify_queue_pair(qpn, form(rts_attributes(rts))).expect("RTS");
    }

    /// Posts a signaled RDMA WRITE of the region's first bytes to the peer's, with an immediate if there is one.
    pub fn write(&mut self, own: &Endpoint, peer: &Endpoint, length_bytes: u32, immediate: Option<u32>) -> Result<()> {
        let elements = [self.region.sge(0, length_bytes)];
        let request = SendRequest {
            wr_id: u64::from(own.qpn),
            opcode: if immediate.is_some() { rnic_abi::WorkOpcode::WRITE_IMM } else { rnic_abi::WorkOpcode::WRITE },
            payload: Payload::Elements(&elements),
            remote: Some(Remote { address: peer.address, rkey: peer.rkey }),
            immediate: immediate.unwrap_or(0),
            signaled: true,
            solicited: false,
            datagram: None,
            srqn: None,
            fence: false,
        };
        self.device.post_send(Qpn(own.qpn), &[request], DoorbellForm::Line)
    }

    /// Posts a receive of no bytes, for an immediate.
    pub fn receive(&mut self, own: &Endpoint) {
        let elements = [self.region.sge(0, 0)];
        let request = ReceiveRequest { wr_id: u64::from(own.qpn), elements: &elements };
        self.device.post_receive(Qpn(own.qpn), &[request]).expect("a receive is posted");
    }

    /// The next completion, within the limit.
    #[track_caller]
    pub fn completion(&mut self, limit: Duration) -> WorkCompletion {
        let start = Instant::now();
        let mut found = [WorkCompletion::default()];
        while self.device.poll(self.cqn, &mut found).expect("polled") == 0 {
            assert!(start.elapsed() < limit, "no completion within {limit:?}");
            self.device.backing().pause().expect("a pause");
        }
        found[0]
    }

    pub fn fill(&mut self, bytes: &[u8]) {
        self.device.backing().copy_in(self.buffer.iova, bytes).expect("written");
    }

    pub fn holds(&mut self, length_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; length_bytes];
        self.device.backing().copy_out(self.buffer.iova, &mut bytes).expect("read");
        bytes
    }
}
