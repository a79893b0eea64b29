//! The peers: what this machine does without a device, in the same run and by one thread.

use super::Failure;
use super::options::Plan;
use super::report::{Limits, median, percentile};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Copies of this size between buffers that together are larger than a cache near the core.
const COPY_BYTES: usize = 1 << 20;
const BUFFERS: usize = 4;
/// A posted 8-byte store to a BAR as it travels over the socket: header, region, offset, count, data.
const STORE_MESSAGE: usize = 40;
/// A packet at the largest path MTU, as the checksum covers it.
const PACKET_BYTES: usize = 4096 + 60;

pub fn measure(plan: &Plan) -> Result<Limits, Failure> {
    let memcpy: Vec<f64> = (0..plan.runs).map(|_| copy_rate(plan.run_bytes)).collect();
    let crc: Vec<f64> = (0..plan.runs).map(|_| crc_rate(plan.run_bytes / 4)).collect();
    let mut trips = socket_round_trips(plan.latency_messages)?;
    Ok(Limits {
        memcpy_bytes_per_second: median(&memcpy),
        crc_bytes_per_second: median(&crc),
        socket_round_trip_p50_ns: percentile(&mut trips, 50),
        socket_round_trip_p99_ns: percentile(&mut trips, 99),
    })
}

fn rate(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / start.elapsed().as_secs_f64()
}

fn copy_rate(bytes: u64) -> f64 {
    let source = vec![0x5a_u8; COPY_BYTES * BUFFERS];
    let mut target = vec![0_u8; COPY_BYTES * BUFFERS];
    let rounds = (bytes as usize / COPY_BYTES).max(BUFFERS);
    let start = Instant::now();
    for round in 0..rounds {
        let at = round % BUFFERS * COPY_BYTES;
        target[at..at + COPY_BYTES].copy_from_slice(black_box(&source[at..at + COPY_BYTES]));
        black_box(&mut target);
    }
    rate((rounds * COPY_BYTES) as u64, start)
}

fn crc_rate(bytes: u64) -> f64 {
    let packet = vec![0x5a_u8; PACKET_BYTES];
    let rounds = (bytes as usize / PACKET_BYTES).max(1);
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(crc32fast::hash(black_box(&packet)));
    }
    rate((rounds * PACKET_BYTES) as u64, start)
}

/// Nanoseconds of each round trip between two threads that block in their reads.
fn socket_round_trips(count: u32) -> Result<Vec<u64>, Failure> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let echo = std::thread::spawn(move || {
        let mut message = [0; STORE_MESSAGE];
        while theirs.read_exact(&mut message).is_ok() && theirs.write_all(&message).is_ok() {}
    });
    let mut message = [0; STORE_MESSAGE];
    let mut trips = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        ours.write_all(&message)?;
        ours.read_exact(&mut message)?;
        trips.push(start.elapsed().as_nanos() as u64);
    }
    drop(ours);
    let _ = echo.join();
    Ok(trips)
}
