//! Receive doorbells: how many receive work requests are posted. They are read when they are needed.

use crate::context::queue_pair::QpState;
use crate::engine::{Engine, HostWrite};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Waiter;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin};

impl Engine {
    pub(crate) fn receive_doorbell(&mut self, host: &mut Host, access: &HostWrite, page: u32, qpn: Qpn, producer: u16) {
        access.count(host, Origin::new(Class::RecvDoorbell, Cause::Maintenance));
        match self.accept_receive_doorbell(page, qpn, producer) {
            Ok(QpState::Err) => self.flush_posted(host, qpn),
            Ok(_) => {}
            Err(diagnostic) => self.diagnose(host.now_ns, diagnostic, qpn.0, producer.into()),
        }
    }

    fn accept_receive_doorbell(&mut self, page: u32, qpn: Qpn, producer: u16) -> Result<QpState, Diagnostic> {
        let qp = self.queue_pairs.get_mut(qpn).ok_or(Diagnostic::DoorbellNoQueue)?;
        if qp.doorbell_page != page {
            return Err(Diagnostic::DoorbellForeignPage);
        }
        if qp.state == QpState::Reset {
            return Err(Diagnostic::DoorbellState);
        }
        if u32::from(producer.wrapping_sub(qp.rq_producer)) > qp.rq.entries() {
            return Err(Diagnostic::DoorbellBeyondRing);
        }
        qp.rq_producer = producer;
        Ok(qp.state)
    }

    /// Receives that are posted in the error state complete flushed.
    pub(crate) fn flush_posted(&mut self, host: &mut Host, qpn: Qpn) {
        // Blocked: the context's fill schedules the queue pair, whose turn in the error state flushes.
        if let Ok(mut context) = self.load_qp(host, qpn, Cause::Maintenance, Waiter::Transmit(qpn)) {
            self.flush_receives(host, qpn, &mut context);
            self.store_qp(host, qpn, context);
        } else if let Some(qp) = self.queue_pairs.get_mut(qpn)
            && qp.transmit == crate::queues::TransmitState::Idle
        {
            qp.transmit = crate::queues::TransmitState::Blocked;
        }
    }
}
