//! Commands beside the traffic: send queues that are drained and go on, steps that must be refused and change nothing, queue
//! pairs that are destroyed between two lives.

use crate::connection::*;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::CommandStatus;
use rnic_abi::command::*;
use rnic_engine::context::queue_pair::QpState;
use rnic_shim::verbs::*;

/// One connection in so many turns.
const DRAINED_ONE_IN: u64 = 3000;
const WRONG_ONE_IN: u64 = 3000;
/// One connection in so many is destroyed when it has ended.
const DESTROYED_ONE_IN: u64 = 4;

/// How far a side's send queue is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    #[default]
    No,
    /// What begins at this PSN or behind it has to wait; but for one message whose first packet was being built.
    Asked {
        from: u32,
        grace: Option<u32>,
    },
    Told,
}

impl Drain {
    /// A message begins: true when it may.
    pub fn lets_begin(&mut self, first_psn: u32, is_late: bool) -> bool {
        match self {
            Self::Asked { from, grace } if crate::check::packet::ahead(first_psn, *from) >= 0 => {
                is_late && *grace.get_or_insert(first_psn) == first_psn
            }
            _ => true,
        }
    }
}

/// A step, why it is refused, and the items that it exercises.
type Wrong = (QpAttributes, CommandStatus, usize);

impl Simulation {
    /// In the life of a connection that runs.
    pub(crate) fn command(&mut self, number: usize) -> Checked<bool> {
        for side in [0, 1] {
            if self.connections[number].drains[side] == Drain::Told {
                return self.go_on(number, side).map(|()| true);
            }
        }
        let side = self.random.index(2);
        let connection = &self.connections[number];
        let busy = connection.doom.is_some() || connection.late.is_some() || connection.gone != [false; 2];
        if self.healed_ns.is_some() || busy {
            return Ok(false);
        }
        if self.random.one_in(WRONG_ONE_IN) {
            return self.step_wrongly(number, side).map(|()| true);
        }
        let connection = &self.connections[number];
        let drains = connection.sends(side) && connection.drains[side] == Drain::No;
        if drains && self.random.one_in(DRAINED_ONE_IN) {
            return self.drain(number, side).map(|()| true);
        }
        Ok(false)
    }

    /// RTS to SQD: what has begun is finished, then the event comes.
    fn drain(&mut self, number: usize, side: usize) -> Checked {
        let end = self.connections[number].ends[side];
        if self.state_of(end) != Some(QpState::Rts) {
            return Ok(());
        }
        let mut step = state_attributes(QP_STATE_SQD);
        (step.mask, step.sqd_notify) = ((ATTR_STATE | ATTR_EN_SQD_ASYNC_NOTIFY).into(), 1);
        let drained = self.hosts[end.host].device.modify_queue_pair(end.qpn, step);
        if !self.has_failed_meanwhile(end) {
            drained.map_err(explain("draining a send queue"))?;
        }
        let from = self.connections[number].flows[side].requester.fresh();
        self.connections[number].drains[side] = Drain::Asked { from, grace: None };
        self.coverage.note("send queues drained", 1);
        Ok(())
    }

    /// SQ_DRAINED: once, and nothing is outstanding.
    pub(crate) fn judge_drained(&mut self, number: usize, side: usize) -> Checked {
        let connection = &mut self.connections[number];
        if !matches!(connection.drains[side], Drain::Asked { .. }) {
            return Err(format!("a drain that is {:?}", connection.drains[side]));
        }
        if !connection.flows[side].requester.is_settled() {
            return Err("packets are outstanding, and it says that it is drained".into());
        }
        connection.drains[side] = Drain::Told;
        self.coverage.item(78);
        Ok(())
    }

    fn go_on(&mut self, number: usize, side: usize) -> Checked {
        let end = self.connections[number].ends[side];
        self.connections[number].drains[side] = Drain::No;
        if self.state_of(end) != Some(QpState::Sqd) {
            // It has failed, or is gone.
            return Ok(());
        }
        let went_on = self.modify(end, QP_STATE_RTS);
        if self.has_failed_meanwhile(end) { Ok(()) } else { went_on }
    }

