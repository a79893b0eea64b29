//! Rules of registers and doorbells.

use super::Row;
use super::pair::QPNS;
use crate::bench::raw_driver::*;
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, Diagnostic};
use zerocopy::IntoBytes;

/// On connected queue pairs: registers and doorbells.
pub const ROWS: &[Row] = &[
    (Diagnostic::RegisterAccess, |pair| pair.a.write32(0x2000, 0)),
    (Diagnostic::RegisterReadOnly, |pair| pair.a.write32(REG_MAGIC, 0)),
    (Diagnostic::RegisterWhileEnabled, |pair| pair.a.write64(REG_COMMAND_RING, 0)),
    (Diagnostic::CommandDoorbellRange, |pair| pair.a.write32(REG_COMMAND_DOORBELL, 0xfff0)),
    (Diagnostic::DoorbellAccess, |pair| {
        pair.a.backing.write32(BAR_DOORBELLS, DB_SEND.into(), 0).expect("written");
    }),
    (Diagnostic::DoorbellReserved, |pair| pair.a.ring(DB_SEND, 1)),
    (Diagnostic::DoorbellForeignPage, |pair| {
        pair.a.ring(DOORBELL_PAGE_BYTES + DB_SEND, queue_doorbell(QPNS[0], 1));
    }),
    (Diagnostic::DoorbellNoQueue, |pair| pair.a.ring(DB_SEND, queue_doorbell(0x3f, 1))),
    (Diagnostic::DoorbellBeyondRing, |pair| pair.a.ring(DB_SEND, queue_doorbell(QPNS[0], 65))),
    (Diagnostic::DoorbellState, |pair| {
        let qp = pair.a.new_qp(0x15);
        pair.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        pair.a.ring(DB_SEND, queue_doorbell(0x15, 1));
    }),
    (Diagnostic::DoorbellTornLine, |pair| {
        pair.a.post(&Work::write());
        pair.a.ring(DB_SEND_LINE_0, queue_doorbell(QPNS[0], 1));
    }),
    (Diagnostic::ArmStale, |pair| {
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 1, false));
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 0, false));
    }),
    (Diagnostic::ArmConsumerAhead, |pair| pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 1, 1, false))),
    (Diagnostic::EqUpdateForeign, |pair| pair.a.ring(DOORBELL_PAGE_BYTES + DB_EQ_UPDATE, eq_update(0, 0, true))),
    (Diagnostic::EqConsumerAhead, |pair| pair.a.ring(DB_EQ_UPDATE, eq_update(0, 1, true))),
    (Diagnostic::VectorUnusable, |pair| {
        pair.a.ring(DB_EQ_UPDATE, eq_update(0, 0, true));
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 1, false));
        pair.a.send(&Work::write());
    }),
];
