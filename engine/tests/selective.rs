//! Selective retransmission: what is lost is sent again, and nothing else.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_wire::Opcode;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// The syndromes of gaps: of the first, and of those behind it.
const GAPS: [u8; 2] = [0x40, 0x41];

/// Both ends, or one, retransmit selectively.
fn fabric_of(config: EngineConfig, [a, b]: [bool; 2]) -> Fabric {
    let mut fabric = Fabric::unconnected(config);
    for (host, selective) in [(&mut fabric.a, a), (&mut fabric.b, b)] {
        host.bring_up();
        let qpn = host.qpn;
        host.destroy_qp(qpn);
        let qp = CreateQp { flags: if selective { QP_SELECTIVE } else { 0 }, ..host.new_qp(qpn) };
        host.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    }
    fabric.connect(&Attributes { retry_cnt: 7, ..Attributes::mtu(1) });
    fabric.a.port.put(BUFFER, &pattern(0x8_0000, 3));
    fabric
}

fn fabric() -> Fabric {
    fabric_of(EngineConfig::default(), [true; 2])
}

/// Loses the first copies of these packets of one side, by PSN relative to the connection's first.
fn lose(fabric: &mut Fabric, from: char, psns: &[u32]) {
    let mut lost: BTreeSet<u32> = psns.iter().map(|psn| PSN + psn).collect();
    fabric.drop_packet =
        Some(Box::new(move |packet: &Carried| packet.from == from && !packet.is_ack() && lost.remove(&packet.psn)));
}

/// How often each PSN of a's requests was on the wire.
fn copies(fabric: &Fabric) -> BTreeMap<u32, usize> {
    let mut copies = BTreeMap::new();
    for packet in fabric.sent_by('a').iter().filter(|packet| !packet.is_ack()) {
        *copies.entry(packet.psn - PSN).or_default() += 1;
    }
    copies
}

fn sent_twice(fabric: &Fabric) -> Vec<u32> {
    copies(fabric).into_iter().filter(|(_, copies)| *copies > 1).map(|(psn, _)| psn).collect()
}

fn gaps(fabric: &Fabric) -> Vec<u32> {
    fabric.answers('b').iter().filter(|answer| GAPS.contains(&answer.1)).map(|answer| answer.0 - PSN).collect()
}

fn timeouts(fabric: &Fabric) -> u64 {
    fabric.a.engine.counters().local_ack_timeout_err
}

#[test]
fn only_what_is_lost_is_sent_again() {
    let patterns: [&[u32]; 5] = [&[0], &[7], &[3, 4, 5], &[0, 2, 4, 6, 18], &[1, 9, 10, 17]];
    for lost in patterns {
        let mut fabric = fabric();
        lose(&mut fabric, 'a', lost);
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 20 * 256));
        fabric.run();
        assert_eq!(sent_twice(&fabric), lost);
        assert_eq!(gaps(&fabric), lost, "each once, in order");
        assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
        assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 20 * 256), &pattern(0x8_0000, 3)[..20 * 256]);
        assert_eq!(timeouts(&fabric), 0);
        assert_eq!(fabric.b.engine.counters().send_seq_err, lost.len() as u64);
        assert_eq!(fabric.a.engine.counters().retransmitted_pkts, lost.len() as u64);
    }
}

