//! What a port's line does to frames when asked: lose, duplicate, corrupt, delay and reorder them.
//!
//! In: a frame that leaves the egress queue. Out: its fate. All is off by default, and every draw comes from the
//! port's own seed, so that the same frames at the same times meet the same fate.

use rnic_wire::Frame;

use crate::address::{IPV4_HEADER_LENGTH_BYTES, IPV6_HEADER_LENGTH_BYTES, NetworkHeader};
use crate::egress_queue::RateLimit;
use crate::random::{Probability, Random};

/// The impairments of one port, applied to what it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impairment {
    pub seed: u64,
    pub loss: Probability,
    pub duplication: Probability,
    /// One bit of the frame is flipped.
    pub corruption: Probability,
    pub reorder: Option<Reorder>,
    pub delay_ns: u64,
    pub rate_limit: Option<RateLimit>,
    /// Frames held at once; while there are as many, the senders' rings fill and nothing is lost.
    pub held_frames_max: usize,
}

/// Which frames arrive out of order, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    pub probability: Probability,
    pub by: Displacement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displacement {
    /// Held back until so many others have passed, but no longer than the timeout.
    Frames { count: u32, timeout_ns: u64 },
    /// Delayed by so much more than the others.
    Time { delay_ns: u64 },
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            seed: 0,
            loss: Probability::NEVER,
            duplication: Probability::NEVER,
            corruption: Probability::NEVER,
            reorder: None,
            delay_ns: 0,
            rate_limit: None,
            held_frames_max: 1024,
        }
    }
}

impl Impairment {
    /// Whether any of it is switched on.
    pub fn is_on(&self) -> bool {
        let Self { seed: _, loss, duplication, corruption, reorder, delay_ns, rate_limit, held_frames_max: _ } = self;
        let chances = [loss, duplication, corruption];
        chances.iter().any(|chance| !chance.is_never()) || reorder.is_some() || *delay_ns > 0 || rate_limit.is_some()
    }

    /// Decides, in a fixed order of draws.
    pub fn decide(&self, random: &mut Random) -> Fate {
        if self.loss.happens(random) {
            return Fate::Lost;
        }
        Fate::Delivered {
            corrupted: self.corruption.happens(random),
            duplicated: self.duplication.happens(random),
            displaced: self.reorder.filter(|reorder| reorder.probability.happens(random)).map(|reorder| reorder.by),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Lost,
    Delivered { corrupted: bool, duplicated: bool, displaced: Option<Displacement> },
}

const ETHERNET_HEADER_LENGTH_BYTES: usize = 14;

/// Flips one bit behind the Ethernet header, any of them: as on a real line, some flips hit a field no check covers.
pub fn flip_any_bit(frame: &mut Frame, random: &mut Random) {
    flip_bit_behind(frame, ETHERNET_HEADER_LENGTH_BYTES, random);
}

/// Flips one bit of a RoCE packet's PSN, payload or what else the ICRC covers behind them, so that the receiver
/// must notice.
pub fn flip_covered_bit(frame: &mut Frame, random: &mut Random) {
    const UDP_AND_HALF_BTH_BYTES: usize = 8 + 8;
    let offset = match NetworkHeader::of(frame.bytes()) {
        Some(NetworkHeader::Ipv4 { offset }) => offset + IPV4_HEADER_LENGTH_BYTES + UDP_AND_HALF_BTH_BYTES,
        Some(NetworkHeader::Ipv6 { offset }) => offset + IPV6_HEADER_LENGTH_BYTES + UDP_AND_HALF_BTH_BYTES,
        None => ETHERNET_HEADER_LENGTH_BYTES,
    };
    flip_bit_behind(frame, offset, random);
}

/// A deferred ICRC is computed first: it must be that of the frame as it was sent.
fn flip_bit_behind(frame: &mut Frame, offset: usize, random: &mut Random) {
    frame.seal();
    let length = frame.length();
    let start = if offset < length { offset } else { 0 };
    let bits = ((length - start) * 8) as u32;
    if bits == 0 {
        return;
    }
    let bit = random.below(bits) as usize;
    if let Some(byte) = frame.bytes_mut().get_mut(start + bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
    // The flip may have turned a RoCE packet into something else, or the reverse.
    frame.set_received(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_off_by_default() {
        assert!(!Impairment::default().is_on());
        let mut random = Random::new(1);
        let fate = Impairment::default().decide(&mut random);
        assert_eq!(fate, Fate::Delivered { corrupted: false, duplicated: false, displaced: None });
    }

    #[test]
    fn any_one_switches_it_on() {
        let half = Probability::from_fraction(0.5).unwrap();
        let by = Displacement::Time { delay_ns: 1 };
        let rate_limit = RateLimit { bits_per_second: 1, queue_bytes: 1, marking: None };
        for impairment in [
            Impairment { loss: half, ..Impairment::default() },
            Impairment { duplication: half, ..Impairment::default() },
            Impairment { corruption: half, ..Impairment::default() },
            Impairment { reorder: Some(Reorder { probability: half, by }), ..Impairment::default() },
            Impairment { delay_ns: 1, ..Impairment::default() },
            Impairment { rate_limit: Some(rate_limit), ..Impairment::default() },
        ] {
            assert!(impairment.is_on(), "{impairment:?}");
        }
    }

    #[test]
    fn exactly_one_bit_is_flipped_and_never_in_the_ethernet_header() {
        let mut random = Random::new(3);
        for length in [0, 1, 14, 15, 60, 1500] {
            for _ in 0..200 {
                let mut frame = Frame::new();
                assert!(frame.set_bytes(&vec![0; length]));
                flip_any_bit(&mut frame, &mut random);
                let flipped: u32 = frame.bytes().iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(flipped, u32::from(length > 0));
                assert!(length <= 14 || frame.bytes()[..14].iter().all(|&byte| byte == 0));
            }
        }
    }
}