    /// What comes home while a command waits may end the queue pair.
    fn has_failed_meanwhile(&self, end: End) -> bool {
        self.plan.memory.hold > 0 && self.state_of(end) == Some(QpState::Err)
    }

    /// A step that breaks a rule is refused by its rule, and changes nothing.
    fn step_wrongly(&mut self, number: usize, side: usize) -> Checked {
        let end = self.connections[number].ends[side];
        if self.state_of(end) != Some(QpState::Rts) {
            return Ok(());
        }
        let to = |state, mask: u32| QpAttributes { mask: mask.into(), ..state_attributes(state) };
        let steps: [Wrong; 5] = [
            (
                QpAttributes { path_mtu: 1, ..to(QP_STATE_RTS, ATTR_STATE | ATTR_PATH_MTU) },
                CommandStatus::BAD_PARAMETER,
                105,
            ),
            (to(QP_STATE_SQD, ATTR_STATE | ATTR_SQ_PSN), CommandStatus::BAD_PARAMETER, 105),
            (init_attributes(ACCESS_REMOTE_WRITE), CommandStatus::BAD_STATE, 107),
            (to(QP_STATE_SQE, ATTR_STATE), CommandStatus::BAD_STATE, 107),
            (
                QpAttributes { current_state: QP_STATE_INIT, ..to(QP_STATE_RTS, ATTR_STATE | ATTR_CUR_STATE) },
                CommandStatus::BAD_STATE,
                108,
            ),
        ];
        let (step, status, item) = self.random.pick(&steps);
        let exact = self.plan.memory == crate::plan::Memory::default();
        let device = &mut self.hosts[end.host].device;
        let before = device.query_queue_pair(end.qpn).map_err(explain("asking for a queue pair"))?;
        let refused = device.modify_queue_pair(end.qpn, step);
        let after = device.query_queue_pair(end.qpn).map_err(explain("asking for a queue pair"))?;
        if self.has_failed_meanwhile(end) {
            return Ok(());
        }
        match refused {
            Err(VerbsError::Command(refused)) if refused.status == status => {}
            other => return Err(format!("a step that breaks rule {item} ends with {other:?}, not {status:?}")),
        }
        if before.attributes.state != after.attributes.state || (exact && before != after) {
            return Err(format!("a step that was refused changes {before:?} to {after:?}"));
        }
        self.coverage.item(item);
        self.coverage.note("steps that are refused", 1);
        Ok(())
    }

    /// A connection has ended: some of its queue pairs are destroyed and come back under their numbers.
    pub(crate) fn destroy_some(&mut self, number: usize) -> Checked {
        for side in [0, 1] {
            if !self.random.one_in(DESTROYED_ONE_IN) {
                continue;
            }
            let end = self.connections[number].ends[side];
            let host = &mut self.hosts[end.host];
            host.device.destroy_queue_pair(end.qpn).map_err(explain("destroying a queue pair"))?;
            host.adapter.borrow_mut().note_destroyed(end.qpn.0, true);
            self.connections[number].destroyed[side] = true;
        }
        Ok(())
    }

    /// Between two lives nothing was written, and nothing read for a queue pair that there was not.
    pub(crate) fn revive(&mut self, number: usize) -> Checked {
        for side in [0, 1] {
            if self.target_bytes(number, side)? != self.connections[number].flows[side].shadow {
                return Err(format!("flow {side}: the region was written after its connection had ended"));
            }
            if std::mem::take(&mut self.connections[number].destroyed[side]) {
                let end = self.connections[number].ends[side];
                self.hosts[end.host].adapter.borrow_mut().note_destroyed(end.qpn.0, false);
                self.create_again(number, side).map_err(explain("creating a queue pair again"))?;
                self.coverage.item(104);
                self.coverage.note("queue pairs destroyed", 1);
            }
        }
        Ok(())
    }
}
