//! One host's program: a driver that takes orders, a JSON line each, and answers each with a line.
//!
//! The same program runs inside a guest (`rnic guest-agent`, over its virtio-serial port) and as a thread over a
//! vfio-user socket. Orders are steps of [`rnic_shim::transaction::Side`], because whoever gives them reads the
//! adapters' ledgers in between.

use rnic_shim::backing::Backing;
use rnic_shim::backings::guest::{Guest, GuestOptions};
use rnic_shim::exchange::Endpoint;
use rnic_shim::transaction::{Role, Side, TransactionSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};

/// The longest order: a specification in JSON.
const LONGEST_LINE: u64 = 1 << 16;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Open the device and bring everything up to INIT.
    Open {
        spec: Box<TransactionSpec>,
        role: Role,
    },
    /// To RTR and RTS, towards the peer.
    Connect {
        peer: Endpoint,
    },
    /// Arm, and flush the adapter's caches where asked: the last thing before the operation.
    Ready {
        flush: bool,
    },
    Post,
    Wait,
    Verify,
    /// What a failed operation has left: after the verification.
    Aftermath,
    Report,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Ok(Value),
    Error(String),
}

/// What bring-up tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    pub endpoint: Endpoint,
    pub kernel: Option<String>,
}

/// What verification tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verified {
    pub faults: Vec<String>,
    /// Of the message as it stands in this host's buffer.
    pub data_sha256: String,
    pub status: Option<String>,
    pub immediate: Option<u32>,
}

/// What a failed operation leaves with this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Aftermath {
    pub qpn: u32,
    /// Of the queue pair, as the device reports it.
    pub state: String,
    /// Completions of the operation and of what was flushed, oldest first.
    pub completions: Vec<FailedCompletion>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedCompletion {
    pub opcode: String,
    pub status: String,
    /// Number and name of the rule that explains it.
    pub vendor_err: u32,
    pub rule: Option<String>,
}

/// Runs until the orders end.
pub fn serve(
    input: impl Read,
    mut output: impl Write,
    mut open: impl FnMut() -> Result<Box<dyn Backing>, String>,
) -> std::io::Result<()> {
    let mut input = BufReader::new(input);
    let mut side = None;
    loop {
        let Some(line) = next_order(&mut input, &mut side)? else { return Ok(()) };
        let answer = match serde_json::from_str(&line) {
            Ok(order) => obey(order, &mut side, &mut open),
            Err(error) => Err(format!("the order was not understood: {error}")),
        };
        let answer = match answer {
            Ok(value) => Answer::Ok(value),
            Err(sentence) => Answer::Error(sentence),
        };
        let mut text = serde_json::to_string(&answer).map_err(std::io::Error::from)?;
        text.push('\n');
        output.write_all(text.as_bytes())?;
        output.flush()?;
    }
}

/// The next line. An input that has none in its own time lets the device be served meanwhile.
fn next_order(input: &mut impl BufRead, side: &mut Option<Side>) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    loop {
        let left = LONGEST_LINE - line.len() as u64;
        match input.by_ref().take(left).read_line(&mut line) {
            Ok(_) => return Ok((!line.is_empty()).then_some(line)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // A device that is gone is found out by the next order.
                if let Some(side) = side {
                    let _ = side.device().backing().pause();
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn obey(
    order: Order,
    side: &mut Option<Side>,
    open: &mut impl FnMut() -> Result<Box<dyn Backing>, String>,
) -> Result<Value, String> {
    if let Order::Open { spec, role } = order {
        let mut opened = Side::open(open()?, *spec, role).map_err(|error| error.to_string())?;
        let endpoint = opened.bring_up().map_err(|error| error.to_string())?;
        *side = Some(opened);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        return value(&Opened { endpoint, kernel: kernel.map(|text| text.trim().to_owned()) });
    }
    let side = side.as_mut().ok_or("no device is open")?;
    let done = |result: Result<(), _>| result.map(|()| Value::Null).map_err(sentence);
    match order {
        Order::Open { .. } => Err("the device is open".to_owned()),
        Order::Connect { peer } => done(side.connect(peer)),
        Order::Ready { flush } => {
            side.arm().map_err(sentence)?;
            if flush {
                use rnic_abi::command::*;
                let all = FLUSH_QP | FLUSH_CQ | FLUSH_KEY | FLUSH_TRANSLATION | FLUSH_RD_ATOMIC;
                side.device().flush_caches(all).map_err(|error| error.to_string())?;
            }
            Ok(Value::Null)
        }
        Order::Post => done(side.post()),
        Order::Wait => done(side.wait()),
        Order::Verify => verify(side),
        Order::Aftermath => aftermath(side),
        Order::Report => value(side.report()),
    }
}

fn aftermath(side: &mut Side) -> Result<Value, String> {
    let state = side.queue_pair_state().map_err(sentence)?.to_owned();
    let report = side.report();
    let completions = report.completion.iter().chain(&report.flushed).map(|one| FailedCompletion {
        opcode: one.opcode_name.clone(),
        status: one.status_name.clone(),
        vendor_err: one.completion.vendor_err,
        rule: one.rule.map(|(name, _)| name.to_owned()),
    });
    value(&Aftermath { qpn: report.own.qpn, state, completions: completions.collect() })
}

#[allow(clippy::needless_pass_by_value)]
fn sentence(error: rnic_shim::transaction::TransactionError) -> String {
    error.to_string()
}

fn verify(side: &mut Side) -> Result<Value, String> {
    let verdict = side.verify().map_err(sentence)?;
    let (message, _) = side.received().map_err(sentence)?;
    let completion = side.report().completion.as_ref();
    value(&Verified {
        faults: verdict.faults,
        data_sha256: Sha256::digest(&message).iter().map(|byte| format!("{byte:02x}")).collect(),
        status: completion.map(|report| report.status_name.clone()),
        immediate: completion.and_then(|report| report.completion.immediate),
    })
}

fn value(of: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(of).map_err(|error| error.to_string())
}

/// `rnic guest-agent`: orders on standard input, answers on standard output.
pub fn run_in_guest() -> crate::exit::Exit {
    let open = || match Guest::open(&GuestOptions::default()) {
        Ok(guest) => Ok(Box::new(guest) as Box<dyn Backing>),
        Err(error) => Err(error.to_string()),
    };
    match serve(std::io::stdin(), std::io::stdout(), open) {
        Ok(()) => crate::exit::Exit::Success,
        Err(error) => {
            tell!("rnic guest-agent: {error}");
            crate::exit::Exit::Environment
        }
    }
}

/// The order's answer as its type, or the sentence of its refusal.
pub fn understand<T: serde::de::DeserializeOwned>(line: &str) -> Result<T, String> {
    match serde_json::from_str(line) {
        Ok(Answer::Ok(value)) => serde_json::from_value(value).map_err(|error| format!("an odd answer: {error}")),
        Ok(Answer::Error(sentence)) => Err(sentence),
        Err(error) => Err(format!("an odd answer {:?}: {error}", line.chars().take(200).collect::<String>())),
    }
}
