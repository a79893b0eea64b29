//! Send doorbells. In: queue and producer index. Out: the queue's ring is read, or, for the WQE-carrying form,
//! the work request is taken from the line itself.

use crate::context::queue_pair::QpState;
use crate::engine::Engine;
use crate::front_end::DoorbellForm;
use crate::host::Host;
use crate::host_access::HostWrite;
use crate::numbers::Qpn;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin};

impl Engine {
    pub(crate) fn send_doorbell(
        &mut self,
        host: &mut Host,
        access: &HostWrite,
        page: u32,
        qpn: Qpn,
        producer: u16,
        form: DoorbellForm,
    ) {
        let accepted = self.accept_send_doorbell(page, qpn, producer);
        let cause = match accepted {
            Ok(index) => Cause::Send { qpn: qpn.0, index, count: producer.wrapping_sub(index), attempt: 0 },
            Err(_) => Cause::Maintenance,
        };
        access.count(host, Origin::new(Class::Doorbell, cause));
        let index = match accepted {
            Ok(index) => index,
            Err(diagnostic) => return self.refuse_doorbell(host, diagnostic, qpn.0, page, producer),
        };
        if access.torn {
            self.diagnose_torn_line(host, access, qpn.0);
        }
        if let DoorbellForm::WorkRequest(line) = form {
            self.take_carried_wqe(host, qpn, index, &line);
        }
        self.fetch_work(host, qpn);
    }

    /// Checks a doorbell and moves the producer; the index before it is the answer.
    fn accept_send_doorbell(&mut self, page: u32, qpn: Qpn, producer: u16) -> Result<u16, Diagnostic> {
        let qp = self.queue_pairs.get_mut(qpn).ok_or(Diagnostic::DoorbellNoQueue)?;
        if qp.doorbell_page != page {
            return Err(Diagnostic::DoorbellForeignPage);
        }
        if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) || !qp.service.has_send_queue() {
            return Err(Diagnostic::DoorbellState);
        }
        let index = qp.sq_producer;
        let fresh = producer.wrapping_sub(index);
        let unread = index.wrapping_sub(qp.sq_fetch);
        if u32::from(fresh) + u32::from(unread) > qp.sq.entries() {
            return Err(Diagnostic::DoorbellBeyondRing);
        }
        qp.sq_producer = producer;
        Ok(index)
    }
}
