//! WQEs and receive WQEs against bytes written by hand, and the stores that announce them.

use super::model::device;
use crate::verbs::wqe::encode;
use crate::verbs::*;
use rnic_abi::WorkOpcode;
use rnic_abi::registers::BAR_DOORBELLS;

fn request<'a>(opcode: WorkOpcode, payload: Payload<'a>, remote: Option<Remote>) -> SendRequest<'a> {
    SendRequest {
        wr_id: 1,
        opcode,
        payload,
        remote,
        datagram: None,
        srqn: None,
        immediate: 0,
        signaled: false,
        solicited: false,
        fence: false,
    }
}

const REMOTE: Remote = Remote { address: 0x1122_3344_5566_7788, rkey: 0xaabb_ccdd };
const SGE: Sge = Sge { address: 0x0102_0304_0506_0708, length_bytes: 0x1000, lkey: 0x15a };

#[test]
fn a_write_with_immediate_is_these_bytes() {
    let elements = [SGE];
    let request = SendRequest {
        immediate: 0x2a,
        signaled: true,
        solicited: true,
        ..request(WorkOpcode::WRITE_IMM, Payload::Elements(&elements), Some(REMOTE))
    };
    let mut wqe = encode(&request, Qpn(0x12_3456), 224).unwrap();
    wqe.set_slot_index(0xbeef);
    #[rustfmt::skip]
    let expected = [
        0x05, 0x56, 0x34, 0x12, 0xef, 0xbe, 0x03, 0x03, 0x2a, 0, 0, 0, 0, 0, 0, 0,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x00, 0x10, 0, 0, 0x5a, 0x01, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!((wqe.slots(), wqe.slot(0).unwrap()), (1, &expected));
}

#[test]
fn an_atomic_is_these_bytes_and_has_the_operands_of_its_opcode() {
    let elements = [Sge { length_bytes: 8, ..SGE }];
    let swap = Operands::CompareSwap { compare: 0x1111_2222_3333_4444, swap: 0x5555_6666_7777_8888 };
    let with = |opcode, operands| request(opcode, Payload::Atomic(operands, &elements), Some(REMOTE));
    let wqe = encode(&with(WorkOpcode::CMP_SWAP, swap), Qpn(0x11), 224).unwrap();
    #[rustfmt::skip]
    let expected = [
        0x0a, 0x11, 0, 0, 0, 0, 0x04, 0x00, 0, 0, 0, 0, 0, 0, 0, 0,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0,
        0x88, 0x88, 0x77, 0x77, 0x66, 0x66, 0x55, 0x55, 0x44, 0x44, 0x33, 0x33, 0x22, 0x22, 0x11, 0x11,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x08, 0, 0, 0, 0x5a, 0x01, 0, 0,
    ];
    assert_eq!((wqe.slots(), wqe.slot(0).unwrap()), (1, &expected));
    let add = Operands::FetchAdd { add: 7 };
    let wqe = encode(&with(WorkOpcode::FETCH_ADD, add), Qpn(0x11), 224).unwrap();
    assert_eq!(wqe.slot(0).unwrap()[32..48], [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let read = request(WorkOpcode::READ, Payload::Elements(&elements), Some(REMOTE));
    assert_eq!(encode(&read, Qpn(0x11), 224).unwrap().slot(0).unwrap()[..8], [0x08, 0x11, 0, 0, 0, 0, 3, 0]);
    for wrong in [
        with(WorkOpcode::CMP_SWAP, add),
        with(WorkOpcode::FETCH_ADD, swap),
        with(WorkOpcode::WRITE, add),
        request(WorkOpcode::FETCH_ADD, Payload::Elements(&elements), Some(REMOTE)),
        request(WorkOpcode::READ, Payload::Inline(&[1]), Some(REMOTE)),
        request(WorkOpcode::READ, Payload::Elements(&elements), None),
    ] {
        assert!(matches!(encode(&wrong, Qpn(1), 224), Err(VerbsError::WorkRequest { .. })), "{wrong:?}");
    }
}

#[test]
fn a_flush_and_an_atomic_write_are_these_bytes() {
    let placement = rnic_abi::work_request::FLUSH_PERSISTENT;
    let flush = request(WorkOpcode::FLUSH, Payload::Flush { length_bytes: 0x1234, placement }, Some(REMOTE));
    #[rustfmt::skip]
    let expected = [
        0x09, 0x11, 0, 0, 0, 0, 0x03, 0x00, 0, 0, 0, 0, 0, 0, 0, 0,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0,
        0x34, 0x12, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(encode(&flush, Qpn(0x11), 224).unwrap().slot(0).unwrap()[..48], expected);
    let write = request(WorkOpcode::ATOMIC_WRITE, Payload::Inline(&[1, 2, 3, 4, 5, 6, 7, 8]), Some(REMOTE));
    let wqe = encode(&write, Qpn(0x11), 224).unwrap();
    let slot = wqe.slot(0).unwrap();
    assert_eq!(slot[..16], [0x0c, 0x11, 0, 0, 0, 0, 3, 0x08, 0, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(slot[32..48], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    for wrong in [
        request(WorkOpcode::FLUSH, Payload::Elements(&[]), Some(REMOTE)),
        request(WorkOpcode::FLUSH, Payload::Inline(&[]), Some(REMOTE)),
        request(WorkOpcode::FLUSH, Payload::Flush { length_bytes: 1, placement }, None),
        request(WorkOpcode::WRITE, Payload::Flush { length_bytes: 1, placement }, Some(REMOTE)),
    ] {
        assert!(matches!(encode(&wrong, Qpn(1), 224), Err(VerbsError::WorkRequest { .. })), "{wrong:?}");
    }
}

#[test]
fn an_inline_send_is_these_bytes_rounded_up_to_segments() {
    let data: Vec<u8> = (1..=50).collect();
    let wqe = encode(&request(WorkOpcode::SEND, Payload::Inline(&data), None), Qpn(7), 224).unwrap();
    assert_eq!((wqe.segments, wqe.slots()), (5, 2));
    let first = wqe.slot(0).unwrap();
    assert_eq!(first[..16], [0x01, 7, 0, 0, 0, 0, 5, 0x08, 0, 0, 0, 0, 50, 0, 0, 0]);
    assert_eq!(first[16..], data[..48]);
    assert_eq!(wqe.slot(1).unwrap()[..3], [49, 50, 0]);
    assert!(wqe.slot(1).unwrap()[2..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_does_not_fit_is_refused() {
    let many = [SGE; 15];
    let write = |count: usize| request(WorkOpcode::WRITE, Payload::Elements(&many[..count]), Some(REMOTE));
    assert_eq!(encode(&write(14), Qpn(1), 224).unwrap().segments, 16);
    assert!(matches!(encode(&write(15), Qpn(1), 224), Err(VerbsError::Limit { .. })));
    assert_eq!(encode(&request(WorkOpcode::SEND, Payload::Elements(&many), None), Qpn(1), 224).unwrap().segments, 16);
    let long = [0; 225];
    let inline = |count: usize| request(WorkOpcode::WRITE, Payload::Inline(&long[..count]), Some(REMOTE));
    assert_eq!(encode(&inline(224), Qpn(1), 224).unwrap().slots(), 4);
    assert!(matches!(encode(&inline(225), Qpn(1), 1000), Err(VerbsError::Limit { .. })));
    assert!(matches!(encode(&inline(65), Qpn(1), 64), Err(VerbsError::Limit { .. })));
    let no_remote = request(WorkOpcode::WRITE, Payload::Elements(&many[..1]), None);
    assert!(matches!(encode(&no_remote, Qpn(1), 224), Err(VerbsError::WorkRequest { .. })));
    let remote = request(WorkOpcode::SEND, Payload::Elements(&many[..1]), Some(REMOTE));
    assert!(matches!(encode(&remote, Qpn(1), 224), Err(VerbsError::WorkRequest { .. })));
}

fn queue_pair(device: &mut Device, log_send_slots: u8, log_receive_stride: u8) -> Qpn {
    let pd = device.allocate_pd().unwrap();
    let cq = device.create_completion_queue(CqSpec { cqn: None, log_entries: 4, eqn: None, doorbell_page: 2 }).unwrap();
    device
        .create_queue_pair(QpSpec {
            qpn: Some(0x11),
            pd,
            send_cq: cq,
            receive_cq: cq,
            log_send_slots,
            log_receive_entries: 2,
            log_receive_stride,
            doorbell_page: 2,
            signal_all: false,
            privileged: false,
            selective: false,
            qp_type: rnic_abi::command::QP_TYPE_RC,
        })
        .unwrap()
}

#[test]
fn the_ring_is_written_before_the_doorbell_and_wqes_wrap() {
    let (mut device, state) = device();
    let qpn = queue_pair(&mut device, 2, 0);
    let data = [0xcd; 100];
    // 3 slots, then 2: the second one wraps, but does not fit before the first is retired.
    let long = SendRequest { wr_id: 1, ..request(WorkOpcode::SEND, Payload::Inline(&[0xab; 150]), None) };
    device.post_send(qpn, &[long], DoorbellForm::Word).unwrap();
    let short = request(WorkOpcode::SEND, Payload::Inline(&data), None);
    let error = device.post_send(qpn, &[short], DoorbellForm::Word).unwrap_err();
    assert!(matches!(error, VerbsError::RingFull { slots: 4, free: 1, needed: 2, .. }), "{error}");
    assert_eq!(device.queue_pairs.get_mut(&qpn).unwrap().send.complete(0).unwrap().wr_id, 1);
    device.post_send(qpn, &[short], DoorbellForm::Word).unwrap();
    let ring = device.queue_pairs[&qpn].send_buffer.unwrap().iova;
    let state = state.borrow();
    let mut slot = [0; 64];
    state.memory().copy_out(ring + 3 * 64, &mut slot).unwrap();
    assert_eq!(slot[..8], [0x01, 0x11, 0, 0, 3, 0, 8, 0x08]);
    state.memory().copy_out(ring, &mut slot).unwrap();
    assert_eq!((slot[51], slot[52]), (0xcd, 0));
    let page = 2 * 4096;
    let word = |producer: u8| vec![0, 0x11, 0, 0, producer, 0, 0, 0];
    assert_eq!(state.stores, [(BAR_DOORBELLS, page, word(3)), (BAR_DOORBELLS, page, word(5))]);
}

#[test]
fn lines_are_eight_ascending_stores_to_alternating_places() {
    let (mut device, state) = device();
    let qpn = queue_pair(&mut device, 4, 0);
    for (form, places) in [(DoorbellForm::Line, [0x400, 0x440, 0x400]), (DoorbellForm::Wqe, [0x800, 0x840, 0x800])] {
        for place in places {
            state.borrow_mut().stores.clear();
            let elements = [SGE];
            let one = request(WorkOpcode::WRITE, Payload::Elements(&elements), Some(REMOTE));
            device.post_send(qpn, &[one], form).unwrap();
            let producer = device.queue_pairs[&qpn].send.producer();
            let state = state.borrow();
            let offsets: Vec<u64> = state.stores.iter().map(|(_, offset, _)| *offset).collect();
            let expected: Vec<u64> = (0..8).map(|word| 2 * 4096 + place + word * 8).collect();
            assert_eq!(offsets, expected, "{form:?}");
            let line: Vec<u8> = state.stores.iter().flat_map(|(_, _, bytes)| bytes.clone()).collect();
            if form == DoorbellForm::Line {
                assert_eq!(line[..8], [0, 0x11, 0, 0, producer as u8, 0, 0, 0]);
                assert_eq!(line[8..], [0; 56]);
            } else {
                let mut slot = [0; 64];
                let at = device.queue_pairs[&qpn].send_buffer.unwrap().iova + (u64::from(producer) - 1) * 64;
                state.memory().copy_out(at, &mut slot).unwrap();
                assert_eq!(line, slot);
            }
        }
    }
}

#[test]
fn a_batch_of_receives_is_announced_once_and_short_lists_end_with_a_zero() {
    let (mut device, state) = device();
    let qpn = queue_pair(&mut device, 2, 1);
    let two = [SGE, Sge { address: 9, length_bytes: 8, lkey: 7 }];
    // A full ring leaves old bytes behind; the next pass must overwrite them.
    device.post_receive(qpn, &[ReceiveRequest { wr_id: 1, elements: &two }; 4]).unwrap();
    let full = device.post_receive(qpn, &[ReceiveRequest { wr_id: 1, elements: &two }]).unwrap_err();
    assert!(matches!(full, VerbsError::RingFull { .. }));
    device.queue_pairs.get_mut(&qpn).unwrap().receive.complete(0).unwrap();
    device.post_receive(qpn, &[ReceiveRequest { wr_id: 2, elements: &two[..1] }]).unwrap();
    let state = state.borrow();
    let place = (BAR_DOORBELLS, 2 * 4096 + 8);
    let expected: Vec<_> = [4, 5].map(|n| (place.0, place.1, vec![0, 0x11, 0, 0, n, 0, 0, 0])).into();
    assert_eq!(state.stores, expected);
    let mut wqe = [0xff; 32];
    state.memory().copy_out(device.queue_pairs[&qpn].receive_buffer.unwrap().iova, &mut wqe).unwrap();
    assert_eq!(wqe[..8], 0x0102_0304_0506_0708u64.to_le_bytes());
    assert_eq!(wqe[8..16], [0x00, 0x10, 0, 0, 0x5a, 0x01, 0, 0]);
    assert_eq!(wqe[16..], [0; 16]);
    drop(state);
    let three = [SGE; 3];
    let error = device.post_receive(qpn, &[ReceiveRequest { wr_id: 3, elements: &three }]).unwrap_err();
    assert!(matches!(error, VerbsError::Limit { wanted: 3, most: 2, .. }));
}
