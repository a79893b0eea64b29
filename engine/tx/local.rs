//! Work requests without packets. In: one whose turn it is. Out: its effect and its completion, when everything before
//! it has ended: what could still have to be sent again may need the key.

use super::schedule::Turn;
use super::segment::Segment;
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Body, Status};
use crate::host::Host;
use crate::numbers::{Key, Qpn};
use crate::pending::{Stop, Waiter};
use rnic_pcie::DmaTag;

impl Engine {
    /// The effect comes at once; the completion waits until no read that a key allowed before is in flight.
    pub(crate) fn run_local(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        segment: &Segment,
    ) -> Result<Turn, Stop> {
        let Some(qp) = self.queue_pairs.get(qpn) else { return Ok(Turn::Idle) };
        if !qp.replay.is_empty() {
            return Ok(Turn::Idle);
        }
        let barrier = match qp.local_barrier {
            Some(barrier) => barrier,
            None => {
                let done = self.take_effect(host, qpn, segment);
                if done != Err(Stop::Blocked) {
                    self.contexts.in_hand.drop_key(Waiter::Transmit(qpn));
                }
                match done {
                    Ok(barrier) => barrier,
                    Err(Stop::Blocked) => return Err(Stop::Blocked),
                    Err(stop) => {
                        self.message_fails(host, qpn, context, segment, stop);
                        return Ok(Turn::Idle);
                    }
                }
            }
        };
        let waits = self.waits_for_reads(qpn, barrier);
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Ok(Turn::Idle) };
        qp.local_barrier = waits.then_some(barrier);
        if !waits {
            qp.waiting.pop_front();
            self.complete_send(host, qpn, segment.wqe, Status::Success, None);
            self.fetch_work(host, qpn);
            self.schedule(qpn);
        }
        Ok(Turn::Idle)
    }

    /// The newest read that a key allowed which is not valid any more.
    fn take_effect(&mut self, host: &mut Host, qpn: Qpn, segment: &Segment) -> Result<Option<DmaTag>, Stop> {
        let work = self.wqes.get(segment.wqe).and_then(|wqe| wqe.work.as_ref().ok());
        let key = work.map_or(Key(0), |work| work.rkey);
        let (cause, waiter) = (segment.cause(qpn), Waiter::Transmit(qpn));
        match work.map(|work| &work.body) {
            Some(Body::Register(registration)) => {
                let registration = *registration;
                self.register_fast(host, qpn, key, &registration, cause)
            }
            Some(Body::Bind(binding)) => {
                let binding = *binding;
                self.bind_window(host, qpn, key, &binding, cause)
            }
            _ => {
                let context = self.invalidatable(host, key, qpn, cause, waiter)?;
                Ok(self.invalidate(host, key, context))
            }
        }
    }
}
