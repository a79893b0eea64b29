//! Where a crossing gets its sequence number and is entered, once: in the ledger, with its queue and in the trace.

use crate::ledger::Ledger;
use crate::queue_totals::QueueTotals;
use crate::tlp::Traffic;
use crate::trace::Trace;
use crate::{Crossing, DmaFault, Observed, Origin, WireBytes};

/// Names an entered crossing whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    sequence: u64,
    origin: Origin,
    traffic: Traffic,
}

/// What is said of a crossing when it is entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub origin: Origin,
    pub bytes: u32,
    pub ranges: u16,
    pub traffic: Traffic,
    pub observed: Option<Observed>,
    pub fault: Option<DmaFault>,
}

#[derive(Debug, Default)]
pub(crate) struct Books {
    pub ledger: Ledger,
    pub queues: QueueTotals,
    pub trace: Trace,
    pub last_sequence: u64,
    pub now_ns: u64,
    /// The crossing that failed latest: its pieces fail one after the other, and it is one fault.
    last_failed: u64,
}

impl Books {
    #[inline]
    pub fn enter(&mut self, account: Account) -> Entry {
        self.last_sequence += 1;
        let Account { origin, bytes, ranges, traffic, observed, fault } = account;
        let crossing = Crossing {
            sequence: self.last_sequence,
            time_ns: self.now_ns,
            origin,
            bytes,
            ranges,
            tlps: traffic.tlps,
            wire_bytes: traffic.wire_bytes,
            observed,
            fault,
        };
        self.ledger.enter(&crossing);
        self.queues.enter(&crossing);
        self.trace.record(&crossing);
        Entry { sequence: crossing.sequence, origin, traffic }
    }

    /// A read got a fault instead of its data.
    pub fn fail_read(&mut self, entry: &Entry, fault: DmaFault) {
        self.amend(entry, read_with_fault(entry.traffic, fault), fault);
    }

    /// A posted write was dropped. `sent`: its packets had left, or a part of them.
    pub fn fail_write(&mut self, entry: &Entry, sent: bool, fault: DmaFault) {
        self.amend(entry, if sent { entry.traffic } else { Traffic::default() }, fault);
    }

    fn amend(&mut self, entry: &Entry, is: Traffic, fault: DmaFault) {
        if self.last_failed == entry.sequence {
            return;
        }
        self.last_failed = entry.sequence;
        self.ledger.amend(entry.origin.class, &entry.traffic, &is);
        if let Some((queue, role)) = entry.origin.cause.operation() {
            self.queues.amend(queue, role, &entry.traffic, &is);
        }
        self.trace.amend(entry.sequence, |crossing| {
            crossing.tlps = is.tlps;
            crossing.wire_bytes = is.wire_bytes;
            crossing.fault = Some(fault);
        });
    }
}

/// The packets of a read that ends with this fault: its requests, and what came back for them.
pub(crate) fn read_with_fault(traffic: Traffic, fault: DmaFault) -> Traffic {
    let mut traffic = traffic;
    let down = match fault {
        // Poisoned data is data.
        DmaFault::Poisoned => return traffic,
        // One completion without data for each request.
        DmaFault::UnsupportedRequest | DmaFault::CompleterAbort => {
            u64::from(traffic.tlps.mrd) * u64::from(crate::tlp::COMPLETION_OVERHEAD_BYTES)
        }
        DmaFault::Revoked => 0,
    };
    traffic.tlps.cpld = 0;
    traffic.wire_bytes = WireBytes { down, ..traffic.wire_bytes };
    traffic
}