/// Messages of all kinds; what a READ or an atomic brings is in order with the rest.
#[test]
fn messages_behind_a_gap_are_executed_in_their_order() {
    for lost in 0..14 {
        let mut fabric = fabric();
        fabric.b.port.put(BUFFER + 0x8_0000, &pattern(0x1000, 9));
        for slot in 0..2 {
            fabric.b.post_receive(VIRTUAL + 0xa_0000 + slot * 0x1000, 0x1000, 0x100);
        }
        lose(&mut fabric, 'a', &[lost]);
        let remote = (VIRTUAL + 0x8_0000, 0x100);
        let fetched = vec![(VIRTUAL + 0xc_0000, 600, 0x100)];
        let word = vec![(VIRTUAL + 0xc_1000, 8, 0x100)];
        fabric.a.send(&Request::new(WorkOpcode::SEND, 700));
        fabric.a.send(&Request { elements: fetched, remote, ..Request::new(WorkOpcode::READ, 0) });
        fabric.a.send(&Request { remote: (VIRTUAL + 0x9_0000, 0x100), ..Request::new(WorkOpcode::WRITE, 600) });
        let operands = (5, 0);
        fabric.a.send(&Request { elements: word, remote, operands, ..Request::new(WorkOpcode::FETCH_ADD, 0) });
        fabric.a.send(&Request::new(WorkOpcode::SEND_IMM, 300));
        fabric.run();
        fabric.run_timers(if lost == 11 { 40 } else { 0 });
        let done: Vec<_> = fabric.a.completions().iter().map(|done| (done.2, done.3)).collect();
        assert_eq!(done, [(1, 0), (8, 0), (4, 0), (11, 0), (2, 0)], "lost {lost}");
        assert_eq!(fabric.b.completions().len(), 2, "each message once");
        let words: Vec<u64> = [fabric.a.port.slice(BUFFER + 0xc_1000, 8), fabric.b.port.slice(BUFFER + 0x8_0000, 8)]
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
            .into();
        assert_eq!(words[0].wrapping_add(5), words[1], "the atomic once");
        assert_eq!(fabric.b.port.slice(BUFFER + 0xa_0000, 700), &pattern(0x8_0000, 3)[..700]);
        assert_eq!(fabric.b.port.slice(BUFFER + 0x9_0000, 600), &pattern(0x8_0000, 3)[..600]);
        assert_eq!(fabric.b.port.slice(BUFFER + 0xa_1000, 300), &pattern(0x8_0000, 3)[..300]);
    }
}

/// A copy that is lost again, and the end of all that was sent: nothing behind it shows the gap. The timer sends the oldest
/// and the newest packet.
#[test]
fn a_lost_repetition_and_a_lost_end_are_found_by_the_timer() {
    let mut fabric = fabric();
    let mut seen: BTreeMap<(char, u32), usize> = BTreeMap::new();
    fabric.drop_packet = Some(Box::new(move |packet: &Carried| {
        let copies = seen.entry((packet.from, packet.psn)).or_default();
        *copies += 1;
        (packet.from, packet.psn) == ('a', PSN + 4) && *copies <= 2
    }));
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 10 * 256));
    fabric.run();
    assert_eq!(fabric.a.completions(), []);
    fabric.run_timers(3);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    assert_eq!(copies(&fabric).into_iter().filter(|(_, n)| *n > 1).collect::<Vec<_>>(), [(4, 3), (9, 2)]);
    assert_eq!(timeouts(&fabric), 1);

    let mut fabric = self::fabric();
    lose(&mut fabric, 'a', &[6, 7, 8, 9]);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 10 * 256));
    fabric.run();
    fabric.run_timers(2);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    assert_eq!(
        sent_twice(&fabric),
        [0, 6, 7, 8, 9],
        "the oldest that is not acknowledged, the newest, and what they show"
    );
    assert_eq!((gaps(&fabric), timeouts(&fabric)), (vec![6, 7, 8], 1), "the newest packet shows the rest");
}

#[test]
fn lost_gaps_are_found_by_the_timer_and_retries_end() {
    let mut fabric = fabric();
    fabric.drop_packet = Some(Box::new(|packet: &Carried| {
        GAPS.contains(&packet.syndrome) || (packet.from == 'a' && packet.psn == PSN + 2)
    }));
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 5 * 256));
    fabric.run();
    fabric.run_timers(20);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 12)], "RETRY_EXC_ERR");
    assert_eq!(timeouts(&fabric), 1 + 1 + 7, "from the last progress on, retry_cnt as ever");
}

