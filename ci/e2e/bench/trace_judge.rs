//! QEMU's own trace against an adapter's record of crossings, one by one: number, order, bytes.
//!
//! With guest memory that is not shared, every DMA is a message on the socket, so QEMU has seen all that the adapter
//! says it did. In: both records of the same time. Out: agreement, or a panic that shows where they part.

use rnic_ci::qemu::trace::{Trace, TraceRecord};
use rnic_pcie::{Class, Crossing, Direction};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const DMA_READ: u64 = 0xb;
const DMA_WRITE: u64 = 0xc;
/// Header and the fixed part of a DMA message.
const MESSAGE_BYTES: u64 = 0x20;
const MSIX_BYTES: u64 = 4;

/// What QEMU saw, in its order; stores, loads and vectors have orders of their own, since other threads write them down.
#[derive(Debug, Default)]
pub struct Seen {
    /// BAR, offset and bytes of each store.
    pub stores: Vec<(u64, u64, u64)>,
    /// Bytes of each load.
    pub loads: Vec<u64>,
    pub dma: Vec<Dma>,
    pub vectors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dma {
    Read { bytes: u64 },
    Write { bytes: u64 },
}

impl Seen {
    pub fn of(records: &[TraceRecord]) -> Seen {
        let mut seen = Seen::default();
        for (at, record) in records.iter().enumerate() {
            match record.event.as_str() {
                "vfio_region_write" => seen.stores.extend(access(&record.detail)),
                "vfio_region_read" => seen.loads.extend(access(&record.detail).map(|(_, _, bytes)| bytes)),
                "vfio_msi_interrupt" => seen.vectors += 1,
                "vfio_user_recv_hdr" => seen.dma.extend(request(record, &records[at..])),
                _ => {}
            }
        }
        seen
    }
}

/// `(name:region2+0x1400, 0x100001100, 8)` or `(name:region0+0x0, 4) = 0x43494e52`.
fn access(detail: &str) -> Option<(u64, u64, u64)> {
    let (_, place) = detail.rsplit_once(":region")?;
    let (region, rest) = place.split_once("+0x")?;
    let (offset, rest) = rest.split_once(", ")?;
    let (arguments, _) = rest.split_once(')')?;
    let bytes = arguments.rsplit(", ").next()?;
    Some((region.parse().ok()?, u64::from_str_radix(offset, 16).ok()?, bytes.parse().ok()?))
}

/// A DMA request of the adapter. How much a read asks for shows in QEMU's answer of the same id.
fn request(record: &TraceRecord, from_here: &[TraceRecord]) -> Option<Dma> {
    const IS_REPLY: u64 = 1;
    if record.number("flags")? & IS_REPLY != 0 {
        return None;
    }
    match record.number("cmd")? {
        DMA_WRITE => Some(Dma::Write { bytes: record.number("size")? - MESSAGE_BYTES }),
        DMA_READ => {
            let id = record.number("id")?;
            let answer = |other: &&TraceRecord| other.event == "vfio_user_send_write" && other.number("id") == Some(id);
            let answer = from_here.iter().find(answer)?;
            Some(Dma::Read { bytes: answer.number("wrote")?.saturating_sub(MESSAGE_BYTES) })
        }
        _ => None,
    }
}

/// What an adapter's record says about the socket: messages and bytes of one crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub class: &'static str,
    pub direction: Way,
    pub messages: u64,
    pub bytes: u64,
    pub vector: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Store,
    Load,
    Read,
    Write,
}

impl From<&Crossing> for Told {
    fn from(crossing: &Crossing) -> Told {
        let observed = crossing.observed.map(|observed| (observed.messages.into(), observed.bytes.into()));
        let ranges = crossing.ranges.into();
        Told::new(crossing.origin.class, crossing.bytes.into(), ranges, crossing.tlps.mwr.into(), observed)
    }
}

impl Told {
    /// A line of `rnic trace --json`.
    pub fn of_row(row: &Value) -> Told {
        let number = |value: &Value| value.as_u64().expect("a number");
        let class = Class::ALL.iter().find(|class| row["class"] == class.name()).expect("a class");
        let observed = row.get("observed").map(|seen| (number(&seen["messages"]), number(&seen["bytes"])));
        Told::new(*class, number(&row["bytes"]), number(&row["ranges"]), number(&row["tlps"]["mwr"]), observed)
    }

