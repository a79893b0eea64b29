//! Extended reliable connections: the shared receive queue that a request is for.
//!
//! In: a request of an XRC target. Out: the queue pair aims at the queue that the request names: its receives, its
//! completion queue, and the protection domain in which keys are checked. A message keeps the queue that it began with.

use super::fault::Fault;
use crate::context::queue_pair::{QpContext, Service};
use crate::engine::Engine;
use crate::numbers::{Cqn, Pdn, Qpn, Srqn, XrcDomain};
use crate::planted::planted;
use crate::queues::QueuePair;
use rnic_abi::Diagnostic;
use rnic_abi::limits::NO_OBJECT;
use rnic_wire::ParsedPacket;

/// What a request's shared receive queue says about it.
struct Target {
    srqn: Srqn,
    pdn: Pdn,
    cqn: Cqn,
}

impl Engine {
    /// The target takes over what the named queue has. Other queue pairs have nothing to aim at.
    pub(super) fn aim(
        &mut self,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
        first: bool,
    ) -> Result<(), Fault> {
        if context.service != Service::XrcTarget {
            return Ok(());
        }
        let Some(domain) = self.queue_pairs.get(qpn).and_then(|qp| qp.xrc_domain) else { return Ok(()) };
        let target = self.target(domain, packet)?;
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Ok(()) };
        if !first && qp.srqn != Some(target.srqn) && !planted("xrc_messages_change_their_queue") {
            return Err(Fault::InvalidRequest(Diagnostic::XrcTarget));
        }
        (qp.srqn, qp.pdn, qp.receive_cqn) = (Some(target.srqn), target.pdn, target.cqn);
        context.pdn = target.pdn;
        Ok(())
    }

    /// The protection domain of a duplicate's key; none where there is no such queue any more.
    pub(super) fn duplicate_domain(&self, qpn: Qpn, context: &QpContext, packet: &ParsedPacket<'_>) -> Option<Pdn> {
        match self.queue_pairs.get(qpn)?.xrc_domain {
            None => Some(context.pdn),
            Some(domain) => self.target(domain, packet).ok().map(|target| target.pdn),
        }
    }

    fn target(&self, domain: XrcDomain, packet: &ParsedPacket<'_>) -> Result<Target, Fault> {
        let srqn = Srqn(packet.headers.extension.xrceth.srq_number);
        let srq = self.shared_receive_queues.get(srqn);
        let (srq, xrc) = srq
            .filter(|srq| !srq.leaving)
            .and_then(|srq| srq.xrc.map(|xrc| (srq, xrc)))
            .ok_or(Fault::InvalidRequest(Diagnostic::XrcTarget))?;
        if xrc.domain != domain && !planted("xrc_domains_unchecked") {
            return Err(Fault::InvalidRequest(Diagnostic::XrcDomain));
        }
        Ok(Target { srqn, pdn: srq.pdn, cqn: xrc.cqn })
    }

    /// A receive work request of the queue is being read for a target.
    pub(crate) fn targets_read(&self, srqn: Srqn) -> bool {
        let of_queue = |qp: &QueuePair| {
            qp.srqn == Some(srqn) || qp.arrived.iter().any(|arrived| arrived.completion.srqn == Some(srqn))
        };
        self.queue_pairs.iter().any(|(_, qp)| qp.xrc_domain.is_some() && qp.receive_fetching && of_queue(qp))
    }

    /// The queue is destroyed: no target aims at it any more. What they had in hand from it is gone with it; the rest of
    /// a message that was arriving is refused.
    pub(crate) fn forget_targets(&mut self, srqn: Srqn) {
        let aiming: Vec<_> =
            self.queue_pairs.iter().filter(|(_, qp)| qp.xrc_domain.is_some()).map(|(n, _)| n).collect();
        for qpn in aiming {
            let Some(qp) = self.queue_pairs.get_mut(Qpn(qpn)) else { continue };
            qp.arrived.retain(|arrived| arrived.completion.srqn != Some(srqn));
            if qp.srqn == Some(srqn) {
                (qp.srqn, qp.taken, qp.receive_cqn) = (None, None, Cqn(NO_OBJECT));
                (qp.receive_plan, qp.receive_wqe) = (None, None);
            }
        }
    }
}
