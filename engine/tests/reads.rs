//! RDMA READ: what crosses, what is on the wire, what happens when packets are lost, refused, late or strange.

mod rig;

use rig::port::Transfer;
use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, Diagnostic, EventType, WorkOpcode, work_request};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::{Cause, Class, DmaFault};
use rnic_wire::Opcode;
use zerocopy::IntoBytes;

const READ: u8 = 8;
const REMOTE: u64 = VIRTUAL + 0x8_0000;
const REQUEST: Opcode = Opcode::RC_READ_REQUEST;
const FIRST: Opcode = Opcode::RC_READ_RESPONSE_FIRST;
const MIDDLE: Opcode = Opcode::RC_READ_RESPONSE_MIDDLE;
const LAST: Opcode = Opcode::RC_READ_RESPONSE_LAST;
const ONLY: Opcode = Opcode::RC_READ_RESPONSE_ONLY;

fn fabric_with(attributes: &Attributes) -> Fabric {
    let mut fabric = Fabric::with(EngineConfig::default(), attributes);
    fabric.b.port.put(BUFFER + 0x8_0000, &pattern(0x1_0000, 5));
    fabric
}

fn fabric() -> Fabric {
    fabric_with(&Attributes::mtu(1))
}

fn read(length: u32) -> Request {
    Request::new(WorkOpcode::READ, length)
}

fn lose(fabric: &mut Fabric, lost: impl Fn(char, usize) -> bool + 'static) {
    fabric.drop = Box::new(lost);
}

fn opcode(frame: &rnic_wire::Frame) -> Opcode {
    rnic_wire::parse(frame.bytes(), rnic_wire::IcrcCheck::Trusted).unwrap().headers.bth.opcode
}

fn wire(fabric: &Fabric) -> Vec<(char, Opcode, u32)> {
    fabric.wire.iter().map(|packet| (packet.from, packet.opcode, packet.psn)).collect()
}

#[track_caller]
fn arrived(fabric: &mut Fabric, length: usize) {
    assert_eq!(fabric.a.port.slice(BUFFER, length), &pattern(0x1_0000, 5)[..length]);
    assert_eq!(fabric.a.port.slice(BUFFER + length as u64, 64), [0; 64], "nothing behind it");
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 0)]);
    assert_eq!((fabric.a.state(), fabric.b.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn a_read_is_a_request_its_responses_and_the_crossings_of_its_packets() {
    let mut fabric = fabric();
    fabric.a.send(&read(700));
    fabric.run();
    let expected = [('a', REQUEST, 1000), ('b', FIRST, 1000), ('b', MIDDLE, 1001), ('b', LAST, 1002)];
    assert_eq!(wire(&fabric), expected);
    assert_eq!(fabric.wire[0].range, (REMOTE, 0x100, 700));
    assert!(fabric.wire[0].payload.is_empty());
    let sent = fabric.sent_by('b');
    assert_eq!((sent[0].msn, sent[2].msn), (1, 1), "a READ counts when it is accepted");
    assert_eq!((sent[0].syndrome, sent[2].syndrome), (0x1f, 0x1f));
    let payload = "payload_write";
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", payload, payload, payload, "cqe_write"]);
    assert_eq!(fabric.b.operation_classes(), ["payload_read"; 3]);
    assert!(fabric.b.port.log.iter().all(|transfer| matches!(
        transfer,
        Transfer::Read { origin, .. } if matches!(origin.cause, Cause::Packet { qpn: 0x12, attempt: 0, .. })
    )));
    arrived(&mut fabric, 700);
    assert_eq!(fabric.b.engine.counters().rx_read_requests, 1);
    // What follows takes the PSN behind the responses.
    fabric.wire.clear();
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.psns('a'), [1003]);
    assert_eq!(fabric.sent_by('b')[0].msn, 2);
}

#[test]
fn every_length_arrives_at_every_path_mtu_also_in_several_elements() {
    for mtu in 1..=5u8 {
        let bytes = 128u32 << mtu;
        for length in [1, 3, bytes - 1, bytes, bytes + 1, 4 * bytes, 5 * bytes + 7] {
            let mut fabric = fabric_with(&Attributes::mtu(mtu));
            let mut request = read(0);
            // Elements in another order than in memory, and one of no bytes.
            let cut = length / 3;
            request.elements =
                vec![(VIRTUAL + 0x1_0000, cut, 0x100), (0, 0, 0), (VIRTUAL + 0x500, length - cut, 0x100)];
            fabric.a.send(&request);
            fabric.run();
            let data = pattern(0x1_0000, 5);
            let cut = cut as usize;
            assert_eq!(fabric.a.port.slice(BUFFER + 0x1_0000, cut), &data[..cut], "{length} at {bytes}");
            assert_eq!(fabric.a.port.slice(BUFFER + 0x500, length as usize - cut), &data[cut..length as usize]);
            assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 0)]);
            let packets = length.div_ceil(bytes) as usize;
            assert_eq!((fabric.sent_by('b').len(), fabric.b.count(Class::PayloadRead)), (packets, packets));
        }
    }
}

