//! Shared receives as a device completes them: in any order, each slot free when it has been polled.

use super::queues::Rig;
use crate::verbs::*;
use rnic_abi::command::CreateQp;
use rnic_abi::completion::CQE_SRQ;
use rnic_abi::doorbell::{DB_SRQ, queue_doorbell};
use rnic_abi::limits::NO_OBJECT;
use rnic_abi::registers::BAR_DOORBELLS;
use rnic_abi::{CommandOpcode, CompletionOpcode, Cqe};
use zerocopy::FromBytes;

fn received(slot: u16) -> Cqe {
    Cqe {
        wqe_index: slot.into(),
        opcode: CompletionOpcode::RECV.0,
        flags: CQE_SRQ.into(),
        srqn: 5.into(),
        ..Cqe::zeroed()
    }
}

fn poll(rig: &mut Rig) -> Result<Option<u64>> {
    let mut completions = [WorkCompletion::default()];
    let taken = rig.device.poll(rig.cqn, &mut completions)?;
    Ok((taken == 1).then_some(completions[0].wr_id))
}

#[test]
fn slots_complete_in_any_order_and_are_posted_again() {
    let mut rig = Rig::new();
    let pd = rig.device.allocate_pd().unwrap();
    let spec = SrqSpec { srqn: Some(5), pd, log_slots: 1, log_stride: 0, limit: 0, doorbell_page: 3 };
    let srqn = rig.device.create_shared_receive_queue(spec).unwrap();
    let post = |rig: &mut Rig, wr_id| rig.device.post_shared_receive(srqn, &[ReceiveRequest { wr_id, elements: &[] }]);
    rig.state.borrow_mut().stores.clear();
    post(&mut rig, 10).unwrap();
    post(&mut rig, 11).unwrap();
    assert!(matches!(post(&mut rig, 12), Err(VerbsError::RingFull { .. })));
    let rung: Vec<_> = (1..=2).map(|producer| queue_doorbell(5, producer).to_le_bytes().to_vec()).collect();
    let at = 3 * 4096 + u64::from(DB_SRQ);
    let expected: Vec<_> = rung.into_iter().map(|value| (BAR_DOORBELLS, at, value)).collect();
    assert_eq!(rig.state.borrow().stores, expected);
    rig.complete(received(1));
    assert_eq!(poll(&mut rig).unwrap(), Some(11));
    post(&mut rig, 12).unwrap();
    rig.complete(received(1));
    rig.complete(received(0));
    assert_eq!((poll(&mut rig).unwrap(), poll(&mut rig).unwrap()), (Some(12), Some(10)));
    rig.complete(received(0));
    assert!(matches!(poll(&mut rig), Err(VerbsError::Device { .. })), "nothing is posted there");
}

#[test]
fn a_queue_pair_on_a_shared_queue_names_it_and_has_no_ring_of_its_own() {
    let mut rig = Rig::new();
    let pd = rig.device.allocate_pd().unwrap();
    let spec = SrqSpec { srqn: None, pd, log_slots: 3, log_stride: 1, limit: 2, doorbell_page: 3 };
    let srqn = rig.device.create_shared_receive_queue(spec).unwrap();
    let qp = QpSpec {
        qpn: None,
        qp_type: rnic_abi::command::QP_TYPE_RC,
        pd,
        send_cq: rig.cqn,
        receive_cq: rig.cqn,
        log_send_slots: 2,
        log_receive_entries: 4,
        log_receive_stride: 2,
        doorbell_page: 3,
        signal_all: true,
        privileged: false,
        selective: false,
    };
    rig.device.create_queue_pair_on_srq(qp, srqn).unwrap();
    let (opcode, body) = rig.state.borrow().commands.last().cloned().unwrap();
    let (created, _) = CreateQp::read_from_prefix(&body).unwrap();
    assert_eq!((opcode, created.flags, created.srqn.get()), (CommandOpcode::CREATE_QP, 3, srqn.0));
    assert_eq!((created.log_rq_entries, created.log_rq_stride, created.rq_pages.root.get()), (0, 0, 0));
    assert_ne!(srqn.0, NO_OBJECT);
}
