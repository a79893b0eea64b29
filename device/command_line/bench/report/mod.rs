//! What was measured, as JSON (schema `rnic.bench/1`) and as [`text`].

mod text;

use super::options::{Icrc, Plan};
use super::pair::{ADAPTERS, Spent};
use super::{Failure, latency, scale, throughput};
use rnic_abi::WorkOpcode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Crossings and bytes by class.
pub type LedgerTotals = BTreeMap<&'static str, [u64; 2]>;
type Ledgers = BTreeMap<&'static str, LedgerTotals>;
/// Processor time of each adapter's thread for one message.
type ProcessorTimes = BTreeMap<&'static str, f64>;

#[derive(Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    quick: bool,
    runs: u32,
    mtu: u32,
    /// Every run's data was compared; a difference is an error and no report.
    data_verified: bool,
    pub limits: Option<Limits>,
    pub throughput: Vec<Throughput>,
    #[serde(flatten)]
    pub usual: Hops,
    /// The same with threads that look for work before they sleep.
    pub busy_poll: Option<BusyPoll>,
    pub scale: Option<Scale>,
}

/// What depends on how soon a thread notices what another has done.
#[derive(Debug, Default, Serialize)]
pub struct Hops {
    pub message_rate: Option<MessageRate>,
    pub latency: Vec<Latency>,
}

#[derive(Debug, Serialize)]
pub struct BusyPoll {
    busy_poll_us: u64,
    #[serde(flatten)]
    hops: Hops,
}

