//! READs and atomics that are to be answered: `rx` leaves them with the queue pair, `tx` makes packets of them when the
//! port has room. A READ is a cursor: its answer stands nowhere but in host memory until each packet is built.

use crate::context::access::Plan;
use crate::numbers::{Key, Pdn};
use crate::queues::TransmitState;
use crate::tx::reply::Replying;
use rnic_abi::limits::MAX_RD_ATOMIC;
use rnic_wire::{Msn, Psn};
use std::collections::VecDeque;

/// The most answers that wait: as many requests as may be outstanding, and as many duplicates.
const MOST: usize = 2 * MAX_RD_ATOMIC as usize;

/// One packet of a READ's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyPacket {
    pub psn: Psn,
    pub address: u64,
    pub length_bytes: u32,
    pub first: bool,
    pub last: bool,
    /// 0 for a packet that leaves for the first time.
    pub attempt: u16,
}

/// A READ that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadReply {
    first_psn: Psn,
    next_psn: Psn,
    end_psn: Psn,
    /// The first packet that has never left.
    fresh_psn: Psn,
    /// Of the byte that the first packet begins with.
    address: u64,
    /// From there on.
    length_bytes: u32,
    pub rkey: Key,
    /// In which the key is checked.
    pub pdn: Pdn,
    pub msn: Msn,
}

impl ReadReply {
    pub fn new(first_psn: Psn, packets: u32, address: u64, length_bytes: u32, rkey: Key, pdn: Pdn, msn: Msn) -> Self {
        let end_psn = first_psn.add(packets);
        Self { first_psn, next_psn: first_psn, end_psn, fresh_psn: first_psn, address, length_bytes, rkey, pdn, msn }
    }

    /// The same for a request that was answered before.
    pub fn again(self) -> Self {
        Self { fresh_psn: self.end_psn, ..self }
    }

    /// The packet that leaves next.
    pub fn packet(&self, path_mtu_bytes: u32) -> ReplyPacket {
        let number = self.next_psn.distance_from(self.first_psn);
        let offset = u64::from(number) * u64::from(path_mtu_bytes);
        let left = u64::from(self.length_bytes).saturating_sub(offset);
        ReplyPacket {
            psn: self.next_psn,
            address: self.address.wrapping_add(offset),
            length_bytes: left.min(path_mtu_bytes.into()) as u32,
            first: number == 0,
            last: self.next_psn.next() == self.end_psn,
            attempt: u16::from(self.next_psn.is_before(self.fresh_psn)),
        }
    }

    /// That packet has left. True when it was the last.
    pub fn sent(&mut self) -> bool {
        self.next_psn = self.next_psn.next();
        if self.fresh_psn.is_before(self.next_psn) {
            self.fresh_psn = self.next_psn;
        }
        self.next_psn == self.end_psn
    }

    fn covers(&self, other: &Self) -> bool {
        self.end_psn == other.end_psn && other.first_psn.is_within(self.first_psn, self.packets())
    }

    fn packets(&self) -> u32 {
        self.end_psn.distance_from(self.first_psn)
    }
}

/// A request that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Read(ReadReply),
    Atomic { psn: Psn, msn: Msn, original: u64, attempt: u16 },
}

impl Reply {
    pub fn next_psn(&self) -> Psn {
        match self {
            Self::Read(read) => read.next_psn,
            Self::Atomic { psn, .. } => *psn,
        }
    }

    /// It answers a request that was not answered before.
    pub fn is_fresh(&self) -> bool {
        match self {
            Self::Read(read) => read.fresh_psn != read.end_psn,
            Self::Atomic { attempt, .. } => *attempt == 0,
        }
    }
}

/// What a duplicate request meant for the answers that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Its answer is still to leave.
    Waits,
    /// The answer that is leaving goes back to where it is asked for.
    Restarted,
    Queued,
    /// Too many wait already.
    Refused,
}

/// The answers of one queue pair, in the order of their requests.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    pub turn: TransmitState,
    /// Changes whenever what is being gathered must not leave any more.
    pub epoch: u32,
    pub plan: Option<Box<Plan>>,
    /// The packet whose payload has come late.
    pub gathered: Option<Box<Replying>>,
}

impl Replies {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn front(&self) -> Option<&Reply> {
        self.queue.front()
    }

    pub fn front_mut(&mut self) -> Option<&mut Reply> {
        self.queue.front_mut()
    }

    pub fn pop_front(&mut self) {
        self.queue.pop_front();
    }

    /// Requests whose first answer is not complete: what the peer may have outstanding is bounded.
    pub fn fresh(&self) -> usize {
        self.queue.iter().filter(|reply| reply.is_fresh()).count()
    }

    pub fn push(&mut self, reply: Reply) {
        self.queue.push_back(reply);
    }

