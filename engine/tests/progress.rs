//! More queue pairs than the caches have entries, and every read of host memory answered late, in any order: what
//! one brings another one evicts, and still each gets through. Time stands still, so that no timer helps.

mod rig;

use rig::*;
use rnic_abi::WorkOpcode;
use rnic_engine::EngineConfig;
use rnic_pcie::Class;

const QUEUE_PAIRS: u32 = 8;
const MESSAGES: u16 = 6;
/// Reads answered, a host, until everything must have ended. The work needs some hundreds when nobody evicts another.
const READS_MOST: usize = 60_000;

/// A plain generator: the order of the answers is the test's seed.
struct Order(u64);

impl Order {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn config(entries: usize) -> EngineConfig {
    EngineConfig {
        qp_cache_entries: entries,
        cq_cache_entries: entries,
        key_cache_entries: entries,
        translation_cache_lines: 8,
        ..EngineConfig::default()
    }
}

/// Each queue pair with regions of its own, whose pages stand in lists of two levels.
fn fabric(entries: usize) -> Fabric {
    // No retry timer: a message gets through by itself or not at all.
    let with = Attributes { timeout: 0, ..Attributes::mtu(1) };
    let mut fabric = Fabric::with(config(entries), &with);
    for further in 1..QUEUE_PAIRS {
        fabric.connect_another(further, &with);
    }
    for further in 0..QUEUE_PAIRS {
        for host in [&mut fabric.a, &mut fabric.b] {
            let at = BUFFER + u64::from(further) * 0x1_0000;
            host.register(key(further), VIRTUAL, 0x1_0000, at, 2, all_rights());
        }
    }
    for host in [&mut fabric.a, &mut fabric.b] {
        host.flush_caches();
        host.port.hold = Box::new(|origin, _| origin.class != Class::CommandFetch);
    }
    fabric
}

const fn key(further: u32) -> u32 {
    (further + 2) << 8
}

fn post(fabric: &mut Fabric) {
    for message in 0..MESSAGES {
        for further in 0..QUEUE_PAIRS {
            let (a, b) = (fabric.a.qpn + further, fabric.b.qpn + further);
            fabric.b.post_receive_of(b, VIRTUAL + 0x8000 + u64::from(message) * 600, 600, key(further));
            let opcode = if further % 2 == 0 { WorkOpcode::SEND_IMM } else { WorkOpcode::WRITE_IMM };
            let mut request = Request::new(opcode, 600);
            request.qpn = Some(a);
            // The element lies across two pages, each packet somewhere else.
            request.elements = vec![(VIRTUAL + 0xe00 + u64::from(message) * 600, 600, key(further))];
            request.remote = (VIRTUAL + 0x8000 + u64::from(message) * 600, key(further));
            fabric.a.send(&request);
        }
    }
}

/// How host memory orders its answers.
#[derive(Clone, Copy, Debug)]
enum Answers {
    Any(u64),
    /// Everything that is held, oldest or newest first, before a frame may leave.
    AllOldest,
    AllNewest,
    OneOldest,
    OneNewest,
}

/// Answers reads and carries frames, until all is done. Reads answered.
fn run(fabric: &mut Fabric, answers: Answers) -> usize {
    let mut order = Order(if let Answers::Any(seed) = answers { seed } else { 0 });
    let mut answered = 0;
    loop {
        fabric.run();
        if fabric.a.port.held.is_empty() && fabric.b.port.held.is_empty() {
            return answered;
        }
        for host in [&mut fabric.a, &mut fabric.b] {
            let held = host.port.held.len();
            let burst = match answers {
                Answers::Any(_) => order.below(held + 1).max(1),
                Answers::AllOldest | Answers::AllNewest => held,
                Answers::OneOldest | Answers::OneNewest => 1,
            };
            for _ in 0..burst.min(held) {
                let at = match answers {
                    Answers::Any(_) => order.below(host.port.held.len()),
                    Answers::AllOldest | Answers::OneOldest => 0,
                    Answers::AllNewest | Answers::OneNewest => host.port.held.len() - 1,
                };
                host.release(at);
                answered += 1;
            }
        }
        assert!(answered < READS_MOST, "{answers:?}: {answered} reads and no end");
    }
}

fn completions_of(host: &mut Host) -> Vec<(u32, u16, u8)> {
    let mut all: Vec<_> = host.completions().into_iter().map(|(qpn, index, _, status)| (qpn, index, status)).collect();
    all.sort_unstable();
    all
}

fn expected(first: u32, slots: u16) -> Vec<(u32, u16, u8)> {
    (0..QUEUE_PAIRS).flat_map(|qp| (0..MESSAGES).map(move |message| (first + qp, message * slots, 0))).collect()
}

#[test]
fn queue_pairs_that_evict_each_other_get_through() {
    for entries in [1, 2] {
        let ways = [Answers::AllOldest, Answers::AllNewest, Answers::OneOldest, Answers::OneNewest];
        for (seed, answers) in (0..).zip(ways.into_iter().chain((0..40).map(Answers::Any))) {
            let mut fabric = fabric(entries);
            let data: Vec<_> = (0..QUEUE_PAIRS).map(|qp| pattern(0x6000, (seed * 100 + qp as u64) | 1)).collect();
            for (at, bytes) in data.iter().enumerate() {
                fabric.a.port.put(BUFFER + at as u64 * 0x1_0000, bytes);
            }
            post(&mut fabric);
            run(&mut fabric, answers);
            assert_eq!(completions_of(&mut fabric.a), expected(0x11, 1), "{answers:?}, {entries} entries");
            assert_eq!(completions_of(&mut fabric.b), expected(0x12, 1), "{answers:?}, {entries} entries");
            let length = usize::from(MESSAGES) * 600;
            for (at, bytes) in data.iter().enumerate() {
                let placed = fabric.b.port.slice(BUFFER + at as u64 * 0x1_0000 + 0x8000, length);
                assert!(placed == &bytes[0xe00..0xe00 + length], "data of queue pair {at}, {answers:?}");
            }
        }
    }
}
