//! A message has arrived: its receive work request is used up, and its completion waits for its turn.

use super::opcode_check::{Arrival, Message};
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::{Completion, CompletionKind, DatagramSource, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use crate::queues::Arrived;
use rnic_pcie::{Cause, DmaTag};

impl Engine {
    pub(crate) fn message_arrived(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        arrival: &Arrival,
        barrier: Option<DmaTag>,
        datagram: Option<DatagramSource>,
    ) {
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        let index = qp.consume_receive();
        let by_write = matches!(arrival.message, Message::Write { .. });
        let completion = Completion {
            qpn,
            srqn: qp.srqn,
            wqe_index: index,
            kind: CompletionKind::Received {
                immediate: arrival.immediate.filter(|_| !planted("immediate_lost")),
                invalidated: arrival.invalidate,
                by_write: by_write && !planted("writes_complete_as_sends"),
            },
            status: Status::Success,
            length_bytes: if planted("length_of_the_last_packet") {
                arrival.length_bytes
            } else {
                (arrival.offset + u64::from(arrival.length_bytes)) as u32
            },
            source_qpn: datagram.map_or(context.dest_qpn, |source| source.qpn),
            datagram,
            solicited: arrival.solicited,
            diagnostic: None,
        };
        let cause = Cause::Receive { qpn_or_srqn: qpn.0, index };
        if !by_write {
            qp.receive_wqe = None;
        }
        let cqn = qp.receive_cqn;
        qp.arrived.push_back(Arrived { completion, cqn, cause, waits_for_wqe: by_write, waits_for_reads: barrier });
        self.finish_arrived(host, qpn);
    }

    /// Completes what has arrived, in order, as far as receive work requests are there.
    pub(crate) fn finish_arrived(&mut self, host: &mut Host, qpn: Qpn) {
        loop {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
            let Some(front) = qp.arrived.front() else { break };
            let (waits, srqn, index) = (front.waits_for_wqe, front.completion.srqn, front.completion.wqe_index);
            let barrier = front.waits_for_reads;
            if barrier.is_some() && self.waits_for_reads(qpn, barrier) {
                return;
            }
            if waits {
                if self.fetch_receive_wqe(host, qpn, srqn, index) == Err(Stop::Blocked) {
                    return;
                }
                self.use_receive_wqe(host, qpn, index);
            }
            let Some(arrived) = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.arrived.pop_front()) else { return };
            self.complete(host, arrived.cqn, arrived.completion, arrived.cause);
        }
        // In the error state, what was posted behind them is flushed.
        self.flush(host, qpn);
    }

    /// The work request of a WRITE with immediate is only used up: its buffer stays untouched.
    fn use_receive_wqe(&mut self, host: &mut Host, qpn: Qpn, index: u16) {
        let wqe = self.queue_pairs.get_mut(qpn).and_then(|qp| qp.receive_wqe.take());
        if let Some(Err(diagnostic)) = wqe.map(|wqe| wqe.list) {
            self.diagnose(host.now_ns, diagnostic, qpn.0, index.into());
        }
    }
}
