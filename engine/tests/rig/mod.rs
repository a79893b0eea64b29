//! Two adapters joined by a wire, each with host memory and a driver that speaks the interface byte by byte.
#![allow(dead_code, clippy::wrong_self_convention)]

pub mod port;

use port::{BASE, Port, Transfer};
use rnic_abi::command::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, ControlSegment, Cqe, DataSegment, RemoteSegment, WorkOpcode, doorbell, work_request};
use rnic_engine::{Engine, EngineConfig, HostWrite};
use rnic_pcie::{Cause, Class, Observed, Origin};
use rnic_wire::Frame;
use zerocopy::{FromBytes, IntoBytes};

pub const PDN: u32 = 7;
pub const PAGE: u64 = 4096;

/// Where things stand in a host's memory.
const COMMANDS: u64 = BASE;
const ANSWERS: u64 = BASE + 0x1_0000;
const QP_TABLE: u64 = BASE + 0x2_0000;
const CQ_TABLE: u64 = BASE + 0x3_0000;
const KEY_TABLE: u64 = BASE + 0x4_0000;
pub const SQ: u64 = BASE + 0x5_0000;
pub const RQ: u64 = BASE + 0x6_0000;
pub const CQ: u64 = BASE + 0x7_0000;
pub const EQ: u64 = BASE + 0x8_0000;
pub const RECORD: u64 = BASE + 0x9_0000;
const LISTS: u64 = BASE + 0xa_0000;
pub const BUFFER: u64 = BASE + 0x10_0000;
/// Addresses as work requests name them: not those of DMA space.
pub const VIRTUAL: u64 = 0x7f00_0000_0000;
pub const BUFFER_BYTES: u64 = 1 << 20;

pub struct Host {
    pub engine: Engine,
    pub port: Port,
    pub now_ns: u64,
    producer: u16,
    pub sq_producer: u16,
    pub rq_producer: u16,
    pub cq_consumer: u32,
    pub eq_consumer: u32,
    pub log_cq: u8,
    pub ip: [u8; 4],
    pub qpn: u32,
}

pub fn gid(ip: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&ip);
    gid
}

pub fn pages(root: u64, levels: u8) -> rnic_abi::PageListFields {
    let mut fields = rnic_abi::PageListFields::zeroed();
    fields.root = root.into();
    fields.page_shift = 12;
    fields.levels = levels;
    fields
}

impl Host {
    pub fn new(config: EngineConfig, ip: [u8; 4], qpn: u32) -> Self {
        let engine = Engine::new(EngineConfig { mac: [2, 0, 0, 0, 0, ip[3]], ..config });
        Self {
            engine,
            port: Port::new(),
            now_ns: 1,
            producer: 0,
            sq_producer: 0,
            rq_producer: 0,
            cq_consumer: 0,
            eq_consumer: 0,
            log_cq: 6,
            ip,
            qpn,
        }
    }

