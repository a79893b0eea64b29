//! What of a queue stays in the device, outside its context: descriptors, so that a doorbell leads to its ring
//! without a context; what is in flight; what is owed; timers.

use crate::context::access::Plan;
use crate::context::page_list::PageList;
use crate::context::queue_pair::QpState;
use crate::front_end::{Completion, EventRecord, ScatterList, SendWork, Status};
use crate::numbers::{Cqn, Eqn};
use crate::reliability::ResponseDue;
use crate::reliability::replay_buffer::ReplayBuffer;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, DmaRange, Iova};
use rnic_wire::Frame;
use std::collections::VecDeque;

/// Names a fetched work request in the shared pool.
pub(crate) type WqeId = u32;

/// A send work request that was read off its ring.
#[derive(Debug)]
pub(crate) struct FetchedWqe {
    pub slot_index: u16,
    pub slots: u16,
    /// One that could not be understood fails when its turn comes.
    pub work: Result<SendWork, Diagnostic>,
}

/// The shared pool of fetched work requests.
#[derive(Debug)]
pub(crate) struct WqePool {
    slots: Vec<Option<FetchedWqe>>,
    free: Vec<WqeId>,
    capacity: usize,
}

impl WqePool {
    pub fn new(capacity: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), capacity }
    }

    pub fn room(&self) -> usize {
        self.capacity - (self.slots.len() - self.free.len())
    }

    pub fn insert(&mut self, wqe: FetchedWqe) -> WqeId {
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(wqe);
                id
            }
            None => {
                self.slots.push(Some(wqe));
                self.slots.len() as WqeId - 1
            }
        }
    }

    pub fn get(&self, id: WqeId) -> Option<&FetchedWqe> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub fn remove(&mut self, id: WqeId) -> Option<FetchedWqe> {
        let wqe = self.slots.get_mut(id as usize)?.take();
        if wqe.is_some() {
            self.free.push(id);
        }
        wqe
    }
}

/// A ring in host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub pages: PageList,
    pub log_entries: u8,
    pub entry_bytes: u16,
}

impl Ring {
    pub const fn entries(&self) -> u32 {
        1 << self.log_entries
    }

    pub const fn bytes(&self) -> u64 {
        (self.entry_bytes as u64) << self.log_entries
    }

    /// Offset of a free-running index.
    pub const fn offset(&self, index: u32) -> u64 {
        (index & (self.entries() - 1)) as u64 * self.entry_bytes as u64
    }
}

/// Whether a queue pair has work for the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TransmitState {
    #[default]
    Idle,
    /// On the scheduler's list.
    Ready,
    /// Waiting for a read.
    Blocked,
}

/// A receive work request that is in use.
#[derive(Debug)]
pub(crate) struct ReceiveWqe {
    pub list: Result<ScatterList, Diagnostic>,
}

/// A message that has arrived and whose completion waits for its turn.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub completion: Completion,
    pub cause: Cause,
    /// The receive work request has still to be read.
    pub waits_for_wqe: bool,
}

/// A send that will fail when it is the oldest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    pub status: Status,
    pub diagnostic: Diagnostic,
    /// It has begun: it is in the replay buffer.
    pub begun: bool,
}

/// A queue pair's resident part.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// As in the context; here so that a doorbell needs no context.
    pub state: QpState,
    pub doorbell_page: u32,
    pub send_cqn: Cqn,
    pub receive_cqn: Cqn,
    pub sq: Ring,
    pub sq_producer: u16,
    /// Ring index of the next slot to read.
    pub sq_fetch: u16,
    pub sq_fetching: bool,
    pub rq: Ring,
    pub rq_producer: u16,
    /// Fetched and not begun.
    pub waiting: VecDeque<WqeId>,
    pub replay: ReplayBuffer,
    pub transmit: TransmitState,
    /// Changes whenever what is being gathered must not leave any more.
    pub transmit_epoch: u32,
    pub transmit_plan: Option<Box<Plan>>,
    pub failing: Option<Failing>,
    pub retry_deadline_ns: Option<u64>,
    pub rnr_until_ns: Option<u64>,
    pub owed: Option<ResponseDue>,
    pub owed_queued: bool,
    pub inbound: VecDeque<Frame>,
    pub inbound_blocked: bool,
    pub receive_plan: Option<Box<Plan>>,
    pub receive_wqe: Option<ReceiveWqe>,
    pub receive_fetching: bool,
    pub arrived: VecDeque<Arrived>,
    pub sqd_notify: bool,
    /// Being destroyed: nothing new is begun.
    pub leaving: bool,
}

