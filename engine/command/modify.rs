//! MODIFY_QP: a step of the state machine with its attributes, all or nothing.

use super::transitions::{self, Refusal};
use super::{Halt, halt, missing};
use crate::context::key::FLUSH_RIGHTS;
use crate::context::queue_pair::{QpContext, QpState, Service};
use crate::engine::Engine;
use crate::front_end::commands::QpChange;
use crate::front_end::{Answer, CommandError, EventRecord};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Waiter;
use crate::planted::planted;
use rnic_abi::command::*;
use rnic_abi::limits::MAX_RD_ATOMIC;
use rnic_abi::{CommandStatus, Diagnostic};
use rnic_pcie::Cause;
use rnic_wire::{CreditCode, Psn};

impl Engine {
    pub(super) fn modify_qp(&mut self, host: &mut Host, change: &QpChange, cause: Cause) -> Result<Answer, Halt> {
        let qpn = change.qpn;
        let (state, service) =
            self.queue_pairs.get(qpn).map(|qp| (qp.state, qp.service)).ok_or_else(|| missing(qpn.0))?;
        let next = change.state.unwrap_or(state);
        if let Err(refused) = self.check_change(service, state, next, change) {
            self.apply_though_refused(host, qpn, change, cause);
            return Err(refused.into());
        }
        match next {
            // Neither needs the context: a queue pair whose context is lost gets out this way.
            QpState::Reset => return self.reset_qp(host, qpn),
            QpState::Err => {
                self.stop_queue_pair(host, qpn);
                return Ok(Answer::Done);
            }
            _ => {}
        }
        let mut context = self.load_qp(host, qpn, cause, Waiter::Command).map_err(|stop| halt(stop, qpn.0))?;
        apply(&mut context, change);
        context.state = next;
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Err(missing(qpn.0)) };
        qp.state = next;
        match (state, next) {
            (QpState::Init, QpState::Rtr) => start_responder(&mut context, change),
            (QpState::Rtr, QpState::Rts) => start_requester(&mut context, change),
            (QpState::Rts, QpState::Sqd) => {
                qp.sqd_notify = change.mask & ATTR_EN_SQD_ASYNC_NOTIFY != 0 && change.sqd_notify;
                // A message whose first packet is being gathered has not begun.
                qp.recall_transmit();
                self.note_drained(host, qpn);
            }
            (QpState::Sqd | QpState::Sqe, QpState::Rts) => self.schedule(qpn),
            _ => {}
        }
        self.store_qp(host, qpn, context);
        Ok(Answer::Done)
    }

    /// Only where a test breaks the rule of all or nothing.
    fn apply_though_refused(&mut self, host: &mut Host, qpn: Qpn, change: &QpChange, cause: Cause) {
        if planted("refused_changes_applied")
            && let Ok(mut context) = self.load_qp(host, qpn, cause, Waiter::Command)
        {
            apply(&mut context, change);
            self.store_qp(host, qpn, context);
        }
    }

    fn check_change(
        &self,
        service: Service,
        state: QpState,
        next: QpState,
        change: &QpChange,
    ) -> Result<(), CommandError> {
        let refuse = |diagnostic, status| CommandError::new(status, diagnostic, change.qpn.0);
        let parameter = |diagnostic| refuse(diagnostic, CommandStatus::BAD_PARAMETER);
        if change.current_state.is_some_and(|current| current != state) && !planted("current_state_unchecked") {
            return Err(refuse(Diagnostic::ModifyCurrentState, CommandStatus::BAD_STATE));
        }
        transitions::check(service, state, next, change.mask).map_err(|refusal| match refusal {
            Refusal::NoTransition => refuse(Diagnostic::ModifyTransition, CommandStatus::BAD_STATE),
            Refusal::Missing(_) => parameter(Diagnostic::ModifyMissing),
            Refusal::Illegal(_) => parameter(Diagnostic::ModifyIllegal),
        })?;
        if change.mask & (ATTR_ALT_PATH | ATTR_PATH_MIG_STATE) != 0 {
            return Err(parameter(Diagnostic::ModifyUnsupported));
        }
        // Management datagrams have one Q_Key everywhere.
        let qkey_holds = service != Service::Gsi || change.mask & ATTR_QKEY == 0 || change.qkey == GSI_QKEY;
        if self.values_hold(change) && qkey_holds { Ok(()) } else { Err(parameter(Diagnostic::ModifyValue)) }
    }

    fn values_hold(&self, change: &QpChange) -> bool {
        let given = |bit| change.mask & bit != 0;
        let rights =
            ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC | FLUSH_RIGHTS;
        let av = &change.av;
        (!given(ATTR_PKEY_INDEX) || change.pkey_index == 0)
            && (!given(ATTR_PORT) || change.port == 1)
            && (!given(ATTR_ACCESS_FLAGS) || change.access & !rights == 0)
            && (!given(ATTR_PATH_MTU)
                || ((1..=5).contains(&change.path_mtu) && 128 << change.path_mtu <= self.config.port_mtu_bytes))
            && (!given(ATTR_DEST_QPN) || change.dest_qpn <= 0xff_ffff)
            && (!given(ATTR_RQ_PSN) || change.rq_psn <= 0xff_ffff)
            && (!given(ATTR_SQ_PSN) || change.sq_psn <= 0xff_ffff)
            && (!given(ATTR_TIMEOUT) || change.timeout < 32)
            && (!given(ATTR_RETRY_CNT) || change.retry_cnt < 8)
            && (!given(ATTR_MAX_QP_RD_ATOMIC) || change.max_rd_atomic <= MAX_RD_ATOMIC)
            && (!given(ATTR_MAX_DEST_RD_ATOMIC) || change.max_dest_rd_atomic <= MAX_RD_ATOMIC)
            && (!given(ATTR_RNR_RETRY) || change.rnr_retry < 8)
            && (!given(ATTR_MIN_RNR_TIMER) || change.min_rnr_timer < 32)
            && (!given(ATTR_AV)
                || (self.contexts.gids.get(av.sgid_index).is_some()
                    && av.flow_label <= 0xf_ffff
                    && av.service_level <= 7))
    }

    /// To RESET: everything is dropped without completions, once no read on its behalf is in flight, and no completion of it waits.
    fn reset_qp(&mut self, host: &mut Host, qpn: Qpn) -> Result<Answer, Halt> {
        self.drop_work(qpn);
        let late = self.pending.reads_of(qpn) || self.completions_wait(qpn);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Err(missing(qpn.0)) };
        qp.state = QpState::Reset;
        if late {
            return Err(Halt::Blocked);
        }
        qp.rewind();
        let fresh = QpContext::new(qp.service, qp.pdn, self.config.port_mtu_bytes);
        self.store_qp(host, qpn, fresh);
        self.forget_rd_atomic(host, qpn);
        self.rate_limits.end_reaction(qpn);
        Ok(Answer::Done)
    }

    /// A queue pair in SQD with nothing outstanding tells so, once.
    pub(crate) fn note_drained(&mut self, host: &mut Host, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let done = qp.replay.is_empty() || planted("drained_too_early");
        if qp.state == QpState::Sqd && done && std::mem::take(&mut qp.sqd_notify) {
            self.async_event(host, EventRecord::SendQueueDrained { qpn: qpn.0 }, Cause::Maintenance);
        }
    }
}

