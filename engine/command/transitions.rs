//! The queue pair state machine, declared in one place: which step may be taken with which attributes.

use crate::context::queue_pair::QpState;
use crate::context::queue_pair::QpState::*;
use crate::context::queue_pair::Service;
use crate::planted::planted;
use rnic_abi::command::*;

/// A step of the state machine of a queue pair, and the attributes that it requires and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: QpState,
    pub to: QpState,
    pub required: u32,
    pub optional: u32,
}

const fn step(from: QpState, to: QpState, required: u32, optional: u32) -> Transition {
    Transition { from, to, required, optional }
}

const INIT: u32 = ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS;
const RTR: u32 = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
const RTS: u32 = ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
const LIVE: u32 = ATTR_CUR_STATE | ATTR_ACCESS_FLAGS | ATTR_ALT_PATH | ATTR_PATH_MIG_STATE | ATTR_MIN_RNR_TIMER;
const DRAINED: u32 = ATTR_PORT
    | ATTR_AV
    | ATTR_TIMEOUT
    | ATTR_RETRY_CNT
    | ATTR_RNR_RETRY
    | ATTR_MAX_QP_RD_ATOMIC
    | ATTR_MAX_DEST_RD_ATOMIC
    | ATTR_ALT_PATH
    | ATTR_ACCESS_FLAGS
    | ATTR_PKEY_INDEX
    | ATTR_MIN_RNR_TIMER
    | ATTR_PATH_MIG_STATE;

/// Every step of RC besides those to RESET and ERR, which every state has and which take no attributes.
pub const RC_TRANSITIONS: &[Transition] = &[
    step(Reset, Init, INIT, 0),
    step(Init, Init, 0, INIT),
    step(Init, Rtr, RTR, ATTR_ALT_PATH | ATTR_ACCESS_FLAGS | ATTR_PKEY_INDEX),
    step(Rtr, Rts, RTS, LIVE),
    step(Rts, Rts, 0, LIVE),
    step(Rts, Sqd, 0, ATTR_EN_SQD_ASYNC_NOTIFY),
    step(Sqd, Sqd, 0, DRAINED),
    step(Sqd, Rts, 0, LIVE),
];

/// Why a step cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoTransition,
    Missing(u32),
    Illegal(u32),
}

const UC_RTR: u32 = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN;
const UC_LIVE: u32 = ATTR_CUR_STATE | ATTR_ACCESS_FLAGS | ATTR_ALT_PATH | ATTR_PATH_MIG_STATE;
const UC_DRAINED: u32 = ATTR_AV | ATTR_ALT_PATH | ATTR_ACCESS_FLAGS | ATTR_PKEY_INDEX | ATTR_PATH_MIG_STATE;

pub const UC_TRANSITIONS: &[Transition] = &[
    step(Reset, Init, INIT, 0),
    step(Init, Init, 0, INIT),
    step(Init, Rtr, UC_RTR, ATTR_ALT_PATH | ATTR_ACCESS_FLAGS | ATTR_PKEY_INDEX),
    step(Rtr, Rts, ATTR_SQ_PSN, UC_LIVE),
    step(Rts, Rts, 0, UC_LIVE),
    step(Rts, Sqd, 0, ATTR_EN_SQD_ASYNC_NOTIFY),
    step(Sqd, Sqd, 0, UC_DRAINED),
    step(Sqd, Rts, 0, UC_LIVE),
    step(Sqe, Rts, 0, ATTR_CUR_STATE | ATTR_ACCESS_FLAGS),
];

const DATAGRAM: u32 = ATTR_PKEY_INDEX | ATTR_QKEY;
const DATAGRAM_LIVE: u32 = ATTR_CUR_STATE | ATTR_QKEY;

/// The steps of a datagram queue pair; only the attributes of INIT differ between UD and GSI.
const fn datagram_steps(init: u32) -> [Transition; 9] {
    [
        step(Reset, Init, init, 0),
        step(Init, Init, 0, init),
        step(Init, Rtr, 0, DATAGRAM),
        step(Rtr, Rts, ATTR_SQ_PSN, DATAGRAM_LIVE),
        step(Rts, Rts, 0, DATAGRAM_LIVE),
        step(Rts, Sqd, 0, ATTR_EN_SQD_ASYNC_NOTIFY),
        step(Sqd, Sqd, 0, DATAGRAM),
        step(Sqd, Rts, 0, DATAGRAM_LIVE),
        step(Sqe, Rts, 0, DATAGRAM_LIVE),
    ]
}

pub const UD_TRANSITIONS: &[Transition] = &datagram_steps(DATAGRAM | ATTR_PORT);
pub const GSI_TRANSITIONS: &[Transition] = &datagram_steps(DATAGRAM);