#[test]
fn a_read_of_no_bytes_names_nothing_that_could_be_wrong() {
    let mut fabric = fabric();
    let mut request = read(0);
    (request.elements, request.remote) = (vec![(7, 0, 0x00de_ad00)], (3, 0x00be_ef00));
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(wire(&fabric), [('a', REQUEST, 1000), ('b', ONLY, 1000)]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 0)]);
    assert_eq!(fabric.b.operation_classes(), [] as [&str; 0]);
}

/// Whichever response is lost, the READ is asked for again from there, once, and nothing is read or written twice that
/// need not be.
#[test]
fn a_lost_response_is_asked_for_again_from_there_to_the_same_end() {
    for lost in 0..6u32 {
        let mut fabric = fabric();
        lose(&mut fabric, move |from, number| from == 'b' && number == 1 + lost as usize);
        fabric.a.send(&read(256 * 6));
        fabric.run();
        if lost == 5 {
            assert_eq!(fabric.a.completions(), [], "nothing passes over the last one");
            fabric.run_timers(1);
        }
        let requests: Vec<_> = fabric.sent_by('a').iter().map(|packet| (packet.psn, packet.range)).collect();
        let skipped = 256 * lost;
        let again = (1000 + lost, (REMOTE + u64::from(skipped), 0x100, 256 * 6 - skipped));
        assert_eq!(requests, [(1000, (REMOTE, 0x100, 256 * 6)), again], "lost response {lost}");
        assert_eq!(fabric.a.count(Class::PayloadWrite), 6, "each packet is placed once");
        assert_eq!(fabric.b.count(Class::PayloadRead), 12 - lost as usize);
        let repeated = fabric.sent_by('b')[6];
        let opcode = if lost == 5 { ONLY } else { FIRST };
        assert_eq!((repeated.psn, repeated.opcode, repeated.msn), (1000 + lost, opcode, 1), "counted once");
        let counters = fabric.a.engine.counters();
        assert_eq!(
            (counters.implied_nak_seq_err, counters.local_ack_timeout_err),
            if lost == 5 { (0, 1) } else { (1, 0) }
        );
        assert_eq!(fabric.b.engine.counters().duplicate_request, 1);
        arrived(&mut fabric, 256 * 6);
    }
}

#[test]
fn a_lost_request_is_sent_again_by_the_timer_or_by_a_refusal_of_what_follows() {
    let mut fabric = fabric();
    lose(&mut fabric, |_, number| number == 0);
    fabric.a.send(&read(300));
    fabric.run();
    fabric.run_timers(1);
    assert_eq!(fabric.psns('a'), [1000, 1000]);
    arrived(&mut fabric, 300);

    let mut fabric = self::fabric();
    lose(&mut fabric, |_, number| number == 0);
    fabric.a.post(&read(300));
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.psns('a'), [1000, 1002, 1000, 1002], "two PSNs for the two responses");
    assert_eq!(fabric.answers('b'), [(1000, 0x60), (1002, 0x1f)]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 0), (0x11, 1, 4, 0)]);
}

