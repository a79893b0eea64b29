//! The key check on the receiving side: may the payload be placed, and where?
//!
//! The rkey of a WRITE or a READ is checked for the whole range of its RETH at the first packet; a range of no bytes
//! names nothing that could be checked. A SEND's elements are checked like any local memory.

use super::fault::Fault;
use super::opcode_check::{Arrival, Message};
use crate::context::access::{Accessor, Plan};
use crate::context::key::{Refusal, Right};
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Element, ScatterList};
use crate::host::Host;
use crate::numbers::{Key, Pdn, Qpn};
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_abi::work_request::ATOMIC_BYTES;
use rnic_pcie::Cause;

/// Where an arrival's payload goes: only this reaches `scatter`.
#[derive(Debug)]
pub(crate) struct Authorized(pub Plan);

/// Blocked, or the peer's fault.
pub(crate) type Checked<T> = Result<T, Refused>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Blocked,
    Fault(Fault),
}

impl Engine {
    pub(crate) fn authorize(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        arrival: &Arrival,
        psn: u32,
    ) -> Checked<Authorized> {
        let cause = Cause::Packet { qpn: qpn.0, psn, attempt: 0 };
        let waiter = Waiter::Inbound(qpn);
        match arrival.message {
            Message::Write { address, rkey, length_bytes } => {
                let accessor = self.accessor(qpn, context.pdn, Right::RemoteWrite, cause, waiter);
                let elements = [Element { address, length_bytes, key: rkey }];
                self.authorize_elements(host, qpn, &elements, arrival, &accessor)
            }
            Message::Read { address, rkey, length_bytes } => {
                let accessor = self.accessor(qpn, context.pdn, Right::RemoteRead, cause, waiter);
                let elements = [Element { address, length_bytes, key: rkey }];
                self.authorize_elements(host, qpn, &elements, arrival, &accessor)
            }
            Message::Atomic { address, rkey, .. } => {
                let accessor = self.accessor(qpn, context.pdn, Right::RemoteAtomic, cause, waiter);
                let elements = [Element { address, length_bytes: ATOMIC_BYTES, key: rkey }];
                self.authorize_elements(host, qpn, &elements, arrival, &accessor)
            }
            Message::AtomicWrite { address, rkey, .. } => {
                let accessor = self.accessor(qpn, context.pdn, Right::RemoteWrite, cause, waiter);
                let elements = [Element { address, length_bytes: ATOMIC_BYTES, key: rkey }];
                self.authorize_elements(host, qpn, &elements, arrival, &accessor)
            }
            Message::Flush { address, rkey, length_bytes, rights } => {
                let accessor = self.accessor(qpn, context.pdn, Right::Flush(rights), cause, waiter);
                let element = match length_bytes {
                    Some(length_bytes) => Element { address, length_bytes, key: rkey },
                    None => self.whole_region(host, rkey, &accessor)?,
                };
                let arrival = Arrival { length_bytes: element.length_bytes.min(1), ..*arrival };
                self.authorize_elements(host, qpn, &[element], &arrival, &accessor)
            }
            Message::Send => {
                let (pdn, privileged) = self.receive_domain(qpn, context);
                let accessor = self.accessor(qpn, pdn, Right::LocalWrite, cause, waiter);
                let accessor = Accessor { privileged, ..accessor };
                let elements = self.receive_elements(qpn, arrival)?;
                self.authorize_elements(host, qpn, &elements, arrival, &accessor)
            }
        }
    }

    /// The beginning of a key's memory, which stands for all of it.
    fn whole_region(&mut self, host: &mut Host, key: Key, accessor: &Accessor) -> Checked<Element> {
        match self.load_key(host, key, accessor.cause, accessor.waiter) {
            Ok(region) => Ok(Element { address: region.base(), length_bytes: region.length_bytes.min(1) as u32, key }),
            Err(Stop::Blocked) => Err(Refused::Blocked),
            Err(Stop::Broken(diagnostic)) => Err(Refused::Fault(Fault::LocalOperation(diagnostic))),
            Err(Stop::Refused(refusal)) => Err(Refused::Fault(Fault::RemoteAccess(self.remote_refusal(refusal)))),
        }
    }

    /// The protection domain of receive elements, and whether they may name the local DMA key: a shared receive queue
    /// has its own.
    fn receive_domain(&self, qpn: Qpn, context: &QpContext) -> (Pdn, bool) {
        let qp = self.queue_pairs.get(qpn);
        let srq = qp.and_then(|qp| qp.srqn).and_then(|srqn| self.shared_receive_queues.get(srqn));
        match srq {
            Some(srq) if !planted("shared_receives_in_foreign_domain") => (srq.pdn, srq.privileged),
            _ => (context.pdn, qp.is_some_and(|qp| qp.privileged)),
        }
    }

    /// The elements of the receive work request in use, if they are long enough for the message so far.
    fn receive_elements(&self, qpn: Qpn, arrival: &Arrival) -> Checked<ScatterList> {
        let wqe = self.queue_pairs.get(qpn).and_then(|qp| qp.receive_wqe.as_ref()).ok_or(Refused::Blocked)?;
        let list = match &wqe.list {
            Ok(list) => list,
            Err(diagnostic) => return Err(Refused::Fault(Fault::LocalOperation(*diagnostic))),
        };
        let room: u64 = list.iter().map(|element| u64::from(element.length_bytes)).sum();
        if arrival.offset + u64::from(arrival.length_bytes) > room && !planted("receive_room_unchecked") {
            return Err(Refused::Fault(Fault::ReceiveTooSmall));
        }
        Ok(list.clone())
    }

    fn authorize_elements(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        elements: &[Element],
        arrival: &Arrival,
        accessor: &Accessor,
    ) -> Checked<Authorized> {
        let kept = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.receive_plan.take());
        let mut plan = kept.map_or_else(Plan::default, |plan| *plan);
        let whole_range = arrival.first && arrival.message != Message::Send;
        let mut resolved = Ok(());
        if whole_range {
            resolved = self.check_elements(host, elements, accessor, &mut plan);
        }
        if resolved.is_ok() {
            let length = arrival.length_bytes.into();
            resolved = self.resolve(host, elements, arrival.offset, length, accessor, &mut plan);
        }
        match resolved {
            Ok(()) => Ok(Authorized(plan)),
            Err(Stop::Blocked) => {
                if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                    qp.receive_plan = Some(Box::new(plan));
                }
                Err(Refused::Blocked)
            }
            Err(Stop::Broken(diagnostic)) => Err(Refused::Fault(Fault::LocalOperation(diagnostic))),
            Err(Stop::Refused(refusal)) => Err(Refused::Fault(match arrival.message {
                Message::Send => Fault::LocalProtection(self.local_refusal(refusal)),
                _ => Fault::RemoteAccess(self.remote_refusal(refusal)),
            })),
        }
    }

    /// Counts a refusal of a remote key and names its rule.
    pub(crate) fn remote_refusal(&mut self, refusal: Refusal) -> Diagnostic {
        match refusal {
            Refusal::Invalid => {
                self.counters.rkey_invalid += 1;
                Diagnostic::RKeyInvalid
            }
            Refusal::Range => {
                self.counters.rkey_range += 1;
                Diagnostic::RKeyRange
            }
            Refusal::Right => {
                self.counters.rkey_right += 1;
                Diagnostic::RKeyRight
            }
            Refusal::Pd => {
                self.counters.rkey_pd += 1;
                Diagnostic::RKeyPd
            }
        }
    }
}
