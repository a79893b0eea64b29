//! The peers: what this machine does without a device, in the same run and by one thread.

use super::Failure;
use super::options::Plan;
use super::report::{Limits, median, percentile};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
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
/// Memory that no processor keeps near, and the pages it consists of.
const FAR_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;

pub fn measure(plan: &Plan) -> Result<Limits, Failure> {
    let memcpy: Vec<f64> = (0..plan.runs).map(|_| copy_rate(plan.run_bytes)).collect();
    let crc: Vec<f64> = (0..plan.runs).map(|_| crc_rate(plan.run_bytes / 4)).collect();
    let mut trips = socket_round_trips(plan.latency_messages, None)?;
    let processors = own_processors();
    let between = |first: usize, second: usize| {
        let (Some(first), Some(second)) = (processors.get(first), processors.get(second)) else { return Ok(None) };
        let mut trips = socket_round_trips(plan.latency_messages, Some([*first, *second]))?;
        Ok::<_, Failure>(Some(percentile(&mut trips, 50)))
    };
    Ok(Limits {
        memcpy_bytes_per_second: median(&memcpy),
        crc_bytes_per_second: median(&crc),
        far_load_ns: far_load(plan.latency_messages),
        socket_round_trip_p50_ns: percentile(&mut trips, 50),
        socket_round_trip_p99_ns: percentile(&mut trips, 99),
        socket_round_trip_one_processor_p50_ns: between(0, 0)?,
        socket_round_trip_two_processors_p50_ns: between(0, 1)?,
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

/// Nanoseconds of a load from any line of any page of much memory: what an object costs that was not used for long. The
/// next address hangs on what the last load found, so that they do not overlap.
fn far_load(count: u32) -> f64 {
    let memory = vec![1_u8; FAR_BYTES];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let start = Instant::now();
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state as usize % (FAR_BYTES / PAGE_BYTES)) * PAGE_BYTES + (state >> 40) as usize % PAGE_BYTES;
        state ^= u64::from(*black_box(&memory[at]));
    }
    start.elapsed().as_nanos() as f64 / f64::from(count.max(1))
}

/// The processors that this program may use.
fn own_processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Who may not choose is left where the scheduler puts it.
    let _ = sched_setaffinity(None, &set);
}

/// Nanoseconds of each round trip between two threads that block in their reads, each on its processor where one is named.
fn socket_round_trips(count: u32, processors: Option<[usize; 2]>) -> Result<Vec<u64>, Failure> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let echo = std::thread::spawn(move || {
        processors.into_iter().for_each(|[_, of_echo]| stay_on(of_echo));
        let mut message = [0; STORE_MESSAGE];
        while theirs.read_exact(&mut message).is_ok() && theirs.write_all(&message).is_ok() {}
    });
    // A thread of its own, so that this one stays free.
    let ask = std::thread::spawn(move || {
        processors.into_iter().for_each(|[of_asker, _]| stay_on(of_asker));
        let mut message = [0; STORE_MESSAGE];
        let mut trips = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = Instant::now();
            ours.write_all(&message)?;
            ours.read_exact(&mut message)?;
            trips.push(start.elapsed().as_nanos() as u64);
        }
        Ok::<_, std::io::Error>(trips)
    });
    let trips = ask.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))?;
    let _ = echo.join();
    Ok(trips)
}
