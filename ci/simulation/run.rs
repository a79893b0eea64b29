//! A run: the fabric of a plan, its program, and the loop that lets everything happen in virtual time.

use crate::commands::Drain;
use crate::connection::*;
use crate::coverage::Coverage;
use crate::host::Host;
use crate::log::{Entry, Log};
use crate::plan::{Memory, Plan, Wire};
use crate::random::Random;
use crate::shared::SharedQueue;
use crate::unreliable::Unreliable;
use rnic_switch::{Switch, SwitchConfig};
use rnic_wire::Frame;
use std::collections::{BTreeMap, BTreeSet};

/// What was wrong, when, and what happened before.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed} at {now_ns} ns, after {entries} entries of the log: {what}")]
pub struct Violation {
    pub seed: u64,
    pub now_ns: u64,
    pub entries: u64,
    pub what: String,
    pub latest: Vec<Entry>,
}

pub type Checked<T = ()> = std::result::Result<T, String>;

/// What a run that went well amounts to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub coverage: Coverage,
    pub digest: u64,
    pub entries: u64,
    pub operations: u64,
    pub frames: u64,
    pub virtual_ns: u64,
}

pub struct Simulation {
    pub plan: Plan,
    pub random: Random,
    pub now_ns: u64,
    pub hosts: Vec<Host>,
    pub connections: Vec<Connection>,
    /// Host and queue pair number: connection and side.
    pub places: BTreeMap<(usize, u32), (usize, usize)>,
    pub unreliable: Unreliable,
    pub shared: Vec<SharedQueue>,
    /// Hosts that begin anew, because a shared receive queue is of no use any more.
    pub broken: BTreeSet<usize>,
    pub coverage: Coverage,
    pub log: Log,
    pub posted: u64,
    pub frames: u64,
    /// The fabric is whole again; everything has to end soon.
    pub healed_ns: Option<u64>,
    /// Turns since anything moved.
    quiet_turns: u32,
    frame: Frame,
    _switch: Switch,
}

/// Turns in which everything must be over: a run that goes on is stuck.
const TURNS_MAX: u64 = 60_000_000;
/// Turns without anything, at the end: what nobody answers has arrived by then.
const QUIET_TURNS: u32 = 8;
/// After the fabric is whole: the longest wait of eight timeouts, and the time of what is left.
const HEALING_NS: u64 = 2_000_000_000;
/// Frames that one adapter takes, and sends, in a turn.
const FRAMES: usize = 16;

pub(crate) fn explain<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Runs a plan to its end.
pub fn run(plan: Plan, log: Log) -> std::result::Result<Outcome, Box<Violation>> {
    let seed = plan.seed;
    let before = |what: String| Violation { seed, now_ns: 0, entries: 0, what, latest: Vec::new() };
    let mut simulation = Simulation::new(plan, log).map_err(|error| Box::new(before(error)))?;
    match simulation.execute() {
        Ok(()) => Ok(simulation.outcome()),
        Err(what) => Err(Box::new(Violation {
            seed,
            now_ns: simulation.now_ns,
            entries: simulation.log.entries(),
            what,
            latest: simulation.log.latest(200),
        })),
    }
}

impl Simulation {
    pub fn new(plan: Plan, log: Log) -> Checked<Self> {
        let mut random = Random::new(plan.seed);
        let switch = Switch::new(SwitchConfig { ring_frames: plan.ring_frames, ..SwitchConfig::default() });
        let connections = plan.connections + plan.extended + plan.unreliable_connections;
        let ends = 2 * connections + plan.datagram_stations;
        let ends_a_host = ends.div_ceil(plan.hosts) as u64 + 2;
        let shared_bytes = (plan.shared_queues + plan.extended_queues()) as u64 * (16 << 10 << plan.log_cqes_per_qp);
        let flow_bytes =
            4 * u64::from(plan.reach_bytes) + (128 << 10) + (32 << 10 << plan.log_cqes_per_qp >> 4) + (128 << 10);
        let memory_bytes = ((8 << 20) + shared_bytes + ends_a_host * flow_bytes).next_multiple_of(2 << 20);
        let mut hosts = Vec::new();
        for number in 0..plan.hosts {
            let host = Host::open(number, &plan, &switch, memory_bytes, &mut random);
            hosts.push(host.map_err(explain("opening a host"))?);
        }
        let mut simulation = Self {
            random,
            now_ns: 1,
            hosts,
            connections: Vec::new(),
            places: BTreeMap::new(),
            unreliable: Unreliable::default(),
            shared: Vec::new(),
            broken: BTreeSet::new(),
            quiet_turns: 0,
            coverage: Coverage::default(),
            log,
            posted: 0,
            frames: 0,
            healed_ns: None,
            frame: Frame::new(),
            _switch: switch,
            plan,
        };
        simulation.build().map_err(explain("building the fabric"))?;
        simulation.impair();
        Ok(simulation)
    }

    /// Wire and memory become what the plan says.
    fn impair(&mut self) {
        let (wire, memory) = (self.plan.wire, self.plan.memory);
        self.set_surroundings(wire, memory);
    }

    fn set_surroundings(&mut self, wire: Wire, memory: Memory) {
        for host in &self.hosts {
            let mut adapter = host.adapter.borrow_mut();
            adapter.port.set_impairment(wire.impairment(self.random.draw()));
            adapter.set_memory(memory);
        }
    }

    /// Nothing is lost any more, memory answers at once, and nobody makes mistakes.
    fn heal(&mut self) {
        let wire = Wire { held_frames: 1024, ..Wire::default() };
        self.set_surroundings(wire, Memory::default());
        self.healed_ns = Some(self.now_ns);
    }

