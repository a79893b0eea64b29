//! A bounded record of the latest packets of an adapter, kept only while somebody watches.
//!
//! A packet stands behind the crossing that was the latest when it passed, so that both records make one story.

use rnic_wire::{Aeth, Drop, Frame, Headers, IcrcCheck, IcrcState, OpcodeDescription, parse};
use std::collections::VecDeque;

/// The most packets that can be asked for.
pub const MAX_CAPACITY: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    Sent,
    Received,
}

/// What of a packet is kept: its transport header, not its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Position in the adapter's own order of recorded packets, from 1.
    pub sequence: u64,
    pub time_ns: u64,
    /// Sequence number of the latest crossing before it.
    pub after_crossing: u64,
    pub direction: PacketDirection,
    /// This adapter's queue pair: its sender, or where it says it goes.
    pub qpn: u32,
    pub frame_bytes: u32,
    /// The headers, or why they are none.
    pub transport: Result<TransportHeaders, Drop>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportHeaders {
    pub description: &'static OpcodeDescription,
    pub dest_qp: u32,
    pub psn: u32,
    pub ack_req: bool,
    pub payload_bytes: u32,
    /// Answers only.
    pub aeth: Option<Aeth>,
}

#[derive(Debug, Default)]
pub struct PacketTrace {
    ring: VecDeque<Packet>,
    /// 0 while nobody watches.
    capacity: usize,
    last_sequence: u64,
}

/// What a reader missed, and where to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketReading {
    pub lost: u64,
    pub next_sequence: u64,
}

impl PacketTrace {
    /// Starts recording, or changes how many packets are kept.
    pub fn watch(&mut self, capacity: usize) {
        self.capacity = capacity.clamp(1, MAX_CAPACITY);
        while self.ring.len() > self.capacity {
            self.ring.pop_front();
        }
    }

    /// Stops recording and forgets what was recorded. Sequence numbers go on.
    pub fn unwatch(&mut self) {
        (self.ring, self.capacity) = (VecDeque::new(), 0);
    }

    #[inline]
    pub fn is_watched(&self) -> bool {
        self.capacity > 0
    }

    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Records a frame; `sender` is the queue pair that has sent it.
    pub fn record(&mut self, time_ns: u64, after_crossing: u64, sender: Option<u32>, frame: &Frame) {
        let check = if frame.icrc == IcrcState::Deferred { IcrcCheck::Trusted } else { IcrcCheck::Verify };
        let transport = parse(frame.bytes(), check).map(|packet| {
            let bth = &packet.headers.bth;
            let has_aeth = packet.description.headers.contains(Headers::AETH);
            TransportHeaders {
                description: packet.description,
                dest_qp: bth.dest_qp,
                psn: bth.psn.get(),
                ack_req: bth.ack_req,
                payload_bytes: packet.payload.len() as u32,
                aeth: has_aeth.then_some(packet.headers.extension.aeth),
            }
        });
        if self.ring.len() >= self.capacity {
            self.ring.pop_front();
        }
        self.last_sequence += 1;
        self.ring.push_back(Packet {
            sequence: self.last_sequence,
            time_ns,
            after_crossing,
            direction: if sender.is_some() { PacketDirection::Sent } else { PacketDirection::Received },
            qpn: sender.unwrap_or_else(|| transport.map_or(0, |headers| headers.dest_qp)),
            frame_bytes: frame.bytes().len() as u32,
            transport,
        });
    }

    /// Appends up to `limit` packets from `sequence` on to `into`.
    pub fn read(&self, sequence: u64, limit: usize, into: &mut Vec<Packet>) -> PacketReading {
        let end = self.last_sequence + 1;
        let sequence = sequence.clamp(1, end);
        let first = self.ring.front().map_or(end, |packet| packet.sequence);
        let from = sequence.max(first);
        let before = into.len();
        into.extend(self.ring.iter().skip((from - first) as usize).take(limit));
        PacketReading { lost: from - sequence, next_sequence: from + (into.len() - before) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_wire::{Bth, Extension, LinkHeaders, Network, Opcode, Psn, RoceHeaders, emit};
    use std::net::Ipv4Addr;

    fn frame(psn: u32, payload: &[u8]) -> Frame {
        let headers = RoceHeaders {
            link: LinkHeaders::default(),
            network: Network::V4 {
                source: Ipv4Addr::LOCALHOST,
                dest: Ipv4Addr::LOCALHOST,
                traffic_class: 0,
                ttl: 64,
                identification: 0,
            },
            udp_source_port: 0xc000,
            bth: Bth { ack_req: true, ..Bth::new(Opcode::RC_SEND_ONLY, 0x12, Psn::new(psn)) },
            extension: Extension::default(),
        };
        let mut frame = Frame::default();
        let place = emit(&headers, payload.len(), &mut frame);
        frame.bytes_mut()[place].copy_from_slice(payload);
        frame
    }

    #[test]
    fn the_latest_are_kept_with_what_they_say_and_readers_learn_their_loss() {
        let mut trace = PacketTrace::default();
        trace.watch(2);
        trace.record(10, 5, Some(0x11), &frame(1000, &[1; 8]));
        trace.record(20, 6, None, &frame(1001, &[]));
        trace.record(30, 6, None, &Frame::default());
        let mut packets = Vec::new();
        assert_eq!(trace.read(1, 10, &mut packets), PacketReading { lost: 1, next_sequence: 4 });
        let headers = packets[0].transport.expect("a packet");
        assert_eq!(
            (packets[0].direction, packets[0].qpn, packets[0].after_crossing),
            (PacketDirection::Received, 0x12, 6)
        );
        assert_eq!((headers.description.name, headers.psn, headers.ack_req), ("RC_SEND_ONLY", 1001, true));
        assert_eq!(packets[1].transport, Err(Drop::RuntFrame { length: 0 }));
        let mut one = Vec::new();
        assert_eq!(trace.read(2, 1, &mut one), PacketReading { lost: 0, next_sequence: 3 });
        assert_eq!(trace.read(u64::MAX, 1, &mut one), PacketReading { lost: 0, next_sequence: 4 });
    }

    #[test]
    fn a_flipped_bit_shows_as_a_wrong_icrc() {
        let mut trace = PacketTrace::default();
        trace.watch(1);
        let mut flipped = frame(1000, &[1; 8]);
        flipped.seal();
        let last = flipped.bytes().len() - 6;
        flipped.bytes_mut()[last] ^= 1;
        trace.record(0, 0, Some(0x11), &flipped);
        let mut packets = Vec::new();
        trace.read(1, 1, &mut packets);
        assert!(matches!(packets[0].transport, Err(Drop::BadIcrc { .. })), "{packets:?}");
        assert_eq!(packets[0].direction, PacketDirection::Sent);
    }

    #[test]
    fn stopping_forgets_and_numbers_go_on() {
        let mut trace = PacketTrace::default();
        trace.watch(usize::MAX);
        trace.record(0, 0, None, &frame(1, &[]));
        trace.unwatch();
        assert!(!trace.is_watched());
        let mut packets = Vec::new();
        assert_eq!(trace.read(1, 1, &mut packets), PacketReading { lost: 1, next_sequence: 2 });
    }
}
