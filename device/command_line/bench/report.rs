//! What was measured, as JSON (schema `rnic.bench/1`) and as text.

use super::options::{Icrc, Plan};
use super::{Failure, latency, throughput};
use rnic_abi::WorkOpcode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Crossings and bytes by class.
pub type LedgerTotals = BTreeMap<&'static str, [u64; 2]>;
type Ledgers = BTreeMap<&'static str, LedgerTotals>;

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
    pub message_rate: Option<MessageRate>,
    pub latency: Vec<Latency>,
}

/// What the machine does without a device.
#[derive(Debug, Serialize)]
pub struct Limits {
    pub memcpy_bytes_per_second: f64,
    pub crc_bytes_per_second: f64,
    pub socket_round_trip_p50_ns: u64,
    pub socket_round_trip_p99_ns: u64,
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
    pub fn new(measured: throughput::Measured, icrc: Icrc, limits: Option<&Limits>) -> Self {
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
            ledger: measured.ledger,
        }
    }
}

impl From<throughput::Measured> for MessageRate {
    fn from(measured: throughput::Measured) -> Self {
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
            ledger: measured.ledger,
        }
    }
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
            ledger: measured.ledger,
        }
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
            message_rate: None,
            latency: Vec::new(),
        }
    }

    pub fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    pub fn text(&self) -> String {
        let mut text = format!("medians of {} runs, path MTU {}, data verified\n", self.runs, self.mtu);
        if let Some(limits) = &self.limits {
            let _ = writeln!(
                text,
                "\nthis machine: memcpy {}, CRC {}, Unix socket round trip {} (p99 {})",
                rate(limits.memcpy_bytes_per_second),
                rate(limits.crc_bytes_per_second),
                time(limits.socket_round_trip_p50_ns),
                time(limits.socket_round_trip_p99_ns)
            );
        }
        if !self.throughput.is_empty() {
            text += "\nthroughput\n    operation    bytes  ICRC        rate            of memcpy  crossings A and B of one run\n";
        }
        for row in &self.throughput {
            let _ = writeln!(
                text,
                "    {:<9} {:>8}  {:<8}  {:>14}  {:>9}  {}",
                row.operation,
                row.length_bytes,
                row.icrc,
                rate(row.bytes_per_second),
                row.of_memcpy.map_or(String::new(), |ratio| format!("{ratio:.2}")),
                crossings(&row.ledger)
            );
        }
        if let Some(row) = &self.message_rate {
            let _ = writeln!(
                text,
                "\nmessage rate: {} of {} bytes, depth {}, {} a doorbell: {:.3} M/s; crossings {}",
                row.operation,
                row.length_bytes,
                row.depth,
                row.batch,
                row.messages_per_second / 1e6,
                crossings(&row.ledger)
            );
        }
        if !self.latency.is_empty() {
            text +=
                "\npost to completion, WRITE of 8 bytes\n    completion       p50       p99  of a socket round trip\n";
        }
        for row in &self.latency {
            let ratio = row.of_socket_round_trip.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let (p50, p99) = (time(row.p50_ns), time(row.p99_ns));
            let _ = writeln!(text, "    {:<10} {p50:>9} {p99:>9}  {ratio:>22}", row.completion);
        }
        text
    }
}

fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        fast if fast >= 1e9 => format!("{:.2} GB/s", fast / 1e9),
        slow => format!("{:.2} MB/s", slow / 1e6),
    }
}

fn time(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

/// The totals of both adapters: crossings, and what most of them are.
fn crossings(ledger: &Ledgers) -> String {
    let of = |totals: &LedgerTotals| totals.values().map(|[crossings, _]| crossings).sum::<u64>();
    ledger.values().map(|totals| of(totals).to_string()).collect::<Vec<_>>().join(" ")
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