#[test]
fn an_acknowledgement_that_passes_over_a_read_completes_nothing_and_asks_again_once() {
    let mut fabric = fabric();
    // All responses of the READ are lost; the WRITEs behind it are acknowledged, each.
    lose(&mut fabric, |from, number| from == 'b' && number <= 6);
    fabric.a.post(&read(600));
    for _ in 0..3 {
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        let frame = fabric.a.transmit();
        frame.into_iter().for_each(|frame| fabric.b.receive(frame));
    }
    let mut acknowledged = Vec::new();
    while let Some(frame) = fabric.b.transmit() {
        acknowledged.push(frame);
    }
    assert!(acknowledged.len() >= 4, "three responses and at least one acknowledgement");
    lose(&mut fabric, |_, _| false);
    fabric.a.receive(acknowledged.pop().unwrap());
    assert_eq!(fabric.a.completions(), []);
    assert_eq!(fabric.a.engine.counters().implied_nak_seq_err, 1);
    fabric.run();
    assert_eq!(fabric.psns('a')[0], 1000, "from the first that is missing");
    let statuses: Vec<_> = fabric.a.completions().iter().map(|c| (c.1, c.2, c.3)).collect();
    assert_eq!(statuses, [(0, READ, 0), (1, 4, 0), (2, 4, 0), (3, 4, 0)]);
}

#[test]
fn a_response_acknowledges_what_was_asked_for_before_it_and_answers_leave_in_order() {
    let mut fabric = fabric();
    fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
    fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
    fabric.a.post(&read(300));
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    // The WRITE's and the SEND's acknowledgement were owed at once; the READ's answer waits for memory.
    fabric.wire.clear();
    assert_eq!(fabric.b.count(Class::CqeWrite), 1, "the SEND is executed meanwhile");
    while !fabric.b.port.held.is_empty() {
        fabric.b.release(0);
        fabric.run();
    }
    let answers: Vec<_> = wire(&fabric).into_iter().filter(|packet| packet.0 == 'b').collect();
    assert_eq!(answers.last(), Some(&('b', Opcode::RC_ACKNOWLEDGE, 1003)), "behind the READ's responses");
    assert!(answers.contains(&('b', FIRST, 1001)));
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0), (0x11, 1, READ, 0), (0x11, 2, 1, 0)]);
}

#[test]
fn no_more_reads_are_outstanding_than_were_agreed() {
    let attributes = Attributes { max_rd_atomic: 2, max_dest_rd_atomic: 2, ..Attributes::mtu(1) };
    let mut fabric = fabric_with(&attributes);
    for _ in 0..5 {
        fabric.a.post(&read(300));
    }
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    let (mut outstanding, mut most) = (0i32, 0);
    loop {
        let from_a: Vec<_> = std::iter::from_fn(|| fabric.a.transmit()).collect();
        outstanding += from_a.iter().filter(|frame| opcode(frame) == REQUEST).count() as i32;
        most = most.max(outstanding);
        from_a.into_iter().for_each(|frame| fabric.b.receive(frame));
        let Some(frame) = fabric.b.transmit() else { break };
        outstanding -= i32::from([LAST, ONLY].contains(&opcode(&frame)));
        fabric.a.receive(frame);
    }
    assert_eq!(most, 2);
    assert_eq!(fabric.a.completions().len(), 6);

    // A peer that does not keep to it is refused.
    let mut fabric = fabric_with(&Attributes { max_dest_rd_atomic: 2, ..Attributes::mtu(1) });
    for _ in 0..3 {
        fabric.a.post(&read(300));
    }
    fabric.a.ring_send();
    for _ in 0..3 {
        let frame = fabric.a.transmit().unwrap();
        fabric.b.receive(frame);
    }
    fabric.run();
    assert_eq!(fabric.b.diagnostics(), ["RdAtomicLimit"]);
    assert_eq!(fabric.b.state(), QpState::Err);
    let statuses: Vec<_> = fabric.a.completions().iter().map(|c| c.3).collect();
    assert_eq!(statuses, [0, 0, 9], "the answers that were owed before come first");
}