/// Sets what the mask names.
fn apply(context: &mut QpContext, change: &QpChange) {
    let given = |bit| change.mask & bit != 0;
    let set_u8 = |bit, slot: &mut u8, value| {
        if given(bit) {
            *slot = value;
        }
    };
    set_u8(ATTR_PATH_MTU, &mut context.path_mtu, change.path_mtu);
    set_u8(ATTR_TIMEOUT, &mut context.requester.timeout, change.timeout);
    set_u8(ATTR_RETRY_CNT, &mut context.requester.retry_cnt, change.retry_cnt);
    set_u8(ATTR_RNR_RETRY, &mut context.requester.rnr_retry, change.rnr_retry);
    set_u8(ATTR_MAX_QP_RD_ATOMIC, &mut context.requester.max_rd_atomic, change.max_rd_atomic);
    set_u8(ATTR_MAX_DEST_RD_ATOMIC, &mut context.responder.max_dest_rd_atomic, change.max_dest_rd_atomic);
    set_u8(ATTR_MIN_RNR_TIMER, &mut context.responder.min_rnr_timer, change.min_rnr_timer);
    if given(ATTR_ACCESS_FLAGS) {
        context.access = change.access;
    }
    if given(ATTR_PKEY_INDEX) {
        context.pkey_index = change.pkey_index;
    }
    if given(ATTR_QKEY) {
        context.qkey = change.qkey;
    }
    if given(ATTR_DEST_QPN) {
        context.dest_qpn = Qpn(change.dest_qpn);
    }
    if given(ATTR_AV) {
        context.av = change.av;
    }
}

fn start_responder(context: &mut QpContext, change: &QpChange) {
    context.responder.expected_psn = Psn::new(change.rq_psn);
}

fn start_requester(context: &mut QpContext, change: &QpChange) {
    let psn = Psn::new(change.sq_psn);
    let half = &mut context.requester;
    (half.unacked_psn, half.send_psn, half.fresh_psn) = (psn, psn, psn);
    half.credits = CreditCode::NONE;
    half.retries_left = half.retry_cnt;
    half.rnr_retries_left = half.rnr_retry;
}
