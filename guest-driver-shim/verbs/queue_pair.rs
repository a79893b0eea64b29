//! Queue pairs: creation, the state machine's commands, destruction.

use super::error::check_limit;
use super::page_list;
use super::ring::WorkRing;
use super::{Cqn, Device, Pdn, Qpn, Result, Srqn, VerbsError};
use crate::backing::DmaBuffer;
use rnic_abi::command::*;
use rnic_abi::limits::MAX_LOG_RQ_STRIDE;
use rnic_abi::work_request::{WQE_SEGMENT_BYTES, WQE_SLOT_BYTES};
use rnic_abi::{CommandOpcode, PageListFields};
use zerocopy::{FromBytes, IntoBytes};

/// A queue pair as it is created.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec {
    /// The number it shall have, or the lowest free one.
    pub qpn: Option<u32>,
    /// A `QP_TYPE_*`.
    pub qp_type: u8,
    pub pd: Pdn,
    pub send_cq: Cqn,
    pub receive_cq: Cqn,
    pub log_send_slots: u8,
    pub log_receive_entries: u8,
    /// A receive WQE has room for `1 << log_receive_stride` elements.
    pub log_receive_stride: u8,
    pub doorbell_page: u32,
    /// Every send work request is signaled.
    pub signal_all: bool,
    /// The kernel's own: REG_MR and the local DMA key are allowed.
    pub privileged: bool,
    /// Only lost packets are sent again; the peer must do the same.
    pub selective: bool,
}

/// Where a queue pair's receives come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receives {
    Own,
    Of(Srqn),
    None,
}

impl QpSpec {
    fn flags(&self, shares_receives: bool) -> u8 {
        let bits = [
            (self.signal_all, QP_SIGNAL_ALL),
            (shares_receives, QP_SRQ),
            (self.privileged, QP_PRIVILEGED),
            (self.selective, QP_SELECTIVE),
        ];
        bits.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit)
    }
}

#[derive(Debug)]
pub(crate) struct QueuePair {
    pub send: WorkRing,
    pub receive: WorkRing,
    /// `None` where there is no such ring.
    pub send_buffer: Option<DmaBuffer>,
    pub receive_buffer: Option<DmaBuffer>,
    pub log_receive_stride: u8,
    pub doorbell_page: u32,
    pub send_cq: Cqn,
    pub receive_cq: Cqn,
}

impl QueuePair {
    pub fn into_buffers(self) -> impl Iterator<Item = DmaBuffer> {
        [self.send_buffer, self.receive_buffer].into_iter().flatten()
    }
}

/// What QUERY_QP answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSnapshot {
    pub attributes: QpAttributes,
    pub queues: QueueState,
}

impl Device {
    pub fn create_queue_pair(&mut self, spec: QpSpec) -> Result<Qpn> {
        self.create_queue_pair_with(spec, Receives::Own)
    }

    /// A queue pair whose receives come from a shared receive queue; the spec's own receives are none.
    pub fn create_queue_pair_on_srq(&mut self, spec: QpSpec, srqn: Srqn) -> Result<Qpn> {
        self.create_queue_pair_with(
            QpSpec { log_receive_entries: 0, log_receive_stride: 0, ..spec },
            Receives::Of(srqn),
        )
    }

    /// The sending half of an extended connection; the spec's type and receives are of no account.
    pub fn create_xrc_initiator(&mut self, spec: QpSpec) -> Result<Qpn> {
        let spec = QpSpec { qp_type: QP_TYPE_XRC_INI, log_receive_entries: 0, log_receive_stride: 0, ..spec };
        self.create_queue_pair_with(spec, Receives::None)
    }

    /// The receiving half: its requests go to the XRC shared receive queues of this domain.
    pub fn create_xrc_target(&mut self, qpn: Option<u32>, domain: u32) -> Result<Qpn> {
        let qpn = self.qpns.take(qpn)?;
        let (qp_type, pdn) = (QP_TYPE_XRC_TGT, domain.into());
        let body = CreateQp { qpn: qpn.into(), qp_type, pdn, ..CreateQp::zeroed() };
        if let Err(error) = self.command(CommandOpcode::CREATE_QP, body.as_bytes()) {
            self.qpns.give(qpn);
            return Err(error);
        }
        Ok(Qpn(qpn))
    }

