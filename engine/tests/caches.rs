//! Contexts, keys and translations: what a cold cache fetches, what leaves a small one, what comes back.

mod rig;

use rig::port::Transfer;
use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, Diagnostic, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState;
use rnic_pcie::{Cause, Class};
use zerocopy::IntoBytes;

const FETCHES: [&str; 3] = ["context_fetch", "key_fetch", "translation_fetch"];

fn small(entries: usize) -> EngineConfig {
    EngineConfig {
        qp_cache_entries: entries,
        cq_cache_entries: entries,
        key_cache_entries: entries,
        ..EngineConfig::default()
    }
}

/// A region of this many levels on both sides, and one WRITE with immediate between them after a flush.
fn cold(levels: u8) -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    for host in [&mut fabric.a, &mut fabric.b] {
        host.register(0x200, VIRTUAL, 0x2_0000, BUFFER, levels, all_rights());
    }
    fabric.a.port.put(BUFFER, &pattern(4096, 9));
    fabric.b.post_receive(VIRTUAL, 0, 0x200);
    fabric.a.flush_caches();
    fabric.b.flush_caches();
    fabric.clear_logs();
    let mut request = Request::new(WorkOpcode::WRITE_IMM, 4096);
    request.elements = vec![(VIRTUAL, 4096, 0x200)];
    request.remote = (VIRTUAL + 0x1_0000, 0x200);
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(fabric.b.port.slice(BUFFER + 0x1_0000, 4096), pattern(4096, 9));
    fabric
}

#[test]
fn a_cold_operation_adds_its_fetches_and_nothing_else() {
    for levels in 0..=2u8 {
        let fabric = cold(levels);
        let translations = vec!["translation_fetch"; levels.into()];
        let requester = [
            vec!["doorbell", "wqe_fetch", "context_fetch", "key_fetch"],
            translations.clone(),
            vec!["payload_read", "context_fetch", "cqe_write"],
        ];
        assert_eq!(fabric.a.operation_classes(), requester.concat(), "levels {levels}");
        let responder = [
            vec!["context_fetch", "key_fetch"],
            translations,
            vec!["payload_write", "recv_wqe_fetch", "context_fetch", "cqe_write"],
        ];
        assert_eq!(fabric.b.operation_classes(), responder.concat(), "levels {levels}");
    }
}

#[test]
fn fetches_carry_the_cause_that_they_serve() {
    let fabric = cold(1);
    let causes = |host: &Host| -> Vec<Cause> {
        let fetches = host.port.log.iter().filter(|transfer| FETCHES.contains(&transfer.class().name()));
        fetches
            .map(|transfer| match transfer {
                Transfer::Read { origin, .. } => origin.cause,
                other => panic!("{other:?} is no fetch"),
            })
            .collect()
    };
    let send = Cause::Send { qpn: 0x11, index: 0, count: 1, attempt: 0 };
    assert_eq!(causes(&fabric.a), [send; 4]);
    let packet = Cause::Packet { qpn: 0x12, psn: PSN, attempt: 0 };
    let receive = Cause::Receive { qpn_or_srqn: 0x12, index: 0 };
    assert_eq!(causes(&fabric.b), [packet, packet, packet, receive]);
}

#[test]
fn a_warm_operation_fetches_nothing_whatever_the_levels() {
    for levels in 0..=2u8 {
        let mut fabric = Fabric::new(EngineConfig::default(), 5);
        fabric.a.register(0x200, VIRTUAL, 0x2_0000, BUFFER, levels, all_rights());
        fabric.a.port.log.clear();
        let mut request = Request::new(WorkOpcode::WRITE, 4096);
        request.elements = vec![(VIRTUAL, 4096, 0x200)];
        fabric.a.send(&request);
        fabric.run();
        assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "payload_read", "cqe_write"]);
    }
}

