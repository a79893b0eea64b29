//! One message at a time, from the call that posts it to the completion in the caller's hands.

use super::Failure;
use super::options::Plan;
use super::pair::{Pair, Spent};
use super::station::LIMIT;
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::{DoorbellForm, Payload, Remote, SendRequest, WorkCompletion};
use std::time::Instant;

const LENGTH: u32 = 8;
/// Messages that warm caches, threads and sockets.
const WARMING: u32 = 200;

#[derive(Debug)]
pub struct Measured {
    pub by_event: bool,
    pub length_bytes: u32,
    pub messages: u32,
    /// Nanoseconds of each message, a list a run.
    pub runs: Vec<Vec<u64>>,
    /// Of the last run.
    pub spent: Spent,
}

pub fn measure(pair: &mut Pair, plan: &Plan, by_event: bool) -> Result<Measured, Failure> {
    for _ in 0..WARMING {
        one(pair, by_event)?;
    }
    let (mut runs, mut spent) = (Vec::new(), Spent::default());
    for _ in 0..plan.runs {
        let sent = pair.prepare(LENGTH as usize)?;
        let before = pair.read()?;
        runs.push((0..plan.latency_messages).map(|_| one(pair, by_event)).collect::<Result<_, _>>()?);
        pair.verify(&sent, "WRITE of 8 bytes")?;
        spent = pair.since(&before)?;
    }
    Ok(Measured { by_event, length_bytes: LENGTH, messages: plan.latency_messages, runs, spent })
}

fn one(pair: &mut Pair, by_event: bool) -> Result<u64, Failure> {
    let (station, peer) = (&mut pair.requester, pair.responder.address);
    if by_event {
        station.device.arm(station.cqn, false)?;
    }
    let elements = [station.element(0, LENGTH)];
    let request = SendRequest {
        wr_id: 0,
        opcode: WorkOpcode::WRITE,
        payload: Payload::Elements(&elements),
        remote: Some(Remote { address: peer.start, rkey: peer.key }),
        immediate: 0,
        signaled: true,
        solicited: false,
        datagram: None,
        srqn: None,
        fence: false,
    };
    let mut taken = [WorkCompletion::default()];
    let start = Instant::now();
    station.device.post_send(station.qpn, &[request], DoorbellForm::Word)?;
    if by_event {
        station.device.wait_completion_event(station.cqn, LIMIT)?;
    }
    while station.poll(&mut taken)? == 0 {
        if start.elapsed() > LIMIT {
            return Err(Failure::Wrong(format!("no completion of a WRITE of {LENGTH} bytes after {LIMIT:?}")));
        }
        std::thread::yield_now();
    }
    Ok(start.elapsed().as_nanos() as u64)
}
