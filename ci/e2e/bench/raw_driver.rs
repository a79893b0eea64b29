//! A driver that speaks the interface byte by byte, over any backing: for what a proper driver never does.
//!
//! One command ring, one event queue, one completion queue, one queue pair, one region, in memory whose layout is fixed.

use rnic_abi::command::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, ControlSegment, Cqe, DataSegment, Eqe, PageListFields, RemoteSegment, WorkOpcode};
use rnic_abi::{doorbell, work_request};
use rnic_shim::backing::Backing;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

pub const PAGE: u64 = 4096;
/// Offsets in the driver's memory.
pub const COMMANDS: u64 = 0;
pub const ANSWERS: u64 = 0x1_0000;
pub const QP_TABLE: u64 = 0x2_0000;
pub const CQ_TABLE: u64 = 0x3_0000;
pub const KEY_TABLE: u64 = 0x4_0000;
pub const SQ: u64 = 0x5_0000;
pub const RQ: u64 = 0x6_0000;
pub const CQ: u64 = 0x7_0000;
pub const EQ: u64 = 0x8_0000;
pub const RECORD: u64 = 0x9_0000;
pub const BUFFER: u64 = 0x10_0000;
const MEMORY_BYTES: u64 = 0x20_0000;
/// An address that no map covers.
pub const NOWHERE: u64 = 0x7000_0000_0000;
/// Addresses as work requests name them.
pub const VIRTUAL: u64 = 0x7f00_0000_0000;
pub const BUFFER_BYTES: u64 = 1 << 20;
pub const PDN: u32 = 7;
pub const PSN: u32 = 1000;
pub const CQN: u32 = 3;
pub const KEY: u32 = 0x100;
const SLOTS: u16 = 16;
const LIMIT: Duration = Duration::from_secs(10);

/// How the objects of a bring-up are made, where a test wants them otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub command_ring: Option<u64>,
    pub send_ring: Option<u64>,
    pub receive_ring: Option<u64>,
    pub completion_ring: Option<u64>,
    pub event_ring: Option<u64>,
    pub qp_table: Option<u64>,
    pub mtu: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}

impl Default for Making {
    fn default() -> Self {
        Making {
            command_ring: None,
            send_ring: None,
            receive_ring: None,
            completion_ring: None,
            event_ring: None,
            qp_table: None,
            mtu: 3,
            retry_cnt: 7,
            rnr_retry: 7,
        }
    }
}

pub struct RawDriver {
    pub backing: Box<dyn Backing>,
    /// IOVA of the memory.
    base: u64,
    pub qpn: u32,
    ip: [u8; 4],
    command_producer: u16,
    pub send_producer: u16,
    pub receive_producer: u16,
    cq_consumer: u32,
}

/// A send work request to be encoded.
#[derive(Clone, Debug)]
pub struct Work {
    pub opcode: WorkOpcode,
    pub elements: Vec<(u64, u32, u32)>,
    pub remote: (u64, u32),
}

impl Work {
    pub fn new(opcode: WorkOpcode, length_bytes: u32) -> Work {
        Work { opcode, elements: vec![(VIRTUAL, length_bytes, KEY)], remote: (VIRTUAL + 0x8_0000, KEY) }
    }

    pub fn write() -> Work {
        Work::new(WorkOpcode::WRITE, 8)
    }

    pub fn send() -> Work {
        Work::new(WorkOpcode::SEND, 8)
    }

    fn encode(&self, qpn: u32, index: u16) -> Vec<u8> {
        let mut rest: Vec<u8> = Vec::new();
        if matches!(self.opcode, WorkOpcode::WRITE | WorkOpcode::WRITE_IMM) {
            let mut remote = RemoteSegment::zeroed();
            (remote.address, remote.rkey) = (self.remote.0.into(), self.remote.1.into());
            rest.extend(remote.as_bytes());
        }
        for (address, length_bytes, lkey) in &self.elements {
            rest.extend(data_segment(*address, *length_bytes, *lkey).as_bytes());
        }
        let mut control = ControlSegment::zeroed();
        control.opcode = self.opcode.0;
        control.qpn.copy_from_slice(&qpn.to_le_bytes()[..3]);
        control.slot_index = index.into();
        control.segments = 1 + (rest.len() / 16) as u8;
        control.flags = work_request::WQE_SIGNALED;
        let mut bytes = control.as_bytes().to_vec();
        bytes.extend(rest);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes
    }
}