    pub fn write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        let observed = Observed { messages: data.len().div_ceil(8) as u32, bytes: data.len() as u32 };
        let access = HostWrite { bar, offset, data, observed, torn: false };
        self.engine.handle_write(self.now_ns, &mut self.port, &access);
    }

    pub fn ring(&mut self, offset: u32, value: u64) {
        self.write(2, offset.into(), &value.to_le_bytes());
    }

    /// Sends a command and gives the answer's status, diagnostic and body.
    pub fn command(&mut self, opcode: CommandOpcode, body: &[u8]) -> (u8, u32, Vec<u8>) {
        let slot = u64::from(self.producer & 15);
        self.start_command(opcode, body);
        self.settle();
        let answer = self.port.slice(ANSWERS + slot * 128, 128).to_vec();
        (answer[5], u32::from_le_bytes(answer[8..12].try_into().unwrap()), answer[16..].to_vec())
    }

    pub fn start_command(&mut self, opcode: CommandOpcode, body: &[u8]) {
        let slot = u64::from(self.producer & 15);
        let mut bytes = [0; 128];
        bytes[0] = opcode.0;
        bytes[16..16 + body.len()].copy_from_slice(body);
        self.port.put(COMMANDS + slot * 128, &bytes);
        self.producer = self.producer.wrapping_add(1);
        self.write(0, REG_COMMAND_DOORBELL.into(), &u32::from(self.producer).to_le_bytes());
    }

    pub fn must(&mut self, opcode: CommandOpcode, body: &[u8]) -> Vec<u8> {
        let (status, diagnostic, body) = self.command(opcode, body);
        assert_eq!(status, 0, "{opcode:?} refused: {:?}", rnic_abi::diagnostic::rule(diagnostic));
        body
    }

    /// Rings, tables, a GID, an event queue, a completion queue, a queue pair and a region.
    pub fn bring_up(&mut self) {
        self.write(0, REG_COMMAND_RING.into(), &COMMANDS.to_le_bytes());
        self.write(0, REG_COMMAND_COMPLETION_RING.into(), &ANSWERS.to_le_bytes());
        self.write(0, REG_COMMAND_RING_LOG_SLOTS.into(), &4u32.to_le_bytes());
        self.write(0, REG_CONTROL.into(), &CONTROL_ENABLE.to_le_bytes());
        for (kind, at) in [(TABLE_QP, QP_TABLE), (TABLE_CQ, CQ_TABLE), (TABLE_KEY, KEY_TABLE)] {
            let mut table = SetTable::zeroed();
            (table.kind, table.log_entries, table.pages) = (kind, 6, pages(at, 0));
            self.must(CommandOpcode::SET_TABLE, table.as_bytes());
        }
        let mut entry = SetGid::zeroed();
        (entry.valid, entry.vlan_id, entry.mac, entry.gid) =
            (1, NO_VLAN.into(), [2, 0, 0, 0, 0, self.ip[3]], gid(self.ip));
        self.must(CommandOpcode::SET_GID, entry.as_bytes());
        let mut eq = CreateEq::zeroed();
        (eq.log_entries, eq.pages) = (6, pages(EQ, 0));
        self.must(CommandOpcode::CREATE_EQ, eq.as_bytes());
        let mut cq = CreateCq::zeroed();
        (cq.cqn, cq.log_entries, cq.pages) = (3.into(), self.log_cq, pages(CQ, 0));
        cq.consumer_record = RECORD.into();
        self.must(CommandOpcode::CREATE_CQ, cq.as_bytes());
        self.create_qp(self.qpn);
        self.register(0x100, VIRTUAL, BUFFER_BYTES, BUFFER, 1, all_rights());
    }

    pub fn create_qp(&mut self, qpn: u32) {
        let mut qp = CreateQp::zeroed();
        (qp.qpn, qp.pdn) = (qpn.into(), PDN.into());
        (qp.log_sq_slots, qp.log_rq_entries) = (6, 6);
        (qp.send_cqn, qp.receive_cqn) = (3.into(), 3.into());
        let own = u64::from(qpn - self.qpn) * PAGE;
        (qp.sq_pages, qp.rq_pages) = (pages(SQ + own, 0), pages(RQ + own, 0));
        self.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    }

    /// A region; `levels` 1 or 2 builds its list in memory.
    pub fn register(&mut self, key: u32, start: u64, length: u64, at: u64, levels: u8, access: u32) {
        let body = self.region(key, start, length, at, levels, access);
        self.must(CommandOpcode::REGISTER_KEY, body.as_bytes());
    }

    pub fn region(&mut self, key: u32, start: u64, length: u64, at: u64, levels: u8, access: u32) -> RegisterKey {
        let list = LISTS + u64::from(key >> 8) * 0x4000;
        let count = (start % PAGE + length).div_ceil(PAGE);
        let first = at - start % PAGE;
        let inner = if levels == 2 { list + PAGE } else { list };
        for page in 0..count {
            self.port.put(inner + page * 8, &(first + page * PAGE).to_le_bytes());
        }
        for block in 0..count.div_ceil(512) {
            if levels == 2 {
                self.port.put(list + block * 8, &(inner + block * PAGE).to_le_bytes());
            }
        }
        let mut body = RegisterKey::zeroed();
        (body.key, body.pdn, body.access) = (key.into(), PDN.into(), access.into());
        (body.start, body.length_bytes) = (start.into(), length.into());
        body.pages = pages(if levels == 0 { at } else { list }, levels);
        body
    }

    pub fn attributes(&self, qpn: u32, state: u8, mask: u32) -> QpAttributes {
        let mut attributes = QpAttributes::zeroed();
        (attributes.qpn, attributes.state) = (qpn.into(), state);
        attributes.mask = (mask | ATTR_STATE).into();
        attributes
    }

    pub fn to_init(&mut self, qpn: u32) {
        let mut init = self.attributes(qpn, QP_STATE_INIT, ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS);
        (init.port, init.access) = (1, all_rights().into());
        self.must(CommandOpcode::MODIFY_QP, init.as_bytes());
    }

    pub fn to_rtr(&mut self, qpn: u32, peer_ip: [u8; 4], peer_qpn: u32, psn: u32, mtu: u8) {
        let mask = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
        let mut rtr = self.attributes(qpn, QP_STATE_RTR, mask);
        (rtr.path_mtu, rtr.dest_qpn, rtr.rq_psn, rtr.min_rnr_timer) = (mtu, peer_qpn.into(), psn.into(), 12);
        (rtr.av.dest_gid, rtr.av.dest_mac) = (gid(peer_ip), [2, 0, 0, 0, 0, peer_ip[3]]);
        self.must(CommandOpcode::MODIFY_QP, rtr.as_bytes());
    }

    pub fn to_rts(&mut self, qpn: u32, psn: u32) {
        let mask = ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
        let mut rts = self.attributes(qpn, QP_STATE_RTS, mask);
        (rts.timeout, rts.retry_cnt, rts.rnr_retry, rts.sq_psn) = (14, 3, 3, psn.into());
        self.must(CommandOpcode::MODIFY_QP, rts.as_bytes());
    }

    /// A work request in its ring slots; the doorbell is the caller's.
    pub fn post(&mut self, request: &Request) -> Vec<u8> {
        let bytes = request.encode(self.qpn_of(request), self.sq_producer);
        let ring = SQ + u64::from(self.qpn_of(request) - self.qpn) * PAGE;
        for (at, slot) in bytes.chunks(64).enumerate() {
            let index = u64::from(self.sq_producer.wrapping_add(at as u16) & 63);
            self.port.put(ring + index * 64, slot);
        }
        self.sq_producer = self.sq_producer.wrapping_add((bytes.len() / 64) as u16);
        bytes
    }

    fn qpn_of(&self, request: &Request) -> u32 {
        request.qpn.unwrap_or(self.qpn)
    }

    pub fn ring_send(&mut self) {
        let value = doorbell::queue_doorbell(self.qpn, self.sq_producer);
        self.ring(doorbell::DB_SEND, value);
    }

    pub fn send(&mut self, request: &Request) {
        self.post(request);
        self.ring_send();
    }

    pub fn post_receive(&mut self, address: u64, length: u32, key: u32) {
        let slot = RQ + u64::from(self.rq_producer & 63) * 16;
        self.port.put(slot, data_segment(address, length, key).as_bytes());
        self.rq_producer = self.rq_producer.wrapping_add(1);
        let value = doorbell::queue_doorbell(self.qpn, self.rq_producer);
        self.ring(doorbell::DB_RECEIVE, value);
    }

    pub fn poll(&mut self) -> Option<Cqe> {
        let entries = 1u32 << self.log_cq;
        let at = CQ + u64::from(self.cq_consumer & (entries - 1)) * 64;
        let cqe = Cqe::read_from_bytes(self.port.slice(at, 64)).unwrap();
        let phase = self.cq_consumer >> self.log_cq & 1 == 0;
        if (cqe.phase.get() & 1 == 1) != phase {
            return None;
        }
        self.cq_consumer = self.cq_consumer.wrapping_add(1);
        let record = self.cq_consumer.to_le_bytes();
        self.port.put(RECORD, &record);
        Some(cqe)
    }

    /// Answers held reads, oldest first, until none is left.
    pub fn settle(&mut self) {
        while !self.port.held.is_empty() {
            self.release(0);
        }
    }

    pub fn release(&mut self, at: usize) {
        let (tag, ranges) = self.port.held.remove(at);
        let bytes = self.port.take(&ranges);
        let result = bytes.as_deref().map_err(|fault| *fault);
        self.engine.handle_dma_completion(self.now_ns, &mut self.port, tag, result);
    }

    pub fn transmit(&mut self) -> Option<Frame> {
        let mut frame = Frame::new();
        self.engine.poll_transmit(self.now_ns, &mut self.port, &mut frame).then_some(frame)
    }

    pub fn receive(&mut self, mut frame: Frame) {
        self.engine.handle_frame(self.now_ns, &mut self.port, &mut frame);
    }

    /// Classes of the transfers since the log was last cleared that an operation caused.
    pub fn operation_classes(&self) -> Vec<&'static str> {
        self.port.log.iter().filter_map(operation_class).collect()
    }

    /// Diagnostics since the last call, by name.
    pub fn diagnostics(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.engine.poll_diagnostic()).map(|record| record.diagnostic.rule().name).collect()
    }
}