#[test]
fn two_queue_pairs_in_turn_through_a_cache_of_one_fetch_a_context_an_operation() {
    let mut fabric = Fabric::new(EngineConfig { qp_cache_entries: 1, ..EngineConfig::default() }, 5);
    fabric.connect_another(4, &Attributes::mtu(5));
    let first = Request::new(WorkOpcode::WRITE, 64);
    let second = Request { qpn: Some(0x15), ..first.clone() };
    fabric.a.send(&first);
    fabric.run();
    for turn in 0..10 {
        fabric.clear_logs();
        fabric.a.send(if turn % 2 == 0 { &second } else { &first });
        fabric.run();
        for host in [&fabric.a, &fabric.b] {
            assert_eq!((host.count(Class::ContextFetch), host.count(Class::ContextWriteback)), (1, 1), "turn {turn}");
        }
    }
    assert_eq!(fabric.a.completions().len(), 11);
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
}

/// A region whose list ends in an unaligned address is refused; with the list mended it is taken, and used as it is
/// now.
#[test]
fn a_command_that_meets_a_bad_list_leaves_no_line_of_it() {
    for levels in [1u8, 2] {
        let mut fabric = Fabric::new(EngineConfig::default(), 5);
        let pages = 12;
        let region = fabric.a.region(0x200, VIRTUAL, pages * PAGE, BUFFER, levels, all_rights());
        let list = LISTS + 2 * 0x4000 + if levels == 2 { PAGE } else { 0 };
        // The first line leads elsewhere, the second one astray.
        for page in 0..8 {
            fabric.a.port.put(list + page * 8, &(BUFFER + 0x8_0000 + page * PAGE).to_le_bytes());
        }
        fabric.a.port.put(list + 8 * 8, &(BUFFER + 8).to_le_bytes());
        let refused = fabric.a.try_command(CommandOpcode::REGISTER_KEY, region.as_bytes());
        assert_eq!(refused, (rnic_abi::CommandStatus::DMA_FAULT.0, "TranslationFault"), "levels {levels}");
        for page in 0..pages {
            fabric.a.port.put(list + page * 8, &(BUFFER + page * PAGE).to_le_bytes());
        }
        fabric.a.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        fabric.a.port.put(BUFFER, &pattern(4096, 9));
        let mut request = Request::new(WorkOpcode::WRITE, 4096);
        request.elements = vec![(VIRTUAL, 4096, 0x200)];
        fabric.a.send(&request);
        fabric.run();
        let placed = fabric.b.port.slice(BUFFER + 0x8_0000, 4096);
        assert!(placed == pattern(4096, 9), "levels {levels}: the mended list is read");
    }
}

#[test]
fn what_a_small_cache_writes_back_survives() {
    let mut fabric = Fabric::new(small(1), 1);
    for further in 1..6 {
        fabric.connect_another(further, &Attributes { psn: 1000 * further, ..Attributes::mtu(1) });
    }
    for round in 0..8u32 {
        for further in 0..6 {
            let mut request = Request::new(WorkOpcode::WRITE_IMM, 700);
            request.qpn = Some(0x11 + further);
            fabric.b.post_receive_of(0x12 + further, VIRTUAL, 0, 0x100);
            fabric.a.send(&request);
        }
        fabric.run();
        let sent = fabric.a.completions();
        assert_eq!(sent.len(), 6, "round {round}");
        assert!(sent.iter().all(|cqe| cqe.1 == round as u16 && cqe.3 == 0));
        assert_eq!(fabric.b.completions().len(), 6);
    }
    for further in 1..6u32 {
        let answer = fabric.a.must(CommandOpcode::QUERY_QP, Host::object(0x11 + further).as_bytes());
        let attributes: QpAttributes = zerocopy::FromBytes::read_from_prefix(&answer).unwrap().0;
        assert_eq!(attributes.sq_psn.get(), 1000 * further + 8 * 3);
    }
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
}

#[test]
fn a_flushed_context_comes_back_as_it_was() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    for _ in 0..5 {
        // In the middle of a message on both sides.
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 600));
        let mut frame = fabric.a.transmit().unwrap();
        frame.seal();
        fabric.b.receive(frame);
        fabric.a.flush_caches();
        fabric.b.flush_caches();
        fabric.run();
    }
    assert_eq!(fabric.a.completions().len(), 5);
    assert_eq!(fabric.psns('a').len(), 10, "and the first of each was taken by hand: nothing is sent again");
}