/// What the machine does without a device.
#[derive(Debug, Serialize)]
pub struct Limits {
    pub memcpy_bytes_per_second: f64,
    pub crc_bytes_per_second: f64,
    pub far_load_ns: f64,
    pub socket_round_trip_p50_ns: u64,
    pub socket_round_trip_p99_ns: u64,
    /// Both threads on one processor, and each on its own; none where there are not so many.
    pub socket_round_trip_one_processor_p50_ns: Option<u64>,
    pub socket_round_trip_two_processors_p50_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Throughput {
    operation: &'static str,
    length_bytes: u32,
    messages: u32,
    depth: u32,
    batch: u32,
    icrc: &'static str,
    bytes_per_second: f64,
    runs_bytes_per_second: Vec<f64>,
    of_memcpy: Option<f64>,
    /// Of one run: adapter, class, crossings and bytes.
    ledger: Ledgers,
}

#[derive(Debug, Serialize)]
pub struct MessageRate {
    operation: &'static str,
    length_bytes: u32,
    messages: u32,
    depth: u32,
    batch: u32,
    messages_per_second: f64,
    runs_messages_per_second: Vec<f64>,
    processor_ns_per_message: ProcessorTimes,
    ledger: Ledgers,
}

#[derive(Debug, Serialize)]
pub struct Latency {
    completion: &'static str,
    length_bytes: u32,
    messages: u32,
    /// Medians of the runs' percentiles.
    p50_ns: u64,
    p99_ns: u64,
    of_socket_round_trip: Option<f64>,
    ledger: Ledgers,
}

/// The cost of an operation by the number of objects.
#[derive(Debug, Serialize)]
pub struct Scale {
    length_bytes: u32,
    messages: u32,
    few: OfSize,
    many: OfSize,
    /// Of the medians.
    many_to_few: f64,
    /// The same of the processor time of both adapters together.
    processor_many_to_few: f64,
}

#[derive(Debug, Serialize)]
pub struct OfSize {
    queue_pairs: u32,
    regions: u32,
    ns_per_message: f64,
    runs_ns_per_message: Vec<f64>,
    processor_ns_per_message: ProcessorTimes,
    ledger: Ledgers,
}

pub const fn opcode_name(opcode: WorkOpcode) -> &'static str {
    match opcode {
        WorkOpcode::SEND => "SEND",
        _ => "WRITE",
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

pub fn percentile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    values.get((values.len() * percent / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}

impl Throughput {
    pub fn new(mut measured: throughput::Measured, icrc: Icrc, limits: Option<&Limits>) -> Self {
        let bytes = f64::from(measured.length_bytes) * f64::from(measured.messages);
        let runs: Vec<_> = measured.times.iter().map(|time| bytes / time.as_secs_f64()).collect();
        let bytes_per_second = median(&runs);
        Self {
            operation: measured.operation,
            length_bytes: measured.length_bytes,
            messages: measured.messages,
            depth: measured.depth,
            batch: measured.batch,
            icrc: if icrc == Icrc::Always { "always" } else { "deferred" },
            bytes_per_second,
            runs_bytes_per_second: runs,
            of_memcpy: limits.map(|limits| bytes_per_second / limits.memcpy_bytes_per_second),
            ledger: measured.spent.pop().unwrap_or_default().ledger,
        }
    }
}

impl From<throughput::Measured> for MessageRate {
    fn from(mut measured: throughput::Measured) -> Self {
        let runs: Vec<_> =
            measured.times.iter().map(|time| f64::from(measured.messages) / time.as_secs_f64()).collect();
        Self {
            operation: measured.operation,
            length_bytes: measured.length_bytes,
            messages: measured.messages,
            depth: measured.depth,
            batch: measured.batch,
            messages_per_second: median(&runs),
            runs_messages_per_second: runs,
            processor_ns_per_message: processor_times(measured.spent.iter(), measured.messages),
            ledger: measured.spent.pop().unwrap_or_default().ledger,
        }
    }
}

/// The medians of the runs, by adapter.
fn processor_times<'a>(runs: impl Iterator<Item = &'a Spent> + Clone, messages: u32) -> ProcessorTimes {
    let of = |at: usize| {
        let each: Vec<_> = runs.clone().map(|run| run.processor_ns[at] as f64 / f64::from(messages)).collect();
        median(&each)
    };
    ADAPTERS.into_iter().zip([of(0), of(1)]).collect()
}

impl Latency {
    pub fn new(mut measured: latency::Measured, limits: Option<&Limits>) -> Self {
        let mut of_runs = |percent| {
            let each: Vec<_> = measured.runs.iter_mut().map(|run| percentile(run, percent) as f64).collect();
            median(&each) as u64
        };
        let (p50_ns, p99_ns) = (of_runs(50), of_runs(99));
        Self {
            completion: if measured.by_event { "event" } else { "polled" },
            length_bytes: measured.length_bytes,
            messages: measured.messages,
            p50_ns,
            p99_ns,
            of_socket_round_trip: limits.map(|limits| p50_ns as f64 / limits.socket_round_trip_p50_ns as f64),
            ledger: measured.spent.ledger,
        }
    }
}

impl Scale {
    pub fn new(measured: scale::Measured) -> Self {
        let messages = measured.messages;
        let [few, many] = measured.sizes.map(|(size, mut runs)| {
            let each = |time: &Duration| time.as_nanos() as f64 / f64::from(messages);
            let times: Vec<_> = runs.iter().map(|(time, _)| each(time)).collect();
            OfSize {
                queue_pairs: size.queue_pairs,
                regions: size.regions,
                ns_per_message: median(&times),
                runs_ns_per_message: times,
                processor_ns_per_message: processor_times(runs.iter().map(|(_, spent)| spent), messages),
                ledger: runs.pop().unwrap_or_default().1.ledger,
            }
        });
        let processor = |size: &OfSize| size.processor_ns_per_message.values().sum::<f64>();
        Self {
            length_bytes: measured.length_bytes,
            messages,
            many_to_few: many.ns_per_message / few.ns_per_message,
            processor_many_to_few: processor(&many) / processor(&few),
            few,
            many,
        }
    }
}

impl BusyPoll {
    pub fn new(time: Duration, hops: Hops) -> Self {
        Self { busy_poll_us: time.as_micros() as u64, hops }
    }
}

impl Report {
    pub fn new(plan: &Plan) -> Self {
        Self {
            schema: "rnic.bench/1",
            quick: plan.quick,
            runs: plan.runs,
            mtu: plan.mtu,
            data_verified: true,
            limits: None,
            throughput: Vec::new(),
            usual: Hops::default(),
            busy_poll: None,
            scale: None,
        }
    }

    pub fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle_and_a_percentile_is_one_of_the_values() {
        assert_eq!(median(&[5.0, 1.0, 4.0, 2.0, 3.0]), 3.0);
        let mut values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!((percentile(&mut values, 50), percentile(&mut values, 99)), (101, 199));
        assert_eq!(percentile(&mut [], 50), 0);
    }
}
