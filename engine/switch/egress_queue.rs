//! The queue of a port with a limited rate: when a frame has left it, and whether the queue marks or drops it.
//!
//! In: a frame's length and time of arrival. Out: its time of departure, its mark, or its refusal.
//! The queue holds no frame: at a fixed rate its length follows from the time at which it will be empty.

use rnic_wire::Frame;

use crate::address::NetworkHeader;
use crate::random::{Probability, Random};

/// A limited rate, and the queue in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Of Ethernet frames without preamble and check sequence.
    pub bits_per_second: u64,
    /// A frame that would make the queue longer is dropped.
    pub queue_bytes: u64,
    pub marking: Option<Marking>,
}

/// The congestion point of DCQCN: which share of the frames is marked at which queue length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Kmin: shorter queues mark nothing.
    pub threshold_min_bytes: u64,
    /// Kmax: longer queues mark everything.
    pub threshold_max_bytes: u64,
    /// Pmax: the probability at Kmax, reached linearly from 0 at Kmin.
    pub probability_max: Probability,
}

impl Marking {
    pub fn probability(&self, queue_bytes: u64) -> Probability {
        if queue_bytes < self.threshold_min_bytes {
            return Probability::NEVER;
        }
        if queue_bytes > self.threshold_max_bytes {
            return Probability::ALWAYS;
        }
        let span_bytes = self.threshold_max_bytes - self.threshold_min_bytes;
        match span_bytes {
            0 => self.probability_max,
            _ => self.probability_max.scaled(queue_bytes - self.threshold_min_bytes, span_bytes),
        }
    }
}

/// What the queue decided about a frame that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub departs_ns: u64,
    pub marked: bool,
}

/// The state of the queue.
#[derive(Clone, Debug, Default)]
pub struct EgressQueue {
    empty_at_ns: u64,
}

const BITS_PER_BYTE: u128 = 8;
const NS_PER_SECOND: u128 = 1_000_000_000;

impl EgressQueue {
    /// Queues a frame. None if the queue has no room for it.
    pub fn admit(
        &mut self,
        limit: &RateLimit,
        length_bytes: usize,
        now_ns: u64,
        random: &mut Random,
    ) -> Option<Admission> {
        let rate = u128::from(limit.bits_per_second.max(1));
        let backlog_ns = self.empty_at_ns.saturating_sub(now_ns);
        let queue_bytes = (u128::from(backlog_ns) * rate / (BITS_PER_BYTE * NS_PER_SECOND)) as u64;
        if queue_bytes.saturating_add(length_bytes as u64) > limit.queue_bytes {
            return None;
        }
        let marked = limit.marking.is_some_and(|marking| marking.probability(queue_bytes).happens(random));
        let frame_ns = (length_bytes as u128 * BITS_PER_BYTE * NS_PER_SECOND).div_ceil(rate);
        let frame_ns = u64::try_from(frame_ns).unwrap_or(u64::MAX);
        self.empty_at_ns = self.empty_at_ns.max(now_ns).saturating_add(frame_ns);
        Some(Admission { departs_ns: self.empty_at_ns, marked })
    }
}

/// Marks a frame Congestion Experienced if its sender said that it understands (ECT); true if it was changed.
/// The ICRC does not cover these bits; IPv4's header checksum does.
pub fn mark_congestion_experienced(frame: &mut Frame) -> bool {
    const CONGESTION_EXPERIENCED: u8 = 0b11;
    let Some(header) = NetworkHeader::of(frame.bytes()) else { return false };
    let bytes = frame.bytes_mut();
    match header {
        NetworkHeader::Ipv4 { offset } => {
            let Some(header) = bytes.get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<20>()) else {
                return false;
            };
            let old = u16::from_be_bytes([header[0], header[1]]);
            if !matches!(header[1] & 0b11, 0b01 | 0b10) {
                return false;
            }
            header[1] |= CONGESTION_EXPERIENCED;
            let new = u16::from_be_bytes([header[0], header[1]]);
            let checksum = updated_checksum(u16::from_be_bytes([header[10], header[11]]), old, new);
            [header[10], header[11]] = checksum.to_be_bytes();
        }
        NetworkHeader::Ipv6 { offset } => {
            // The traffic class straddles the first two bytes; its low two bits are here.
            let Some(second) = bytes.get_mut(offset + 1) else { return false };
            if !matches!(*second >> 4 & 0b11, 0b01 | 0b10) {
                return false;
            }
            *second |= CONGESTION_EXPERIENCED << 4;
        }
    }
    true
}

/// RFC 1624, equation 3: a checksum that was wrong stays wrong.
fn updated_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}
