//! Posting to a receive queue: data segments into the ring, then one doorbell for the whole batch.

use super::error::check_limit;
use super::wqe::Sge;
use super::{Device, Qpn, Result, VerbsError};
use rnic_abi::doorbell::{DB_RECEIVE, queue_doorbell};
use rnic_abi::limits::MAX_LOG_RQ_STRIDE;
use rnic_abi::work_request::WQE_SEGMENT_BYTES;
use zerocopy::IntoBytes;

const SEGMENT_BYTES: usize = WQE_SEGMENT_BYTES as usize;

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    pub wr_id: u64,
    /// At most as many as the ring's stride has room for.
    pub elements: &'a [Sge],
}

impl Device {
    /// Posts a batch. When one request fails, those before it are posted and rung, and the error is the request's.
    pub fn post_receive(&mut self, qpn: Qpn, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let mut written = 0;
        let mut outcome = Ok(());
        for request in requests {
            outcome = self.write_receive_wqe(qpn, request);
            if outcome.is_err() {
                break;
            }
            written += 1;
        }
        if written > 0
            && let Some(qp) = self.queue_pairs.get(&qpn)
        {
            let value = queue_doorbell(qpn.0, qp.receive.producer());
            self.doorbell(qp.doorbell_page, DB_RECEIVE, value)?;
        }
        outcome
    }

    fn write_receive_wqe(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<()> {
        let qp = self.queue_pairs.get_mut(&qpn).ok_or_else(|| VerbsError::Missing { what: qpn.to_string() })?;
        let without = || VerbsError::Missing { what: format!("receive ring of {qpn}") };
        let ring = qp.receive_buffer.ok_or_else(without)?;
        let stride = SEGMENT_BYTES << qp.log_receive_stride;
        check_limit("number of elements", request.elements.len() as u64, 1 << qp.log_receive_stride)?;
        // What is not an element stays a segment of length 0, which ends the list.
        let mut bytes = [0; SEGMENT_BYTES << MAX_LOG_RQ_STRIDE];
        for (segment, element) in bytes.chunks_exact_mut(SEGMENT_BYTES).zip(request.elements) {
            segment.copy_from_slice(element.segment().as_bytes());
        }
        let index = qp.receive.reserve(1, request.wr_id).ok_or(VerbsError::RingFull {
            ring: "receive",
            slots: qp.receive.slots(),
            free: 0,
            needed: 1,
        })?;
        let at = ring.iova + (qp.receive.position(index) * stride) as u64;
        Ok(self.backing.copy_in(at, &bytes[..stride])?)
    }
}
