//! Receive work requests: one is there, by index, or the peer hears RNR; reading it is another matter.
//!
//! In: a SEND, or the last packet of a WRITE with immediate. Out: for a SEND the scatter list, when it has been
//! read; a WRITE's completion waits for the read behind its payload.

use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::{Qpn, Srqn};
use crate::pending::{Awaited, Stop, Waiter};
use crate::queues::{Pieces, ReceiveWqe, Ring, push_piece};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin, Submitted};

/// The largest stride of a receive queue.
const WQE_BYTES: usize = 128;

impl Engine {
    /// Reads the receive work request at `index` of the queue pair's ring or of a shared receive queue, once; `Ok` when it is there.
    pub(crate) fn fetch_receive_wqe(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        srqn: Option<Srqn>,
        index: u16,
    ) -> Result<(), Stop> {
        let Some(qp) = self.queue_pairs.get(qpn) else { return Ok(()) };
        if qp.receive_wqe.as_ref().is_some_and(|wqe| wqe.index == index) {
            return Ok(());
        }
        if qp.receive_fetching {
            return Err(Stop::Blocked);
        }
        let read = self.read_receive_wqe(host, qpn, srqn, index);
        if read == Err(Stop::Blocked) {
            return Err(Stop::Blocked);
        }
        if read.is_err() {
            self.keep_receive_wqe(qpn, index, None);
        }
        Ok(())
    }

    fn read_receive_wqe(&mut self, host: &mut Host, qpn: Qpn, srqn: Option<Srqn>, index: u16) -> Result<(), Stop> {
        const FAULT: Stop = Stop::Broken(Diagnostic::ReceiveFetchFault);
        let (ring, owner) = self.receive_ring(qpn, srqn).ok_or(FAULT)?;
        let cause = Cause::Receive { qpn_or_srqn: qpn.0, index };
        let length = usize::from(ring.entry_bytes).min(WQE_BYTES);
        let offset = ring.offset(index.into());
        // An entry does not straddle pages: its size is a power of two of at most 128 bytes.
        let (iova, _) = self.translate(host, owner, &ring.pages, offset, cause, Waiter::ReceiveWqe(qpn))?;
        let mut pieces = Pieces::new();
        push_piece(&mut pieces, iova, length as u32);
        let mut bytes = [0; WQE_BYTES];
        match host.port.read(Origin::new(Class::RecvWqeFetch, cause), &pieces, &mut bytes[..length]) {
            Ok(Submitted::Ready) => {
                self.keep_receive_wqe(qpn, index, Some(&bytes[..length]));
                Ok(())
            }
            Ok(Submitted::Pending(tag)) => {
                if let Some(qp) = self.queue_pairs.get_mut(qpn) {
                    qp.receive_fetching = true;
                }
                self.pending.insert(tag, Awaited::ReceiveWqe { qpn, index });
                Err(Stop::Blocked)
            }
            Err(_) => Err(FAULT),
        }
    }

    /// Where a queue pair's receive work requests stand: in its own ring, or in slots that it shares.
    fn receive_ring(&self, qpn: Qpn, srqn: Option<Srqn>) -> Option<(Ring, Owner)> {
        match srqn {
            None => Some((self.queue_pairs.get(qpn)?.rq, Owner::ReceiveQueue(qpn.0))),
            Some(srqn) => {
                let srq = self.shared_receive_queues.get(srqn)?;
                Some((srq.slots, Owner::SharedReceiveQueue(srqn.0)))
            }
        }
    }

    fn keep_receive_wqe(&mut self, qpn: Qpn, index: u16, bytes: Option<&[u8]>) {
        let list = match bytes {
            Some(bytes) => self.front_end.decode_receive(bytes),
            None => Err(Diagnostic::ReceiveFetchFault),
        };
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.receive_fetching = false;
            qp.receive_wqe = Some(ReceiveWqe { index, list });
        }
    }

    /// A read that was in flight is back, or the translation that it waited for.
    pub(crate) fn receive_wqe_arrived(&mut self, host: &mut Host, qpn: Qpn, arrived: Option<(u16, Option<&[u8]>)>) {
        if let Some((index, bytes)) = arrived {
            self.keep_receive_wqe(qpn, index, bytes);
        }
        self.finish_arrived(host, qpn);
        self.resume_inbound(host, qpn);
    }
}