/// What an operation caused; housekeeping has another cause.
fn operation_class(transfer: &Transfer) -> Option<&'static str> {
    let of = |origin: &Origin| {
        let operation = matches!(origin.cause, Cause::Send { .. } | Cause::Receive { .. } | Cause::Packet { .. });
        operation.then_some(origin.class.name())
    };
    match transfer {
        Transfer::Read { origin, .. } | Transfer::Write { origin, .. } | Transfer::Host { origin, .. } => of(origin),
        Transfer::Event { cause, .. } => of(&Origin::new(Class::Event, *cause)),
    }
}

pub const fn all_rights() -> u32 {
    ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC
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
    pub immediate: u32,
    pub flags: u8,
}

impl Request {
    pub fn new(opcode: WorkOpcode, length: u32) -> Self {
        Self {
            qpn: None,
            opcode,
            elements: vec![(VIRTUAL, length, 0x100)],
            inline: None,
            remote: (VIRTUAL + 0x8_0000, 0x100),
            immediate: 0x2a,
            flags: work_request::WQE_SIGNALED,
        }
    }

    pub fn encode(&self, qpn: u32, index: u16) -> Vec<u8> {
        let mut rest = Vec::new();
        if matches!(self.opcode, WorkOpcode::WRITE | WorkOpcode::WRITE_IMM) {
            let mut remote = RemoteSegment::zeroed();
            (remote.address, remote.rkey) = (self.remote.0.into(), self.remote.1.into());
            rest.extend(remote.as_bytes());
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

/// Both hosts and the wire between them.
pub struct Fabric {
    pub a: Host,
    pub b: Host,
    /// Frames that were carried, for tests that look at the wire.
    pub wire: Vec<(char, Vec<u8>)>,
    /// Decides by direction and number whether a frame is lost.
    pub drop: Box<dyn FnMut(char, usize) -> bool>,
}

pub const PSN: u32 = 1000;

impl Fabric {
    pub fn new(config: EngineConfig, mtu: u8) -> Self {
        let mut fabric = Self::unconnected(config);
        fabric.a.bring_up();
        fabric.b.bring_up();
        fabric.connect(mtu);
        fabric
    }

    pub fn unconnected(config: EngineConfig) -> Self {
        let a = Host::new(config.clone(), [10, 0, 0, 1], 0x11);
        let b = Host::new(config, [10, 0, 0, 2], 0x12);
        Self { a, b, wire: Vec::new(), drop: Box::new(|_, _| false) }
    }

    pub fn connect(&mut self, mtu: u8) {
        let (a, b) = (self.a.qpn, self.b.qpn);
        self.a.to_init(a);
        self.b.to_init(b);
        self.a.to_rtr(a, [10, 0, 0, 2], b, PSN, mtu);
        self.b.to_rtr(b, [10, 0, 0, 1], a, PSN, mtu);
        self.a.to_rts(a, PSN);
        self.b.to_rts(b, PSN);
        self.a.port.log.clear();
        self.b.port.log.clear();
    }

    /// Carries frames until neither side has one to send.
    pub fn run(&mut self) {
        loop {
            let mut idle = true;
            while let Some(mut frame) = self.a.transmit() {
                idle = false;
                frame.seal();
                self.wire.push(('a', frame.bytes().to_vec()));
                if !(self.drop)('a', self.wire.len() - 1) {
                    self.b.receive(frame);
                }
            }
            while let Some(mut frame) = self.b.transmit() {
                idle = false;
                frame.seal();
                self.wire.push(('b', frame.bytes().to_vec()));
                if !(self.drop)('b', self.wire.len() - 1) {
                    self.a.receive(frame);
                }
            }
            if idle {
                return;
            }
        }
    }

    /// Lets the clock jump to the next deadline, so often as it takes, and carries what comes of it.
    pub fn run_timers(&mut self, jumps: usize) {
        for _ in 0..jumps {
            let Some(next) = [&self.a, &self.b].iter().filter_map(|host| host.engine.poll_timeout()).min() else {
                return;
            };
            for host in [&mut self.a, &mut self.b] {
                host.now_ns = host.now_ns.max(next);
                host.engine.handle_timeout(host.now_ns, &mut host.port);
            }
            self.run();
        }
    }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
