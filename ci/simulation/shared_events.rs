//! Events of shared receive queues, and of the queue pairs that use them.

use crate::connection::Doom;
use crate::run::{Checked, Simulation};
use crate::shared::SharedQueue;
use rnic_abi::EventType;
use rnic_shim::verbs::*;

impl Simulation {
    /// SRQ_LIMIT_REACHED: of a limit that is armed, once, and not while enough are left.
    fn judge_limit(&mut self, host: usize, event: Event) -> Checked {
        let place = self.shared.iter().position(|queue| queue.host == host && queue.srqn.0 == event.object);
        let Some(number) = place else { return Err(format!("host {host}: {event:?}, of no queue")) };
        let left = self.surely_left(number);
        let queue = &mut self.shared[number];
        let Some(limit) = queue.limit.take() else {
            return Err(format!("host {host}: {event:?}, and no limit is armed"));
        };
        if limit.fewest.min(left) >= limit.receives.into() {
            return Err(format!(
                "host {host}: {event:?}, and at least {} of {} were left",
                limit.fewest, limit.receives
            ));
        }
        self.coverage.item(100);
        self.coverage.note("limits of a shared queue", 1);
        Ok(())
    }

    /// QP_LAST_WQE_REACHED: once, of a queue pair in the error state.
    fn judge_last_receive(&mut self, host: usize, event: Event) -> Checked {
        let told = if let Some((number, side)) = self.places.get(&(host, event.object)).copied() {
            let connection = &mut self.connections[number];
            let told = connection.ends[side].shared.is_some();
            told.then(|| std::mem::replace(&mut connection.last_receive[side], true))
        } else if let Some(station) = self.unreliable.places.get(&(host, event.object)).copied() {
            let station = &mut self.unreliable.stations[station];
            station.shared.map(|_| std::mem::replace(&mut station.last_receive, true))
        } else {
            None
        };
        match told {
            Some(false) => {
                self.coverage.item(76);
                Ok(())
            }
            Some(true) => Err(format!("host {host}: {event:?}, for the second time")),
            None => Err(format!("host {host}: {event:?}, of a queue pair that shares nothing")),
        }
    }

    /// SRQ_ERR: memory refused a read of the index ring. The driver begins anew with the whole adapter.
    fn judge_broken(&mut self, host: usize, event: Event) -> Checked {
        let of_event = |queue: &&SharedQueue| queue.host == host && queue.srqn.0 == event.object;
        match self.shared.iter().find(of_event) {
            Some(queue) if queue.suspect => {
                self.broken.insert(host);
                self.coverage.note("shared queues that broke", 1);
                Ok(())
            }
            _ => Err(format!("host {host}: {event:?}, and nothing is wrong with its ring")),
        }
    }

    /// Memory refused to tell a queue pair of a receive that it shares: all who share with it may fail.
    pub(crate) fn suspect_shared(&mut self, host: usize, qpn: u32) {
        let queues = match (self.places.get(&(host, qpn)), self.unreliable.places.get(&(host, qpn))) {
            (Some((number, _)), _) if self.connections[*number].extended => self.extended_queues_of(host),
            (Some((number, side)), _) => self.connections[*number].ends[*side].shared.into_iter().collect(),
            (None, Some(station)) => self.unreliable.stations[*station].shared.into_iter().collect(),
            (None, None) => Vec::new(),
        };
        for queue in queues {
            self.shared[queue].suspect = true;
            for connection in &mut self.connections {
                let extended = connection.extended && connection.ends[1].host == host;
                if connection.ends.iter().any(|end| end.shared == Some(queue)) || extended {
                    connection.doom = Some(Doom::Memory);
                }
            }
            for station in self.unreliable.stations.iter().filter(|station| station.shared == Some(queue)) {
                self.unreliable.lines[station.line].excused = true;
            }
        }
    }

    /// Events of shared receive queues, and of the queue pairs that use them.
    pub(crate) fn judge_shared_event(&mut self, host: usize, event: Event) -> Option<Checked> {
        match event.event_type {
            EventType::SRQ_LIMIT_REACHED => Some(self.judge_limit(host, event)),
            EventType::QP_LAST_WQE_REACHED => Some(self.judge_last_receive(host, event)),
            EventType::SRQ_ERR => Some(self.judge_broken(host, event)),
            _ => None,
        }
    }

    pub(crate) fn check_shared(&self) -> Checked {
        for queue in &self.shared {
            if queue.limit.is_some_and(|limit| limit.due) {
                return Err(format!("host {}: {} fell below its limit, and said nothing", queue.host, queue.srqn));
            }
        }
        Ok(())
    }
}
