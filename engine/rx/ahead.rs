//! Packets ahead of a gap, where both ends retransmit selectively: they are kept until the gap closes, and the peer is told
//! of each packet that is missing. Elsewhere they are dropped.
//!
//! In: a request whose PSN is ahead of the expected one. Out: the same request in its turn.

use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::reliability::selective::Ahead;
use rnic_pcie::Cause;
use rnic_wire::psn::MODULUS;
use rnic_wire::{Frame, Operation, ParsedPacket, Psn};

impl Engine {
    /// A packet has come early: notes it, if it is to be kept, for whoever has its frame. False where it can not be kept:
    /// then the peer hears of the expected packet as it does without all this, and goes back.
    pub(super) fn comes_ahead(&mut self, qpn: Qpn, context: &QpContext, packet: &ParsedPacket<'_>) -> bool {
        let (expected, psn) = (context.responder.expected_psn, packet.headers.bth.psn);
        let room = self.ahead_frames < self.config.ahead_frames;
        let Some(selective) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()) else { return false };
        if selective.find(psn).is_ok() {
            self.counters.out_of_seq_request += 1;
            return true;
        }
        // A sender with a window of ours cannot be further ahead.
        if !room || psn.distance_from(expected) >= self.config.window_packets {
            return false;
        }
        if selective.ahead.is_empty() {
            selective.told = expected;
        }
        let packets = match packet.description.operation {
            Operation::ReadRequest => context.packets_of(packet.headers.extension.reth.dma_length),
            _ => 1,
        };
        // A READ that would take half of the PSNs or more is refused in its turn: it need not be kept for that.
        selective.arriving = (packets < MODULUS / 2).then_some((psn, packets));
        self.counters.out_of_seq_request += 1;
        true
    }

    /// Takes the frame of a packet that has come early and is to be kept. False: it was not such a packet.
    pub(super) fn keep_ahead(&mut self, host: &mut Host, qpn: Qpn, frame: impl FnOnce() -> Frame) -> bool {
        let Some(selective) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()) else { return false };
        let Some((psn, packets)) = selective.arriving.take() else { return false };
        if let Err(at) = selective.find(psn) {
            selective.ahead.insert(at, Ahead { psn, packets, frame: frame() });
            self.ahead_frames += 1;
        }
        self.tell_gaps(host, qpn);
        true
    }

    /// The peer hears of what is missing before the newest packet that is kept, once each.
    fn tell_gaps(&mut self, host: &mut Host, qpn: Qpn) {
        let most = self.config.window_packets as usize;
        let Some(selective) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.selective.as_mut()) else { return };
        let Some(newest) = selective.ahead.back().map(|newest| newest.psn) else { return };
        let mut told = 0u64;
        while selective.told.is_before(newest) {
            let psn = selective.told;
            selective.told = match selective.find(psn) {
                Ok(at) => psn.add(selective.ahead[at].packets),
                Err(_) => {
                    selective.queue_gap(psn, most);
                    told += 1;
                    psn.next()
                }
            };
        }
        if told > 0 {
            self.counters.send_seq_err += told;
            self.note_response_generation(host, qpn);
            self.requeue_response(qpn);
        }
    }

    /// The expected packet may have been executed: those behind it that are there have their turn.
    pub(super) fn run_ahead(&mut self, host: &mut Host, qpn: Qpn) -> Result<(), Stop> {
        while let Some(frame) = self.next_ahead(host, qpn)? {
            if self.run_packet(host, qpn, &frame) == Err(Stop::Blocked) {
                self.park(qpn, frame);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The expected packet, if it is among those that are kept. What is older is of no use any more.
    fn next_ahead(&mut self, host: &mut Host, qpn: Qpn) -> Result<Option<Frame>, Stop> {
        let first = |engine: &Self| Some(engine.queue_pairs.get(qpn)?.selective.as_ref()?.ahead.front()?.psn);
        let Some(psn) = first(self) else { return Ok(None) };
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        let expected = match self.load_qp(host, qpn, cause, Waiter::Inbound(qpn)) {
            Ok(context) => context.responder.expected_psn,
            Err(Stop::Blocked) => return Err(Stop::Blocked),
            // What is lost is noticed by the next packet.
            Err(_) => return Ok(None),
        };
        while first(self).is_some_and(|psn| !psn.is_after(expected)) {
            let kept = self.take_ahead(qpn);
            if let Some(kept) = kept.filter(|kept| kept.psn == expected && !planted("kept_packets_lost")) {
                return Ok(Some(kept.frame));
            }
        }
        Ok(None)
    }

    fn take_ahead(&mut self, qpn: Qpn) -> Option<Ahead> {
        let kept = self.queue_pairs.get_mut(qpn)?.selective.as_mut()?.ahead.pop_front()?;
        self.ahead_frames -= 1;
        Some(kept)
    }

    /// The next missing packet that the peer is to be told of; what has come meanwhile is passed over.
    pub(crate) fn next_gap(&mut self, qpn: Qpn, expected: Psn) -> Option<Psn> {
        let selective = self.queue_pairs.get_mut(qpn)?.selective.as_mut()?;
        loop {
            let psn = selective.gaps.pop_front()?;
            if !psn.is_before(expected) && selective.find(psn).is_err() {
                return Some(psn);
            }
        }
    }

    /// Nothing is kept any more, and nothing is to be sent again.
    pub(crate) fn forget_ahead(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        if let Some(selective) = qp.selective.as_mut() {
            self.ahead_frames -= selective.ahead.len();
            **selective = Default::default();
        }
    }
}
