//! Shared receive queues: receives that several queue pairs take. A receive stands in a slot; the index ring says which
//! slots are posted in which order; a slot is free again when its completion has been polled.

use super::error::check_limit;
use super::receive::ReceiveRequest;
use super::{Cqn, Device, Pdn, Result, Srqn, VerbsError, page_list};
use crate::backing::DmaBuffer;
use rnic_abi::CommandOpcode;
use rnic_abi::command::*;
use rnic_abi::doorbell::{DB_SRQ, queue_doorbell};
use rnic_abi::limits::MAX_LOG_RQ_STRIDE;
use rnic_abi::work_request::WQE_SEGMENT_BYTES;
use zerocopy::{FromBytes, IntoBytes};

const SEGMENT_BYTES: usize = WQE_SEGMENT_BYTES as usize;

/// A shared receive queue as it is created.
#[derive(Clone, Copy, Debug)]
pub struct SrqSpec {
    /// The number it shall have, or the lowest free one.
    pub srqn: Option<u32>,
    /// The domain of the elements' keys.
    pub pd: Pdn,
    pub log_slots: u8,
    /// A receive WQE has room for `1 << log_stride` elements.
    pub log_stride: u8,
    /// SRQ_LIMIT_REACHED once, when fewer receives are posted; 0: never.
    pub limit: u16,
    pub doorbell_page: u32,
}

#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    slots: DmaBuffer,
    indices: DmaBuffer,
    log_slots: u8,
    log_stride: u8,
    doorbell_page: u32,
    producer: u16,
    free: Vec<u16>,
    /// By slot; `None` while it is free.
    wr_ids: Vec<Option<u64>>,
}

impl SharedReceiveQueue {
    /// The slot's receive has completed.
    pub fn complete(&mut self, slot: u16) -> Option<u64> {
        let wr_id = self.wr_ids.get_mut(usize::from(slot))?.take()?;
        self.free.push(slot);
        Some(wr_id)
    }

    pub fn into_buffers(self) -> impl Iterator<Item = DmaBuffer> {
        [self.slots, self.indices].into_iter()
    }
}

impl Device {
    pub fn create_shared_receive_queue(&mut self, spec: SrqSpec) -> Result<Srqn> {
        self.create_srq(spec, None)
    }

    /// One for the requests that XRC targets of this domain get; its receives complete there.
    pub fn create_xrc_shared_receive_queue(&mut self, spec: SrqSpec, domain: u32, cqn: Cqn) -> Result<Srqn> {
        self.create_srq(spec, Some((domain, cqn)))
    }

    fn create_srq(&mut self, spec: SrqSpec, xrc: Option<(u32, Cqn)>) -> Result<Srqn> {
        check_limit("log of shared receives", spec.log_slots.into(), self.limits.log_srq_slots.min(15).into())?;
        check_limit("log of the receive stride", spec.log_stride.into(), MAX_LOG_RQ_STRIDE.into())?;
        self.set_srq_table()?;
        let srqn = self.srqns.take(spec.srqn)?;
        let slot_bytes = u64::from(WQE_SEGMENT_BYTES) << spec.log_stride << spec.log_slots;
        let slots = self.backing.allocate(slot_bytes, 4096)?;
        let indices = self.backing.allocate(2 << spec.log_slots, 4096)?;
        let body = CreateSrq {
            srqn: srqn.into(),
            log_slots: spec.log_slots,
            log_stride: spec.log_stride,
            pdn: spec.pd.0.into(),
            doorbell_page: spec.doorbell_page.into(),
            limit: spec.limit.into(),
            flags: if xrc.is_some() { SRQ_XRC } else { 0 },
            cqn: xrc.map_or(0, |(_, cqn)| cqn.0).into(),
            xrc_domain: xrc.map_or(0, |(domain, _)| domain).into(),
            wqe_pages: page_list::contiguous(slots.iova),
            index_pages: page_list::contiguous(indices.iova),
            ..CreateSrq::zeroed()
        };
        let count = 1u16 << spec.log_slots;
        let queue = SharedReceiveQueue {
            slots,
            indices,
            log_slots: spec.log_slots,
            log_stride: spec.log_stride,
            doorbell_page: spec.doorbell_page,
            producer: 0,
            free: (0..count).rev().collect(),
            wr_ids: vec![None; count.into()],
        };
        if let Err(error) = self.command(CommandOpcode::CREATE_SRQ, body.as_bytes()) {
            self.srqns.give(srqn);
            queue.into_buffers().for_each(|buffer| self.backing.release(buffer));
            return Err(error);
        }
        self.shared_receive_queues.insert(Srqn(srqn), queue);
        Ok(Srqn(srqn))
    }