    /// A READ is asked for again. `wanted` is what it asks for.
    pub fn read_again(&mut self, wanted: ReadReply, path_mtu_bytes: u32) -> Again {
        let waiting = self.queue.iter_mut().enumerate().find_map(|(at, reply)| match reply {
            Reply::Read(read) if read.covers(&wanted) => Some((at, read)),
            _ => None,
        });
        let Some((at, read)) = waiting else { return self.push_again(Reply::Read(wanted.again())) };
        if !wanted.first_psn.is_before(read.next_psn) {
            return Again::Waits;
        }
        let skipped = wanted.first_psn.distance_from(read.first_psn);
        let bytes = u64::from(skipped) * u64::from(path_mtu_bytes);
        read.address = read.address.wrapping_add(bytes);
        read.length_bytes = u64::from(read.length_bytes).saturating_sub(bytes) as u32;
        (read.first_psn, read.next_psn) = (wanted.first_psn, wanted.first_psn);
        if at == 0 {
            self.recall();
        }
        Again::Restarted
    }

    pub fn atomic_again(&mut self, psn: Psn, msn: Msn, original: u64) -> Again {
        if self.queue.iter().any(|reply| matches!(reply, Reply::Atomic { psn: waiting, .. } if *waiting == psn)) {
            return Again::Waits;
        }
        self.push_again(Reply::Atomic { psn, msn, original, attempt: 1 })
    }

    fn push_again(&mut self, reply: Reply) -> Again {
        if self.queue.len() >= MOST {
            return Again::Refused;
        }
        self.queue.push_back(reply);
        Again::Queued
    }

    /// What is being gathered must not leave, and what was resolved for it is of no use.
    pub fn recall(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.plan = None;
        self.gathered = None;
    }

    /// Nothing is answered any more. A read in flight comes back to find that.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.recall();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(psn: u32, packets: u32) -> ReadReply {
        let bytes = packets * 256 - 56;
        ReadReply::new(Psn::new(psn), packets, 0x1000, bytes, Key(0x100), Pdn(1), Msn::new(1))
    }

    fn packets(mut reply: ReadReply) -> Vec<(u32, u64, u32, bool, bool, u16)> {
        let mut all = Vec::new();
        loop {
            let packet = reply.packet(256);
            all.push((
                packet.psn.get(),
                packet.address,
                packet.length_bytes,
                packet.first,
                packet.last,
                packet.attempt,
            ));
            if reply.sent() {
                return all;
            }
        }
    }

    #[test]
    fn a_cursor_gives_each_packet_of_the_range_once_across_the_wrap() {
        let made = packets(reply(0xff_ffff, 3));
        let expected = [
            (0xff_ffff, 0x1000, 256, true, false, 0),
            (0, 0x1100, 256, false, false, 0),
            (1, 0x1200, 200, false, true, 0),
        ];
        assert_eq!(made, expected);
        let nothing = ReadReply::new(Psn::new(5), 1, 0, 0, Key(0), Pdn(1), Msn::new(1));
        assert_eq!(packets(nothing), [(5, 0, 0, true, true, 0)]);
    }

    #[test]
    fn what_is_asked_for_again_starts_there_and_says_what_has_left_before() {
        let mut replies = Replies::default();
        replies.push(Reply::Read(reply(10, 4)));
        let tail = |psn: u32| ReadReply::new(Psn::new(psn), 14 - psn, 0, 0, Key(0x100), Pdn(1), Msn::new(1));
        assert_eq!(replies.read_again(tail(10), 256), Again::Waits, "nothing has left");
        for _ in 0..3 {
            let Some(Reply::Read(read)) = replies.front_mut() else { panic!("a READ") };
            read.sent();
        }
        assert_eq!(replies.read_again(tail(11), 256), Again::Restarted);
        let Some(Reply::Read(read)) = replies.front() else { panic!("a READ") };
        let expected =
            [(11, 0x1100, 256, true, false, 1), (12, 0x1200, 256, false, false, 1), (13, 0x1300, 200, false, true, 0)];
        assert_eq!(packets(*read), expected);
        assert_eq!(replies.fresh(), 1);
    }

    #[test]
    fn duplicates_are_bounded_and_do_not_count_as_outstanding() {
        let mut replies = Replies::default();
        for psn in 0..MOST as u32 {
            assert_eq!(replies.atomic_again(Psn::new(psn), Msn::new(1), 7), Again::Queued);
            assert_eq!(replies.atomic_again(Psn::new(psn), Msn::new(1), 7), Again::Waits);
        }
        assert_eq!(replies.atomic_again(Psn::new(99), Msn::new(1), 7), Again::Refused);
        assert_eq!(replies.fresh(), 0);
    }
}
