//! One RDMA Write with Immediate, start to finish, and its relatives: crossings, order, bytes.

mod rig;

use rig::port::Transfer;
use rig::*;
use rnic_abi::WorkOpcode;
use rnic_engine::{Block, EngineConfig};
use rnic_pcie::Class;
use std::collections::BTreeSet;

fn write_imm(length: u32, mtu: u8) -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), mtu);
    fabric.a.port.put(BUFFER, &pattern(length as usize, 7));
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.b.port.log.clear();
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, length));
    fabric.run();
    fabric
}

#[test]
fn a_write_with_immediate_crosses_four_and_three_times() {
    let mut fabric = write_imm(4096, 5);
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "payload_read", "cqe_write"]);
    assert_eq!(fabric.b.operation_classes(), ["payload_write", "recv_wqe_fetch", "cqe_write"]);
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 4096), pattern(4096, 7));
    let sent = fabric.a.poll().expect("a send completion");
    assert_eq!((sent.status, sent.opcode, sent.wqe_index.get()), (0, 5, 0));
    let received = fabric.b.poll().expect("a receive completion");
    assert_eq!((received.status, received.opcode, received.immediate.get()), (0, 0x81, 0x2a));
    assert_eq!((received.byte_len.get(), received.src_qpn.get()), (4096, 0x11));
    assert!(fabric.a.poll().is_none() && fabric.b.poll().is_none());
    assert_eq!(fabric.a.diagnostics(), [""; 0]);
    assert_eq!(fabric.b.diagnostics(), [""; 0]);
}

#[test]
fn ten_thousand_bytes_at_mtu_1024_cross_thirteen_and_twelve_times() {
    let fabric = write_imm(10_000, 3);
    assert_eq!(fabric.a.operation_classes().len(), 13);
    assert_eq!(fabric.b.operation_classes().len(), 12);
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 10_000), pattern(10_000, 7));
}

#[test]
fn every_operation_delivers_at_every_mtu_and_length() {
    for mtu in 1..=5u8 {
        let bytes = 128u32 << mtu;
        for length in [0, 1, 3, bytes - 1, bytes, bytes + 1, 3 * bytes, 3 * bytes + 5] {
            for opcode in [WorkOpcode::SEND, WorkOpcode::SEND_IMM, WorkOpcode::WRITE, WorkOpcode::WRITE_IMM] {
                deliver(opcode, length, mtu);
            }
        }
    }
}

fn deliver(opcode: WorkOpcode, length: u32, mtu: u8) {
    let mut fabric = Fabric::new(EngineConfig::default(), mtu);
    let data = pattern(length as usize, 99);
    fabric.a.port.put(BUFFER + 123, &data);
    fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x4_0000, 0x100);
    let mut request = Request::new(opcode, length);
    request.elements = vec![(VIRTUAL + 123, length, 0x100)];
    fabric.a.send(&request);
    fabric.run();
    let what = format!("{opcode:?} {length} mtu {mtu}");
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, length as usize), data, "{what}");
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000 + u64::from(length), 64), [0; 64], "{what}");
    assert_eq!(fabric.a.poll().map(|cqe| cqe.status), Some(0), "{what}");
    let receives = opcode != WorkOpcode::WRITE;
    assert_eq!(fabric.b.poll().map(|cqe| (cqe.status, cqe.byte_len.get())), receives.then_some((0, length)), "{what}");
    let packets = length.div_ceil(128 << mtu).max(1) as usize;
    assert_eq!(fabric.sent_by('a').len(), packets, "{what}");
}

/// Every host memory read is held back and answered in an order that changes: the outcome does not.
#[test]
fn late_reads_in_any_order_change_nothing_but_the_time() {
    for seed in 0..40u64 {
        let config = EngineConfig {
            qp_cache_entries: 1,
            key_cache_entries: 1,
            cq_cache_entries: 1,
            translation_cache_lines: 2,
            ..EngineConfig::default()
        };
        let mut fabric = Fabric::new(config, 1);
        let data = pattern(3000, seed + 1);
        fabric.a.port.put(BUFFER, &data);
        for host in [&mut fabric.a, &mut fabric.b] {
            host.register(0x200, VIRTUAL + 0x10_0000, 0x1_0000, BUFFER + 0x4_0000, 2, all_rights());
            host.port.hold = Box::new(|_, _| true);
        }
        fabric.a.port.put(BUFFER + 0x4_0000, &data);
        fabric.b.post_receive(VIRTUAL + 0x8_0000, 0x4000, 0x100);
        fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x4000, 0x100);
        let mut send = Request::new(WorkOpcode::SEND, 0);
        send.elements = vec![(VIRTUAL, 1500, 0x100), (VIRTUAL + 0x10_0000 + 1500, 1500, 0x200)];
        fabric.a.post(&send);
        let mut write = Request::new(WorkOpcode::WRITE_IMM, 3000);
        write.remote = (VIRTUAL + 0x10_0000, 0x200);
        fabric.a.post(&write);
        fabric.a.ring_send();
        let mut state = seed;
        for _ in 0..100_000 {
            fabric.run();
            let mut released = false;
            for host in [&mut fabric.a, &mut fabric.b] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let held = host.port.held.len();
                if held > 0 {
                    host.release((state >> 33) as usize % held);
                    released = true;
                }
            }
            if !released {
                break;
            }
        }
        assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 3000), data, "seed {seed}: SEND");
        assert_eq!(fabric.b.port.slice(BUFFER + 0x4_0000, 3000), data, "seed {seed}: WRITE");
        let received: Vec<_> =
            std::iter::from_fn(|| fabric.b.poll()).map(|cqe| (cqe.status, cqe.opcode, cqe.wqe_index.get())).collect();
        assert_eq!(received, [(0, 0x80, 0), (0, 0x81, 1)], "seed {seed}");
        let sent: Vec<_> = std::iter::from_fn(|| fabric.a.poll()).map(|cqe| (cqe.status, cqe.opcode)).collect();
        assert_eq!(sent, [(0, 1), (0, 5)], "seed {seed}");
        assert_eq!(fabric.a.diagnostics(), [""; 0], "seed {seed}");
        assert_eq!(fabric.b.diagnostics(), [""; 0], "seed {seed}");
    }
}