#[test]
fn a_read_that_may_not_be_outstanding_fails_and_does_not_hang() {
    let mut fabric = fabric_with(&Attributes { max_rd_atomic: 0, ..Attributes::mtu(1) });
    fabric.a.send(&read(8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 2)]);
    assert_eq!(fabric.a.diagnostics(), ["ReadNotEnabled"]);
    assert_eq!(fabric.wire, []);

    // 2^31 bytes at 256 would take half of the PSNs.
    let mut fabric = self::fabric();
    fabric.a.send(&read(1 << 31));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 2)]);
    assert_eq!(fabric.a.diagnostics(), ["ReadTooLong"]);
}

#[test]
fn a_responder_without_resources_or_without_memory_for_them_refuses() {
    let mut fabric = fabric_with(&Attributes { max_dest_rd_atomic: 0, ..Attributes::mtu(1) });
    fabric.a.send(&read(8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 9)]);
    assert_eq!(fabric.b.diagnostics(), ["RdAtomicLimit"]);

    // A driver of version 1.0 never gives that memory.
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.a.bring_up();
    fabric.b.without_rd_atomic = true;
    fabric.b.bring_up();
    fabric.connect(&Attributes::mtu(1));
    fabric.a.send(&read(8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 9)]);
    assert_eq!(fabric.b.diagnostics(), ["TableMissing"]);
    assert_eq!(fabric.b.events().last().map(|event| event.0), Some(EventType::QP_REQ_ERR));
}

#[test]
fn a_requester_that_asks_for_more_than_was_agreed_is_refused() {
    let agreed = Attributes { max_rd_atomic: 3, max_dest_rd_atomic: 2, ..Attributes::mtu(1) };
    let mut fabric = fabric_with(&agreed);
    for _ in 0..3 {
        fabric.a.send(&read(8));
    }
    // All three are there before the first is answered.
    let requests: Vec<_> = std::iter::from_fn(|| fabric.a.transmit()).collect();
    requests.into_iter().for_each(|frame| fabric.b.receive(frame));
    fabric.run();
    let ended: Vec<u8> = fabric.a.completions().iter().map(|completion| completion.3).collect();
    assert_eq!(ended, [0, 0, 9]);
    assert_eq!(fabric.b.diagnostics(), ["RdAtomicLimit"]);
    assert_eq!(fabric.b.events().last().map(|event| event.0), Some(EventType::QP_REQ_ERR));
}

#[test]
fn a_fence_waits_for_reads_and_for_nothing_else() {
    for (opcode, waits) in [(WorkOpcode::READ, true), (WorkOpcode::WRITE, false)] {
        let mut fabric = fabric();
        fabric.a.post(&Request::new(opcode, 300));
        let mut fenced = Request::new(WorkOpcode::WRITE, 8);
        fenced.flags |= work_request::WQE_FENCE;
        fabric.a.post(&fenced);
        fabric.a.send(&fenced);
        let before: Vec<_> = std::iter::from_fn(|| fabric.a.transmit()).collect();
        assert_eq!(before.len(), if waits { 1 } else { 4 }, "{opcode:?}");
        before.into_iter().for_each(|frame| fabric.b.receive(frame));
        fabric.run();
        assert_eq!(fabric.a.completions().len(), 3);
    }
}