/// A completion queue's resident part.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub eqn: Option<Eqn>,
    pub doorbell_page: u32,
    pub queue_pairs: u32,
    pub waiting: VecDeque<(Completion, Cause)>,
    pub blocked: bool,
    /// The consumer record has been read since the queue looked full.
    pub record_read: bool,
    pub arm_request: Option<ArmRequest>,
}

/// An arm that waits for the queue's context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmRequest {
    pub consumer: u32,
    pub sequence: u8,
    pub solicited_only: bool,
}

/// An event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    pub ring: Ring,
    pub vector: Option<u16>,
    pub producer: u32,
    pub consumer: u32,
    pub armed: bool,
    pub completion_queues: u32,
    pub waiting: VecDeque<(EventRecord, Cause)>,
    pub blocked: bool,
}

/// Contiguous pieces of a ring.
pub(crate) type Pieces = arrayvec::ArrayVec<DmaRange, 8>;

/// Appends a piece, joined to the last one where they touch. False when there is no room.
pub(crate) fn push_piece<const N: usize>(
    pieces: &mut arrayvec::ArrayVec<DmaRange, N>,
    iova: Iova,
    length_bytes: u32,
) -> bool {
    if let Some(last) = pieces.last_mut()
        && last.iova.checked_add(last.length_bytes.into()) == Some(iova)
        && let Some(sum) = last.length_bytes.checked_add(length_bytes)
    {
        last.length_bytes = sum;
        return true;
    }
    pieces.try_push(DmaRange::new(iova, length_bytes)).is_ok()
}

impl QueuePair {
    /// Nothing that is being gathered or timed matters any more.
    pub fn quiesce_transmit(&mut self) {
        self.transmit_epoch = self.transmit_epoch.wrapping_add(1);
        self.transmit_plan = None;
        self.retry_deadline_ns = None;
        self.rnr_until_ns = None;
    }

    /// Takes every work request that is not finished.
    pub fn drain_work(&mut self) -> impl Iterator<Item = WqeId> {
        let begun: Vec<_> = std::iter::from_fn(|| self.replay.pop_front()).map(|entry| entry.wqe).collect();
        begun.into_iter().chain(std::mem::take(&mut self.waiting))
    }
}

/// Objects by number.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    objects: Vec<Option<Box<T>>>,
    count: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { objects: Vec::new(), count: 0 }
    }
}

impl<T> Numbered<T> {
    pub fn get_at(&self, index: usize) -> Option<&T> {
        self.objects.get(index)?.as_deref()
    }

    pub fn get_mut_at(&mut self, index: usize) -> Option<&mut T> {
        self.objects.get_mut(index)?.as_deref_mut()
    }

    pub fn insert_at(&mut self, index: usize, object: T) {
        if self.objects.len() <= index {
            self.objects.resize_with(index + 1, || None);
        }
        if self.objects[index].replace(Box::new(object)).is_none() {
            self.count += 1;
        }
    }

    pub fn remove_at(&mut self, index: usize) -> Option<Box<T>> {
        let object = self.objects.get_mut(index)?.take();
        self.count -= usize::from(object.is_some());
        object
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.objects.iter().enumerate().filter(|(_, object)| object.is_some()).map(|(index, _)| index as u32)
    }
}

impl Numbered<QueuePair> {
    pub fn get(&self, qpn: crate::numbers::Qpn) -> Option<&QueuePair> {
        self.get_at(qpn.index())
    }

    pub fn get_mut(&mut self, qpn: crate::numbers::Qpn) -> Option<&mut QueuePair> {
        self.get_mut_at(qpn.index())
    }
}