#[test]
fn the_acknowledgement_leaves_while_the_receive_wqe_is_still_being_read() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.b.port.log.clear();
    fabric.b.port.hold = Box::new(|origin, _| origin.class == Class::RecvWqeFetch);
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 4096));
    fabric.run();
    assert_eq!(fabric.b.port.held.len(), 1, "the read is in flight");
    assert_eq!(fabric.a.poll().map(|cqe| cqe.status), Some(0), "and the requester is done");
    assert!(fabric.b.poll().is_none(), "the responder's completion waits");
    let classes: Vec<_> = fabric.b.port.log.iter().map(Transfer::class).collect();
    assert_eq!(classes, [Class::PayloadWrite, Class::RecvWqeFetch]);
    fabric.b.settle();
    assert_eq!(fabric.b.poll().map(|cqe| cqe.immediate.get()), Some(0x2a));
}

#[test]
fn an_armed_queue_tells_once_behind_its_completion() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    fabric.b.ring(rnic_abi::doorbell::DB_EQ_UPDATE, rnic_abi::doorbell::eq_update(0, 0, true));
    fabric.b.ring(rnic_abi::doorbell::DB_CQ_ARM, rnic_abi::doorbell::cq_arm(3, 0, 1, false));
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.b.port.log.clear();
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 4096));
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 4096));
    fabric.run();
    let expected =
        ["payload_write", "recv_wqe_fetch", "cqe_write", "event", "payload_write", "recv_wqe_fetch", "cqe_write"];
    assert_eq!(fabric.b.operation_classes(), expected);
    assert!(fabric.b.port.log.iter().any(|t| matches!(t, Transfer::Event { bytes: 16, vector: Some(0), .. })));
}

#[test]
fn an_unsignaled_write_completes_nothing_on_the_requester() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    let mut request = Request::new(WorkOpcode::WRITE_IMM, 4096);
    request.flags = 0;
    fabric.a.send(&request);
    fabric.run();
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "payload_read"]);
    assert!(fabric.a.poll().is_none());
}

#[test]
fn inline_data_and_carried_requests_save_their_reads() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    let mut request = Request::new(WorkOpcode::WRITE, 0);
    request.inline = Some(pattern(28, 3));
    let line: [u8; 64] = fabric.a.post(&request).try_into().unwrap();
    fabric.a.write(2, rnic_abi::doorbell::DB_SEND_WQE_0.into(), &line);
    fabric.run();
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "cqe_write"]);
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 28), pattern(28, 3));
    // A request of two slots is read from the ring, whole.
    request.inline = Some(pattern(100, 4));
    let bytes = fabric.a.post(&request);
    fabric.a.port.log.clear();
    fabric.a.write(2, rnic_abi::doorbell::DB_SEND_WQE_1.into(), &bytes[..64]);
    fabric.run();
    assert_eq!(fabric.a.operation_classes(), ["doorbell", "wqe_fetch", "cqe_write"]);
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0000, 100), pattern(100, 4));
}

#[test]
fn the_story_touches_each_block_where_it_says() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    fabric.b.ring(rnic_abi::doorbell::DB_EQ_UPDATE, rnic_abi::doorbell::eq_update(0, 0, true));
    fabric.b.ring(rnic_abi::doorbell::DB_CQ_ARM, rnic_abi::doorbell::cq_arm(3, 0, 1, false));
    fabric.b.post_receive(VIRTUAL, 0, 0x100);
    fabric.a.engine.watch_blocks(true);
    fabric.b.engine.watch_blocks(true);
    fabric.a.send(&Request::new(WorkOpcode::WRITE_IMM, 4096));
    fabric.run();
    let blocks =
        |host: &Host| -> BTreeSet<Block> { host.engine.block_touches().iter().map(|touch| touch.block).collect() };
    let (a, b) = (blocks(&fabric.a), blocks(&fabric.b));
    let both: Vec<_> = a.intersection(&b).copied().collect();
    use Block::*;
    assert_eq!(
        both,
        [QpCache, KeyCache, DmaEngine, SystemIommu, TxPacketBuild, RxParser, RxPsnCheck, CqeGeneration, CqStorage]
    );
    let only_a: Vec<_> = a.difference(&b).copied().collect();
    assert_eq!(only_a, [WqeFetch, Scheduler, RateLimiter, ReplayBuffer, RetryTimer]);
    let only_b: Vec<_> = b.difference(&a).copied().collect();
    assert_eq!(only_b, [ResponseGeneration, EventArbitration]);
}
