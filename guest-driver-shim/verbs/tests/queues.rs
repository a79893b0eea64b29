//! Completions and events as a device writes them: phases, wraps, errors, arms.

use super::model::{LIMIT, State, device};
use crate::verbs::*;
use rnic_abi::completion::CQE_WITH_IMM;
use rnic_abi::registers::BAR_DOORBELLS;
use rnic_abi::{CompletionOpcode, CompletionStatus, Cqe, Eqe, EventType, WorkOpcode};
use std::cell::RefCell;
use std::rc::Rc;
use zerocopy::IntoBytes;

const LOG_ENTRIES: u8 = 2;

/// A queue pair whose completion queue has 4 entries, and the hardware's side of it.
pub(super) struct Rig {
    pub device: Device,
    pub state: Rc<RefCell<State>>,
    eqn: Eqn,
    pub cqn: Cqn,
    qpn: Qpn,
    produced: u32,
    events: u32,
}

impl Rig {
    pub fn new() -> Self {
        let (mut device, state) = device();
        let eqn = device.create_event_queue(None, Some(1), LOG_ENTRIES).unwrap();
        let spec = CqSpec { cqn: Some(9), log_entries: LOG_ENTRIES, eqn: Some(eqn), doorbell_page: 3 };
        let cqn = device.create_completion_queue(spec).unwrap();
        let pd = device.allocate_pd().unwrap();
        let qpn = device
            .create_queue_pair(QpSpec {
                qpn: None,
                pd,
                send_cq: cqn,
                receive_cq: cqn,
                log_send_slots: 4,
                log_receive_entries: 4,
                log_receive_stride: 0,
                doorbell_page: 3,
                signal_all: false,
                privileged: false,
                selective: false,
                qp_type: rnic_abi::command::QP_TYPE_RC,
            })
            .unwrap();
        state.borrow_mut().stores.clear();
        Self { device, state, eqn, cqn, qpn, produced: 0, events: 0 }
    }

    pub fn send(&mut self, wr_id: u64) {
        let payload = Payload::Inline(b"8 bytes.");
        let (opcode, remote) = (WorkOpcode::SEND, None);
        let request = SendRequest {
            wr_id,
            opcode,
            payload,
            remote,
            immediate: 0,
            signaled: false,
            solicited: false,
            datagram: None,
            srqn: None,
            fence: false,
        };
        self.device.post_send(self.qpn, &[request], DoorbellForm::Word).unwrap();
    }

    pub fn receive(&mut self, wr_id: u64) {
        self.device.post_receive(self.qpn, &[ReceiveRequest { wr_id, elements: &[] }]).unwrap();
    }

    /// What the device does: the entry, its phase last.
    pub fn complete(&mut self, cqe: Cqe) {
        let phase = !(self.produced >> LOG_ENTRIES) & 1;
        let ring = self.device.completion_queues[&self.cqn].entry_iova(0);
        let at = ring + u64::from(self.produced % (1 << LOG_ENTRIES)) * 64;
        let cqe = Cqe { qpn: self.qpn.0.into(), phase: phase.into(), ..cqe };
        self.state.borrow().memory().copy_in(at, cqe.as_bytes()).unwrap();
        self.produced += 1;
    }

    fn event(&mut self, event_type: EventType, object: u32) {
        let phase = !(self.events >> LOG_ENTRIES) & 1;
        let ring = self.device.event_queues[&self.eqn].ring.iova;
        let at = ring + u64::from(self.events % (1 << LOG_ENTRIES)) * 16;
        let eqe = Eqe { event_type: event_type.0, object: object.into(), phase: phase.into(), ..Eqe::zeroed() };
        let mut state = self.state.borrow_mut();
        state.memory().copy_in(at, eqe.as_bytes()).unwrap();
        state.raised.push(1);
        self.events += 1;
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut completions = [WorkCompletion::default(); 8];
        let count = self.device.poll(self.cqn, &mut completions).unwrap();
        completions[..count].to_vec()
    }

    fn record(&self) -> u32 {
        let record = self.device.completion_queues[&self.cqn].record.iova;
        self.state.borrow().memory().load32(record).unwrap()
    }

    fn stores(&self) -> Vec<(u64, u64)> {
        let mut state = self.state.borrow_mut();
        let stores = std::mem::take(&mut state.stores).into_iter().map(|(bar, offset, bytes)| {
            assert_eq!(bar, BAR_DOORBELLS);
            (offset, u64::from_le_bytes(bytes.try_into().unwrap()))
        });
        stores.collect()
    }
}

fn send_cqe(index: u16) -> Cqe {
    Cqe { wqe_index: index.into(), opcode: CompletionOpcode::SEND.0, ..Cqe::zeroed() }
}

#[test]
fn completions_come_once_each_over_many_passes_and_the_record_follows() {
    let mut rig = Rig::new();
    assert_eq!(rig.poll(), []);
    for index in 0..70_000u64 {
        rig.send(index);
        rig.complete(send_cqe(index as u16));
        if index % 3 == 2 {
            let wr_ids: Vec<u64> = rig.poll().iter().map(|completion| completion.wr_id).collect();
            assert_eq!(wr_ids, [index - 2, index - 1, index]);
            assert_eq!(rig.record(), index as u32 + 1);
            assert_eq!(rig.poll(), []);
        }
        rig.state.borrow_mut().stores.clear();
    }
}

