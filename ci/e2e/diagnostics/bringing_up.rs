//! Rules that are broken while an adapter is brought up, or by how its objects are made.

use super::Row;
use super::pair::{Pair, QPNS};
use crate::bench::raw_driver::*;
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, Diagnostic, WorkOpcode};
use zerocopy::IntoBytes;

/// On adapters after a reset.
pub const ROWS: &[Row] = &[
    (Diagnostic::CommandRingInvalid, |pair| pair.a.write32(REG_CONTROL, CONTROL_ENABLE)),
    (Diagnostic::DeviceDisabled, |pair| pair.a.ring(DB_SEND, queue_doorbell(QPNS[0], 1))),
    (Diagnostic::CommandFetchFault, |pair| {
        pair.a.enable(&Making { command_ring: Some(NOWHERE), ..Making::default() });
        pair.a.start_slot(&[0; 128]);
    }),
    (Diagnostic::DeviceFatal, |pair| {
        pair.a.enable(&Making { command_ring: Some(NOWHERE), ..Making::default() });
        (0..2).for_each(|_| pair.a.start_slot(&[0; 128]));
    }),
    (Diagnostic::WqeFetchFault, |pair| {
        pair.up(Making { send_ring: Some(NOWHERE), ..Making::default() });
        pair.a.send(&Work::write());
    }),
    (Diagnostic::ReceiveFetchFault, |pair| {
        pair.up_both(Making::default(), Making { receive_ring: Some(NOWHERE), ..Making::default() });
        pair.b.receive(VIRTUAL, 64, KEY);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::CqRingFault, |pair| {
        pair.up(Making { completion_ring: Some(NOWHERE), ..Making::default() });
        pair.a.send(&Work::write());
    }),
    (Diagnostic::EventRingFault, |pair| {
        pair.up(Making { event_ring: Some(NOWHERE), ..Making::default() });
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 1, false));
        pair.a.send(&Work::write());
    }),
    (Diagnostic::ContextFault, |pair| {
        pair.up(Making { qp_table: Some(NOWHERE), ..Making::default() });
        pair.a.flush_caches();
    }),
    (Diagnostic::InvalidRequest, short_mtu),
    (Diagnostic::RemoteInvalidRequest, short_mtu),
    (Diagnostic::RetryExceeded, |pair| {
        pair.up(Making { retry_cnt: 0, ..Making::default() });
        pair.b.must(CommandOpcode::DESTROY_QP, object(QPNS[1]).as_bytes());
        pair.a.send(&Work::write());
    }),
    (Diagnostic::RnrRetryExceeded, |pair| {
        pair.up(Making { rnr_retry: 0, ..Making::default() });
        pair.a.send(&Work::send());
    }),
];

/// A's packets are longer than B's path MTU.
fn short_mtu(pair: &mut Pair) {
    pair.up_both(Making::default(), Making { mtu: 1, ..Making::default() });
    pair.a.send(&Work::new(WorkOpcode::WRITE, 512));
}
