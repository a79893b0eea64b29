//! What loss costs: one sender that always has something to send, a window of packets, and a way that takes its time,
//! virtually.
//!
//! In: window, loss, packets. Out: slots, each of which one packet could have used. Only what carries data is lost; acknowledgements
//! are not. Messages are one packet each, so that every packet is acknowledged.

use crate::host::Host;
use crate::plan::{Plan, Wire};
use crate::random::Random;
use crate::stream::Stream;
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::*;
use rnic_switch::{Switch, SwitchConfig};
use rnic_wire::Frame;

/// One packet's time on the wire.
pub const SLOT_NS: u64 = 100;
const MESSAGE_BYTES: u32 = 256;
/// Work requests that are posted with one doorbell; the last one of them is signaled.
const BATCH: u64 = 32;
const LOG_SLOTS: u8 = 11;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Packets that may be unacknowledged.
    pub window: u32,
    /// Slots from a packet to its acknowledgement; even, at least 4.
    pub way: u32,
    /// Code of the retry timer, which is longer.
    pub timeout: u8,
    pub loss: f64,
    /// Messages of one packet.
    pub packets: u64,
    pub selective: bool,
    pub seed: u64,
}

/// What it took.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    pub packets: u64,
    /// Until the last one was acknowledged, without the time of its way.
    pub slots: u64,
    pub timeouts: u64,
}

impl Goodput {
    /// Of what the wire could carry.
    pub fn share(&self) -> f64 {
        self.packets as f64 / self.slots as f64
    }
}

/// The two hosts and their connection.
struct Pair {
    hosts: [Host; 2],
    qpns: [Qpn; 2],
    cqn: Cqn,
    address: u64,
    rkey: u32,
    _switch: Switch,
}

/// Runs a case to its end.
pub fn measure(case: &Case) -> Result<Goodput> {
    let mut pair = Pair::open(case)?;
    let (mut posted, mut done, mut slot) = (0, 0, 0);
    let mut frame = Frame::new();
    while done < case.packets {
        slot += 1;
        pair.receive(slot * SLOT_NS, &mut frame);
        done = pair.completed(done)?;
        if posted < case.packets && posted - done < 1 << (LOG_SLOTS - 1) {
            posted += pair.post(posted, case.packets)?;
        }
        pair.send_one(slot * SLOT_NS, &mut frame);
    }
    let sender = pair.hosts[0].adapter.borrow();
    let timeouts = sender.engine.counters().local_ack_timeout_err;
    Ok(Goodput { packets: case.packets, slots: slot - u64::from(case.way), timeouts })
}

impl Pair {
    fn open(case: &Case) -> Result<Self> {
        let mut plan = Plan::new(case.seed, case.packets).calm();
        plan.engine =
            rnic_engine::EngineConfig { doorbell_pages: 16, window_packets: case.window, ..Default::default() };
        (plan.seal_all, plan.ipv6, plan.vlan) = (false, false, false);
        let switch = Switch::new(SwitchConfig { ring_frames: 2048, ..SwitchConfig::default() });
        let mut random = Random::new(case.seed);
        let mut hosts = [
            Host::open(0, &plan, &switch, 16 << 20, &mut random)?,
            Host::open(1, &plan, &switch, 16 << 20, &mut random)?,
        ];
        let target = hosts[1].open_region(4096, MrLayout::Contiguous)?;
        let (log_slots, path_mtu_bytes) = (LOG_SLOTS, MESSAGE_BYTES);
        let stream = Stream { log_slots, path_mtu_bytes, timeout: case.timeout, selective: case.selective };
        let mut halves = Vec::new();
        for host in &mut hosts {
            halves.push(stream.open(host)?);
        }
        for side in [0, 1] {
            let address = (hosts[1 - side].gid, hosts[1 - side].mac);
            stream.connect(&mut hosts[side], halves[side].1, halves[1 - side].1, address)?;
        }
        let way = Wire { delay_ns: u64::from(case.way) * SLOT_NS / 2, held_frames: 4096, ..Wire::default() };
        // What is sent in a slot is taken up by the receiver's port in the next one.
        let delay_ns = way.delay_ns - SLOT_NS;
        let lossy = Wire { loss: (case.loss * 1e6).round() as u32, delay_ns, ..way };
        for (host, wire) in hosts.iter().zip([way, lossy]) {
            host.adapter.borrow_mut().port.set_impairment(wire.impairment(random.draw()));
        }
        let (address, rkey) = (target.memory.start(), target.memory.key);
        Ok(Self { hosts, qpns: [halves[0].1, halves[1].1], cqn: halves[0].0, address, rkey, _switch: switch })
    }

    /// What is due arrives, the receiver's answers leave at once, and timers expire.
    fn receive(&mut self, now_ns: u64, frame: &mut Frame) {
        for (number, host) in self.hosts.iter().enumerate().rev() {
            let adapter = &mut *host.adapter.borrow_mut();
            adapter.set_time(now_ns);
            while adapter.receive(frame) {
                adapter.handle(frame);
            }
            adapter.run_time();
            while number == 1 && adapter.port.room() > 0 && adapter.transmit(frame) {
                adapter.port.transmit(frame, now_ns);
            }
        }
    }

    /// The sender's slot.
    fn send_one(&mut self, now_ns: u64, frame: &mut Frame) {
        let adapter = &mut *self.hosts[0].adapter.borrow_mut();
        if adapter.port.room() > 0 && adapter.transmit(frame) {
            adapter.port.transmit(frame, now_ns);
        }
    }

    /// Messages that are known to have arrived.
    fn completed(&mut self, mut done: u64) -> Result<u64> {
        let mut completions = [WorkCompletion::default(); 16];
        let taken = self.hosts[0].device.poll(self.cqn, &mut completions)?;
        for completion in &completions[..taken] {
            if completion.status() != rnic_abi::CompletionStatus::SUCCESS {
                let what = format!("message {} ended with {:?}", completion.wr_id, completion.status());
                return Err(VerbsError::Device { what });
            }
            done = completion.wr_id + 1;
        }
        Ok(done)
    }

    fn post(&mut self, first: u64, end: u64) -> Result<u64> {
        let count = BATCH.min(end - first);
        let elements = [self.hosts[0].source.memory.sge(0, MESSAGE_BYTES)];
        let request = |number: u64| SendRequest {
            wr_id: number,
            opcode: WorkOpcode::WRITE,
            payload: Payload::Elements(&elements),
            remote: Some(Remote { address: self.address, rkey: self.rkey }),
            datagram: None,
            srqn: None,
            immediate: 0,
            signaled: number + 1 == first + count,
            solicited: false,
            fence: false,
        };
        let requests: Vec<SendRequest> = (first..first + count).map(request).collect();
        self.hosts[0].device.post_send(self.qpns[0], &requests, DoorbellForm::Word)?;
        Ok(count)
    }
}