    fn create_queue_pair_with(&mut self, spec: QpSpec, receives: Receives) -> Result<Qpn> {
        check_limit("log of send slots", spec.log_send_slots.into(), self.limits.log_sq_slots.min(15).into())?;
        check_limit("log of receives", spec.log_receive_entries.into(), self.limits.log_rq_entries.min(15).into())?;
        check_limit("log of the receive stride", spec.log_receive_stride.into(), MAX_LOG_RQ_STRIDE.into())?;
        let qpn = self.qpns.take(spec.qpn)?;
        let send_buffer = self.allocate_ring(u64::from(WQE_SLOT_BYTES) << spec.log_send_slots)?;
        let receive_bytes = u64::from(WQE_SEGMENT_BYTES) << spec.log_receive_stride << spec.log_receive_entries;
        let receive_buffer = match receives {
            Receives::Own => Some(self.allocate_ring(receive_bytes)?),
            Receives::Of(_) | Receives::None => None,
        };
        let srqn = if let Receives::Of(srqn) = receives { Some(srqn) } else { None };
        let receive_cqn = if receives == Receives::None { 0 } else { spec.receive_cq.0 };
        let body = CreateQp {
            qpn: qpn.into(),
            qp_type: spec.qp_type,
            flags: spec.flags(srqn.is_some()),
            srqn: srqn.map_or(0, |srqn| srqn.0).into(),
            log_sq_slots: spec.log_send_slots,
            log_rq_entries: spec.log_receive_entries,
            log_rq_stride: spec.log_receive_stride,
            pdn: spec.pd.0.into(),
            send_cqn: spec.send_cq.0.into(),
            receive_cqn: receive_cqn.into(),
            doorbell_page: spec.doorbell_page.into(),
            sq_pages: page_list::contiguous(send_buffer.iova),
            rq_pages: receive_buffer.map_or(PageListFields::zeroed(), |ring| page_list::contiguous(ring.iova)),
            ..CreateQp::zeroed()
        };
        let queue_pair = QueuePair {
            send: WorkRing::new(spec.log_send_slots),
            receive: WorkRing::new(spec.log_receive_entries),
            send_buffer: Some(send_buffer),
            receive_buffer,
            log_receive_stride: spec.log_receive_stride,
            doorbell_page: spec.doorbell_page,
            send_cq: spec.send_cq,
            receive_cq: spec.receive_cq,
        };
        if let Err(error) = self.command(CommandOpcode::CREATE_QP, body.as_bytes()) {
            self.qpns.give(qpn);
            queue_pair.into_buffers().for_each(|buffer| self.backing.release(buffer));
            return Err(error);
        }
        self.queue_pairs.insert(Qpn(qpn), queue_pair);
        Ok(Qpn(qpn))
    }

    /// A ring of a power of two bytes. Small ones share pages, and none lies across a boundary that a fetch would be cut at.
    fn allocate_ring(&mut self, bytes: u64) -> Result<DmaBuffer> {
        Ok(self.backing.allocate(bytes, bytes.clamp(u64::from(WQE_SLOT_BYTES), 4096))?)
    }

    /// Executes MODIFY_QP with the attributes that `mask` names; the device checks them.
    pub fn modify_queue_pair(&mut self, qpn: Qpn, attributes: QpAttributes) -> Result<()> {
        let body = QpAttributes { qpn: qpn.0.into(), ..attributes };
        self.command(CommandOpcode::MODIFY_QP, body.as_bytes())?;
        let to_reset = attributes.mask.get() & ATTR_STATE != 0 && attributes.state == QP_STATE_RESET;
        if to_reset && let Some(queue_pair) = self.queue_pairs.get_mut(&qpn) {
            queue_pair.send.reset();
            queue_pair.receive.reset();
            let queues = [queue_pair.send_cq, queue_pair.receive_cq];
            queues.into_iter().try_for_each(|cqn| self.disown_completions(cqn, qpn))?;
        }
        Ok(())
    }

    pub fn query_queue_pair(&mut self, qpn: Qpn) -> Result<QpSnapshot> {
        let body = ObjectNumber { number: qpn.0.into(), ..ObjectNumber::zeroed() };
        let answer = self.command(CommandOpcode::QUERY_QP, body.as_bytes())?;
        let short = || VerbsError::CommandAnswer { what: "a short queue pair".into() };
        let (attributes, rest) = QpAttributes::read_from_prefix(&answer).map_err(|_| short())?;
        let (queues, _) = QueueState::read_from_prefix(rest).map_err(|_| short())?;
        Ok(QpSnapshot { attributes, queues })
    }

    pub fn destroy_queue_pair(&mut self, qpn: Qpn) -> Result<()> {
        self.command_on_object(CommandOpcode::DESTROY_QP, qpn.0)?;
        if let Some(queue_pair) = self.queue_pairs.remove(&qpn) {
            for cqn in [queue_pair.send_cq, queue_pair.receive_cq] {
                self.disown_completions(cqn, qpn)?;
            }
            queue_pair.into_buffers().for_each(|buffer| self.backing.release(buffer));
        }
        self.qpns.give(qpn.0);
        Ok(())
    }

    /// Send slots that are not yet retired by a completion.
    pub fn outstanding_send_slots(&self, qpn: Qpn) -> Option<u32> {
        Some(self.queue_pairs.get(&qpn)?.send.outstanding_slots())
    }
}
