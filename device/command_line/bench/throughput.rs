//! Messages one behind the other, as many under way as the rings hold: bytes per second, and messages per second.

use super::Failure;
use super::options::Plan;
use super::pair::{Pair, Spent};
use super::report::opcode_name;
use super::station::{LIMIT, LOG_SLOTS, SPAN_BYTES};
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::{DoorbellForm, Payload, ReceiveRequest, Remote, SendRequest, WorkCompletion};
use std::time::{Duration, Instant};

/// Messages of the message rate under way, and rung with one doorbell.
pub const RATE_DEPTH: u32 = 128;
pub const RATE_BATCH: u32 = 32;
const RATE_BYTES: u32 = 64;
/// Bytes under way of a throughput: enough that neither adapter waits for the other.
const WINDOW_BYTES: u32 = 4 << 20;
const COMPLETIONS: usize = 64;

/// How messages are sent.
#[derive(Clone, Copy, Debug)]
struct Flow {
    opcode: WorkOpcode,
    length: u32,
    messages: u32,
    depth: u32,
    batch: u32,
}

/// Runs of one flow.
#[derive(Debug)]
pub struct Measured {
    pub operation: &'static str,
    pub length_bytes: u32,
    pub messages: u32,
    pub depth: u32,
    pub batch: u32,
    pub times: Vec<Duration>,
    /// Of each run.
    pub spent: Vec<Spent>,
}

pub fn measure(pair: &mut Pair, plan: &Plan, opcode: WorkOpcode, length: u32) -> Result<Measured, Failure> {
    let messages = (plan.run_bytes / u64::from(length)).min(plan.run_messages.into()) as u32;
    let depth = (WINDOW_BYTES / length).clamp(4, 1 << LOG_SLOTS >> 1);
    // A target that is not read until the run ends must not hold two messages at one place.
    let flow = Flow { opcode, length, messages: messages.max(4), depth, batch: (depth / 4).max(1) };
    runs(pair, plan, &flow)
}

pub fn message_rate(pair: &mut Pair, plan: &Plan) -> Result<Measured, Failure> {
    let flow = Flow {
        opcode: WorkOpcode::WRITE,
        length: RATE_BYTES,
        messages: plan.rate_messages,
        depth: RATE_DEPTH,
        batch: RATE_BATCH,
    };
    runs(pair, plan, &flow)
}

fn runs(pair: &mut Pair, plan: &Plan, flow: &Flow) -> Result<Measured, Failure> {
    let operation = opcode_name(flow.opcode);
    let what = format!("{operation} of {} bytes", flow.length);
    let used = u64::from(flow.places().min(flow.messages)) * u64::from(flow.length);
    let (mut times, mut all) = (Vec::new(), Vec::new());
    let Flow { length, messages, depth, batch, .. } = *flow;
    // The first one warms caches and memory, and is not told.
    for run in 0..=plan.runs {
        let sent = pair.prepare(used as usize)?;
        let before = pair.read()?;
        let time = flow.run(pair, &what)?;
        pair.verify(&sent, &what)?;
        let spent = pair.since(&before)?;
        check_counts(&what, messages, length.div_ceil(plan.mtu).max(1), &spent)?;
        if run > 0 {
            times.push(time);
            all.push(spent);
        }
    }
    Ok(Measured { operation, length_bytes: length, messages, depth, batch, times, spent: all })
}

/// Each packet's payload was read once at the requester and written once at the responder, unless it was sent again.
fn check_counts(what: &str, messages: u32, packets: u32, spent: &Spent) -> Result<(), Failure> {
    let expected = u64::from(messages) * u64::from(packets);
    let (read, written) = (spent.crossings("A", "payload_read"), spent.crossings("B", "payload_write"));
    if written == expected && read >= expected {
        return Ok(());
    }
    Err(Failure::Wrong(format!(
        "{what}: {messages} messages are {expected} packets, and the ledgers say {read} payloads read, {written} written"
    )))
}

/// Of messages that take so long to move that a program waits for them asleep, and leaves the processors to those who move
/// them: several are under way, so that nobody runs out of work meanwhile.
const LONG_BYTES: u32 = 256 << 10;
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

