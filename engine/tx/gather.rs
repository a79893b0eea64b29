//! The gather: source bytes go from host memory into the frame, right where the packet carries them.
//!
//! In: ranges and a frame whose headers are laid out. Out: the frame with its payload, at once or when the read
//! completes.

use super::segment::Segment;
use crate::blocks::Block;
use crate::context::access::Plan;
use crate::engine::Engine;
use crate::front_end::Body;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Awaited, Stop};
use crate::queues::TransmitState;
use rnic_abi::Diagnostic;
use rnic_pcie::{Class, Origin, Submitted};
use rnic_wire::Frame;
use std::ops::Range;

/// A packet whose payload is on its way.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub qpn: Qpn,
    pub segment: Segment,
    pub frame: Frame,
    pub payload: Range<usize>,
    /// The queue pair's epoch when the read was sent: another one means that it has gone back meanwhile.
    pub epoch: u32,
}

impl Engine {
    pub(crate) fn gather(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        segment: &Segment,
        plan: Option<&Plan>,
        frame: &mut Frame,
        payload: Range<usize>,
    ) -> Result<(), Stop> {
        if payload.is_empty() {
            return Ok(());
        }
        let Some(plan) = plan else {
            self.copy_inline(segment, &mut frame.bytes_mut()[payload]);
            return Ok(());
        };
        self.blocks.touch(host.now_ns, Block::DmaEngine, qpn.0);
        self.blocks.touch(host.now_ns, Block::SystemIommu, qpn.0);
        let origin = Origin::new(Class::PayloadRead, segment.cause(qpn));
        match host.port.read(origin, &plan.ranges, &mut frame.bytes_mut()[payload.clone()]) {
            Ok(Submitted::Ready) => Ok(()),
            Ok(Submitted::Pending(tag)) => {
                let Some(qp) = self.queue_pairs.get_mut(qpn) else { return Err(Stop::Blocked) };
                qp.transmit = TransmitState::Gathering;
                let epoch = qp.transmit_epoch;
                let frame = std::mem::take(frame);
                let gathering = Gathering { qpn, segment: *segment, frame, payload, epoch };
                self.pending.insert(tag, Awaited::Gather(Box::new(gathering)));
                Err(Stop::Blocked)
            }
            Err(_) => Err(Stop::Broken(Diagnostic::PayloadFault)),
        }
    }

    fn copy_inline(&self, segment: &Segment, into: &mut [u8]) {
        let work = self.wqes.get(segment.wqe).and_then(|wqe| wqe.work.as_ref().ok());
        if let Some(Body::Inline(data)) = work.map(|work| &work.body) {
            let from = segment.offset as usize;
            if let Some(bytes) = data.get(from..from + into.len()) {
                into.copy_from_slice(bytes);
            }
        }
    }
}
