//! One adapter with its host memory: accesses, doorbells, completions and events, byte by byte.

use super::port::{BASE, Port, Transfer};
use super::request::{Request, data_segment};
use rnic_abi::{Cqe, Eqe, EventType, doorbell};
use rnic_engine::{Engine, EngineConfig, HostWrite};
use rnic_pcie::{Cause, Class, DmaFault, Observed, Origin};
use rnic_wire::Frame;
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

pub const PAGE: u64 = 4096;

/// Where things stand in a host's memory.
pub const COMMANDS: u64 = BASE;
pub const ANSWERS: u64 = BASE + 0x1_0000;
pub const QP_TABLE: u64 = BASE + 0x2_0000;
pub const CQ_TABLE: u64 = BASE + 0x3_0000;
pub const KEY_TABLE: u64 = BASE + 0x4_0000;
pub const RD_ATOMIC_TABLE: u64 = BASE + 0x4_8000;
pub const SQ: u64 = BASE + 0x5_0000;
pub const RQ: u64 = BASE + 0x6_0000;
pub const CQ: u64 = BASE + 0x7_0000;
pub const EQ: u64 = BASE + 0x8_0000;
pub const RECORD: u64 = BASE + 0x9_0000;
pub const LISTS: u64 = BASE + 0xa_0000;
pub const BUFFER: u64 = BASE + 0x10_0000;
/// Addresses as work requests name them: not those of DMA space.
pub const VIRTUAL: u64 = 0x7f00_0000_0000;
pub const BUFFER_BYTES: u64 = 1 << 20;

/// The driver's indices of one queue pair.
#[derive(Clone, Copy, Default)]
pub struct Indices {
    pub send: u16,
    pub receive: u16,
}

pub struct Host {
    pub engine: Engine,
    pub port: Port,
    pub now_ns: u64,
    pub(super) command_producer: u16,
    pub indices: BTreeMap<u32, Indices>,
    pub cq_consumer: u32,
    pub eq_consumer: u32,
    pub log_cq: u8,
    pub log_eq: u8,
    pub ip: [u8; 4],
    /// The first queue pair; those created later have higher numbers.
    pub qpn: u32,
    /// A driver that knows nothing of READ and atomics.
    pub without_rd_atomic: bool,
}

impl Host {
    pub fn new(config: EngineConfig, ip: [u8; 4], qpn: u32) -> Self {
        Self::with_engine(Engine::new(EngineConfig { mac: [2, 0, 0, 0, 0, ip[3]], ..config }), ip, qpn)
    }

    pub fn with_engine(engine: Engine, ip: [u8; 4], qpn: u32) -> Self {
        Self {
            engine,
            port: Port::new(),
            now_ns: 1,
            command_producer: 0,
            indices: BTreeMap::new(),
            cq_consumer: 0,
            eq_consumer: 0,
            log_cq: 6,
            log_eq: 6,
            ip,
            qpn,
            without_rd_atomic: false,
        }
    }

