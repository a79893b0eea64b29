//! Rules of commands: the number is in the answer too.

use super::Row;
use super::pair::{IPS, Pair, QPNS};
use crate::bench::raw_driver::*;
use rnic_abi::command::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, Diagnostic};
use zerocopy::IntoBytes;

/// Commands that are refused, with the number in their answer.
pub const ROWS: &[Row] = &[
    (Diagnostic::CommandOpcodeUnknown, |pair| refused(pair, CommandOpcode(0xee), &[])),
    (Diagnostic::CommandReserved, |pair| refused(pair, CommandOpcode::QUERY_QP, &[0x11, 0, 0, 0, 1])),
    (Diagnostic::ParameterRange, |pair| refused(pair, CommandOpcode::SET_TABLE, &[9])),
    (Diagnostic::ObjectMissing, |pair| refused(pair, CommandOpcode::DESTROY_CQ, object(9).as_bytes())),
    (Diagnostic::ObjectExists, |pair| create_qp(pair, |qp| qp.qpn = QPNS[0].into())),
    (Diagnostic::TableMissing, |pair| create_qp(pair, |qp| qp.qpn = 64.into())),
    (Diagnostic::TableInUse, |pair| {
        let mut table = SetTable::zeroed();
        (table.kind, table.pages) = (TABLE_QP, pages(pair.a.at(QP_TABLE), 0));
        refused(pair, CommandOpcode::SET_TABLE, table.as_bytes());
    }),
    (Diagnostic::ObjectBusy, |pair| refused(pair, CommandOpcode::DESTROY_CQ, object(CQN).as_bytes())),
    (Diagnostic::PageListInvalid, |pair| {
        let ring = pair.a.at(EQ) + 8;
        create_eq(pair, |eq| eq.pages = pages(ring, 0));
    }),
    (Diagnostic::DoorbellPageRange, |pair| create_qp(pair, |qp| qp.doorbell_page = 1024.into())),
    (Diagnostic::VectorRange, |pair| create_eq(pair, |eq| eq.vector = 0x100.into())),
    (Diagnostic::QpTypeUnsupported, |pair| create_qp(pair, |qp| qp.qp_type = 0x7f)),
    (Diagnostic::ModifyTransition, |pair| modify(pair, QP_STATE_INIT, 0, |_| {})),
    (Diagnostic::ModifyMissing, |pair| {
        let qp = pair.a.new_qp(0x15);
        pair.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        modify(pair, QP_STATE_INIT, 0, |change| change.qpn = 0x15.into());
    }),
    (Diagnostic::ModifyIllegal, |pair| modify(pair, QP_STATE_RTS, ATTR_PATH_MTU, |_| {})),
    (Diagnostic::ModifyCurrentState, |pair| {
        modify(pair, QP_STATE_RTS, ATTR_CUR_STATE, |change| change.current_state = QP_STATE_SQD);
    }),
    (Diagnostic::ModifyValue, |pair| {
        modify(pair, QP_STATE_RTS, ATTR_ACCESS_FLAGS, |change| {
            change.access = rnic_abi::command::ACCESS_INVALIDATE.into()
        })
    }),
    (Diagnostic::ModifyUnsupported, |pair| modify(pair, QP_STATE_RTS, ATTR_ALT_PATH, |_| {})),
    (Diagnostic::GidExists, |pair| {
        let mut entry = SetGid::zeroed();
        (entry.index, entry.valid, entry.vlan_id, entry.gid) = (7.into(), 1, NO_VLAN.into(), gid(IPS[0]));
        refused(pair, CommandOpcode::SET_GID, entry.as_bytes());
    }),
    (Diagnostic::AccessNeedsLocalWrite, |pair| {
        let region = pair.a.region(0x200, pair.a.at(BUFFER), 0, ACCESS_REMOTE_WRITE);
        refused(pair, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
    (Diagnostic::RegionWraps, |pair| {
        let mut region = pair.a.region(0x200, pair.a.at(BUFFER), 0, 0);
        region.start = (u64::MAX - 8).into();
        refused(pair, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
    (Diagnostic::TranslationFault, |pair| {
        let region = pair.a.region(0x200, NOWHERE, 1, 0);
        refused(pair, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
];

fn refused(pair: &mut Pair, opcode: CommandOpcode, body: &[u8]) {
    let (status, diagnostic) = pair.a.command(opcode, body);
    assert_ne!(status, 0, "{opcode:?}");
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), diagnostic, "the answer and the register say the same");
}

fn create_qp(pair: &mut Pair, change: fn(&mut CreateQp)) {
    let mut qp = pair.a.new_qp(0x15);
    change(&mut qp);
    refused(pair, CommandOpcode::CREATE_QP, qp.as_bytes());
}

fn create_eq(pair: &mut Pair, change: impl FnOnce(&mut CreateEq)) {
    let mut eq = CreateEq::zeroed();
    (eq.eqn, eq.pages) = (1.into(), pages(pair.a.at(EQ) + PAGE, 0));
    change(&mut eq);
    refused(pair, CommandOpcode::CREATE_EQ, eq.as_bytes());
}

fn modify(pair: &mut Pair, state: u8, mask: u32, change: fn(&mut QpAttributes)) {
    let mut attributes = pair.a.attributes(state, mask);
    change(&mut attributes);
    refused(pair, CommandOpcode::MODIFY_QP, attributes.as_bytes());
}