/// Every byte of an image, changed: refused with the rule's number, or harmless; never a panic.
#[test]
fn a_corrupted_queue_pair_image_ends_its_queue_pair_and_no_other() {
    let mut refused = 0;
    for byte in 0..256u64 {
        let mut fabric = Fabric::new(EngineConfig::default(), 1);
        fabric.connect_another(1, &Attributes::mtu(1));
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        let _lost = fabric.a.transmit().unwrap();
        fabric.a.flush_caches();
        let at = QP_TABLE + 0x11 * 256 + byte;
        let was = fabric.a.port.slice(at, 1)[0];
        fabric.a.port.put(at, &[was ^ 0xff]);
        fabric.a.post_receive(VIRTUAL, 64, 0x100);
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
        fabric.run();
        if fabric.a.diagnostics().contains(&"ContextInvalid") {
            refused += 1;
            let number = Diagnostic::ContextInvalid.number();
            assert_eq!(fabric.a.events(), [(EventType::QP_FATAL, 0x11, number)], "byte {byte}");
            assert_eq!(fabric.a.state(), QpState::Err);
            let expected = [(0x11, 0, 4, 21), (0x11, 1, 4, 5), (0x11, 0, 0x80, 5)];
            assert_eq!(fabric.a.completions(), expected, "byte {byte}: nothing is lost without a word");
            let reset = fabric.a.attributes(0x11, QP_STATE_RESET, 0);
            fabric.a.modify(&reset);
            fabric.a.indices.remove(&0x11);
            let again = Attributes { psn: 7, ..Attributes::mtu(1) };
            fabric.a.connect(0x11, (IP_B, 0x12), &again);
            assert_eq!(fabric.a.state(), QpState::Rts, "reset is the way out");
        }
        fabric.a.completions();
        fabric.a.send(&Request { qpn: Some(0x12), ..Request::new(WorkOpcode::WRITE, 8) });
        fabric.run();
        assert_eq!(fabric.a.completions().last(), Some(&(0x12, 0, 4, 0)), "byte {byte}");
    }
    assert_eq!(refused, 256, "every byte counts");
}

#[test]
fn a_corrupted_key_or_queue_image_is_refused_and_told() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.flush_caches();
    fabric.a.port.put(KEY_TABLE + 64, &[0]);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 4)]);
    assert_eq!(fabric.a.diagnostics()[0], "ContextInvalid");
    fabric.a.deregister(0x100);

    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.flush_caches();
    fabric.a.port.put(CQ_TABLE + 3 * 64, &[0]);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    let number = Diagnostic::ContextInvalid.number();
    assert_eq!(fabric.a.events(), [(EventType::CQ_ERR, 3, number), (EventType::QP_FATAL, 0x11, number)]);
    assert_eq!((fabric.a.state(), fabric.a.completions()), (QpState::Err, vec![]));
    assert!(fabric.a.engine.counters().cqe_lost > 0);
}

/// Fills fail late, at every stage that fills: whoever waited is told, and asks no second time.
#[test]
fn a_fill_that_fails_late_fails_who_waited_for_it() {
    for class in [Class::ContextFetch, Class::KeyFetch, Class::TranslationFetch] {
        for responder in [false, true] {
            let mut fabric = Fabric::new(EngineConfig::default(), 1);
            fabric.b.post_receive(VIRTUAL, 64, 0x100);
            fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 8));
            let host = if responder { &mut fabric.b } else { &mut fabric.a };
            host.flush_caches();
            host.port.hold = Box::new(move |origin, _| origin.class == class);
            fabric.run();
            let host = if responder { &mut fabric.b } else { &mut fabric.a };
            assert_eq!(host.port.held.len(), 1, "{class:?} {responder}");
            host.port.hold = Box::new(|_, _| false);
            host.fail(0, rnic_pcie::DmaFault::UnsupportedRequest);
            fabric.run();
            let host = if responder { &mut fabric.b } else { &mut fabric.a };
            let name = if class == Class::TranslationFetch { "TranslationFault" } else { "ContextFault" };
            assert_eq!(host.diagnostics()[0], name, "{class:?} {responder}");
            assert_eq!(host.state(), QpState::Err, "{class:?} {responder}");
            assert!(host.port.held.is_empty());
            assert!(!host.completions().is_empty(), "{class:?} {responder}");
        }
    }
}