/// What is wrong with a READ, and how it is refused: status at the requester, diagnostic and event at the responder.
#[test]
fn each_wrong_read_is_refused_with_its_own_rule() {
    let end = VIRTUAL + BUFFER_BYTES;
    let (status, event) = (10, EventType::QP_ACCESS_ERR);
    for (address, key, length, rule) in [
        (REMOTE, 0x900, 8, "RKeyInvalid"),
        (REMOTE, 0x101, 8, "RKeyInvalid"),
        (REMOTE, 0x200, 8, "RKeyRight"),
        (REMOTE, 0x300, 8, "RKeyPd"),
        (end - 300, 0x100, 301, "RKeyRange"),
        (u64::MAX - 3, 0x100, 8, "RKeyRange"),
    ] {
        let mut fabric = fabric();
        fabric.b.register(0x200, REMOTE, 0x1000, BUFFER, 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE);
        let mut foreign = fabric.b.region(0x300, REMOTE, 0x1000, BUFFER, 0, all_rights());
        foreign.pdn = (PDN + 1).into();
        fabric.b.must(CommandOpcode::REGISTER_KEY, foreign.as_bytes());
        fabric.clear_logs();
        let mut request = read(length);
        // The local key is bad as well: it is not looked at before there is something to place.
        (request.remote, request.elements) = ((address, key), vec![(0, length, 0x00de_ad00)]);
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.completions(), [(0x11, 0, READ, status)], "{rule}");
        assert_eq!(fabric.b.diagnostics(), [rule]);
        assert_eq!(fabric.b.events().last().map(|told| told.0), Some(event), "{rule}");
        assert_eq!((fabric.a.state(), fabric.b.state()), (QpState::Err, QpState::Err));
        assert_eq!(fabric.b.count(Class::PayloadRead), 0, "{rule}");
    }
}

#[test]
fn a_queue_pair_that_grants_no_read_calls_it_an_invalid_request() {
    let mut fabric = fabric();
    let mut rts = fabric.b.attributes(0x12, QP_STATE_RTS, ATTR_ACCESS_FLAGS);
    rts.access = ACCESS_REMOTE_WRITE.into();
    fabric.b.modify(&rts);
    fabric.a.send(&read(8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 9)]);
    assert_eq!(fabric.b.diagnostics(), ["InvalidRequest"]);
}

#[test]
fn what_a_read_brings_is_placed_only_where_its_elements_allow_it() {
    for (elements, rule) in [
        (vec![(VIRTUAL, 8, 0x900)], "LKeyInvalid"),
        (vec![(VIRTUAL, 300, 0x100), (VIRTUAL, 8, 0x200)], "LKeyRight"),
        (vec![(VIRTUAL + BUFFER_BYTES - 7, 8, 0x100)], "LKeyRange"),
    ] {
        let mut fabric = fabric();
        fabric.a.register(0x200, VIRTUAL, 0x1000, BUFFER, 0, ACCESS_REMOTE_READ);
        fabric.clear_logs();
        let mut request = read(0);
        request.elements = elements;
        fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
        fabric.a.send(&request);
        fabric.run();
        let completions = fabric.a.completions();
        assert_eq!(completions, [(0x11, 0, 4, 0), (0x11, 1, READ, 4)], "{rule}");
        assert_eq!(fabric.a.diagnostics(), [rule]);
        assert_eq!(fabric.a.count(Class::PayloadWrite), 0, "{rule}: not even the good element");
        assert_eq!(fabric.b.state(), QpState::Rts, "the peer did nothing wrong");
    }
}

