//! Two adapters with two connections: one that is attacked, with a completion queue of its own, and a witness.

use crate::EngineConfig;
use crate::context::queue_pair::QpState;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::command::{ACCESS_INVALIDATE, QP_SELECTIVE};
use rnic_abi::{CommandOpcode, Cqe, WorkOpcode};
use zerocopy::{FromBytes, IntoBytes};

/// The witness' queue pairs.
pub const WITNESS_A: u32 = 0x15;
pub const WITNESS_B: u32 = 0x16;
/// The completion queue of the attacked ones.
const ATTACKED_CQ: u64 = CQ + 0x4000;
const ATTACKED_RECORD: u64 = RECORD + 0x100;
/// The witness' part of the buffer; the attacked ones have a region that ends before it.
const WITNESS_AT: u64 = 0xf_0000;
/// The region of the attacked queue pairs.
pub const ATTACKED_KEY: u32 = 0x300;
pub const ATTACKED_BYTES: u64 = 0x1_0000;
const FRAMES_MAX: usize = 3000;

pub struct World {
    pub fabric: Fabric,
    /// What the driver has polled of the attacked completion queues.
    consumed: [u32; 2],
    witnessed: u16,
}

/// What may be written: rings, tables, answers, the buffer. The rest holds this byte.
const CANARY: u8 = 0xa5;

impl World {
    pub fn new(config: EngineConfig) -> Self {
        let mut fabric = Fabric::unconnected(config);
        let with = Attributes { retry_cnt: 2, rnr_retry: 2, ..Attributes::mtu(1) };
        for host in [&mut fabric.a, &mut fabric.b] {
            let buffer = (BUFFER - port::BASE) as usize;
            host.port.memory[buffer..buffer + 0x18_0000].fill(CANARY);
            host.bring_up();
            host.destroy_qp(host.qpn);
            host.create_cq(4, ATTACKED_CQ, ATTACKED_RECORD);
            let mut qp = host.new_qp(host.qpn);
            (qp.send_cqn, qp.receive_cqn) = (4.into(), 4.into());
            host.must(CommandOpcode::CREATE_QP, qp.as_bytes());
            host.indices.clear();
            host.register(ATTACKED_KEY, VIRTUAL, ATTACKED_BYTES, BUFFER, 1, all_rights() | ACCESS_INVALIDATE);
            // Behind the region's list stand pages as well: an access beyond it would find them.
            for page in ATTACKED_BYTES / PAGE..64 {
                let list = LISTS + u64::from(ATTACKED_KEY >> 8) * 0x4000;
                host.port.put(list + page * 8, &(BUFFER + page * PAGE).to_le_bytes());
            }
            host.deregister(0x100);
            host.register(0x100, VIRTUAL + WITNESS_AT, 0x1000, BUFFER + WITNESS_AT, 1, all_rights());
        }
        fabric.connect(&with);
        fabric.connect_another(4, &with);
        Self { fabric, consumed: [0; 2], witnessed: 0 }
    }

    /// The attacked queue pairs retransmit selectively from here on.
    pub fn make_selective(&mut self) {
        for host in [&mut self.fabric.a, &mut self.fabric.b] {
            host.destroy_qp(host.qpn);
            let mut qp = host.new_qp(host.qpn);
            (qp.send_cqn, qp.receive_cqn, qp.flags) = (4.into(), 4.into(), QP_SELECTIVE);
            host.must(CommandOpcode::CREATE_QP, qp.as_bytes());
            let peer = if host.ip == IP_A { (IP_B, 0x12) } else { (IP_A, 0x11) };
            host.connect(host.qpn, peer, &Attributes { retry_cnt: 2, rnr_retry: 2, ..Attributes::mtu(1) });
        }
    }

    /// Carries frames, but not without end. Frames for nobody are lost.
    pub fn carry(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..FRAMES_MAX {
            let from_a = self.fabric.a.transmit();
            let from_b = self.fabric.b.transmit();
            if from_a.is_none() && from_b.is_none() {
                return Ok(());
            }
            from_a.into_iter().for_each(|frame| self.fabric.b.receive(frame));
            from_b.into_iter().for_each(|frame| self.fabric.a.receive(frame));
        }
        Err(TestCaseError::fail("frames without end"))
    }

    /// Answers every held read and lets time pass until nothing happens any more.
    pub fn finish(&mut self) -> Result<(), TestCaseError> {
        let finished = self.run_out();
        for host in [&self.fabric.a, &self.fabric.b] {
            let counted = host.engine.counters().named();
            counted.iter().filter(|(_, value)| *value > 0).for_each(|(name, _)| super::reached(name));
        }
        finished
    }

    fn run_out(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..400 {
            self.carry()?;
            for host in [&mut self.fabric.a, &mut self.fabric.b] {
                host.settle();
            }
            self.carry()?;
            self.poll();
            let next = [&self.fabric.a, &self.fabric.b].iter().filter_map(|host| host.engine.poll_timeout()).min();
            let Some(next) = next else { return Ok(()) };
            self.fabric.a.advance_to(next);
            self.fabric.b.advance_to(next);
        }
        Err(TestCaseError::fail("timers without end"))
    }

