//! A driver that speaks the interface byte by byte, over any backing: for what a proper driver never does.
//!
//! One command ring, one event queue, one completion queue, one queue pair, one region, in memory whose layout is fixed.

mod bring_up;
mod work;

pub use bring_up::{Making, gid, object, pages};
use rnic_abi::command::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, Cqe, Eqe, doorbell};
use rnic_shim::backing::Backing;
use std::time::{Duration, Instant};
pub use work::Work;
use work::data_segment;
use zerocopy::{FromBytes, IntoBytes};

pub const PAGE: u64 = 4096;
/// Offsets in the driver's memory.
pub const COMMANDS: u64 = 0;
pub const ANSWERS: u64 = 0x1_0000;
pub const QP_TABLE: u64 = 0x2_0000;
pub const CQ_TABLE: u64 = 0x3_0000;
pub const KEY_TABLE: u64 = 0x4_0000;
pub const RD_ATOMIC_TABLE: u64 = 0x4_8000;
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