    /// The table of their contexts, before the first one.
    fn set_srq_table(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.srq_table_is_set, true) {
            return Ok(());
        }
        let entry_bytes = u64::from(self.limits.srq_context_bytes.get());
        let table = self.backing.allocate(entry_bytes << LOG_SRQS, 4096)?;
        self.tables.push(table);
        let pages = page_list::contiguous(table.iova);
        let body = SetTable { kind: TABLE_SRQ, log_entries: LOG_SRQS, pages, ..SetTable::zeroed() };
        self.command(CommandOpcode::SET_TABLE, body.as_bytes()).map(drop)
    }

    /// Arms the limit anew.
    pub fn modify_shared_receive_queue(&mut self, srqn: Srqn, limit: u16) -> Result<()> {
        let body = ModifySrq { srqn: srqn.0.into(), limit: limit.into(), ..ModifySrq::zeroed() };
        self.command(CommandOpcode::MODIFY_SRQ, body.as_bytes()).map(drop)
    }

    pub fn query_shared_receive_queue(&mut self, srqn: Srqn) -> Result<SrqState> {
        let body = ObjectNumber { number: srqn.0.into(), ..ObjectNumber::zeroed() };
        let answer = self.command(CommandOpcode::QUERY_SRQ, body.as_bytes())?;
        let short = |_| VerbsError::CommandAnswer { what: "a short shared receive queue".into() };
        SrqState::read_from_prefix(&answer).map(|(state, _)| state).map_err(short)
    }

    pub fn destroy_shared_receive_queue(&mut self, srqn: Srqn) -> Result<()> {
        self.command_on_object(CommandOpcode::DESTROY_SRQ, srqn.0)?;
        self.srqns.give(srqn.0);
        if let Some(queue) = self.shared_receive_queues.remove(&srqn) {
            queue.into_buffers().for_each(|buffer| self.backing.release(buffer));
        }
        Ok(())
    }

    /// Posts a batch. When one request fails, those before it are posted and rung, and the error is the request's.
    pub fn post_shared_receive(&mut self, srqn: Srqn, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let mut written = 0;
        let mut outcome = Ok(());
        for request in requests {
            outcome = self.write_shared_wqe(srqn, request);
            if outcome.is_err() {
                break;
            }
            written += 1;
        }
        if written > 0
            && let Some(queue) = self.shared_receive_queues.get(&srqn)
        {
            let value = queue_doorbell(srqn.0, queue.producer);
            self.doorbell(queue.doorbell_page, DB_SRQ, value)?;
        }
        outcome
    }

    fn write_shared_wqe(&mut self, srqn: Srqn, request: &ReceiveRequest<'_>) -> Result<()> {
        let missing = || VerbsError::Missing { what: srqn.to_string() };
        let queue = self.shared_receive_queues.get_mut(&srqn).ok_or_else(missing)?;
        check_limit("number of elements", request.elements.len() as u64, 1 << queue.log_stride)?;
        let stride = SEGMENT_BYTES << queue.log_stride;
        let slots = 1 << queue.log_slots;
        let slot =
            *queue.free.last().ok_or(VerbsError::RingFull { ring: "shared receive", slots, free: 0, needed: 1 })?;
        // What is not an element stays a segment of length 0, which ends the list.
        let mut bytes = [0; SEGMENT_BYTES << MAX_LOG_RQ_STRIDE];
        for (segment, element) in bytes.chunks_exact_mut(SEGMENT_BYTES).zip(request.elements) {
            segment.copy_from_slice(element.segment().as_bytes());
        }
        self.backing.copy_in(queue.slots.iova + u64::from(slot) * stride as u64, &bytes[..stride])?;
        let position = queue.producer & ((1 << queue.log_slots) - 1);
        self.backing.copy_in(queue.indices.iova + u64::from(position) * 2, &slot.to_le_bytes())?;
        queue.free.pop();
        queue.wr_ids[usize::from(slot)] = Some(request.wr_id);
        queue.producer = queue.producer.wrapping_add(1);
        Ok(())
    }
}

/// Shared receive queues of a device that this driver can have.
pub(crate) const LOG_SRQS: u8 = 6;