    /// What a crossing of this class is on the socket.
    fn new(class: Class, bytes: u64, ranges: u64, mwr: u64, observed: Option<(u64, u64)>) -> Told {
        let is_event = class == Class::Event;
        let msix_bytes = if is_event && mwr > 1 { MSIX_BYTES } else { 0 };
        let dma = (ranges, bytes - msix_bytes);
        let (direction, (messages, bytes)) = match class.direction() {
            Direction::Host if class == Class::RegisterRead => (Way::Load, (1, bytes)),
            Direction::Host => (Way::Store, observed.unwrap_or((1, bytes))),
            Direction::DeviceRead => (Way::Read, dma),
            // An event's ranges are its entry and its vector; the entry alone is DMA.
            Direction::DeviceWrite if is_event => (Way::Write, (1, dma.1)),
            Direction::DeviceWrite => (Way::Write, dma),
        };
        Told { class: class.name(), direction, messages, bytes, vector: msix_bytes > 0 }
    }
}

/// Compares; the trace's last lines may be a moment late.
#[track_caller]
pub fn agree(trace: &Trace, told: &[Told]) -> Seen {
    let start = Instant::now();
    loop {
        let seen = Seen::of(&trace.records().expect("QEMU's trace"));
        match compare(&seen, told) {
            Ok(()) => return seen,
            Err(_) if start.elapsed() < Duration::from_secs(3) => std::thread::sleep(Duration::from_millis(50)),
            Err(sentence) => panic!("{sentence}\n{}", shown(trace.log())),
        }
    }
}

fn shown(log: &Path) -> String {
    format!("the trace is {}", log.display())
}

pub fn compare(seen: &Seen, told: &[Told]) -> Result<(), String> {
    let of = |way: Way| told.iter().filter(move |crossing| crossing.direction == way);
    let store_sizes: Vec<u64> = seen.stores.iter().map(|(_, _, bytes)| *bytes).collect();
    match_up("stores", &store_sizes, of(Way::Store))?;
    match_up("loads", &seen.loads, of(Way::Load))?;
    match_dma(seen, told)?;
    let vectors = told.iter().filter(|crossing| crossing.vector).count() as u64;
    if vectors == seen.vectors {
        Ok(())
    } else {
        Err(format!("QEMU saw {} vectors, the adapter recorded {vectors}", seen.vectors))
    }
}

/// DMA of both ways in one order.
fn match_dma(seen: &Seen, told: &[Told]) -> Result<(), String> {
    let told: Vec<&Told> =
        told.iter().filter(|crossing| matches!(crossing.direction, Way::Read | Way::Write)).collect();
    let way = |dma: &Dma| if matches!(dma, Dma::Read { .. }) { Way::Read } else { Way::Write };
    let mut messages = seen.dma.iter();
    for (number, crossing) in told.iter().enumerate() {
        let taken: Vec<Dma> = messages.by_ref().take(crossing.messages as usize).copied().collect();
        let bytes: u64 = taken
            .iter()
            .map(|dma| match dma {
                Dma::Read { bytes } | Dma::Write { bytes } => *bytes,
            })
            .sum();
        let is_that = taken.len() as u64 == crossing.messages
            && taken.iter().all(|dma| way(dma) == crossing.direction)
            && bytes == crossing.bytes;
        if !is_that {
            return Err(format!("DMA crossing {number} is recorded as {crossing:?}; QEMU saw {taken:?}"));
        }
    }
    match messages.next() {
        None => Ok(()),
        Some(dma) => Err(format!("QEMU saw {dma:?}, of which nothing is recorded")),
    }
}

fn match_up<'a>(what: &str, sizes: &[u64], told: impl Iterator<Item = &'a Told>) -> Result<(), String> {
    let mut sizes = sizes.iter();
    for (number, crossing) in told.enumerate() {
        let taken: Vec<u64> = sizes.by_ref().take(crossing.messages as usize).copied().collect();
        if taken.len() as u64 != crossing.messages || taken.iter().sum::<u64>() != crossing.bytes {
            return Err(format!("crossing {number} of the {what} is {crossing:?}; QEMU saw {taken:?}"));
        }
    }
    match sizes.count() {
        0 => Ok(()),
        more => Err(format!("QEMU saw {more} more {what} than are recorded")),
    }
}
