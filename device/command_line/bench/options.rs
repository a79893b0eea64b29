//! What is measured, how often and how long.

use clap::{Args, ValueEnum};
use rnic_abi::WorkOpcode;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Bytes per second by operation and length.
    Throughput,
    /// 64-byte WRITEs per second: one queue pair, depth 128, one doorbell a batch.
    Rate,
    /// From post to completion of an 8-byte WRITE, polled and by event.
    Latency,
    /// The cost of a WRITE among 10,000 queue pairs and 100,000 regions, and among 10 and 10.
    Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OperationName {
    Write,
    Send,
}

impl OperationName {
    const fn opcode(self) -> WorkOpcode {
        match self {
            Self::Write => WorkOpcode::WRITE,
            Self::Send => WorkOpcode::SEND,
        }
    }
}

/// When the checksum of a packet is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Icrc {
    /// Where a packet leaves the process, which it does not here.
    Deferred,
    /// For every packet, and checked by its receiver.
    Always,
    /// Deferred for everything, and computed always for the longest messages.
    Both,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Two adapters and a driver for each run in this process; drivers and adapters meet at vfio-user \
    sockets only. Every number is the median of its runs, and stands beside what memcpy, a CRC and a bare Unix socket \
    do on this machine in the same minute. Data is verified after every run.\n\nExamples:\n  rnic bench\n  \
    rnic bench --only throughput --operation write --length 1048576\n  rnic bench --quick --json"
)]
pub struct BenchOptions {
    /// Measure this part only (repeat for more).
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
    /// Measure this operation's throughput only (repeat for more).
    #[arg(long, value_enum, value_name = "OPERATION")]
    operation: Vec<OperationName>,
    /// Lengths of messages in bytes, 1 to 1048576 [default: 8 64 512 4096 32768 262144 1048576].
    #[arg(long, value_name = "BYTES", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    length: Vec<u32>,
    /// Path MTU in bytes.
    #[arg(long, default_value_t = 4096, value_parser = path_mtu)]
    mtu: u32,
    /// Runs of each measurement, of which the median is told.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1001))]
    runs: u32,
    /// When the packets' checksum is computed.
    #[arg(long, value_enum, default_value_t = Icrc::Both)]
    pub icrc: Icrc,
    /// Measure rate and latency also with adapters' threads that look for work so many microseconds before they sleep.
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    busy_poll: Option<u32>,
    /// A tenth of the work, to see that it works.
    #[arg(long)]
    quick: bool,
    /// One JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

fn path_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
        _ => Err("a path MTU is 256, 512, 1024, 2048 or 4096".to_owned()),
    }
}

/// What the measurements need to know.
#[derive(Debug)]
pub struct Plan {
    pub operations: Vec<WorkOpcode>,
    pub lengths: Vec<u32>,
    pub mtu: u32,
    pub runs: u32,
    pub quick: bool,
    /// Bytes and messages that a run of a throughput stays below.
    pub run_bytes: u64,
    pub run_messages: u32,
    /// Messages of a run of the message rate, and of a latency.
    pub rate_messages: u32,
    pub latency_messages: u32,
    pub scale_messages: u32,
    /// What the work is divided by.
    pub part: u32,
    /// Beside the usual way.
    pub busy_poll: Option<Duration>,
}

impl BenchOptions {
    pub fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    pub fn plan(&self) -> Plan {
        let operations: &[OperationName] =
            if self.operation.is_empty() { &[OperationName::Write, OperationName::Send] } else { &self.operation };
        let mut lengths =
            if self.length.is_empty() { vec![8, 64, 512, 4096, 32768, 262_144, 1 << 20] } else { self.length.clone() };
        lengths.sort_unstable();
        lengths.dedup();
        let part = if self.quick { 10 } else { 1 };
        Plan {
            operations: operations.iter().map(|name| name.opcode()).collect(),
            lengths,
            mtu: self.mtu,
            runs: self.runs,
            quick: self.quick,
            run_bytes: (512 << 20) / part,
            run_messages: 50_000 / part as u32,
            rate_messages: 200_000 / part as u32,
            latency_messages: 5_000 / part as u32,
            scale_messages: 50_000 / part as u32,
            part: part as u32,
            busy_poll: self.busy_poll.map(|time| Duration::from_micros(time.into())),
        }
    }
}
