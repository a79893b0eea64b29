//! The report for people.

use super::{Hops, LedgerTotals, Ledgers, Limits, OfSize, ProcessorTimes, Report, Scale, Throughput};
use std::fmt::Write;

impl Report {
    pub fn text(&self) -> String {
        let mut text = format!("medians of {} runs, path MTU {}, data verified\n", self.runs, self.mtu);
        self.limits.iter().for_each(|limits| limits.tell(&mut text));
        if !self.throughput.is_empty() {
            text += "\nthroughput\n    operation    bytes  ICRC        rate            of memcpy  crossings A and B of one run\n";
        }
        self.throughput.iter().for_each(|row| row.tell(&mut text));
        self.usual.tell(&mut text, "");
        if let Some(busy) = &self.busy_poll {
            busy.hops.tell(
                &mut text,
                &format!(", threads that look for work for {} us before they sleep", busy.busy_poll_us),
            );
        }
        self.scale.iter().for_each(|scale| scale.tell(&mut text));
        text
    }
}

impl Limits {
    fn tell(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nthis machine: memcpy {}, CRC {}, a load from far memory {:.2} us",
            rate(self.memcpy_bytes_per_second),
            rate(self.crc_bytes_per_second),
            self.far_load_ns / 1e3
        );
        let placed = |median: Option<u64>| median.map_or("none".into(), time);
        let _ = writeln!(
            text,
            "    Unix socket round trip {} (p99 {}), on one processor {}, between two {}",
            time(self.socket_round_trip_p50_ns),
            time(self.socket_round_trip_p99_ns),
            placed(self.socket_round_trip_one_processor_p50_ns),
            placed(self.socket_round_trip_two_processors_p50_ns)
        );
    }
}

impl Throughput {
    fn tell(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "    {:<9} {:>8}  {:<8}  {:>14}  {:>9}  {}",
            self.operation,
            self.length_bytes,
            self.icrc,
            rate(self.bytes_per_second),
            self.of_memcpy.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            crossings(&self.ledger)
        );
    }
}

impl Hops {
    fn tell(&self, text: &mut String, how: &str) {
        if let Some(row) = &self.message_rate {
            let _ = writeln!(
                text,
                "\nmessage rate{how}: {} of {} bytes, depth {}, {} a doorbell: {:.3} M/s\n    \
                 processor time a message {}; crossings {}",
                row.operation,
                row.length_bytes,
                row.depth,
                row.batch,
                row.messages_per_second / 1e6,
                processor(&row.processor_ns_per_message),
                crossings(&row.ledger)
            );
        }
        if !self.latency.is_empty() {
            let _ = writeln!(
                text,
                "\npost to completion, WRITE of 8 bytes{how}\n    completion       p50       p99  of a socket round trip"
            );
        }
        for row in &self.latency {
            let ratio = row.of_socket_round_trip.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let (p50, p99) = (time(row.p50_ns), time(row.p99_ns));
            let _ = writeln!(text, "    {:<10} {p50:>9} {p99:>9}  {ratio:>22}", row.completion);
        }
    }
}

impl Scale {
    fn tell(&self, text: &mut String) {
        let _ = writeln!(text, "\nWRITE of {} bytes, a doorbell each, by the number of objects", self.length_bytes);
        for size in [&self.few, &self.many] {
            let OfSize { queue_pairs, regions, ns_per_message, processor_ns_per_message, .. } = size;
            let _ = writeln!(
                text,
                "    {queue_pairs:>6} queue pairs, {regions:>6} regions: {:.2} us a message, processor time {}",
                ns_per_message / 1e3,
                processor(processor_ns_per_message)
            );
        }
        let _ = writeln!(
            text,
            "    ratio {:.2}, of the processor time {:.2}",
            self.many_to_few, self.processor_many_to_few
        );
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

fn processor(times: &ProcessorTimes) -> String {
    times.iter().map(|(adapter, ns)| format!("{adapter} {:.2} us", ns / 1e3)).collect::<Vec<_>>().join(", ")
}