    pub fn write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.write_as(bar, offset, data, false);
    }

    pub fn write_as(&mut self, bar: u8, offset: u64, data: &[u8], torn: bool) {
        let observed = Observed { messages: data.len().div_ceil(8) as u32, bytes: data.len() as u32 };
        let access = HostWrite { bar, offset, data, observed, torn };
        self.engine.handle_write(self.now_ns, &mut self.port, &access);
    }

    pub fn ring(&mut self, offset: u32, value: u64) {
        self.write(2, offset.into(), &value.to_le_bytes());
    }

    pub fn of(&mut self, qpn: u32) -> &mut Indices {
        self.indices.entry(qpn).or_default()
    }

    /// Offset of a queue pair's rings from the first one's.
    pub fn own(&self, qpn: u32) -> u64 {
        // Queue pair 1 has the last page.
        let page = if qpn == 1 { 15 } else { qpn - self.qpn };
        u64::from(page) * PAGE
    }

    /// A work request in its ring slots; the doorbell is the caller's.
    pub fn post(&mut self, request: &Request) -> Vec<u8> {
        let qpn = request.qpn.unwrap_or(self.qpn);
        let producer = self.of(qpn).send;
        let bytes = request.encode(qpn, producer);
        let ring = SQ + self.own(qpn);
        for (at, slot) in bytes.chunks(64).enumerate() {
            let index = u64::from(producer.wrapping_add(at as u16) & 63);
            self.port.put(ring + index * 64, slot);
        }
        self.of(qpn).send = producer.wrapping_add((bytes.len() / 64) as u16);
        bytes
    }

    pub fn ring_send(&mut self) {
        self.ring_send_of(self.qpn);
    }

    pub fn ring_send_of(&mut self, qpn: u32) {
        let value = doorbell::queue_doorbell(qpn, self.of(qpn).send);
        self.ring(doorbell::DB_SEND, value);
    }

    pub fn send(&mut self, request: &Request) {
        self.post(request);
        self.ring_send_of(request.qpn.unwrap_or(self.qpn));
    }

    pub fn post_receive(&mut self, address: u64, length: u32, key: u32) {
        self.post_receive_of(self.qpn, address, length, key);
    }

    pub fn post_receive_of(&mut self, qpn: u32, address: u64, length: u32, key: u32) {
        let slot = RQ + self.own(qpn) + u64::from(self.of(qpn).receive & 63) * 16;
        self.port.put(slot, data_segment(address, length, key).as_bytes());
        self.of(qpn).receive = self.of(qpn).receive.wrapping_add(1);
        let value = doorbell::queue_doorbell(qpn, self.of(qpn).receive);
        self.ring(doorbell::DB_RECEIVE, value);
    }

    /// Looks at the next completion, and takes it; the driver's record is left to the caller.
    pub fn peek(&self) -> Option<Cqe> {
        let entries = 1u32 << self.log_cq;
        let at = CQ + u64::from(self.cq_consumer & (entries - 1)) * 64;
        let cqe = Cqe::read_from_bytes(self.port.slice(at, 64)).unwrap();
        let phase = self.cq_consumer >> self.log_cq & 1 == 0;
        ((cqe.phase.get() & 1 == 1) == phase).then_some(cqe)
    }

    pub fn poll(&mut self) -> Option<Cqe> {
        let cqe = self.peek()?;
        self.cq_consumer = self.cq_consumer.wrapping_add(1);
        let record = self.cq_consumer.to_le_bytes();
        self.port.put(RECORD, &record);
        Some(cqe)
    }

    /// Everything there is to poll: queue pair, index, opcode, status.
    pub fn completions(&mut self) -> Vec<(u32, u16, u8, u8)> {
        let all = std::iter::from_fn(|| self.poll());
        all.map(|cqe| (cqe.qpn.get(), cqe.wqe_index.get(), cqe.opcode, cqe.status)).collect()
    }

    /// The next event: type, object, data.
    pub fn event(&mut self) -> Option<(EventType, u32, u32)> {
        let entries = 1u32 << self.log_eq;
        let at = EQ + u64::from(self.eq_consumer & (entries - 1)) * 16;
        let eqe = Eqe::read_from_bytes(self.port.slice(at, 16)).unwrap();
        let phase = self.eq_consumer >> self.log_eq & 1 == 0;
        if (eqe.phase.get() & 1 == 1) != phase {
            return None;
        }
        self.eq_consumer = self.eq_consumer.wrapping_add(1);
        Some((EventType(eqe.event_type), eqe.object.get(), eqe.data.get()))
    }

    pub fn events(&mut self) -> Vec<(EventType, u32, u32)> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// Answers held reads, oldest first, until none is left.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if self.port.held.is_empty() {
                return;
            }
            self.release(0);
        }
        panic!("reads without end");
    }

    pub fn release(&mut self, at: usize) {
        let (tag, ranges) = self.port.held.remove(at);
        let bytes = self.port.take(&ranges);
        let result = bytes.as_deref().map_err(|fault| *fault);
        self.engine.handle_dma_completion(self.now_ns, &mut self.port, tag, result);
    }

    pub fn fail(&mut self, at: usize, fault: DmaFault) {
        let (tag, _) = self.port.held.remove(at);
        self.engine.handle_dma_completion(self.now_ns, &mut self.port, tag, Err(fault));
    }

    pub fn transmit(&mut self) -> Option<Frame> {
        let mut frame = Frame::new();
        self.engine.poll_transmit(self.now_ns, &mut self.port, &mut frame).then_some(frame)
    }

    pub fn receive(&mut self, mut frame: Frame) {
        self.engine.handle_frame(self.now_ns, &mut self.port, &mut frame);
    }

    pub fn receive_bytes(&mut self, bytes: &[u8]) {
        let mut frame = Frame::new();
        assert!(frame.set_bytes(bytes));
        self.receive(frame);
    }

    pub fn advance_to(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.engine.handle_timeout(self.now_ns, &mut self.port);
    }

    /// Classes of the transfers since the log was last cleared that an operation caused.
    pub fn operation_classes(&self) -> Vec<&'static str> {
        self.port.log.iter().filter_map(operation_class).collect()
    }

    /// How many transfers of a class there were since the log was last cleared.
    pub fn count(&self, class: Class) -> usize {
        self.port.log.iter().filter(|transfer| transfer.class() == class).count()
    }

    /// Diagnostics since the last call, by name.
    pub fn diagnostics(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.engine.poll_diagnostic()).map(|record| record.diagnostic.rule().name).collect()
    }

    pub fn state(&self) -> rnic_engine::context::queue_pair::QpState {
        self.engine.queue_pair_state(self.qpn).expect("the queue pair exists")
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
