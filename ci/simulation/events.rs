//! What the drivers hear: events of completion queues, and of queue pairs.

use crate::connection::*;
use crate::operations::Fault;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::EventType;
use rnic_shim::verbs::*;

impl Simulation {
    pub(crate) fn poll_events(&mut self, host: usize) -> Checked<bool> {
        let mut any = false;
        while let Some(event) =
            self.hosts[host].device.poll_event(Device::ASYNC_EQN).map_err(explain("polling an event queue"))?
        {
            any = true;
            self.hosts[host].counted.events += 1;
            self.enter("hears", host, [event.event_type.0.into(), event.object.into(), event.data.into(), 0]);
            self.judge_event(host, event)?;
        }
        Ok(any)
    }

    fn judge_event(&mut self, host: usize, event: Event) -> Checked {
        if event.event_type == EventType::COMPLETION {
            let queue = self.hosts[host].queues.iter_mut().find(|queue| queue.cqn.0 == event.object);
            let Some(queue) = queue else { return Err(format!("host {host}: an event of CQ {:#x}", event.object)) };
            if queue.armed.take().is_none() {
                return Err(format!("host {host}: an event of CQ {:#x}, which is not armed", event.object));
            }
            queue.due = false;
            self.coverage.items(&[93, 96, 97]);
            return Ok(());
        }
        if let Some(judged) = self.judge_shared_event(host, event) {
            return judged;
        }
        if let Some(station) = self.unreliable.places.get(&(host, event.object)).copied() {
            return self.judge_station_event(station, event).map_err(|what| format!("host {host}: {what}"));
        }
        let Some((number, side)) = self.places.get(&(host, event.object)).copied() else {
            return Err(format!("host {host}: {event:?}, of nobody; {}", self.occupancy(host)));
        };
        let connection = &mut self.connections[number];
        if event.event_type == EventType::COMM_EST {
            if std::mem::replace(&mut connection.established[side], true) {
                return Err(format!("host {host}: {event:?}, for the second time"));
            }
            self.coverage.item(25);
            return Ok(());
        }
        if event.event_type == EventType::SQ_DRAINED {
            return self.judge_drained(number, side).map_err(|what| format!("host {host}: {event:?}: {what}"));
        }
        let patience = connection.may_have_failed(side, self.now_ns);
        let expected = match connection.doom {
            Some(Doom::Fault { flow, fault: Fault { event: Some(expected), .. } }) if flow == 1 - side => {
                Some(*expected)
            }
            Some(Doom::Rekey { flow, .. }) if flow == 1 - side => Some(EventType::QP_ACCESS_ERR),
            _ => None,
        };
        let fatal = event.event_type == EventType::QP_FATAL;
        if expected == Some(event.event_type) {
            self.coverage.items(&[102, 103]);
            return Ok(());
        }
        let known = fatal && (patience || connection.doom.is_some() || connection.phase != Phase::Running);
        if known || connection.is_excused() {
            return Ok(());
        }
        Err(format!("host {host}: {event:?} of connection {number}, which has {:?}", connection.doom))
    }

    /// What may still be written to each completion queue of a host.
    fn occupancy(&self, host: usize) -> String {
        let mut text = String::new();
        for queue in &self.hosts[host].queues {
            let mut posted = [0, 0];
            for connection in &self.connections {
                for (side, end) in connection.ends.iter().enumerate().filter(|(_, end)| end.host == host) {
                    posted[0] += if end.send_cq == queue.cqn { connection.flows[side].outstanding.len() } else { 0 };
                    posted[1] +=
                        if end.receive_cq == queue.cqn { connection.flows[1 - side].receives.len() } else { 0 };
                }
            }
            text += &format!("{}: {posted:?} posted; ", queue.cqn);
        }
        text
    }
}
