//! Reliable delivery: what may have to be sent again, until when, and what is owed to the peer.
//!
//! [`replay_buffer`] records each message in flight by reference; [`ack`] matches acknowledgements against it by
//! PSN; [`retransmit`] goes back to the oldest unacknowledged packet; [`timer`] is the one table of deadlines.
//! [`credits`] holds back what the peer has no receive for.
//! [`ResponseDue`] is how the receive path asks the transmit path to acknowledge, [`reply`] how it leaves READs and
//! atomics to be answered; [`response`] matches what comes back of them.

pub(crate) mod ack;
pub(crate) mod credits;
pub(crate) mod replay_buffer;
pub(crate) mod reply;
pub(crate) mod response;
pub(crate) mod retransmit;
pub(crate) mod selective;
pub(crate) mod timer;

use rnic_wire::{Msn, Psn, Syndrome};

/// An acknowledgement that is owed: emitted by `rx/acknowledge`, built by `tx/packet_build`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseDue {
    pub psn: Psn,
    pub syndrome: Syndrome,
    pub msn: Msn,
}