#[test]
fn responses_of_a_wrong_kind_place_or_length_fail_the_read() {
    let bad = (7, Diagnostic::BadResponse);
    let length = (1, Diagnostic::ReadResponseLength);
    let cases: [(Opcode, u32, usize, (u8, Diagnostic)); 8] = [
        (MIDDLE, 1000, 256, bad),
        (LAST, 1000, 256, bad),
        (ONLY, 1000, 256, bad),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, 1000, 0, bad),
        (FIRST, 1000, 255, length),
        (FIRST, 1000, 0, length),
        (FIRST, 1000, 260, length),
        // Behind the first: a second beginning that nobody asked for.
        (FIRST, 1001, 256, bad),
    ];
    for (opcode, psn, bytes, (status, diagnostic)) in cases {
        let what = format!("{opcode:?} at {psn} with {bytes} bytes");
        let mut fabric = fabric();
        fabric.a.send(&read(700));
        let _request = fabric.a.transmit().unwrap();
        if psn > 1000 {
            let good = Forged::new(&fabric.a, IP_B, FIRST, 1000, &[1; 256]).aeth(0x1f, 1);
            fabric.a.receive(good.frame());
        }
        let written = fabric.a.count(Class::PayloadWrite);
        let forged = Forged::new(&fabric.a, IP_B, opcode, psn, &vec![7; bytes]).aeth(0x1f, 1);
        fabric.a.receive(forged.frame());
        assert_eq!(fabric.a.completions(), [(0x11, 0, READ, status)], "{what}");
        assert_eq!(fabric.a.diagnostics(), [diagnostic.rule().name], "{what}");
        assert_eq!(fabric.a.count(Class::PayloadWrite), written, "{what}");
        assert_eq!(fabric.a.state(), QpState::Err, "{what}");
    }
}

#[test]
fn a_response_to_what_is_no_read_is_a_bad_response_and_one_from_the_past_a_ghost() {
    let mut fabric = fabric();
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    let _request = fabric.a.transmit().unwrap();
    let past = Forged::new(&fabric.a, IP_B, ONLY, 999, &[7; 8]).aeth(0x1f, 1);
    fabric.a.receive(past.frame());
    let future = Forged::new(&fabric.a, IP_B, ONLY, 1001, &[7; 8]).aeth(0x1f, 1);
    fabric.a.receive(future.frame());
    assert_eq!(fabric.a.engine.counters().ghost_acks, 2);
    assert_eq!(fabric.a.state(), QpState::Rts);
    let forged = Forged::new(&fabric.a, IP_B, ONLY, 1000, &[7; 8]).aeth(0x1f, 1);
    fabric.a.receive(forged.frame());
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 7)]);
}

#[test]
fn a_duplicate_read_is_read_again_within_its_range_and_otherwise_dropped() {
    let mut fabric = fabric();
    fabric.a.send(&read(256 * 4));
    fabric.run();
    // As good a key for the same bytes, but not the one that was read by.
    fabric.b.register(0x200, VIRTUAL, BUFFER_BYTES, BUFFER, 1, all_rights());
    fabric.clear_logs();
    let forged = |fabric: &Fabric, psn: u32, address: u64, key: u32, length: u32| {
        Forged::new(&fabric.b, IP_A, REQUEST, psn, &[]).reth(address, key, length).frame()
    };
    // Another address, beyond the end, another key, a PSN of nothing: dropped in silence.
    for (psn, address, key, length) in [
        (1000, REMOTE + 1, 0x100, 256),
        (1001, REMOTE, 0x100, 256),
        (1001, REMOTE + 256, 0x100, 256 * 3 + 1),
        (1000, REMOTE, 0x101, 256),
        (1000, REMOTE, 0x200, 256),
        (999, REMOTE, 0x100, 256),
    ] {
        let frame = forged(&fabric, psn, address, key, length);
        fabric.b.receive(frame);
        assert!(fabric.b.transmit().is_none(), "PSN {psn}, address {address:#x}, key {key:#x}, {length} bytes");
    }
    assert_eq!(fabric.b.engine.counters().duplicate_unanswered, 6);
    let frame = forged(&fabric, 1001, REMOTE + 256, 0x100, 256 * 2);
    fabric.b.receive(frame);
    let answers: Vec<_> = std::iter::from_fn(|| fabric.b.transmit()).collect();
    assert_eq!(answers.len(), 2, "a part of it");
    assert_eq!(fabric.b.state(), QpState::Rts);
    // A region that goes answers no more of a duplicate, and nobody is refused; one that is gone answers none.
    let frame = forged(&fabric, 1000, REMOTE, 0x100, 256 * 4);
    fabric.b.receive(frame);
    assert!(fabric.b.transmit().is_some());
    fabric.b.deregister(0x100);
    assert!(fabric.b.transmit().is_none());
    assert_eq!((fabric.b.state(), fabric.b.engine.counters().duplicate_unanswered), (QpState::Rts, 7));
    let frame = forged(&fabric, 1000, REMOTE, 0x100, 256 * 4);
    fabric.b.receive(frame);
    assert!(fabric.b.transmit().is_none());
    assert_eq!(fabric.b.state(), QpState::Rts);
    // The slots are as many as were agreed: after four more READs the first is forgotten.
    fabric.b.register(0x100, VIRTUAL, BUFFER_BYTES, BUFFER, 1, all_rights());
    for _ in 0..4 {
        fabric.a.send(&read(8));
    }
    fabric.run();
    let frame = forged(&fabric, 1000, REMOTE, 0x100, 256 * 4);
    fabric.b.receive(frame);
    assert!(fabric.b.transmit().is_none());
}