#[test]
fn a_receiver_that_is_not_ready_costs_its_own_packet_and_no_other() {
    let mut fabric = fabric();
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 3 * 256));
    fabric.run();
    fabric.b.post_receive(VIRTUAL + 0xa_0000, 0x1000, 0x100);
    fabric.run_timers(4);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 1, 0), (0x11, 1, 4, 0)]);
    assert_eq!(sent_twice(&fabric), [0]);
    assert_eq!(timeouts(&fabric), 0);
}

/// An end that knows nothing of it takes nothing from a gap; the other way round the sender goes back as ever.
#[test]
fn an_end_that_does_not_know_it_is_served_as_before() {
    for ends in [[true, false], [false, true]] {
        let mut fabric = fabric_of(EngineConfig::default(), ends);
        lose(&mut fabric, 'a', &[2, 5, 11]);
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 15 * 256));
        fabric.run();
        fabric.run_timers(30);
        assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)], "{ends:?}");
        assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 15 * 256), &pattern(0x8_0000, 3)[..15 * 256]);
    }
}

/// Losses, repetitions and disorder at random, host memory that answers late, caches of one entry: each message once, in order.
#[test]
fn at_random_everything_arrives_once() {
    for seed in 0..150u64 {
        let config = if seed % 2 == 0 {
            EngineConfig::default()
        } else {
            EngineConfig { qp_cache_entries: 1, key_cache_entries: 1, window_packets: 16, ..Default::default() }
        };
        let mut fabric = fabric_of(config, [true; 2]);
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % 100
        };
        fabric.drop_packet = Some(Box::new(move |_: &Carried| roll() < 10));
        let mut random_read = seed;
        fabric.b.port.hold = Box::new(move |_, _| {
            random_read = random_read.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed % 3 == 0 && random_read >> 60 == 0
        });
        let lengths = [1u32, 256, 700, 3000, 8, 2000, 0, 513];
        for (slot, length) in lengths.iter().enumerate() {
            let at = VIRTUAL + 0xa_0000 + slot as u64 * 0x1000;
            fabric.b.post_receive(at, 0x1000, 0x100);
            let elements = vec![(VIRTUAL + slot as u64 * 0x1000, *length, 0x100)];
            fabric.a.send(&Request { elements, immediate: slot as u32, ..Request::new(WorkOpcode::SEND_IMM, 0) });
        }
        for _ in 0..400 {
            fabric.run();
            fabric.b.settle();
            fabric.run();
            fabric.run_timers(1);
        }
        let sent: Vec<_> = fabric.a.completions().iter().map(|done| done.3).collect();
        assert_eq!(sent, [0; 8], "seed {seed}");
        let done: Vec<_> = std::iter::from_fn(|| fabric.b.poll()).collect();
        let numbers: Vec<_> = done.iter().map(|cqe| cqe.immediate.get()).collect();
        assert_eq!(numbers, (0..8).collect::<Vec<u32>>(), "seed {seed}");
        for (slot, length) in lengths.iter().enumerate() {
            let (from, length) = (slot * 0x1000, *length as usize);
            let there = fabric.b.port.slice(BUFFER + 0xa_0000 + from as u64, length);
            assert_eq!(there, &pattern(0x8_0000, 3)[from..from + length], "seed {seed}");
        }
    }
}