    /// Polls the attacked completion queues, so that they do not overrun, and gives what was there.
    pub fn poll(&mut self) -> [Vec<Cqe>; 2] {
        let hosts = [&mut self.fabric.a, &mut self.fabric.b];
        let mut polled = [vec![], vec![]];
        for ((host, consumed), polled) in hosts.into_iter().zip(&mut self.consumed).zip(&mut polled) {
            loop {
                let at = ATTACKED_CQ + u64::from(*consumed & 63) * 64;
                let cqe = Cqe::read_from_bytes(host.port.slice(at, 64)).unwrap();
                if (cqe.phase.get() & 1 == 1) != (*consumed >> 6 & 1 == 0) {
                    break;
                }
                *consumed = consumed.wrapping_add(1);
                polled.push(cqe);
                host.port.put(ATTACKED_RECORD, &consumed.to_le_bytes());
            }
        }
        polled
    }

    /// The witness works as if nothing had happened.
    pub fn check_witness(&mut self) -> Result<(), TestCaseError> {
        self.witnessed += 1;
        let data = pattern(600, self.witnessed.into());
        let place = BUFFER + WITNESS_AT;
        self.fabric.a.port.put(place, &data);
        self.fabric.b.post_receive_of(WITNESS_B, VIRTUAL + WITNESS_AT, 0, 0x100);
        let mut request = Request::new(WorkOpcode::WRITE_IMM, 600);
        request.qpn = Some(WITNESS_A);
        request.elements = vec![(VIRTUAL + WITNESS_AT, 600, 0x100)];
        request.remote = (VIRTUAL + WITNESS_AT + 1000, 0x100);
        self.fabric.a.send(&request);
        self.finish()?;
        let (sent, received) = (self.fabric.a.completions(), self.fabric.b.completions());
        prop_assert_eq!(sent, vec![(WITNESS_A, self.witnessed - 1, 5, 0)]);
        prop_assert_eq!(received, vec![(WITNESS_B, self.witnessed - 1, 0x81, 0)]);
        prop_assert!(self.fabric.b.port.slice(place + 1000, 600) == data, "the witness' data");
        Ok(())
    }

    /// Nothing was written beside the regions, and nothing into the witness' region.
    pub fn check_canaries(&self) -> Result<(), TestCaseError> {
        for host in [&self.fabric.a, &self.fabric.b] {
            let at = (BUFFER - port::BASE + ATTACKED_BYTES) as usize;
            let between = (WITNESS_AT - ATTACKED_BYTES) as usize;
            prop_assert!(is_canary(&host.port.memory[at..at + between]), "written behind the region");
            let behind = (BUFFER - port::BASE + WITNESS_AT + 0x1000) as usize;
            prop_assert!(is_canary(&host.port.memory[behind..behind + 0x1_0000]), "written behind the buffer");
        }
        Ok(())
    }

    /// Everything that the attacked queue pair of `a` was asked for has come to an end.
    pub fn check_attacked_idle(&mut self) -> Result<(), TestCaseError> {
        let qpn = self.fabric.a.qpn;
        let Some(state) = self.fabric.a.engine.queue_pair_state(qpn) else { return Ok(()) };
        if !matches!(state, QpState::Rts | QpState::Err) {
            return Ok(());
        }
        self.poll();
        let mut request = Request::new(WorkOpcode::WRITE, 8);
        request.elements = vec![(VIRTUAL, 8, ATTACKED_KEY)];
        request.remote = (VIRTUAL, ATTACKED_KEY);
        self.fabric.a.send(&request);
        self.carry()?;
        let mut ended = 0;
        for _ in 0..20 {
            ended += self.poll()[0].iter().filter(|cqe| cqe.opcode < 0x80).count();
            let Some(next) = self.fabric.a.engine.poll_timeout() else { break };
            self.fabric.a.advance_to(next);
            self.fabric.b.advance_to(next);
            self.carry()?;
        }
        ended += self.poll()[0].len();
        prop_assert!(ended > 0 || self.fabric.a.engine.counters().cqe_lost > 0, "a request without an end");
        Ok(())
    }
}

fn is_canary(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == CANARY)
}

/// Whatever has happened to an adapter, a reset makes it a new one.
pub fn check_reset(mut host: Host) -> Result<(), TestCaseError> {
    host.port.hold = Box::new(|_, _| false);
    host.port.fail = Box::new(|_| false);
    host.engine.handle_reset();
    host.port.held.clear();
    let mut fresh = Host::with_engine(host.engine, host.ip, host.qpn);
    fresh.now_ns = host.now_ns;
    fresh.bring_up();
    let mut peer = Host::new(EngineConfig::default(), IP_B, 0x12);
    peer.now_ns = host.now_ns;
    peer.bring_up();
    let mut fabric = Fabric { a: fresh, b: peer, wire: vec![], drop: Box::new(|_, _| false), drop_packet: None };
    fabric.connect(&Attributes::mtu(1));
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 300));
    fabric.run();
    prop_assert_eq!(fabric.a.completions(), vec![(0x11, 0, 5, 0)]);
    prop_assert_eq!(fabric.b.completions(), vec![(0x12, 0, 0x81, 0)]);
    Ok(())
}
