//! Receive doorbells: how many receive work requests are posted. They are read when they are needed.

use crate::context::queue_pair::QpState;
use crate::engine::Engine;
use crate::host::Host;
use crate::host_access::HostWrite;
use crate::numbers::Qpn;
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin};

impl Engine {
    pub(crate) fn receive_doorbell(&mut self, host: &mut Host, access: &HostWrite, page: u32, qpn: Qpn, producer: u16) {
        access.count(host, Origin::new(Class::RecvDoorbell, Cause::Maintenance));
        match self.accept_receive_doorbell(page, qpn, producer) {
            // Receives that are posted in the error state complete flushed.
            Ok(QpState::Err) if !planted("receives_in_error_not_flushed") => self.flush(host, qpn),
            Ok(_) => {}
            Err(diagnostic) => self.refuse_doorbell(host, diagnostic, qpn.0, page, producer),
        }
    }

    fn accept_receive_doorbell(&mut self, page: u32, qpn: Qpn, producer: u16) -> Result<QpState, Diagnostic> {
        let qp = self.queue_pairs.get_mut(qpn).ok_or(Diagnostic::DoorbellNoQueue)?;
        if qp.doorbell_page != page {
            return Err(Diagnostic::DoorbellForeignPage);
        }
        if qp.state == QpState::Reset || qp.srqn.is_some() || !qp.service.has_receive_queue() {
            return Err(Diagnostic::DoorbellState);
        }
        let fresh = producer.wrapping_sub(qp.rq_producer);
        let unused = qp.rq_producer.wrapping_sub(qp.rq_consumer);
        if u32::from(fresh) + u32::from(unused) > qp.rq.entries() {
            return Err(Diagnostic::DoorbellBeyondRing);
        }
        qp.rq_producer = producer;
        Ok(qp.state)
    }
}
