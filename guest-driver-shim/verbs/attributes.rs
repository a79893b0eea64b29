//! The attributes of the ordinary transitions of a connected queue pair, with their masks.

use rnic_abi::command::*;

/// RESET to INIT: who may do what, through which port.
pub fn init_attributes(access: u32) -> QpAttributes {
    QpAttributes {
        mask: (ATTR_STATE | ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS).into(),
        state: QP_STATE_INIT,
        port: 1,
        access: access.into(),
        ..QpAttributes::zeroed()
    }
}

/// What INIT to RTR needs.
#[derive(Clone, Copy, Debug)]
pub struct RtrAttributes {
    pub path_mtu_bytes: u32,
    pub dest_qpn: u32,
    pub rq_psn: u32,
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR timer, as the wire has it.
    pub min_rnr_timer: u8,
    pub av: AddressVector,
}

/// INIT to RTR: the peer and the way to it.
pub fn rtr_attributes(rtr: RtrAttributes) -> QpAttributes {
    let mask = ATTR_STATE
        | ATTR_AV
        | ATTR_PATH_MTU
        | ATTR_DEST_QPN
        | ATTR_RQ_PSN
        | ATTR_MAX_DEST_RD_ATOMIC
        | ATTR_MIN_RNR_TIMER;
    QpAttributes {
        mask: mask.into(),
        state: QP_STATE_RTR,
        path_mtu: path_mtu_code(rtr.path_mtu_bytes),
        dest_qpn: rtr.dest_qpn.into(),
        rq_psn: rtr.rq_psn.into(),
        max_dest_rd_atomic: rtr.max_dest_rd_atomic,
        min_rnr_timer: rtr.min_rnr_timer,
        av: rtr.av,
        ..QpAttributes::zeroed()
    }
}

/// What RTR to RTS needs.
#[derive(Clone, Copy, Debug)]
pub struct RtsAttributes {
    pub sq_psn: u32,
    /// Local ACK timeout, 4.096 us << timeout; 0 is none.
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub max_rd_atomic: u8,
}

/// RTR to RTS: how to send and how often to repeat.
pub fn rts_attributes(rts: RtsAttributes) -> QpAttributes {
    let mask = ATTR_STATE | ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
    QpAttributes {
        mask: mask.into(),
        state: QP_STATE_RTS,
        sq_psn: rts.sq_psn.into(),
        timeout: rts.timeout,
        retry_cnt: rts.retry_cnt,
        rnr_retry: rts.rnr_retry,
        max_rd_atomic: rts.max_rd_atomic,
        ..QpAttributes::zeroed()
    }
}

/// The same step of an unreliable connection: without what belongs to acknowledgements.
pub fn unreliable(step: QpAttributes) -> QpAttributes {
    let reliability = ATTR_MAX_DEST_RD_ATOMIC
        | ATTR_MIN_RNR_TIMER
        | ATTR_TIMEOUT
        | ATTR_RETRY_CNT
        | ATTR_RNR_RETRY
        | ATTR_MAX_QP_RD_ATOMIC;
    QpAttributes { mask: (step.mask.get() & !reliability).into(), ..step }
}

/// INIT to RTR or RTR to RTS of an XRC initiator: without what only a responder has.
pub fn xrc_initiator(step: QpAttributes) -> QpAttributes {
    let responder = ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
    QpAttributes { mask: (step.mask.get() & !responder).into(), ..step }
}

/// The same of an XRC target: without what only a requester has.
pub fn xrc_target(step: QpAttributes) -> QpAttributes {
    let requester = ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_MAX_QP_RD_ATOMIC;
    QpAttributes { mask: (step.mask.get() & !requester).into(), ..step }
}

/// RESET to INIT, to RTR and to RTS of a datagram queue pair.
pub fn datagram_attributes(qp_type: u8, qkey: u32, sq_psn: u32) -> [QpAttributes; 3] {
    // Management's queue pair has the port to itself.
    let port = if qp_type == QP_TYPE_GSI { 0 } else { ATTR_PORT };
    let init = QpAttributes {
        mask: (ATTR_STATE | ATTR_PKEY_INDEX | ATTR_QKEY | port).into(),
        port: 1,
        qkey: qkey.into(),
        ..state_attributes(QP_STATE_INIT)
    };
    let rts = QpAttributes {
        mask: (ATTR_STATE | ATTR_SQ_PSN).into(),
        sq_psn: sq_psn.into(),
        ..state_attributes(QP_STATE_RTS)
    };
    [init, state_attributes(QP_STATE_RTR), rts]
}

/// To a state that needs nothing else: RESET, ERR.
pub fn state_attributes(state: u8) -> QpAttributes {
    QpAttributes { mask: ATTR_STATE.into(), state, ..QpAttributes::zeroed() }
}

/// The code of a path MTU: 1 is 256 bytes, 5 is 4096. A size that has no code gets one the device refuses.
fn path_mtu_code(bytes: u32) -> u8 {
    match bytes {
        256 | 512 | 1024 | 2048 | 4096 => (bytes.ilog2() - 7) as u8,
        _ => 0,
    }
}
