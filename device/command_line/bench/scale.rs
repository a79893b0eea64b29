//! The cost of an operation among many queue pairs and regions, beside the cost among few.
//!
//! Each message goes to the next queue pair, from and to other regions than the one before, with a doorbell of its own;
//! all contexts and keys fit into the adapters' caches. Fewer are under way than there are queue pairs in either size, so
//! that each message costs one WQE fetch, one packet and one acknowledgement, and the sizes differ in nothing but numbers.
//! Both have adapters of their own, and their runs take turns.

use super::Failure;
use super::options::Plan;
use super::pair::{Pair, Spent};
use super::station::LIMIT;
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::{DoorbellForm, Payload, Remote, SendRequest, Sge, WorkCompletion};
use std::time::{Duration, Instant};

const LENGTH: u32 = 64;
/// Messages under way.
const DEPTH: u32 = 8;
/// Messages that stand in the buffer one behind the other.
const PLACES: u32 = 1 << 14;
/// Steps through the regions of each side: primes, so that all are used and neighbours are not.
const STRIDES: [usize; 2] = [7919, 104_729];

/// How many objects each side has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub queue_pairs: u32,
    pub regions: u32,
}

pub const FEW: Size = Size { queue_pairs: 10, regions: 10 };
pub const MANY: Size = Size { queue_pairs: 10_000, regions: 100_000 };

#[derive(Debug)]
pub struct Measured {
    pub length_bytes: u32,
    pub messages: u32,
    /// Of each size, what its runs took and cost.
    pub sizes: [(Size, Vec<(Duration, Spent)>); 2],
}

pub fn measure(plan: &Plan) -> Result<Measured, Failure> {
    let many = Size { queue_pairs: MANY.queue_pairs / plan.part, regions: MANY.regions / plan.part };
    let mut pairs = [Pair::of_size(plan, FEW)?, Pair::of_size(plan, many)?];
    let mut sizes = [(FEW, Vec::new()), (many, Vec::new())];
    for run in 0..=plan.runs {
        for (pair, (size, runs)) in pairs.iter_mut().zip(&mut sizes) {
            let took = run_once(pair, *size, plan.scale_messages)?;
            // The first one warms memory, and is not told.
            if run > 0 {
                runs.push(took);
            }
        }
    }
    Ok(Measured { length_bytes: LENGTH, messages: plan.scale_messages, sizes })
}

/// One run, its data and its counts right.
fn run_once(pair: &mut Pair, size: Size, messages: u32) -> Result<(Duration, Spent), Failure> {
    let what = format!("WRITE of {LENGTH} bytes over {} queue pairs", size.queue_pairs);
    let sent = pair.prepare((messages.min(PLACES) * LENGTH) as usize)?;
    let before = pair.read()?;
    let time = flow(pair, messages, &what)?;
    pair.verify(&sent, &what)?;
    let spent = pair.since(&before)?;
    let fetches = ["context_fetch", "key_fetch"];
    let fetched: u64 = fetches.iter().map(|class| spent.crossings("A", class) + spent.crossings("B", class)).sum();
    let (rung, written) = (spent.crossings("A", "doorbell"), spent.crossings("B", "payload_write"));
    if fetched != 0 || rung != u64::from(messages) || written != u64::from(messages) {
        return Err(Failure::Wrong(format!(
            "{what}: of {messages} messages the ledgers say {rung} doorbells, {written} payloads written, and {fetched} \
             contexts and keys fetched where the caches hold all"
        )));
    }
    Ok((time, spent))
}

fn flow(pair: &mut Pair, messages: u32, what: &str) -> Result<Duration, Failure> {
    let (mut posted, mut completed) = (0, 0);
    let mut taken = [WorkCompletion::default(); 64];
    let start = Instant::now();
    let mut moved = start;
    while completed < messages {
        while posted < messages && posted - completed < DEPTH {
            post(pair, posted)?;
            posted += 1;
        }
        let count = pair.requester.poll(&mut taken)? as u32;
        completed += count;
        if count > 0 {
            moved = Instant::now();
            continue;
        }
        if moved.elapsed() > LIMIT {
            let at = format!("{completed} of {messages} messages");
            return Err(Failure::Wrong(format!("{what}: nothing has moved for {LIMIT:?}, at {at}")));
        }
        pair.requester.device.backing().pause()?;
    }
    Ok(start.elapsed())
}

fn post(pair: &mut Pair, message: u32) -> Result<(), Failure> {
    let at = message as usize;
    let (requester, responder) = (&mut pair.requester, &pair.responder);
    let key = |keys: &[u32], stride: usize| keys[at * stride % keys.len()];
    let offset = u64::from(message % PLACES) * u64::from(LENGTH);
    let lkey = key(&requester.keys, STRIDES[0]);
    let elements = [Sge { lkey, ..requester.element(offset, LENGTH) }];
    let request = SendRequest {
        wr_id: u64::from(message),
        opcode: WorkOpcode::WRITE,
        payload: Payload::Elements(&elements),
        remote: Some(Remote { address: responder.address.start + offset, rkey: key(&responder.keys, STRIDES[1]) }),
        immediate: 0,
        signaled: true,
        solicited: false,
        fence: false,
        datagram: None,
        srqn: None,
    };
    let qpn = requester.queue_pairs[at % requester.queue_pairs.len()];
    Ok(requester.device.post_send(qpn, &[request], DoorbellForm::Word)?)
}