/// Of an extended connection's initiator: as RC, without what only a responder has.
pub const XRC_INITIATOR_TRANSITIONS: &[Transition] = &[
    step(Reset, Init, INIT, 0),
    step(Init, Init, 0, INIT),
    step(Init, Rtr, UC_RTR, ATTR_ALT_PATH | ATTR_ACCESS_FLAGS | ATTR_PKEY_INDEX),
    step(Rtr, Rts, RTS, UC_LIVE),
    step(Rts, Rts, 0, UC_LIVE),
    step(Rts, Sqd, 0, ATTR_EN_SQD_ASYNC_NOTIFY),
    step(Sqd, Sqd, 0, DRAINED & !(ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER)),
    step(Sqd, Rts, 0, UC_LIVE),
];

/// Of its target: as RC, without what only a requester has.
pub const XRC_TARGET_TRANSITIONS: &[Transition] = &[
    step(Reset, Init, INIT, 0),
    step(Init, Init, 0, INIT),
    step(Init, Rtr, RTR, ATTR_ALT_PATH | ATTR_ACCESS_FLAGS | ATTR_PKEY_INDEX),
    step(Rtr, Rts, ATTR_TIMEOUT | ATTR_SQ_PSN, LIVE),
    step(Rts, Rts, 0, LIVE),
    step(Rts, Sqd, 0, ATTR_EN_SQD_ASYNC_NOTIFY),
    step(Sqd, Sqd, 0, DRAINED & !(ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_MAX_QP_RD_ATOMIC)),
    step(Sqd, Rts, 0, LIVE),
];

/// The steps of a transport service.
pub const fn of(service: Service) -> &'static [Transition] {
    match service {
        Service::Rc => RC_TRANSITIONS,
        Service::Uc => UC_TRANSITIONS,
        Service::Ud => UD_TRANSITIONS,
        Service::Gsi => GSI_TRANSITIONS,
        Service::XrcInitiator => XRC_INITIATOR_TRANSITIONS,
        Service::XrcTarget => XRC_TARGET_TRANSITIONS,
    }
}

/// Checks a step; `mask` holds the given attributes, the state itself left out.
pub fn check(service: Service, from: QpState, to: QpState, mask: u32) -> Result<(), Refusal> {
    let mask = mask & !ATTR_STATE;
    let (required, optional) = match (from, to) {
        (_, Reset) => (0, 0),
        (Reset, Err) => return Result::Err(Refusal::NoTransition),
        (_, Err) => (0, 0),
        _ => {
            let found = of(service).iter().find(|step| step.from == from && step.to == to);
            let step = found.ok_or(Refusal::NoTransition)?;
            (step.required, step.optional)
        }
    };
    let missing = required & !mask;
    let missing = if planted("missing_attributes_accepted") { 0 } else { missing };
    let illegal = if planted("foreign_attributes_accepted") { 0 } else { mask & !(required | optional) };
    match (missing, illegal) {
        (0, 0) => Ok(()),
        (0, illegal) => Result::Err(Refusal::Illegal(illegal)),
        (missing, _) => Result::Err(Refusal::Missing(missing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole state x state table: true where a step exists. SQE is left towards RTS where it can be entered.
    #[test]
    fn the_steps_are_those_of_the_specification() {
        Service::ALL.into_iter().for_each(steps_of);
    }

    fn steps_of(service: Service) {
        let recovers = !service.is_reliable();
        let table = [
            //           RESET  INIT   RTR    RTS    SQD    SQE    ERR
            (Reset, [true, true, false, false, false, false, false]),
            (Init, [true, true, true, false, false, false, true]),
            (Rtr, [true, false, false, true, false, false, true]),
            (Rts, [true, false, false, true, true, false, true]),
            (Sqd, [true, false, false, true, true, false, true]),
            (Sqe, [true, false, false, recovers, false, false, true]),
            (Err, [true, false, false, false, false, false, true]),
        ];
        for (from, row) in table {
            for (to, exists) in QpState::ALL.into_iter().zip(row) {
                let required = of(service).iter().find(|t| t.from == from && t.to == to).map_or(0, |t| t.required);
                let taken = check(service, from, to, required | ATTR_STATE).is_ok();
                assert_eq!(taken, exists, "{service:?}: {from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn every_required_attribute_is_missed_and_every_other_one_refused() {
        for (service, step) in
            Service::ALL.into_iter().flat_map(|service| of(service).iter().map(move |step| (service, step)))
        {
            for bit in (0..32).map(|bit| 1u32 << bit).filter(|bit| *bit != ATTR_STATE) {
                let without = check(service, step.from, step.to, step.required & !bit);
                let with = check(service, step.from, step.to, step.required | bit);
                if step.required & bit != 0 {
                    assert_eq!(without, Result::Err(Refusal::Missing(bit)), "{step:?}");
                } else if step.optional & bit == 0 {
                    assert_eq!(with, Result::Err(Refusal::Illegal(bit)), "{step:?}");
                } else {
                    assert_eq!(with, Ok(()), "{step:?}");
                }
            }
        }
    }
}