#[test]
fn a_request_that_comes_again_while_its_answer_leaves_goes_back_and_marks_what_is_repeated() {
    let mut fabric = fabric();
    fabric.a.send(&read(256 * 4));
    let mut frame = fabric.a.transmit().unwrap();
    frame.seal();
    let bytes = frame.bytes().to_vec();
    fabric.b.receive(frame);
    let again = |fabric: &mut Fabric| {
        let mut frame = rnic_wire::Frame::new();
        assert!(frame.set_bytes(&bytes));
        fabric.b.receive(frame);
    };
    again(&mut fabric);
    assert!(fabric.b.transmit().is_some() && fabric.b.transmit().is_some());
    again(&mut fabric);
    let rest: Vec<_> = std::iter::from_fn(|| fabric.b.transmit()).collect();
    assert_eq!(rest.len(), 4, "from the start again, and not twice to the end");
    let attempts = fabric.b.port.log.iter().filter_map(|transfer| match transfer {
        Transfer::Read { origin, .. } => match origin.cause {
            Cause::Packet { psn, attempt, .. } => Some((psn, attempt)),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [(1000, 0), (1001, 0), (1000, 1), (1001, 1), (1002, 0), (1003, 0)]);
}

#[test]
fn a_key_that_goes_while_its_read_is_answered_refuses_the_packet_that_is_missing() {
    let mut fabric = fabric();
    fabric.a.send(&read(256 * 4));
    let frame = fabric.a.transmit().unwrap();
    fabric.b.receive(frame);
    let first = fabric.b.transmit().unwrap();
    fabric.a.receive(first);
    fabric.b.deregister(0x100);
    fabric.clear_logs();
    fabric.run();
    assert_eq!(fabric.answers('b'), [(1001, 0x62)]);
    assert_eq!(fabric.b.diagnostics(), ["RKeyInvalid"]);
    assert_eq!(fabric.b.events().last().map(|event| event.0), Some(EventType::QP_ACCESS_ERR));
    assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 10)]);
    assert_eq!(fabric.b.count(Class::PayloadRead), 0);
}

#[test]
fn memory_that_does_not_answer_is_a_remote_operational_error_at_once_or_late() {
    for late in [false, true] {
        let mut fabric = fabric();
        if late {
            fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
        } else {
            fabric.b.port.fail = Box::new(|origin| origin.class == Class::PayloadRead);
        }
        fabric.a.send(&read(600));
        fabric.run();
        if late {
            fabric.b.fail(0, DmaFault::UnsupportedRequest);
            fabric.run();
        }
        assert_eq!(fabric.answers('b'), [(1000, 0x63)], "late: {late}");
        assert_eq!(fabric.a.completions(), [(0x11, 0, READ, 11)]);
        assert_eq!(fabric.b.diagnostics(), ["PayloadFault"]);
        assert_eq!(fabric.b.events().last().map(|event| event.0), Some(EventType::QP_FATAL));
    }
}

