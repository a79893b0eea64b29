//! How lines fail, end and begin anew; and what must hold at the end of a run.

use super::{Line, Station};
use crate::connection::Phase;
use crate::ending::REST_NS;
use crate::message::pool;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::command::*;
use rnic_engine::context::queue_pair::QpState;
use rnic_shim::verbs::*;

impl Simulation {
    pub(crate) fn keep_lines(&mut self) -> Checked<bool> {
        let mut any = self.change_groups()?;
        for line in 0..self.unreliable.lines.len() {
            any |= self.keep_line(line)?;
        }
        Ok(any)
    }

    fn keep_line(&mut self, number: usize) -> Checked<bool> {
        let Line { phase, excused, .. } = self.unreliable.lines[number];
        match phase {
            Phase::Running => {
                let resets = self.plan.resets / self.unreliable.lines.len() as u32;
                if excused || (self.healed_ns.is_none() && self.random.per_million(resets)) {
                    self.end_line(number)?;
                    return Ok(true);
                }
                let mut any = false;
                for station in self.unreliable.lines[number].stations.clone() {
                    any |= self.send_again(station)?;
                }
                Ok(any)
            }
            Phase::Ending => {
                let stations = &self.unreliable.lines[number].stations;
                let idle = |at: &usize| {
                    let station = &self.unreliable.stations[*at];
                    let let_go = station.shared.is_none() || station.last_receive || station.gone;
                    station.outstanding.is_empty() && station.receives.is_empty() && let_go
                };
                if !stations.iter().all(idle) {
                    return Ok(false);
                }
                for station in stations.clone() {
                    self.settle_target(station, true)?;
                    self.set_state(station, QP_STATE_RESET)?;
                }
                self.unreliable.lines[number].phase = Phase::Resting { until_ns: self.now_ns + REST_NS };
                Ok(true)
            }
            Phase::Resting { until_ns } if self.now_ns >= until_ns => {
                self.set_up_line(number).map_err(explain("setting a line up"))?;
                self.coverage.item(81);
                Ok(true)
            }
            Phase::Resting { .. } => Ok(false),
        }
    }

    fn set_state(&mut self, station: usize, state: u8) -> Checked {
        let Station { host, qpn, .. } = self.unreliable.stations[station];
        let device = &mut self.hosts[host].device;
        device.modify_queue_pair(qpn, state_attributes(state)).map_err(explain("changing a queue pair's state"))
    }

    /// A send queue that stands still goes on when everything posted before is known to have failed.
    fn send_again(&mut self, number: usize) -> Checked<bool> {
        let station = &mut self.unreliable.stations[number];
        if !station.stopped || !station.outstanding.is_empty() {
            return Ok(false);
        }
        (station.stopped, station.next_psn) = (false, station.leaving);
        let (host, qpn) = (station.host, station.qpn);
        let state = self.hosts[host].adapter.borrow().engine.queue_pair_state(qpn.0);
        if state != Some(QpState::Sqe) {
            return Err(format!("host {host}: {qpn} is in {state:?} after a send that failed, not in SQE"));
        }
        let went_on = self.set_state(number, QP_STATE_RTS);
        // What came home while the command waited may have been refused: then the receiver has failed meanwhile.
        self.note_refusals(host);
        let state = self.hosts[host].adapter.borrow().engine.queue_pair_state(qpn.0);
        if self.unreliable.line_of(number).excused && state == Some(QpState::Err) {
            return Ok(true);
        }
        went_on?;
        self.coverage.item(77);
        Ok(true)
    }

    fn end_line(&mut self, number: usize) -> Checked {
        self.coverage.note("resets of unreliable queue pairs", 1);
        for station in self.unreliable.lines[number].stations.clone() {
            if !self.unreliable.stations[station].gone {
                self.set_state(station, QP_STATE_ERR)?;
            }
            // What is on its way may be delivered yet, or never.
            let station = &mut self.unreliable.stations[station];
            station.candidates.iter_mut().for_each(|candidate| candidate.certain = false);
        }
        self.unreliable.lines[number].phase = Phase::Ending;
        Ok(())
    }

    /// The target holds what the packets that came brought. Where that is not known, bytes of some message, or old ones.
    fn settle_target(&mut self, number: usize, in_doubt: bool) -> Checked {
        let station = &self.unreliable.stations[number];
        let Some(target) = &station.target else { return Ok(()) };
        let (host, peer, buffer) = (station.host, station.peer, target.buffer);
        let mut found = vec![0; buffer.length_bytes as usize];
        self.hosts[host].read(buffer.iova, &mut found).map_err(explain("reading a region"))?;
        let (station, sender) = (&self.unreliable.stations[number], &self.unreliable.stations[peer]);
        for (at, byte) in found.iter().enumerate().filter(|(at, byte)| station.shadow[*at] != **byte) {
            let at = at as u32;
            let unsure = station.unsure.iter().any(|(from, length)| (*from..from + length).contains(&at));
            let doubtful = in_doubt || unsure;
            if !doubtful || !station.is_explained(&sender.history, pool(sender.host), at, *byte) {
                let (qpn, right) = (station.qpn, station.shadow[at as usize]);
                let writers = sender.history.iter().filter(|parcel| parcel.message.overlaps(at, 1));
                let numbers: Vec<u64> = writers.map(|parcel| parcel.message.number).collect();
                return Err(format!(
                    "host {host}, {qpn}: byte {at} of its region is {byte:#x} and should be {right:#x}; messages {numbers:?} go there"
                ));
            }
        }
        let station = &mut self.unreliable.stations[number];
        station.shadow.copy_from_slice(&found);
        station.unsure.clear();
        Ok(())
    }

    /// Nobody waits for anything.
    pub(crate) fn lines_are_over(&self) -> bool {
        let done = |station: &Station| station.outstanding.is_empty() && !station.stopped;
        self.unreliable.lines.iter().all(|line| line.phase == Phase::Running && !line.excused)
            && self.unreliable.stations.iter().all(done)
    }

    pub(crate) fn check_stations(&mut self) -> Checked {
        for number in 0..self.unreliable.stations.len() {
            let station = &self.unreliable.stations[number];
            if let Some(missed) = station.candidates.iter().find(|candidate| candidate.certain) {
                let (host, qpn, message) = (station.host, station.qpn, missed.parcel.message.number);
                return Err(format!("host {host}, {qpn}: message {message} arrived whole and was never delivered"));
            }
            self.settle_target(number, false)?;
        }
        Ok(())
    }
}
