//! Several senders, one receiver, and a line to it that is as fast as each of theirs: what congestion control makes of it,
//! virtually.
//!
//! Each sender has always something to send. The receiver's line has a queue that marks; what stands in it, and what each
//! sender gets through, is the result.

use crate::host::Host;
use crate::plan::Plan;
use crate::random::Random;
use crate::stream::Stream;
use rnic_abi::WorkOpcode;
use rnic_engine::{CongestionConfig, EngineConfig};
use rnic_shim::verbs::*;
use rnic_switch::{Impairment, Marking, Probability, RateLimit, Switch, SwitchConfig};
use rnic_wire::Frame;

pub const LINE_BITS_PER_SECOND: u64 = 10_000_000_000;
const MESSAGE_BYTES: u32 = 1024;
/// One packet's time at the line's rate: a frame of such a message is 16 bytes longer where it has a RETH.
const SLOT_NS: u64 = (14 + 20 + 8 + 12 + 16 + MESSAGE_BYTES as u64 + 4) * 8_000_000_000 / LINE_BITS_PER_SECOND;
const QUEUE_BYTES: u64 = 8 << 20;
const LOG_SLOTS: u8 = 10;
const BATCH: u64 = 16;
/// 8.6 s: nothing is lost.
const TIMEOUT: u8 = 21;

/// One measurement.
#[derive(Clone, Debug)]
pub struct Case {
    pub congestion: CongestionConfig,
    /// When each sender begins.
    pub starts_ns: Vec<u64>,
    /// What is looked at: from, and until.
    pub from_ns: u64,
    pub until_ns: u64,
}

/// What it came to.
#[derive(Clone, Debug)]
pub struct Incast {
    /// Parts of the line that each sender got.
    pub shares: Vec<f64>,
    /// Bytes that stood in the queue, on average.
    pub queue_bytes: f64,
    pub marked: u64,
    pub notified: u64,
}

struct Sender {
    host: Host,
    qpn: Qpn,
    cqn: Cqn,
    start_ns: u64,
    posted: u64,
    done: u64,
    done_before: u64,
}

/// Runs a case to its end.
pub fn measure(case: &Case) -> Result<Incast> {
    let mut plan = Plan::new(1, 1000).calm();
    let engine = EngineConfig { doorbell_pages: 16, window_packets: 256, ..EngineConfig::default() };
    plan.engine = EngineConfig { congestion: case.congestion.clone(), ..engine };
    (plan.seal_all, plan.ipv6, plan.vlan) = (false, false, false);
    let switch = Switch::new(SwitchConfig { ring_frames: 4096, ..SwitchConfig::default() });
    let mut receiver = Host::open(0, &plan, &switch, 16 << 20, &mut Random::new(1))?;
    let target = receiver.open_region(4096, MrLayout::Contiguous)?;
    let place = Remote { address: target.memory.start(), rkey: target.memory.key };
    let mut senders = Vec::new();
    for (at, start_ns) in case.starts_ns.iter().enumerate() {
        let mut host = Host::open(at + 1, &plan, &switch, 16 << 20, &mut Random::new(1))?;
        let (cqn, qpn) = connect(&mut host, &mut receiver)?;
        senders.push(Sender { host, qpn, cqn, start_ns: *start_ns, posted: 0, done: 0, done_before: 0 });
    }
    receiver.adapter.borrow_mut().port.set_impairment(line());
    let (mut frame, mut held, mut slots) = (Frame::new(), 0u64, 0u64);
    for now_ns in (0..case.until_ns).step_by(SLOT_NS as usize) {
        run(&receiver, now_ns, &mut frame, usize::MAX);
        for sender in senders.iter_mut().filter(|sender| sender.start_ns <= now_ns) {
            sender.work(&place)?;
            run(&sender.host, now_ns, &mut frame, 1);
            if now_ns < case.from_ns {
                sender.done_before = sender.done;
            }
        }
        if now_ns >= case.from_ns {
            held += receiver.adapter.borrow().port.held_frames() as u64;
            slots += 1;
        }
    }
    let share = |sender: &Sender| (sender.done - sender.done_before) as f64 / slots as f64;
    let counters = *receiver.adapter.borrow().engine.counters();
    Ok(Incast {
        shares: senders.iter().map(share).collect(),
        queue_bytes: held as f64 / slots as f64 * f64::from(MESSAGE_BYTES),
        marked: counters.np_ecn_marked_roce_packets,
        notified: counters.np_cnp_sent,
    })
}

/// The receiver's line, with a queue that nothing overflows.
fn line() -> Impairment {
    // Those of HPCC's experiments for a line of 10 Gb/s.
    let probability_max = Probability::from_fraction(0.2).unwrap_or(Probability::NEVER);
    let marking = Marking { threshold_min_bytes: 40_000, threshold_max_bytes: 160_000, probability_max };
    let rate_limit =
        RateLimit { bits_per_second: LINE_BITS_PER_SECOND, queue_bytes: QUEUE_BYTES, marking: Some(marking) };
    Impairment { seed: 1, rate_limit: Some(rate_limit), held_frames_max: 1 << 16, ..Impairment::default() }
}

/// What is due arrives, timers expire, and so many frames leave at most.
fn run(host: &Host, now_ns: u64, frame: &mut Frame, most: usize) {
    let adapter = &mut *host.adapter.borrow_mut();
    adapter.set_time(now_ns);
    while adapter.receive(frame) {
        adapter.handle(frame);
    }
    adapter.run_time();
    for _ in 0..most {
        if adapter.port.room() == 0 || !adapter.transmit(frame) {
            return;
        }
        adapter.port.transmit(frame, now_ns);
    }
}

/// A connection of the sender's to the receiver.
fn connect(sender: &mut Host, receiver: &mut Host) -> Result<(Cqn, Qpn)> {
    let (log_slots, path_mtu_bytes, timeout) = (LOG_SLOTS, MESSAGE_BYTES, TIMEOUT);
    let stream = Stream { log_slots, path_mtu_bytes, timeout, selective: false };
    let (own, other) = (stream.open(sender)?, stream.open(receiver)?);
    let addresses = [(sender.gid, sender.mac), (receiver.gid, receiver.mac)];
    stream.connect(sender, own.1, other.1, addresses[1])?;
    stream.connect(receiver, other.1, own.1, addresses[0])?;
    Ok(own)
}

impl Sender {
    /// Takes what has ended, and posts as much again.
    fn work(&mut self, place: &Remote) -> Result<()> {
        let mut completions = [WorkCompletion::default(); 16];
        let taken = self.host.device.poll(self.cqn, &mut completions)?;
        for completion in &completions[..taken] {
            if completion.status() != rnic_abi::CompletionStatus::SUCCESS {
                let what = format!("message {} ended with {:?}", completion.wr_id, completion.status());
                return Err(VerbsError::Device { what });
            }
            self.done = completion.wr_id + 1;
        }
        if self.posted - self.done > (1 << LOG_SLOTS) - 2 * BATCH {
            return Ok(());
        }
        let elements = [self.host.source.memory.sge(0, MESSAGE_BYTES)];
        let request = |at: u64| SendRequest {
            wr_id: self.posted + at,
            opcode: WorkOpcode::WRITE,
            payload: Payload::Elements(&elements),
            remote: Some(*place),
            datagram: None,
            srqn: None,
            immediate: 0,
            signaled: at + 1 == BATCH,
            solicited: false,
            fence: false,
        };
        let requests: Vec<SendRequest> = (0..BATCH).map(request).collect();
        self.host.device.post_send(self.qpn, &requests, DoorbellForm::Word)?;
        self.posted += BATCH;
        Ok(())
    }
}
