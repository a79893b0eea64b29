//! Arming: the driver asks for one event, at the next completion or the next solicited one.

use crate::context::completion_queue::CqContext;
use crate::engine::Engine;
use crate::front_end::EventRecord;
use crate::host::Host;
use crate::host_access::HostWrite;
use crate::numbers::Cqn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::queues::ArmRequest;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin};

impl Engine {
    pub(crate) fn arm_doorbell(
        &mut self,
        host: &mut Host,
        access: &HostWrite,
        page: u32,
        cqn: Cqn,
        request: ArmRequest,
    ) {
        access.count(host, Origin::new(Class::CqArm, Cause::Maintenance));
        let page_of = self.completion_queues.get(cqn).map(|cq| cq.doorbell_page);
        let refused = match page_of {
            None => Some((Diagnostic::DoorbellNoQueue, request.consumer)),
            Some(own) if own != page => Some((Diagnostic::DoorbellForeignPage, page)),
            Some(_) => None,
        };
        if let Some((diagnostic, value)) = refused {
            return self.diagnose(host.now_ns, diagnostic, cqn.0, value.into());
        }
        if let Some(cq) = self.completion_queues.get_mut(cqn) {
            // A state, not a queue: the newest arm is the one that counts.
            cq.arm_request = Some(request);
        }
        self.serve_arm_request(host, cqn);
    }

    /// Applies an arm once the context is there.
    pub(crate) fn serve_arm_request(&mut self, host: &mut Host, cqn: Cqn) {
        let Some(request) = self.completion_queues.get(cqn).and_then(|cq| cq.arm_request) else { return };
        let mut context = match self.load_cq(host, cqn, Cause::Maintenance, Waiter::Completion(cqn)) {
            Ok(context) => context,
            Err(Stop::Blocked) => return,
            Err(_) => return self.diagnose(host.now_ns, Diagnostic::ContextFault, cqn.0, 0),
        };
        if let Some(cq) = self.completion_queues.get_mut(cqn) {
            cq.arm_request = None;
        }
        match apply(&mut context, &request) {
            Ok(()) => {
                let seen = match context.arm.solicited_only {
                    false => context.producer != context.arm.consumer,
                    true => context.arm.last_solicited.is_some_and(|at| is_after(at, context.arm.consumer)),
                };
                if seen && !planted("unseen_entries_forgotten") {
                    self.fire(host, cqn, &mut context, Cause::Maintenance);
                } else {
                    self.forget_held(cqn);
                }
                self.store_cq(host, cqn, context);
            }
            Err(diagnostic) => {
                let value = if diagnostic == Diagnostic::ArmStale { request.sequence.into() } else { request.consumer };
                self.diagnose(host.now_ns, diagnostic, cqn.0, value.into());
            }
        }
    }

    /// A completion was written: an armed queue tells, once.
    pub(crate) fn fire_if_armed(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        context: &mut CqContext,
        notable: bool,
        cause: Cause,
    ) {
        if notable {
            context.arm.last_solicited = Some(context.producer);
        }
        if context.arm.armed && (notable || !context.arm.solicited_only) {
            self.fire(host, cqn, context, cause);
        } else {
            self.fire_held(host, cqn, context, cause);
        }
    }

    pub(crate) fn fire_now(&mut self, host: &mut Host, cqn: Cqn, context: &mut CqContext, cause: Cause) {
        self.forget_held(cqn);
        context.arm.armed = planted("armed_for_ever");
        let event = EventRecord::Completion { cqn: cqn.0, consumer: context.arm.consumer };
        if let Some(eqn) = self.completion_queues.get(cqn).and_then(|cq| cq.eqn) {
            self.post_event(host, eqn, event, cause);
        }
    }
}

/// `a` is a later free-running index than `b`.
const fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

fn apply(context: &mut CqContext, request: &ArmRequest) -> Result<(), Diagnostic> {
    if is_after(request.consumer, context.producer) {
        return Err(Diagnostic::ArmConsumerAhead);
    }
    let expected = match context.arm.sequence {
        None => request.sequence,
        // An arm that has not fired may be repeated, to ask for more.
        Some(last) if context.arm.armed => last,
        Some(last) => (last + 1) & 3,
    };
    if request.sequence != expected && !planted("stale_arms_count") {
        return Err(Diagnostic::ArmStale);
    }
    let downgrade = context.arm.armed && !context.arm.solicited_only && !planted("arm_downgrades");
    context.arm.solicited_only = request.solicited_only && !downgrade;
    context.arm.armed = true;
    context.arm.sequence = Some(request.sequence);
    context.arm.consumer = request.consumer;
    if is_after(request.consumer, context.consumer) {
        context.consumer = request.consumer;
    }
    Ok(())
}
