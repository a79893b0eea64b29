//! BAR 2.

use super::*;
use crate::numbers::{Cqn, Eqn, Qpn, Srqn};
use crate::planted::planted;
use rnic_abi::doorbell::*;

/// The line offsets of a doorbell page: what the write combiner gathers into 64 bytes.
pub const LINE_OFFSETS: [u32; 4] = [DB_SEND_LINE_0, DB_SEND_LINE_1, DB_SEND_WQE_0, DB_SEND_WQE_1];

const INDEX_SHIFT: u32 = 32;

fn number(value: u64) -> u32 {
    (value >> 8) as u32 & 0xff_ffff
}

/// QPN and producer index of a send or receive doorbell; everything else must be zero.
fn queue(value: u64) -> Result<(Qpn, u16), Diagnostic> {
    if value & 0xff != 0 || value >> 48 != 0 {
        return Err(Diagnostic::DoorbellReserved);
    }
    Ok((Qpn(number(value)), (value >> INDEX_SHIFT) as u16))
}

/// A value whose low byte is an opcode is the head of a WQE: it stands for the index after the WQE's last slot.
fn wqe_head(value: u64) -> (Qpn, u16) {
    let slots = work_requests::slots(&value.to_le_bytes());
    (Qpn(number(value)), ((value >> INDEX_SHIFT) as u16).wrapping_add(slots))
}

pub(super) fn decode(offset: u64, data: &[u8]) -> Result<Input, Diagnostic> {
    let page = u32::try_from(offset / u64::from(DOORBELL_PAGE_BYTES)).map_err(|_| Diagnostic::DoorbellAccess)?;
    let at = (offset % u64::from(DOORBELL_PAGE_BYTES)) as u32;
    if let Ok(line) = <[u8; 64]>::try_from(data) {
        return decode_line(page, at, line);
    }
    let data = if planted("doorbell_length_unchecked") { &data[..8] } else { data };
    let value = u64::from_le_bytes(data.try_into().map_err(|_| Diagnostic::DoorbellAccess)?);
    match at {
        DB_SEND | DB_SEND_LINE_0 | DB_SEND_LINE_1 => {
            let (qpn, producer) = queue(value)?;
            Ok(Input::Send { page, qpn, producer, form: DoorbellForm::Value })
        }
        DB_SEND_WQE_0 | DB_SEND_WQE_1 => {
            let (qpn, producer) = wqe_head(value);
            Ok(Input::Send { page, qpn, producer, form: DoorbellForm::Value })
        }
        // The rest of a torn line says nothing that its first 8 bytes have not said.
        _ if in_line(at) => Ok(Input::PieceOfLine),
        DB_RECEIVE => {
            let (qpn, producer) = queue(value)?;
            Ok(Input::Receive { page, qpn, producer })
        }
        DB_SRQ => {
            let (Qpn(number), producer) = queue(value)?;
            Ok(Input::SharedReceive { page, srqn: Srqn(number), producer })
        }
        DB_CQ_ARM => arm(page, value),
        DB_EQ_UPDATE => update(page, value),
        _ => Err(Diagnostic::DoorbellAccess),
    }
}

fn in_line(at: u32) -> bool {
    at.is_multiple_of(8) && LINE_OFFSETS.contains(&(at & !(DOORBELL_LINE_BYTES - 1)))
}

fn decode_line(page: u32, at: u32, line: [u8; 64]) -> Result<Input, Diagnostic> {
    let mut head = [0; 8];
    head.copy_from_slice(&line[..8]);
    let value = u64::from_le_bytes(head);
    match at {
        DB_SEND_LINE_0 | DB_SEND_LINE_1 => {
            let (qpn, producer) = queue(value)?;
            if line[8..].iter().any(|byte| *byte != 0) {
                return Err(Diagnostic::DoorbellReserved);
            }
            Ok(Input::Send { page, qpn, producer, form: DoorbellForm::Line })
        }
        DB_SEND_WQE_0 | DB_SEND_WQE_1 => {
            let (qpn, producer) = wqe_head(value);
            Ok(Input::Send { page, qpn, producer, form: DoorbellForm::WorkRequest(line) })
        }
        _ => Err(Diagnostic::DoorbellAccess),
    }
}

fn arm(page: u32, value: u64) -> Result<Input, Diagnostic> {
    if value & 0xf8 != 0 {
        return Err(Diagnostic::DoorbellReserved);
    }
    Ok(Input::ArmCq {
        page,
        cqn: Cqn(number(value)),
        consumer: (value >> INDEX_SHIFT) as u32,
        sequence: (value & 3) as u8,
        solicited_only: value & CQ_ARM_SOLICITED != 0,
    })
}

fn update(page: u32, value: u64) -> Result<Input, Diagnostic> {
    if value & 0xfe != 0 {
        return Err(Diagnostic::DoorbellReserved);
    }
    Ok(Input::UpdateEq {
        page,
        eqn: Eqn(number(value)),
        consumer: (value >> INDEX_SHIFT) as u32,
        arm: value & EQ_UPDATE_ARM != 0,
    })
}
