//! The atomic reply: read, modify, write, remember. Atomics of an adapter on the same word take turns, whichever queue
//! pairs they come from: the one whose read is under way holds the word, the others wait where they are.

use super::fault::Fault;
use super::key_check::Authorized;
use crate::blocks::Block;
use crate::context::queue_pair::QpContext;
use crate::context::rd_atomic::{Answered, RdAtomicContext};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Awaited, Stop};
use crate::planted::planted;
use crate::queues::AtomicRead;
use crate::reliability::reply::Reply;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaRange, Origin, Submitted};
use rnic_wire::Psn;

pub(super) const BYTES: usize = rnic_abi::work_request::ATOMIC_BYTES as usize;

/// What is done with the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modify {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

impl Modify {
    fn apply(self, word: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if word == compare || planted("swap_without_compare") => swap,
            Self::CompareSwap { .. } => word,
            Self::FetchAdd { add } => word.wrapping_add(add),
        }
    }
}

/// The words that are being read and will be written, each with its queue pair; and who waits for one of them.
#[derive(Debug, Default)]
pub(crate) struct AtomicLocks {
    held: Vec<(Qpn, DmaRange)>,
    waiting: Vec<Qpn>,
    woken: Vec<Qpn>,
}

impl AtomicLocks {
    /// Takes the word, unless another queue pair holds it or a part of it.
    pub(super) fn take(&mut self, qpn: Qpn, ranges: &[DmaRange]) -> bool {
        let touches = |a: &DmaRange, b: &DmaRange| {
            a.iova.0 < b.iova.0.saturating_add(b.length_bytes.into())
                && b.iova.0 < a.iova.0.saturating_add(a.length_bytes.into())
        };
        if self.held.iter().any(|(holder, held)| *holder != qpn && ranges.iter().any(|range| touches(range, held))) {
            if !self.waiting.contains(&qpn) {
                self.waiting.push(qpn);
            }
            return false;
        }
        self.held.extend(ranges.iter().map(|range| (qpn, *range)));
        true
    }

    pub(super) fn release(&mut self, qpn: Qpn) {
        self.held.retain(|(holder, _)| *holder != qpn);
        self.woken.append(&mut self.waiting);
    }

    /// A queue pair that starts anew neither holds nor waits.
    pub fn forget(&mut self, qpn: Qpn) {
        self.waiting.retain(|waiting| *waiting != qpn);
        self.woken.retain(|woken| *woken != qpn);
        self.release(qpn);
    }

    pub fn nobody_woken(&self) -> bool {
        self.woken.is_empty()
    }
}

impl Engine {
    /// Blocked means that nothing has changed but that the word may be held: the packet runs again.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn execute_atomic(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        modify: Modify,
        psn: Psn,
        authorized: &Authorized,
        mut remembered: RdAtomicContext,
    ) -> Result<Result<(), Fault>, Stop> {
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        let ranges = &authorized.0.ranges;
        let original = match self.read_word(host, qpn, ranges, Origin::new(Class::AtomicRead, cause))? {
            Some(original) => original,
            None => return Ok(Err(Fault::LocalOperation(Diagnostic::PayloadFault))),
        };
        let origin = Origin::new(Class::AtomicWrite, cause);
        // Written whether or not it has changed, as hardware does it.
        if host.port.write(origin, ranges, &modify.apply(original).to_le_bytes()).is_err() {
            return Ok(Err(Fault::LocalOperation(Diagnostic::PayloadFault)));
        }
        self.counters.rx_atomic_requests += 1;
        self.counters.executed_messages += 1;
        remembered.remember(Answered::Atomic { psn, original }, context.responder.max_dest_rd_atomic);
        self.store_rd_atomic(host, qpn, remembered);
        context.responder.message_arrived(1);
        let msn = context.responder.msn;
        self.reply(host, qpn, Reply::Atomic { psn, msn, original, attempt: 0 });
        Ok(Ok(()))
    }

    /// The word, or a part of it, as it stands; `None` when host memory does not answer. An atomic's word is locked.
    pub(super) fn read_word(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        ranges: &[DmaRange],
        origin: Origin,
    ) -> Result<Option<u64>, Stop> {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Ok(None) };
        match qp.atomic {
            AtomicRead::InFlight => return Err(Stop::Blocked),
            AtomicRead::Arrived(word) => return Ok(word),
            AtomicRead::Idle => {}
        }
        if origin.class == Class::AtomicRead && !self.atomic_locks.take(qpn, ranges) {
            return Err(Stop::Blocked);
        }
        self.blocks.touch(host.now_ns, Block::DmaEngine, qpn.0);
        self.blocks.touch(host.now_ns, Block::SystemIommu, qpn.0);
        let length: u32 = ranges.iter().map(|range| range.length_bytes).sum();
        let mut word = [0; BYTES];
        let Some(bytes) = word.get_mut(..length as usize) else { return Ok(None) };
        match host.port.read(origin, ranges, bytes) {
            Ok(Submitted::Ready) => {
                qp.atomic = AtomicRead::Arrived(Some(u64::from_le_bytes(word)));
                Ok(Some(u64::from_le_bytes(word)))
            }
            Ok(Submitted::Pending(tag)) => {
                qp.atomic = AtomicRead::InFlight;
                self.pending.insert(tag, Awaited::Atomic { qpn });
                Err(Stop::Blocked)
            }
            Err(_) => {
                qp.atomic = AtomicRead::Arrived(None);
                Ok(None)
            }
        }
    }

    /// The word is here: the packet that waits for it runs again.
    pub(crate) fn atomic_arrived(&mut self, host: &mut Host, qpn: Qpn, bytes: Option<&[u8]>) {
        let Some(qp) = self.queue_pairs.get_mut(qpn).filter(|qp| qp.atomic == AtomicRead::InFlight) else { return };
        let mut word = [0; BYTES];
        let place = bytes.and_then(|bytes| Some((word.get_mut(..bytes.len())?, bytes)));
        let whole = place.map(|(place, bytes)| place.copy_from_slice(bytes));
        qp.atomic = AtomicRead::Arrived(whole.map(|()| u64::from_le_bytes(word)));
        self.resume_inbound(host, qpn);
    }

    /// The packet has run, whatever came of it: the word is free.
    pub(crate) fn end_atomic(&mut self, qpn: Qpn) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn)
            && std::mem::take(&mut qp.atomic) != AtomicRead::Idle
        {
            self.atomic_locks.release(qpn);
        }
    }

    /// Those that waited for a word that is free now try again.
    pub(crate) fn resume_atomics(&mut self, host: &mut Host) {
        for qpn in std::mem::take(&mut self.atomic_locks.woken) {
            self.resume_inbound(host, qpn);
        }
    }
}