    fn execute(&mut self) -> Checked {
        for _ in 0..TURNS_MAX {
            if self.healed_ns.is_none() && self.posted >= self.plan.operations {
                self.heal();
            }
            if let Some(healed_ns) = self.healed_ns {
                if self.is_over() && self.quiet_turns > QUIET_TURNS {
                    return self.check_end();
                }
                if self.now_ns - healed_ns > HEALING_NS {
                    return Err(self.stuck("it does not heal"));
                }
            }
            self.turn()?;
        }
        Err(self.stuck("it goes on and on"))
    }

    fn is_over(&self) -> bool {
        self.connections.iter().all(|connection| {
            connection.runs()
                && connection.doom.is_none()
                && connection.drains == [Drain::No; 2]
                && connection.flows.iter().all(|flow| flow.outstanding.is_empty())
        }) && self.lines_are_over()
            && self.broken.is_empty()
    }

    /// One turn: frames move, reads come back, timers run; then the drivers look and act.
    fn turn(&mut self) -> Checked {
        self.now_ns += self.random.between(200, 1500);
        let mut moved = false;
        for host in 0..self.hosts.len() {
            moved |= self.turn_of(host)?;
        }
        moved |= self.post_some()?;
        moved |= self.post_shared()?;
        moved |= self.post_unreliable()?;
        moved |= self.poll_some(!moved)?;
        moved |= self.reset_some()?;
        moved |= self.keep_connections()?;
        moved |= self.keep_lines()?;
        self.quiet_turns = if moved { 0 } else { self.quiet_turns + 1 };
        if !moved {
            self.sleep()?;
        }
        Ok(())
    }

    fn turn_of(&mut self, host: usize) -> Checked<bool> {
        let adapter = std::rc::Rc::clone(&self.hosts[host].adapter);
        let adapter = &mut *adapter.borrow_mut();
        adapter.set_time(self.now_ns);
        let mut moved = adapter.run_time();
        let mut frame = std::mem::take(&mut self.frame);
        for _ in 0..FRAMES {
            if !adapter.receive(&mut frame) {
                break;
            }
            moved = true;
            let intact = self.frame_arrives(host, &frame)?;
            let before = adapter.refused_frames();
            let head = *frame.bytes().first_chunk::<64>().unwrap_or(&[0; 64]);
            adapter.handle(&mut frame);
            let refused = adapter.refused_frames() > before;
            if refused == intact && !(intact && self.may_find_no_room(frame.bytes())) {
                let verdict = if refused { "is refused and is intact" } else { "is taken and is damaged" };
                return Err(format!("host {host}: a frame {verdict}: {head:02x?}"));
            }
        }
        for _ in 0..adapter.port.room().min(FRAMES) {
            if !adapter.transmit(&mut frame) {
                break;
            }
            moved = true;
            // What memory refused may be the reason for what leaves.
            adapter.take_faults().into_iter().for_each(|origin| self.excuse(host, origin));
            if self.plan.seal_all {
                frame.seal();
            }
            self.frame_leaves(host, &frame)?;
            adapter.port.transmit(&mut frame, self.now_ns);
        }
        self.frame = frame;
        adapter.take_faults().into_iter().for_each(|origin| self.excuse(host, origin));
        match adapter.stray_read() {
            Some(origin) => Err(format!("host {host}: {origin:?} reads for a queue pair that was destroyed")),
            None => Ok(moved),
        }
    }

    /// Nothing can happen before the next deadline.
    fn sleep(&mut self) -> Checked {
        let adapters = self.hosts.iter().filter_map(|host| host.adapter.borrow().next_deadline_ns());
        let resting = self.connections.iter().filter_map(|connection| match connection.phase {
            Phase::Resting { until_ns } => Some(until_ns),
            _ => None,
        });
        let lines = self.unreliable.lines.iter().filter_map(|line| match line.phase {
            Phase::Resting { until_ns } => Some(until_ns),
            _ => None,
        });
        match adapters.chain(resting).chain(lines).min() {
            Some(next_ns) => {
                self.now_ns = self.now_ns.max(next_ns);
                Ok(())
            }
            // A receiver that is slow to post, or an operation that waits for its turn.
            None if self.healed_ns.is_none() => Ok(()),
            None if self.connections.iter().any(|connection| !connection.runs()) => Ok(()),
            None => {
                self.now_ns += 10_000;
                Ok(())
            }
        }
    }

    pub fn stuck(&self, what: &str) -> String {
        let mut text = what.to_owned();
        for (number, connection) in self.connections.iter().enumerate() {
            for (side, flow) in connection.flows.iter().enumerate() {
                if flow.outstanding.is_empty() && connection.runs() && connection.doom.is_none() {
                    continue;
                }
                let End { host, qpn, .. } = connection.ends[side];
                let state = self.hosts[host].adapter.borrow().engine.queue_pair_state(qpn.0);
                text += &format!(
                    "\n  connection {number}, flow {side} from host {host} {qpn} ({state:?}): {:?}, doom {:?}, {} outstanding \
                     from {:?}, {} receives, {} arriving, {} unmatched",
                    connection.phase,
                    connection.doom,
                    flow.outstanding.len(),
                    flow.outstanding.front(),
                    flow.receives.len(),
                    flow.arriving.len(),
                    flow.unmatched_messages.len(),
                );
            }
        }
        text
    }

    pub fn enter(&mut self, what: &'static str, host: usize, numbers: [u64; 4]) {
        self.log.enter(Entry { time_ns: self.now_ns, what, host, numbers });
    }

    fn outcome(&mut self) -> Outcome {
        Outcome {
            seed: self.plan.seed,
            coverage: self.coverage.clone(),
            digest: self.log.digest(),
            entries: self.log.entries(),
            operations: self.posted,
            frames: self.frames,
            virtual_ns: self.now_ns,
        }
    }
}