#[test]
fn what_is_kept_is_bounded_and_goes_with_its_queue_pair() {
    let config = EngineConfig { ahead_frames: 3, ..EngineConfig::default() };
    let mut fabric = fabric_of(config, [true; 2]);
    lose(&mut fabric, 'a', &[0]);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 10 * 256));
    fabric.run();
    fabric.run_timers(30);
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)], "what found no room came again");
    // A READ that takes more PSNs than there are is not kept, nor anything ahead of the window.
    let next = PSN + 10;
    let forged = Forged::new(&fabric.b, IP_A, Opcode::RC_READ_REQUEST, next + 1, &[]);
    fabric.b.receive(forged.reth(VIRTUAL, 0x100, u32::MAX).frame());
    assert_eq!(fabric.b.engine.inspect().ahead_frames, 0);
    for (ahead, kept) in [(256, 0), (0x7f_ffff, 0), (255, 1), (3, 2), (3, 2), (9, 3), (4, 3)] {
        let forged = Forged::new(&fabric.b, IP_A, Opcode::RC_SEND_ONLY, next + ahead, &[]);
        fabric.b.receive(forged.frame());
        assert_eq!(fabric.b.engine.inspect().ahead_frames, kept, "{ahead} ahead");
    }
    let error = fabric.b.attributes(0x12, QP_STATE_ERR, 0);
    fabric.b.modify(&error);
    assert_eq!(fabric.b.engine.inspect().ahead_frames, 0);
    assert_eq!(fabric.b.state(), QpState::Err);
    let reset = fabric.b.attributes(0x12, QP_STATE_RESET, 0);
    fabric.b.modify(&reset);
    fabric.b.connect(0x12, (IP_A, 0x11), &Attributes::mtu(1));
    let forged = Forged::new(&fabric.b, IP_A, Opcode::RC_SEND_ONLY, PSN + 2, &[]);
    fabric.b.receive(forged.frame());
    assert_eq!(fabric.b.engine.inspect().ahead_frames, 1);
    fabric.b.destroy_qp(0x12);
    assert_eq!(fabric.b.engine.inspect().ahead_frames, 0);
}

#[test]
fn unreliable_queue_pairs_have_no_such_thing() {
    let mut fabric = fabric();
    for qp_type in [QP_TYPE_UC, QP_TYPE_UD] {
        let qp = CreateQp { qp_type, flags: QP_SELECTIVE, ..fabric.a.new_qp(0x15) };
        assert_eq!(fabric.a.try_command(CommandOpcode::CREATE_QP, qp.as_bytes()), (2, "CommandReserved"));
    }
}

/// Other queue pairs may have taken all the room there is: then it is as if nobody kept anything.
#[test]
fn where_nothing_can_be_kept_the_sender_goes_back() {
    let mut fabric = fabric_of(EngineConfig { ahead_frames: 0, ..EngineConfig::default() }, [true; 2]);
    lose(&mut fabric, 'a', &[3]);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 10 * 256));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)]);
    assert_eq!((sent_twice(&fabric), timeouts(&fabric)), ((3..10).collect(), 0));
    assert_eq!(gaps(&fabric), [0; 0]);
}

/// Nothing behind a repetition asks for its acknowledgement, so it does itself: each costs one timer, not two.
#[test]
fn a_repetition_asks_for_its_acknowledgement() {
    let mut fabric = fabric();
    lose(&mut fabric, 'a', &[0, 1, 2, 3]);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 3 * 256));
    let elements = vec![(VIRTUAL + 0x2000, 8, 0x100)];
    fabric.a.send(&Request { elements, ..Request::new(WorkOpcode::READ, 0) });
    fabric.run();
    fabric.run_timers(8);
    assert_eq!(fabric.a.completions().iter().map(|done| done.3).collect::<Vec<_>>(), [0, 0]);
    assert!(timeouts(&fabric) <= 4, "{} timeouts for four packets", timeouts(&fabric));
}

/// What comes behind a response that is missing says so at once, as without the option.
#[test]
fn a_lost_response_is_asked_for_again_when_something_passes_over_it() {
    for lost in [0, 2, 3] {
        let mut fabric = fabric();
        lose(&mut fabric, 'b', &[lost]);
        fabric.a.send(&Request::new(WorkOpcode::READ, 4 * 256));
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 256));
        fabric.run();
        assert_eq!(fabric.a.completions().len(), 2, "response {lost} was lost");
        let requests = fabric.sent_by('a').len();
        assert_eq!((timeouts(&fabric), requests), (0, 3), "response {lost}: the request goes again, and nothing else");
    }
}