fn data_segment(address: u64, length_bytes: u32, lkey: u32) -> DataSegment {
    DataSegment { address: address.into(), length_bytes: length_bytes.into(), lkey: lkey.into() }
}

pub fn pages(root: u64, levels: u8) -> PageListFields {
    let mut fields = PageListFields::zeroed();
    (fields.root, fields.page_shift, fields.levels) = (root.into(), 12, levels);
    fields
}

pub fn gid(ip: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&ip);
    gid
}

pub fn object(number: u32) -> ObjectNumber {
    ObjectNumber { number: number.into(), reserved: 0.into() }
}

impl RawDriver {
    pub fn new(mut backing: Box<dyn Backing>, qpn: u32, ip: [u8; 4]) -> RawDriver {
        let base = backing.allocate(MEMORY_BYTES, PAGE).expect("memory").iova;
        RawDriver { backing, base, qpn, ip, command_producer: 0, send_producer: 0, receive_producer: 0, cq_consumer: 0 }
    }

    /// IOVA of an offset in the driver's memory.
    pub fn at(&self, offset: u64) -> u64 {
        self.base + offset
    }

    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.backing.copy_in(self.base + offset, bytes).expect("written");
    }

    fn get(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.backing.copy_out(self.base + offset, &mut bytes).expect("read");
        bytes
    }

    pub fn register(&mut self, register: u32) -> u32 {
        self.backing.read32(BAR_REGISTERS, register.into()).expect("a register")
    }

    pub fn write32(&mut self, register: u32, value: u32) {
        self.backing.write32(BAR_REGISTERS, register.into(), value).expect("written");
    }

    pub fn write64(&mut self, register: u32, value: u64) {
        self.backing.write64(BAR_REGISTERS, register.into(), value).expect("written");
    }

    pub fn ring(&mut self, offset: u32, value: u64) {
        self.backing.write64(BAR_DOORBELLS, offset.into(), value).expect("rung");
    }

    /// Everything that was written to the device before has taken effect.
    pub fn settle(&mut self) {
        self.register(REG_STATUS);
    }

    /// A device as after power-on, in zeroed memory.
    pub fn reset(&mut self) {
        self.write32(REG_CONTROL, 0);
        self.write32(REG_LAST_DIAGNOSTIC, 0);
        self.settle();
        self.put(0, &vec![0; BUFFER as usize]);
        (self.command_producer, self.send_producer, self.receive_producer, self.cq_consumer) = (0, 0, 0, 0);
    }

    pub fn enable(&mut self, making: &Making) {
        let commands = making.command_ring.unwrap_or(self.at(COMMANDS));
        self.write64(REG_COMMAND_RING, commands);
        self.write64(REG_COMMAND_COMPLETION_RING, self.base + ANSWERS);
        self.write32(REG_COMMAND_RING_LOG_SLOTS, SLOTS.trailing_zeros());
        self.write32(REG_CONTROL, CONTROL_ENABLE);
    }

    /// Puts a whole command slot and rings.
    pub fn start_slot(&mut self, bytes: &[u8; 128]) {
        let slot = u64::from(self.command_producer % SLOTS);
        self.put(COMMANDS + slot * 128, bytes);
        self.command_producer = self.command_producer.wrapping_add(1);
        self.write32(REG_COMMAND_DOORBELL, self.command_producer.into());
    }

    /// Sends a command; its status and its diagnostic.
    pub fn command(&mut self, opcode: CommandOpcode, body: &[u8]) -> (u8, u32) {
        let mut bytes = [0; 128];
        bytes[0] = opcode.0;
        bytes[16..16 + body.len()].copy_from_slice(body);
        let newest = self.command_producer;
        self.start_slot(&bytes);
        let answer = ANSWERS + u64::from(newest % SLOTS) * 128;
        let phase = (newest / SLOTS).is_multiple_of(2);
        let start = Instant::now();
        while (self.get(answer + 124, 1)[0] & 1 == 1) != phase {
            assert!(start.elapsed() < LIMIT, "{opcode:?} is not answered");
            self.backing.pause().expect("a pause");
        }
        let answer = self.get(answer, 16);
        (answer[5], u32::from_le_bytes(answer[8..12].try_into().expect("four bytes")))
    }

    #[track_caller]
    pub fn must(&mut self, opcode: CommandOpcode, body: &[u8]) {
        let (status, diagnostic) = self.command(opcode, body);
        assert_eq!(status, 0, "{opcode:?} refused: {:?}", rnic_abi::diagnostic::rule(diagnostic));
    }

    pub fn create(&mut self, making: &Making) {
        let qp_table = making.qp_table.unwrap_or(self.at(QP_TABLE));
        for (kind, at) in [(TABLE_QP, qp_table), (TABLE_CQ, self.at(CQ_TABLE)), (TABLE_KEY, self.at(KEY_TABLE))] {
            let mut table = SetTable::zeroed();
            (table.kind, table.log_entries, table.pages) = (kind, 6, pages(at, 0));
            self.must(CommandOpcode::SET_TABLE, table.as_bytes());
        }
        let mut entry = SetGid::zeroed();
        (entry.valid, entry.vlan_id) = (1, NO_VLAN.into());
        (entry.mac, entry.gid) = (self.mac(self.ip), gid(self.ip));
        self.must(CommandOpcode::SET_GID, entry.as_bytes());
        let mut eq = CreateEq::zeroed();
        (eq.log_entries, eq.pages) = (6, pages(making.event_ring.unwrap_or(self.at(EQ)), 0));
        self.must(CommandOpcode::CREATE_EQ, eq.as_bytes());
        let mut cq = CreateCq::zeroed();
        (cq.cqn, cq.log_entries) = (CQN.into(), 6);
        cq.pages = pages(making.completion_ring.unwrap_or(self.at(CQ)), 0);
        cq.consumer_record = self.at(RECORD).into();
        self.must(CommandOpcode::CREATE_CQ, cq.as_bytes());
        let mut qp = self.new_qp(self.qpn);
        qp.sq_pages = pages(making.send_ring.unwrap_or(self.at(SQ)), 0);
        qp.rq_pages = pages(making.receive_ring.unwrap_or(self.at(RQ)), 0);
        self.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        let region = self.region(KEY, self.at(BUFFER), 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE);
        self.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
    }

    pub fn new_qp(&self, qpn: u32) -> CreateQp {
        let mut qp = CreateQp::zeroed();
        (qp.qpn, qp.pdn) = (qpn.into(), PDN.into());
        (qp.log_sq_slots, qp.log_rq_entries) = (6, 6);
        (qp.send_cqn, qp.receive_cqn) = (CQN.into(), CQN.into());
        (qp.sq_pages, qp.rq_pages) = (pages(self.at(SQ), 0), pages(self.at(RQ), 0));
        qp
    }

    pub fn region(&self, key: u32, root: u64, levels: u8, access: u32) -> RegisterKey {
        let mut region = RegisterKey::zeroed();
        (region.key, region.pdn, region.access) = (key.into(), PDN.into(), access.into());
        (region.start, region.length_bytes) = (VIRTUAL.into(), BUFFER_BYTES.into());
        region.pages = pages(root, levels);
        region
    }

    fn mac(&self, ip: [u8; 4]) -> [u8; 6] {
        [2, 0, 0, 0, 1, ip[3]]
    }

    pub fn attributes(&self, state: u8, mask: u32) -> QpAttributes {
        let mut attributes = QpAttributes::zeroed();
        (attributes.qpn, attributes.state, attributes.mask) = (self.qpn.into(), state, (mask | ATTR_STATE).into());
        attributes
    }

    /// RESET to RTS, towards a peer.
    pub fn connect(&mut self, peer_qpn: u32, peer_ip: [u8; 4], making: &Making) {
        let mut init = self.attributes(QP_STATE_INIT, ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS);
        (init.port, init.access) = (1, (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE).into());
        let mask = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
        let mut rtr = self.attributes(QP_STATE_RTR, mask);
        (rtr.path_mtu, rtr.dest_qpn, rtr.rq_psn) = (making.mtu, peer_qpn.into(), PSN.into());
        rtr.min_rnr_timer = 1;
        (rtr.av.dest_gid, rtr.av.dest_mac) = (gid(peer_ip), self.mac(peer_ip));
        let mask = ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
        let mut rts = self.attributes(QP_STATE_RTS, mask);
        // 67 ms a timeout, so that a peer that is gone is soon found out.
        (rts.timeout, rts.retry_cnt, rts.rnr_retry) = (14, making.retry_cnt, making.rnr_retry);
        rts.sq_psn = PSN.into();
        for step in [init, rtr, rts] {
            self.must(CommandOpcode::MODIFY_QP, step.as_bytes());
        }
    }

    /// A work request in its ring slots; the doorbell is the caller's.
    pub fn post(&mut self, work: &Work) -> Vec<u8> {
        let bytes = work.encode(self.qpn, self.send_producer);
        for (at, slot) in bytes.chunks(64).enumerate() {
            let index = u64::from(self.send_producer.wrapping_add(at as u16) & 63);
            self.put(SQ + index * 64, slot);
        }
        self.send_producer = self.send_producer.wrapping_add((bytes.len() / 64) as u16);
        bytes
    }

    pub fn ring_send(&mut self) {
        let value = doorbell::queue_doorbell(self.qpn, self.send_producer);
        self.ring(doorbell::DB_SEND, value);
    }

    pub fn send(&mut self, work: &Work) {
        self.post(work);
        self.ring_send();
    }

    pub fn receive(&mut self, address: u64, length_bytes: u32, lkey: u32) {
        let slot = RQ + u64::from(self.receive_producer & 63) * 16;
        self.put(slot, data_segment(address, length_bytes, lkey).as_bytes());
        self.receive_producer = self.receive_producer.wrapping_add(1);
        self.ring(doorbell::DB_RECEIVE, doorbell::queue_doorbell(self.qpn, self.receive_producer));
    }

    pub fn flush_caches(&mut self) {
        let mask = (FLUSH_QP | FLUSH_CQ | FLUSH_KEY | FLUSH_TRANSLATION).into();
        let flush = FlushCaches { mask, reserved: 0.into() };
        self.must(CommandOpcode::FLUSH_CACHES, flush.as_bytes());
    }

    /// The next completion, within the limit; it stays counted as unpolled.
    #[track_caller]
    pub fn completion(&mut self) -> Cqe {
        let start = Instant::now();
        loop {
            let bytes = self.get(CQ + u64::from(self.cq_consumer & 63) * 64, 64);
            let cqe = Cqe::read_from_bytes(&bytes).expect("64 bytes");
            if (cqe.phase.get() & 1 == 1) == (self.cq_consumer / 64).is_multiple_of(2) {
                self.cq_consumer += 1;
                return cqe;
            }
            assert!(start.elapsed() < LIMIT, "no completion");
            self.backing.pause().expect("a pause");
        }
    }

    /// As [`completion`](Self::completion), or nothing once the device has found the queue full.
    pub fn completion_or_overrun(&mut self) {
        let start = Instant::now();
        let overrun = rnic_abi::Diagnostic::CqOverrun.number();
        while self.register(REG_LAST_DIAGNOSTIC) != overrun {
            let at = CQ + u64::from(self.cq_consumer & 63) * 64 + 60;
            if (self.get(at, 1)[0] & 1 == 1) == (self.cq_consumer / 64).is_multiple_of(2) {
                self.cq_consumer += 1;
                return;
            }
            assert!(start.elapsed() < LIMIT, "neither a completion nor an overrun");
        }
    }

    /// Entry `index` of event queue 0, within the limit, in the first pass over the ring.
    #[track_caller]
    pub fn event(&mut self, index: u64) -> Eqe {
        let start = Instant::now();
        loop {
            let eqe = Eqe::read_from_bytes(&self.get(EQ + index * 16, 16)).expect("16 bytes");
            if eqe.phase.get() & 1 == 1 {
                return eqe;
            }
            assert!(start.elapsed() < LIMIT, "no event");
            self.backing.pause().expect("a pause");
        }
    }
}
