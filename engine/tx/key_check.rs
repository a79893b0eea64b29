//! The local key check: may the source bytes be read, and where are they?
//!
//! In: a segment. Out: the ranges to gather. At a message's first packet every element is checked over its whole
//! length, so that a bad key lets no packet of its message leave; every packet is checked again for its own bytes.

use super::segment::Segment;
use crate::context::access::Plan;
use crate::context::key::{Refusal, Right};
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Body, ScatterList};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use rnic_abi::Diagnostic;

impl Engine {
    /// The ranges of a segment's bytes; `None` for inline data, which need none.
    pub(crate) fn gather_ranges(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        segment: &Segment,
    ) -> Result<Option<Plan>, Stop> {
        let Some(elements) = self.elements_of(segment) else { return Ok(None) };
        let (cause, waiter) = (segment.cause(qpn), Waiter::Transmit(qpn));
        let accessor = self.accessor(qpn, context.pdn, Right::LocalRead, cause, waiter);
        let kept = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.transmit_plan.take());
        let mut plan = kept.map_or_else(Plan::default, |plan| *plan);
        let mut resolved = Ok(());
        if segment.first && !planted("elements_checked_packet_by_packet") {
            resolved = self.check_elements(host, &elements, &accessor, &mut plan);
        }
        if resolved.is_ok() {
            let length = segment.length_bytes.into();
            resolved = self.resolve(host, &elements, segment.offset, length, &accessor, &mut plan);
        }
        if resolved == Err(Stop::Blocked)
            && let Some(qp) = self.queue_pairs.get_mut(qpn)
        {
            qp.transmit_plan = Some(Box::new(plan));
            return Err(Stop::Blocked);
        }
        resolved.map(|()| Some(plan))
    }

    fn elements_of(&self, segment: &Segment) -> Option<ScatterList> {
        let work = self.wqes.get(segment.wqe)?.work.as_ref().ok()?;
        match &work.body {
            // What a READ or an atomic brings is checked when it has come.
            Body::Gather(_) if work.operation.brings_data() => None,
            Body::Gather(elements) => Some(elements.clone()),
            Body::Inline(_) | Body::Register(_) | Body::Bind(_) | Body::Flush(_) => None,
        }
    }

    /// Counts a refusal of a local key and names its rule.
    pub(crate) fn local_refusal(&mut self, refusal: Refusal) -> Diagnostic {
        match refusal {
            Refusal::Invalid => {
                self.counters.lkey_invalid += 1;
                Diagnostic::LKeyInvalid
            }
            Refusal::Range => {
                self.counters.lkey_range += 1;
                Diagnostic::LKeyRange
            }
            Refusal::Right => {
                self.counters.lkey_right += 1;
                Diagnostic::LKeyRight
            }
            Refusal::Pd => {
                self.counters.lkey_pd += 1;
                Diagnostic::LKeyPd
            }
        }
    }
}
