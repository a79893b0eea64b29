//! Valid traffic over a bad wire between adapters with small caches and slow memory; then everything heals, and all
//! work is done: the data equal a shadow copy, each message came once and in order, each request has its completion.

use super::Script;
use super::world::{ATTACKED_KEY, World};
use crate::EngineConfig;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::{Cqe, WorkOpcode, work_request::WQE_FENCE};
use rnic_wire::Frame;
use std::collections::VecDeque;

/// Bytes of the region that are written to; sources stand behind them.
const TARGET: u64 = 0x4000;
const RECEIVES: u64 = 0x8000;

const OPCODES: [WorkOpcode; 7] = [
    WorkOpcode::SEND,
    WorkOpcode::SEND_IMM,
    WorkOpcode::WRITE,
    WorkOpcode::WRITE_IMM,
    WorkOpcode::READ,
    WorkOpcode::CMP_SWAP,
    WorkOpcode::FETCH_ADD,
];

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut script = Script(bytes);
    let mut run = Run::new(&mut script);
    while !script.is_empty() && run.sent.len() < 18 {
        run.step(&mut script);
    }
    run.heal()?;
    run.check()
}

/// What a request must lead to.
struct Sent {
    opcode: WorkOpcode,
    length: u32,
    signaled: bool,
    index: u16,
    /// What it brings back, and where to.
    fetched: Option<(u64, Vec<u8>)>,
}

struct Run {
    world: World,
    sent: Vec<Sent>,
    completions: [Vec<Cqe>; 2],
    shadow: Vec<u8>,
    wire: [VecDeque<Frame>; 2],
}

impl Run {
    fn new(script: &mut Script) -> Self {
        let config = EngineConfig {
            qp_cache_entries: script.pick(&[1, 2, 64]),
            cq_cache_entries: script.pick(&[1, 64]),
            key_cache_entries: script.pick(&[1, 64]),
            rd_atomic_cache_entries: script.pick(&[1, 64]),
            translation_cache_lines: 8,
            fetched_wqes: 32,
            window_packets: script.pick(&[1, 3, 256]),
            parked_frames: script.pick(&[2, 64]),
            ..EngineConfig::default()
        };
        let mut world = World::new(config);
        let held = script.u32();
        // No class has this bit.
        if held >> 31 == 1 {
            world.make_selective();
        }
        for host in [&mut world.fabric.a, &mut world.fabric.b] {
            // Whatever is lost, no request runs out of retries.
            let reset = host.attributes(host.qpn, rnic_abi::command::QP_STATE_RESET, 0);
            host.modify(&reset);
            let peer = if host.ip == IP_A { (IP_B, 0x12) } else { (IP_A, 0x11) };
            let with = Attributes { retry_cnt: 7, rnr_retry: 7, psn: 0xff_fff0, ..Attributes::mtu(1) };
            host.connect(host.qpn, peer, &with);
            host.port.hold = Box::new(move |origin, _| held >> (origin.class as u32 % 32) & 1 == 1);
        }
        let shadow = world.fabric.b.port.slice(BUFFER, TARGET as usize).to_vec();
        Self { world, sent: vec![], completions: Default::default(), shadow, wire: Default::default() }
    }

    fn step(&mut self, script: &mut Script) {
        let kind = script.byte();
        let side = usize::from(kind >> 7);
        let host = if side == 0 { &mut self.world.fabric.a } else { &mut self.world.fabric.b };
        match kind & 15 {
            0..=2 => self.request(script),
            3..=6 => {
                if let Some(frame) = host.transmit() {
                    self.wire[side].push_back(frame);
                }
            }
            7..=10 => self.arrive(script, side, kind >> 4 & 7),
            11 => {
                let held = host.port.held.len();
                if held > 0 {
                    host.release(usize::from(script.byte()) % held);
                }
            }
            12 => self.world.fabric.b.post_receive(VIRTUAL + RECEIVES, 0x800, ATTACKED_KEY),
            13 if host.is_answered() => {
                let flush = [script.byte() & 0x3b, 0, 0, 0, 0, 0, 0, 0];
                host.start_command(rnic_abi::CommandOpcode::FLUSH_CACHES, &flush);
            }
            14 => {
                let now = host.now_ns + u64::from(script.u32() & 0xff_ffff);
                host.advance_to(now);
            }
            _ => host.settle(),
        }
        self.collect();
    }

    fn request(&mut self, script: &mut Script) {
        let opcode = script.pick(&OPCODES);
        let atomic = matches!(opcode, WorkOpcode::CMP_SWAP | WorkOpcode::FETCH_ADD);
        let length = if atomic { 8 } else { script.pick(&[0, 1, 8, 255, 256, 257, 700, 1500]) };
        let number = self.sent.len() as u64;
        // Each request has a source of its own: it may be read as often as it takes.
        let source = 0x9000 + number * 0x600;
        let data = pattern(length as usize, number + 1);
        let host = &mut self.world.fabric.a;
        host.port.put(BUFFER + source, &data);
        let mut request = Request::new(opcode, 0);
        let cut = u64::from(script.byte()).min(length.into());
        let parts = [(VIRTUAL + source, cut as u32), (VIRTUAL + source + cut, length - cut as u32)];
        request.elements = parts.map(|(address, length)| (address, length, ATTACKED_KEY)).to_vec();
        let mut at = u64::from(script.u16()) % (TARGET - 2048);
        if atomic {
            at &= !7;
        }
        request.remote = (VIRTUAL + at, ATTACKED_KEY);
        request.immediate = number as u32;
        let signaled = script.byte() & 1 == 0;
        // What a READ finds is known only if nothing later overtakes it.
        request.flags =
            u8::from(signaled) | if self.sent.iter().any(|sent| sent.fetched.is_some()) { WQE_FENCE } else { 0 };
        let fetched = self.act_on_shadow(script, &mut request, at as usize, &data);
        let host = &mut self.world.fabric.a;
        let index = host.of(host.qpn).send;
        host.send(&request);
        let fetched = fetched.map(|bytes| (source, bytes));
        self.sent.push(Sent { opcode, length, signaled, index, fetched });
    }