#[test]
fn a_signaled_completion_retires_the_unsignaled_before_it() {
    let mut rig = Rig::new();
    (10..15).for_each(|wr_id| rig.send(wr_id));
    rig.complete(send_cqe(3));
    let completions = rig.poll();
    assert_eq!((completions[0].wr_id, completions[0].retired), (13, 4));
    assert_eq!(rig.device.outstanding_send_slots(rig.qpn), Some(1));
}

#[test]
fn a_receive_carries_length_and_immediate_and_an_error_only_its_reason() {
    let mut rig = Rig::new();
    rig.receive(70);
    rig.receive(71);
    let good = Cqe {
        opcode: CompletionOpcode::RECV_RDMA_WITH_IMM.0,
        byte_len: 4096.into(),
        immediate: 0x2a.into(),
        src_qpn: 0x11.into(),
        flags: CQE_WITH_IMM.into(),
        ..Cqe::zeroed()
    };
    rig.complete(good);
    let flushed = Cqe {
        wqe_index: 1.into(),
        opcode: CompletionOpcode::RECV.0,
        status: CompletionStatus::WR_FLUSH_ERR.0,
        vendor_err: 511.into(),
        byte_len: 99.into(),
        immediate: 5.into(),
        flags: CQE_WITH_IMM.into(),
        ..Cqe::zeroed()
    };
    rig.complete(flushed);
    let completions = rig.poll();
    let first = completions[0];
    assert_eq!((first.wr_id, first.byte_len, first.immediate, first.src_qpn), (70, 4096, Some(0x2a), 0x11));
    let second = completions[1];
    assert_eq!((second.wr_id, second.byte_len, second.immediate), (71, 0, None));
    assert_eq!(second.status(), CompletionStatus::WR_FLUSH_ERR);
    assert_eq!(second.rule().unwrap().name, "Flushed");
}

#[test]
fn a_completion_of_nothing_is_an_error_and_is_consumed() {
    let mut rig = Rig::new();
    rig.send(1);
    for wrong in [send_cqe(1), Cqe { opcode: CompletionOpcode::RECV.0, ..Cqe::zeroed() }] {
        rig.complete(wrong);
        let mut one = [WorkCompletion::default()];
        assert!(matches!(rig.device.poll(rig.cqn, &mut one), Err(VerbsError::Device { .. })));
    }
    assert_eq!(rig.record(), 2);
    rig.complete(send_cqe(0));
    assert_eq!(rig.poll()[0].wr_id, 1);
}

#[test]
fn unpolled_completions_of_a_destroyed_queue_pair_are_skipped() {
    let mut rig = Rig::new();
    rig.send(1);
    rig.complete(send_cqe(0));
    rig.device.destroy_queue_pair(rig.qpn).unwrap();
    assert_eq!(rig.poll(), []);
    assert_eq!(rig.record(), 1);
}

#[test]
fn an_arm_carries_consumer_index_and_a_sequence_that_advances_after_each_event() {
    let mut rig = Rig::new();
    let (page_0_update, page_3_arm) = (0x18, 3 * 4096 + 0x10);
    let arm = |consumer: u64, sequence: u64| (page_3_arm, consumer << 32 | 9 << 8 | sequence);
    let update = |consumer: u64| (page_0_update, consumer << 32 | 1 << 8 | 1);
    for round in 0..9u64 {
        rig.send(round);
        rig.stores();
        rig.device.arm(rig.cqn, false).unwrap();
        rig.device.arm(rig.cqn, false).unwrap();
        let sequence = (round + 1) & 3;
        assert_eq!(rig.stores(), [update(round), arm(round, sequence), arm(round, sequence)], "round {round}");
        rig.complete(send_cqe(round as u16));
        rig.event(EventType::COMPLETION, 9);
        let (awaited, others) = rig.device.wait_completion_event(rig.cqn, LIMIT).unwrap();
        assert!(awaited.by_vector && others.is_empty());
        assert_eq!(rig.poll().len(), 1);
    }
    rig.device.arm(rig.cqn, true).unwrap();
    assert_eq!(rig.stores(), [update(9), arm(9, 2 | 4)]);
}

#[test]
fn an_event_without_its_vector_and_a_silent_queue_are_errors_in_time() {
    let mut rig = Rig::new();
    rig.device.arm(rig.cqn, false).unwrap();
    assert!(matches!(rig.device.wait_event(rig.eqn, LIMIT), Err(VerbsError::Timeout { .. })));
    rig.event(EventType::COMPLETION, 9);
    rig.state.borrow_mut().raised.clear();
    let error = rig.device.wait_event(rig.eqn, LIMIT).unwrap_err();
    assert!(error.to_string().contains("never raised vector"), "{error}");
    assert!(matches!(rig.device.wait_completion(rig.cqn, LIMIT), Err(VerbsError::Timeout { .. })));
}

#[test]
fn an_event_queue_that_is_polled_tells_the_device_before_it_is_full() {
    let mut rig = Rig::new();
    for index in 0..100 {
        rig.event(EventType::QP_FATAL, index);
        let event = rig.device.poll_event(rig.eqn).unwrap().unwrap();
        assert_eq!((event.event_type, event.object), (EventType::QP_FATAL, index));
        let queue = &rig.device.event_queues[&rig.eqn];
        assert!(queue.consumer - queue.told < 1 << LOG_ENTRIES);
    }
    assert_eq!(rig.device.poll_event(rig.eqn).unwrap(), None);
    assert!(!rig.stores().is_empty());
}
