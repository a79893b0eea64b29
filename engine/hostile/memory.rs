//! Host memory that answers late, in any order, or not at all, and holds contexts that nobody wrote.

use super::Script;
use super::world::{ATTACKED_KEY, World, check_reset};
use crate::EngineConfig;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, WorkOpcode};
use rnic_pcie::{Class, DmaFault};
use zerocopy::IntoBytes;

const OPCODES: [WorkOpcode; 5] =
    [WorkOpcode::WRITE, WorkOpcode::SEND, WorkOpcode::WRITE_IMM, WorkOpcode::READ, WorkOpcode::FETCH_ADD];
const FAULTS: [DmaFault; 3] = [DmaFault::UnsupportedRequest, DmaFault::Poisoned, DmaFault::Revoked];

fn config(script: &mut Script) -> EngineConfig {
    EngineConfig {
        qp_cache_entries: script.pick(&[1, 2, 64]),
        cq_cache_entries: script.pick(&[1, 2, 64]),
        key_cache_entries: script.pick(&[1, 64]),
        rd_atomic_cache_entries: script.pick(&[1, 64]),
        translation_cache_lines: 8,
        fetched_wqes: 32,
        parked_frames: script.pick(&[4, 64]),
        ..EngineConfig::default()
    }
}

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut script = Script(bytes);
    let mut world = World::new(config(&mut script));
    let held = script.u32();
    for host in [&mut world.fabric.a, &mut world.fabric.b] {
        // Not the commands: without them there is no adapter.
        host.port.hold = Box::new(move |origin, _| {
            origin.class != Class::CommandFetch && held >> (origin.class as u32 % 32) & 1 == 1
        });
    }
    // The first part of the script only delays; the second one fails and spoils as well.
    let honest = script.byte() & 1 == 0;
    let (mut posted, mut ended) = (0, 0);
    while !script.is_empty() && posted < 60 {
        posted += step(&mut script, &mut world, honest)?;
        ended += world.poll()[0].iter().filter(|cqe| cqe.opcode < 0x80).count();
    }
    for host in [&mut world.fabric.a, &mut world.fabric.b] {
        host.port.hold = Box::new(|_, _| false);
    }
    let lost = |world: &World| world.fabric.a.engine.counters().cqe_lost > 0;
    for _ in 0..200 {
        world.fabric.a.settle();
        world.fabric.b.settle();
        world.carry()?;
        ended += world.poll()[0].iter().filter(|cqe| cqe.opcode < 0x80).count();
        let next = [&world.fabric.a, &world.fabric.b].iter().filter_map(|host| host.engine.poll_timeout()).min();
        let Some(next) = next else { break };
        world.fabric.a.advance_to(next);
        world.fabric.b.advance_to(next);
    }
    if ended != posted && !lost(&world) {
        check_blame(&mut world, posted, ended)?;
    }
    prop_assert!(world.fabric.a.is_answered() && world.fabric.b.is_answered(), "a command without an answer");
    prop_assert!(!world.fabric.a.engine.has_output() && world.fabric.a.engine.can_receive());
    world.check_canaries()?;
    if honest {
        world.check_witness()?;
    }
    check_reset(world.fabric.a)
}

/// One request takes the blame for a ring that did not answer: fewer completions, but nothing is left.
fn check_blame(world: &mut World, posted: usize, ended: usize) -> Result<(), TestCaseError> {
    let blamed = world.fabric.a.diagnostics().contains(&"WqeFetchFault");
    prop_assert!(blamed, "{} of {} requests came to an end", ended, posted);
    let (status, _, body) = world.fabric.a.command(CommandOpcode::QUERY_QP, Host::object(0x11).as_bytes());
    let consumer = u16::from_le_bytes([body[96], body[97]]);
    let producer = world.fabric.a.of(0x11).send;
    prop_assert!(status != 0 || consumer == producer, "finished up to {} of {}", consumer, producer);
    Ok(())
}

/// One step; how many requests it posted.
fn step(script: &mut Script, world: &mut World, honest: bool) -> Result<usize, TestCaseError> {
    let kind = script.byte();
    let on_a = kind & 0x80 == 0;
    match kind & 15 {
        0..=2 => {
            let mut request = Request::new(script.pick(&OPCODES), 0);
            let atomic = request.opcode == WorkOpcode::FETCH_ADD;
            let length = if atomic { 8 } else { script.pick(&[0, 8, 300, 900]) };
            request.elements = vec![(VIRTUAL, length, ATTACKED_KEY)];
            request.remote = (VIRTUAL + 0x800, ATTACKED_KEY);
            world.fabric.a.send(&request);
            return Ok(1);
        }
        3 | 4 => world.fabric.b.post_receive(VIRTUAL + 0x1000, 0x800, ATTACKED_KEY),
        5 | 6 => world.carry()?,
        7 => {
            let host = if on_a { &mut world.fabric.a } else { &mut world.fabric.b };
            if host.is_answered() {
                let mask = u32::from(script.byte() & 0x3b);
                let flush = FlushCaches { mask: mask.into(), reserved: 0.into() };
                host.start_command(CommandOpcode::FLUSH_CACHES, flush.as_bytes());
            }
        }
        8 if !honest => {
            let host = if on_a { &mut world.fabric.a } else { &mut world.fabric.b };
            let tables = [(QP_TABLE, 256), (CQ_TABLE, 64), (KEY_TABLE, 64), (RD_ATOMIC_TABLE, 512)];
            let table = script.pick(&tables);
            let number = script.pick(&[0x11, 0x12, 4, 3]);
            host.port.put(table.0 + number * table.1 + u64::from(script.byte() & 63), &[script.byte()]);
        }
        9 if !honest => release(script, world, on_a, true),
        10 if !honest => {
            let chance = script.byte();
            let class = script.pick(Class::ALL);
            let mut count = 0u8;
            let host = if on_a { &mut world.fabric.a } else { &mut world.fabric.b };
            // Not the commands: without them there is no adapter.
            host.port.fail = Box::new(move |origin| {
                count = count.wrapping_add(1);
                let command = matches!(origin.class, Class::CommandFetch | Class::CommandCompletion);
                origin.class == class && !command && count & 3 == chance & 3 && count < chance
            });
        }
        _ => release(script, world, on_a, false),
    }
    Ok(0)
}

fn release(script: &mut Script, world: &mut World, on_a: bool, fails: bool) {
    let host = if on_a { &mut world.fabric.a } else { &mut world.fabric.b };
    let held = host.port.held.len();
    if held == 0 {
        return;
    }
    let at = usize::from(script.byte()) % held;
    if fails {
        host.fail(at, script.pick(&FAULTS));
    } else {
        host.release(at);
    }
}