impl Flow {
    /// Messages that stand in the buffer one behind the other.
    fn places(&self) -> u32 {
        (SPAN_BYTES / u64::from(self.length)) as u32
    }

    fn offset(&self, message: u32) -> u64 {
        u64::from(message % self.places()) * u64::from(self.length)
    }

    /// From the first post to the last completion, at both sides where both have one.
    fn run(&self, pair: &mut Pair, what: &str) -> Result<Duration, Failure> {
        let receives = self.opcode == WorkOpcode::SEND;
        let mut state = Progress::default();
        let mut taken = [WorkCompletion::default(); COMPLETIONS];
        if receives {
            self.post_receives(pair, &mut state)?;
        }
        let start = Instant::now();
        let mut moved = start;
        loop {
            let before = state;
            self.post(pair, &mut state)?;
            let count = pair.requester.poll(&mut taken)?;
            state.completed += taken[..count].iter().map(|completion| u32::from(completion.retired)).sum::<u32>();
            if receives {
                state.received += pair.responder.poll(&mut taken)? as u32;
                self.post_receives(pair, &mut state)?;
            }
            if state.completed == self.messages && (!receives || state.received == self.messages) {
                return Ok(start.elapsed());
            }
            if state != before {
                moved = Instant::now();
                continue;
            }
            // A busy machine is slow and no fault: only standing still is.
            if moved.elapsed() > LIMIT {
                return Err(Failure::Wrong(format!("{what}: nothing has moved for {LIMIT:?}: {state:?}")));
            }
            if self.length >= LONG_BYTES {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            pair.requester.device.backing().pause()?;
        }
    }

    fn post(&self, pair: &mut Pair, state: &mut Progress) -> Result<(), Failure> {
        let left = self.messages - state.posted;
        let batch = self.batch.min(left);
        if batch == 0 || state.posted - state.completed + batch > self.depth {
            return Ok(());
        }
        let (requester, peer) = (&mut pair.requester, pair.responder.address);
        let mut elements = [Default::default(); 1 << LOG_SLOTS >> 1];
        for (at, element) in elements[..batch as usize].iter_mut().enumerate() {
            *element = requester.element(self.offset(state.posted + at as u32), self.length);
        }
        let request = |at: usize| SendRequest {
            wr_id: u64::from(state.posted) + at as u64,
            opcode: self.opcode,
            payload: Payload::Elements(&elements[at..=at]),
            remote: (self.opcode == WorkOpcode::WRITE)
                .then(|| Remote { address: peer.start + self.offset(state.posted + at as u32), rkey: peer.key }),
            immediate: 0,
            signaled: at as u32 + 1 == batch,
            solicited: false,
            datagram: None,
            srqn: None,
            fence: false,
        };
        let requests: arrayvec::ArrayVec<_, { 1 << LOG_SLOTS >> 1 }> = (0..batch as usize).map(request).collect();
        requester.device.post_send(requester.qpn, &requests, DoorbellForm::Word)?;
        state.posted += batch;
        Ok(())
    }

    /// Keeps half a ring of receives ahead, one doorbell a quarter.
    fn post_receives(&self, pair: &mut Pair, state: &mut Progress) -> Result<(), Failure> {
        const RING: u32 = 1 << LOG_SLOTS;
        let room = (RING - (state.receives - state.received)).min(self.messages - state.receives);
        if room == 0 || (room < RING / 4 && state.receives + room < self.messages) {
            return Ok(());
        }
        let responder = &mut pair.responder;
        let elements: Vec<_> =
            (0..room).map(|at| [responder.element(self.offset(state.receives + at), self.length)]).collect();
        let requests: Vec<_> =
            elements.iter().map(|elements| ReceiveRequest { wr_id: 0, elements: &elements[..] }).collect();
        responder.device.post_receive(responder.qpn, &requests)?;
        state.receives += room;
        Ok(())
    }
}

/// How far a run has come, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    posted: u32,
    completed: u32,
    receives: u32,
    received: u32,
}
