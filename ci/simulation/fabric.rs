//! How the fabric is made: completion queues, queue pairs and regions; then every connection.

use crate::commands::Drain;
use crate::connection::*;
use crate::host::Queue;
use crate::run::Simulation;
use rnic_shim::verbs::*;

/// The words of one direction's atomics.
const WORDS_BYTES: u64 = 4096;

impl Simulation {
    /// Completion queues, queue pairs and regions; then every connection is made.
    pub(crate) fn build(&mut self) -> Result<()> {
        let connections = self.plan.connections + self.plan.extended;
        let pairs: Vec<[usize; 2]> = (0..connections).map(|number| self.pair(number)).collect();
        let queues = self.random.pick(&[1, 2, 3]);
        let mut users = vec![vec![0u64; queues]; self.plan.hosts];
        let mut choices = Vec::new();
        for pair in &pairs {
            let choice = pair.map(|host| {
                let choice = [self.random.index(queues), self.random.index(queues)];
                choice.iter().for_each(|queue| users[host][*queue] += 1);
                choice
            });
            choices.push(choice);
        }
        let extended_queues = self.plan.extended_queues();
        let mut choose = |host: usize| {
            let queue = self.random.index(queues);
            users[host][queue] += 1;
            queue
        };
        let extended: Vec<Vec<usize>> =
            (0..self.plan.hosts).map(|host| (0..extended_queues).map(|_| choose(host)).collect()).collect();
        let sites = self.choose_sites(queues, &mut users);
        for (host, users) in self.hosts.iter_mut().zip(&users) {
            for users in users {
                let entries = (users.max(&1) << self.plan.log_cqes_per_qp).next_power_of_two();
                let log_entries = entries.ilog2() as u8;
                let eqn = Some(Device::ASYNC_EQN);
                let cqn =
                    host.device.create_completion_queue(CqSpec { cqn: None, log_entries, eqn, doorbell_page: 1 })?;
                host.queues.push(Queue { cqn, log_entries, armed: None, due: false });
            }
        }
        self.build_shared(&extended)?;
        for (number, (pair, choice)) in pairs.into_iter().zip(choices).enumerate() {
            let extended = number >= self.plan.connections;
            let selective = !extended && self.random.one_in(self.plan.selective_one_in);
            let build = if extended { Self::build_extended_ends } else { Self::build_ends };
            let [first, second] = build(self, pair, choice, selective)?;
            let flows = [self.build_flow(pair[0], pair[1], extended)?, self.build_flow(pair[1], pair[0], extended)?];
            self.places.insert((pair[0], first.qpn.0), (number, 0));
            self.places.insert((pair[1], second.qpn.0), (number, 1));
            let profile = self.profile();
            let phase = Phase::Resting { until_ns: 0 };
            self.connections.push(Connection {
                ends: [first, second],
                flows,
                phase,
                doom: None,
                gone: [false; 2],
                late: None,
                established: [false; 2],
                last_receive: [false; 2],
                drains: [Drain::No; 2],
                destroyed: [false; 2],
                selective,
                extended,
                profile,
            });
            self.connect(number)?;
        }
        self.build_unreliable(&sites)
    }

    /// The hosts of a connection: the first ones join all hosts in a ring.
    fn pair(&mut self, number: usize) -> [usize; 2] {
        let hosts = self.plan.hosts;
        if number < hosts / 2 {
            return [2 * number, 2 * number + 1];
        }
        let first = self.random.index(hosts);
        [first, (first + 1 + self.random.index(hosts - 1)) % hosts]
    }

    fn build_ends(&mut self, pair: [usize; 2], choice: [[usize; 2]; 2], selective: bool) -> Result<[End; 2]> {
        Ok([self.build_end(pair[0], choice[0], selective)?, self.build_end(pair[1], choice[1], selective)?])
    }

    fn build_end(&mut self, number: usize, choice: [usize; 2], selective: bool) -> Result<End> {
        let shared = self.choose_shared(number, false);
        let host = &self.hosts[number];
        let (send_cq, receive_cq) = (host.queues[choice[0]].cqn, host.queues[choice[1]].cqn);
        let mut end = End { host: number, qpn: Qpn(0), send_cq, receive_cq, shared };
        let spec = QpSpec { qpn: None, ..self.spec_of(end, selective) };
        end.qpn = self.create_pair(number, spec, shared)?;
        Ok(end)
    }

    /// The queue pair of one end.
    pub(crate) fn spec_of(&self, end: End, selective: bool) -> QpSpec {
        let limit = self.plan.log_cqes_per_qp;
        QpSpec {
            qpn: Some(end.qpn.0),
            pd: self.hosts[end.host].pd,
            send_cq: end.send_cq,
            receive_cq: end.receive_cq,
            log_send_slots: limit + 2,
            log_receive_entries: limit,
            log_receive_stride: 2,
            doorbell_page: 1,
            signal_all: false,
            // Some may register memory by work requests.
            privileged: true,
            selective,
            qp_type: rnic_abi::command::QP_TYPE_RC,
        }
    }

    fn build_flow(&mut self, sender: usize, receiver: usize, extended: bool) -> Result<Flow> {
        let bytes = u64::from(self.plan.reach_bytes) + (16 << 10);
        let layouts = [MrLayout::Contiguous, MrLayout::List, MrLayout::TwoLevel];
        let (target_layout, arena_layout) = (self.random.pick(&layouts), self.random.pick(&layouts));
        let host = &mut self.hosts[receiver];
        let target = host.open_region(bytes, target_layout)?;
        let arena = host.open_region(bytes, arena_layout)?;
        let words = host.open_region(WORDS_BYTES, MrLayout::Contiguous)?;
        let layout = self.random.pick(&layouts);
        let landing = self.hosts[sender].open_region(bytes, layout)?;
        // What a target would have to open has no send queue to be opened by.
        let view = if extended { None } else { self.build_view(receiver)? };
        let mut flow = Flow::new(target, arena, landing, words, view);
        flow.dry = self.random.one_in(self.plan.dry_one_in);
        Ok(flow)
    }
}