#[test]
fn page_lists_with_unaligned_entries_are_refused_where_they_are_read() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    // As a region: registered, since its list is read only in part; refused when the page is used.
    let body = fabric.a.region(0x200, VIRTUAL, 0x4000, BUFFER, 1, all_rights());
    fabric.a.port.put(LISTS + 2 * 0x4000 + 8, &(BUFFER + 0x1004).to_le_bytes());
    fabric.a.must(CommandOpcode::REGISTER_KEY, body.as_bytes());
    let mut request = Request::new(WorkOpcode::WRITE, 8);
    request.elements = vec![(VIRTUAL, 8, 0x200)];
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 0, 4, 0)], "the first page is good");
    request.elements = vec![(VIRTUAL + 0x1000, 8, 0x200)];
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x11, 1, 4, 4)]);
    assert_eq!(fabric.a.diagnostics(), ["TranslationFault"]);
    // As the ring of a completion queue, and as a context table.
    let mut cq = CreateCq::zeroed();
    (cq.cqn, cq.log_entries, cq.pages) = (9.into(), 6, pages(LISTS + 0x8000, 1));
    fabric.a.port.put(LISTS + 0x8000, &(BUFFER + 64).to_le_bytes());
    let refused = fabric.a.try_command(CommandOpcode::CREATE_CQ, cq.as_bytes());
    assert_eq!(refused, (rnic_abi::CommandStatus::DMA_FAULT.0, "TranslationFault"));
    let mut host = Host::new(EngineConfig::default(), IP_A, 0x11);
    host.enable();
    host.port.put(LISTS, &(QP_TABLE + 8).to_le_bytes());
    let mut table = SetTable::zeroed();
    (table.kind, table.log_entries, table.pages) = (TABLE_QP, 4, pages(LISTS, 1));
    let refused = host.try_command(CommandOpcode::SET_TABLE, table.as_bytes());
    assert_eq!(refused, (rnic_abi::CommandStatus::DMA_FAULT.0, "TranslationFault"));
}

#[test]
fn rings_and_tables_of_one_and_two_levels_work_like_contiguous_ones() {
    for levels in [1u8, 2] {
        let mut fabric = Fabric::unconnected(EngineConfig::default());
        fabric.b.bring_up();
        fabric.a.bring_up();
        fabric.a.destroy_qp(0x11);
        let lists = LISTS + 0x3_0000;
        let mut ring = |at: u64, list: u64| {
            let inner = if levels == 2 { list + PAGE } else { list };
            fabric.a.port.put(list, &inner.to_le_bytes());
            fabric.a.port.put(inner, &at.to_le_bytes());
            pages(list, levels)
        };
        let (sq, rq) = (ring(SQ, lists), ring(RQ, lists + 2 * PAGE));
        let mut qp = fabric.a.new_qp(0x11);
        (qp.sq_pages, qp.rq_pages) = (sq, rq);
        fabric.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        fabric.connect(&Attributes::mtu(1));
        // More than once around the ring.
        for index in 0..150u16 {
            fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
            fabric.a.post_receive(VIRTUAL, 64, 0x100);
            fabric.b.send(&Request::new(WorkOpcode::SEND, 8));
            fabric.run();
            assert_eq!(fabric.a.completions().len(), 2, "{index}");
            fabric.b.completions();
        }
        assert_eq!(fabric.a.count(Class::TranslationFetch), 0, "the ring's lines were brought in with it");
    }
}