    /// Does to the shadow copy what the request does to memory; what it brings back is the result.
    fn act_on_shadow(&mut self, script: &mut Script, request: &mut Request, at: usize, data: &[u8]) -> Option<Vec<u8>> {
        let place = &mut self.shadow[at..at + data.len()];
        let found = place.to_vec();
        let word = found.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        match request.opcode {
            WorkOpcode::WRITE | WorkOpcode::WRITE_IMM => {
                place.copy_from_slice(data);
                return None;
            }
            WorkOpcode::READ => {}
            WorkOpcode::FETCH_ADD => {
                request.operands = (script.u64(), 0);
                place.copy_from_slice(&word.wrapping_add(request.operands.0).to_le_bytes());
            }
            WorkOpcode::CMP_SWAP => {
                let holds = script.byte() & 1 == 0;
                request.operands = (script.u64(), if holds { word } else { !word });
                if holds {
                    place.copy_from_slice(&request.operands.0.to_le_bytes());
                }
            }
            _ => return None,
        }
        Some(found)
    }

    /// What the wire does with the next frame from `side`.
    fn arrive(&mut self, script: &mut Script, side: usize, fate: u8) {
        let Some(frame) = self.wire[side].pop_front() else { return };
        let host = if side == 0 { &mut self.world.fabric.b } else { &mut self.world.fabric.a };
        match fate {
            0 => {}
            1 => {
                host.receive(frame.clone());
                self.wire[side].push_back(frame);
            }
            2 => {
                let at = usize::from(script.byte()) % (self.wire[side].len() + 1);
                self.wire[side].insert(at, frame);
            }
            _ => host.receive(frame),
        }
    }

    fn collect(&mut self) {
        for (all, new) in self.completions.iter_mut().zip(self.world.poll()) {
            all.extend(new);
        }
    }

    /// No loss, fast memory, receives enough.
    fn heal(&mut self) -> Result<(), TestCaseError> {
        for host in [&mut self.world.fabric.a, &mut self.world.fabric.b] {
            host.port.hold = Box::new(|_, _| false);
            host.settle();
        }
        while self.world.fabric.b.of(0x12).receive < 45 {
            self.world.fabric.b.post_receive(VIRTUAL + RECEIVES, 0x800, ATTACKED_KEY);
        }
        let now = self.world.fabric.a.now_ns.max(self.world.fabric.b.now_ns);
        self.world.fabric.a.advance_to(now);
        self.world.fabric.b.advance_to(now);
        for _ in 0..2000 {
            self.world.carry()?;
            self.collect();
            let next = [&self.world.fabric.a, &self.world.fabric.b];
            let Some(next) = next.iter().filter_map(|host| host.engine.poll_timeout()).min() else { return Ok(()) };
            self.world.fabric.a.advance_to(next);
            self.world.fabric.b.advance_to(next);
        }
        Err(TestCaseError::fail("it does not heal"))
    }

    fn check(mut self) -> Result<(), TestCaseError> {
        let [sends, receives] = &self.completions;
        let expected: Vec<_> =
            self.sent.iter().filter(|sent| sent.signaled).map(|sent| (sent.index, sent.opcode.0, 0)).collect();
        let seen: Vec<_> = sends.iter().map(|cqe| (cqe.wqe_index.get(), cqe.opcode, cqe.status)).collect();
        prop_assert_eq!(seen, expected);
        let expected: Vec<_> = self
            .sent
            .iter()
            .enumerate()
            .filter(|(_, sent)| sent.opcode != WorkOpcode::WRITE && sent.fetched.is_none())
            .map(|(number, sent)| {
                let immediate = if sent.opcode == WorkOpcode::SEND { 0 } else { number as u32 };
                (0, sent.length, immediate)
            })
            .collect();
        let seen: Vec<_> = receives.iter().map(|cqe| (cqe.status, cqe.byte_len.get(), cqe.immediate.get())).collect();
        prop_assert_eq!(seen, expected, "each message once and in order");
        let indices: Vec<_> = receives.iter().map(|cqe| usize::from(cqe.wqe_index.get())).collect();
        prop_assert_eq!(indices, (0..receives.len()).collect::<Vec<_>>());
        prop_assert!(self.world.fabric.b.port.slice(BUFFER, TARGET as usize) == self.shadow, "the data");
        for (number, sent) in self.sent.iter().enumerate() {
            if let Some((place, expected)) = &sent.fetched {
                let found = self.world.fabric.a.port.slice(BUFFER + place, expected.len());
                prop_assert!(found == expected, "what request {} brought: {:?}", number, sent.opcode);
            }
        }
        self.world.check_canaries()?;
        self.world.check_witness()
    }
}