#[test]
fn a_destroyed_or_reset_responder_reads_nothing_any_more_and_waits_for_what_is_under_way() {
    for destroy in [true, false] {
        let mut fabric = fabric();
        fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::PayloadRead);
        fabric.a.send(&read(600));
        fabric.run();
        assert_eq!(fabric.b.port.held.len(), 1);
        if destroy {
            fabric.b.start_command(CommandOpcode::DESTROY_QP, Host::object(0x12).as_bytes());
        } else {
            let reset = fabric.b.attributes(0x12, QP_STATE_RESET, 0);
            fabric.b.start_command(CommandOpcode::MODIFY_QP, reset.as_bytes());
        }
        assert!(!fabric.b.is_answered(), "a read is under way");
        fabric.b.port.log.clear();
        fabric.b.release(0);
        assert!(fabric.b.is_answered());
        assert!(fabric.b.transmit().is_none());
        assert_eq!(fabric.b.count(Class::PayloadRead), 0);
    }
}

#[test]
fn answers_and_requests_take_turns_at_the_port() {
    let mut fabric = fabric();
    fabric.b.port.put(BUFFER, &pattern(0x4000, 9));
    fabric.a.send(&read(256 * 8));
    let request = fabric.a.transmit().unwrap();
    fabric.b.receive(request);
    fabric.b.send(&Request::new(WorkOpcode::WRITE, 256 * 8));
    let opcodes: Vec<_> = std::iter::from_fn(|| fabric.b.transmit()).map(|frame| opcode(&frame)).collect();
    assert_eq!(opcodes.len(), 16);
    let is_answer = |opcode: &Opcode| [FIRST, MIDDLE, LAST].contains(opcode);
    for pair in opcodes.chunks(2) {
        assert_eq!(pair.iter().filter(|opcode| is_answer(opcode)).count(), 1, "{opcodes:?}");
    }
}

#[test]
fn the_driver_hears_of_limits_and_of_values_beyond_them() {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.b.bring_up();
    let answer = fabric.b.must(CommandOpcode::QUERY_DEVICE, &[]);
    assert_eq!((&answer[26..28], answer[52]), (&[0, 2][..], 16), "512 bytes a queue pair, 16 outstanding");
    fabric.b.modify(&fabric.b.init_attributes(0x12));
    let rtr = fabric.b.rtr_attributes(0x12, (IP_A, 0x11), &Attributes { max_dest_rd_atomic: 17, ..Attributes::mtu(1) });
    assert_eq!(fabric.b.try_command(CommandOpcode::MODIFY_QP, rtr.as_bytes()), (2, "ModifyValue"));
}

/// While what a READ brings waits for its key, the requester is as far as it was: the timer sends the right packets again.
#[test]
fn a_response_that_waits_for_a_key_has_acknowledged_nothing_yet() {
    let mut fabric = fabric();
    fabric.a.post(&Request::new(WorkOpcode::WRITE, 8));
    fabric.a.send(&read(300));
    while let Some(frame) = fabric.a.transmit() {
        fabric.b.receive(frame);
    }
    let answers: Vec<_> = std::iter::from_fn(|| fabric.b.transmit()).collect();
    fabric.a.flush_caches();
    fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::KeyFetch);
    // The WRITE's own acknowledgement is lost: the READ's first response stands for it.
    let response = answers.into_iter().find(|frame| opcode(frame) == FIRST).unwrap();
    fabric.a.receive(response);
    assert_eq!(fabric.a.completions(), [], "nothing is finished before the payload is placed");
    fabric.a.port.hold = Box::new(|_, _| false);
    let due = fabric.a.engine.poll_timeout().unwrap();
    fabric.advance_to(due);
    fabric.a.settle();
    fabric.run();
    fabric.run_timers(2);
    let statuses: Vec<_> = fabric.a.completions().iter().map(|c| (c.1, c.2, c.3)).collect();
    assert_eq!(statuses, [(0, 4, 0), (1, READ, 0)]);
    let mut expected = pattern(0x1_0000, 5)[..300].to_vec();
    // What the WRITE placed is read back.
    expected[..8].fill(0);
    assert_eq!(fabric.a.port.slice(BUFFER, 300), expected);
}
