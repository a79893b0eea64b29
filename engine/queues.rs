//! What of a queue stays in the device, outside its context: descriptors, so that a doorbell leads to its ring
//! without a context; what is in flight; what is owed; timers.

use crate::context::access::Plan;
use crate::context::page_list::PageList;
use crate::context::queue_pair::{QpState, Service};
use crate::front_end::commands::{NewQp, Xrc};
use crate::front_end::{Completion, EventRecord, ScatterList, Status};
use crate::numbers::{Cqn, Eqn, Pdn, Qpn, Srqn, XrcDomain};
use crate::reliability::ResponseDue;
use crate::reliability::replay_buffer::ReplayBuffer;
use crate::reliability::reply::Replies;
use crate::reliability::selective::Selective;
use crate::reliability::timer::Deadlines;
use crate::tx::gather::Gathering;
use crate::wqe_pool::WqeId;
use arrayvec::ArrayVec;
use rnic_abi::Diagnostic;
use rnic_abi::limits::NO_OBJECT;
use rnic_pcie::{Cause, DmaRange, DmaTag, Iova};
use rnic_wire::{Frame, Psn};
use std::collections::{BTreeSet, VecDeque};

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
    /// Waiting for a fill of a context, a key or a translation.
    Blocked,
    /// A packet's payload is being read, or waits to leave: no other turn until it has.
    Gathering,
}

/// How far the read of an atomic has come; while it is not idle the queue pair holds the word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AtomicRead {
    #[default]
    Idle,
    InFlight,
    /// What stood there; `None` when host memory did not answer.
    Arrived(Option<u64>),
}

/// A receive work request that is in use.
#[derive(Debug)]
pub(crate) struct ReceiveWqe {
    pub index: u16,
    pub list: Result<ScatterList, Diagnostic>,
}

/// A message that has arrived and whose completion waits for its turn.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub completion: Completion,
    /// Where it is written: the queue pair's next message may end elsewhere.
    pub cqn: Cqn,
    pub cause: Cause,
    /// The receive work request has still to be read.
    pub waits_for_wqe: bool,
    /// It tells of a key that is invalid: reads up to this one, which the key may have allowed, have to come home.
    pub waits_for_reads: Option<DmaTag>,
}

/// A send that will fail when it is the oldest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    pub wqe: WqeId,
    /// The packet that could not be built: neither it nor anything after it leaves.
    pub psn: Psn,
    pub status: Status,
    pub diagnostic: Diagnostic,
}

/// A queue pair's resident part.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// The state that counts; the context's copy follows it.
    pub state: QpState,
    pub service: Service,
    pub doorbell_page: u32,
    pub pdn: Pdn,
    /// No two queue pairs ever have the same: numbers are used again, this is not.
    pub serial: u32,
    pub signal_all: bool,
    pub privileged: bool,
    /// Both ends retransmit selectively.
    pub selective: Option<Box<Selective>>,
    pub send_cqn: Cqn,
    pub receive_cqn: Cqn,
    pub sq: Ring,
    pub sq_producer: u16,
    /// Ring index of the next slot to read.
    pub sq_fetch: u16,
    /// Ring index of the oldest work request that is not finished.
    pub sq_consumer: u16,
    pub sq_fetching: bool,
    /// On the list of queues that wait for room in the pool.
    pub sq_starved: bool,
    /// Where its receives come from, instead of a ring of its own.
    pub srqn: Option<Srqn>,
    /// Of an XRC target: requests name the queue, whose number, domain and completion queue are its own until the next.
    pub xrc_domain: Option<XrcDomain>,
    /// The slot that it has taken there for the message that is arriving.
    pub taken: Option<u16>,
    /// The driver knows that it takes no more.
    pub last_wqe_told: bool,
    pub rq: Ring,
    pub rq_producer: u16,
    /// Ring index of the next receive work request.
    pub rq_consumer: u16,
    /// Fetched and not begun.
    pub waiting: VecDeque<WqeId>,
    pub replay: ReplayBuffer,
    pub transmit: TransmitState,
    /// Changes whenever what is being gathered must not leave any more.
    pub transmit_epoch: u32,
    pub transmit_plan: Option<Box<Plan>>,
    /// The packet whose payload has come late.
    pub gathered: Option<Box<Gathering>>,
    pub failing: Option<Failing>,
    pub deadlines: Deadlines,
    /// READs and atomics of the peer that are to be answered; what is owed leaves behind them.
    pub replies: Replies,
    pub owed: Option<ResponseDue>,
    pub owed_queued: bool,
    /// The peer is to hear of congestion on its way here, and when it may hear again.
    pub cnp_due: bool,
    pub next_cnp_ns: u64,
    pub inbound: VecDeque<Frame>,
    pub inbound_blocked: bool,
    pub receive_plan: Option<Box<Plan>>,
    /// The word of an atomic that is being executed.
    pub atomic: AtomicRead,
    pub receive_wqe: Option<ReceiveWqe>,
    pub receive_fetching: bool,
    pub arrived: VecDeque<Arrived>,
    /// The LOCAL_INV that is next has made its key invalid: reads up to this one have to come home.
    pub local_barrier: Option<Option<DmaTag>>,
    pub sqd_notify: bool,
    /// Being destroyed: nothing new is begun.
    pub leaving: bool,
}

/// Entries of an index ring that one read brings.
pub(crate) const INDEX_LINE: usize = 32;

/// A shared receive queue's resident part.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub doorbell_page: u32,
    pub pdn: Pdn,
    pub privileged: bool,
    pub xrc: Option<Xrc>,
    pub slots: Ring,
    pub indices: Ring,
    /// Positions of the index ring that are posted, free-running.
    pub producer: u16,
    /// Entries that were read ahead, and the position of the first.
    pub line: ArrayVec<u16, INDEX_LINE>,
    pub line_position: u16,
    pub fetching: bool,
    /// Queue pairs whose message waits for a read of the index ring.
    pub waiting: BTreeSet<Qpn>,
    /// Slots that queue pairs had in hand when they were reset or destroyed: the next ones to be taken.
    pub returned: VecDeque<u16>,
    pub queue_pairs: u32,
    /// Being destroyed: no XRC target aims at it any more.
    pub leaving: bool,
    /// Why it is of no use any more.
    pub failed: Option<Diagnostic>,
}

impl SharedReceiveQueue {
    /// Posted and not taken.
    pub fn available(&self, consumer: u16) -> u16 {
        self.producer.wrapping_sub(consumer).saturating_add(self.returned.len() as u16)
    }

    /// What was read ahead for this position.
    pub fn read_ahead(&self, position: u16) -> Option<u16> {
        self.line.get(usize::from(position.wrapping_sub(self.line_position))).copied()
    }

    /// A slot that was taken is the next one to be taken again.
    pub fn give_back(&mut self, slot: u16) {
        if self.returned.len() < self.slots.entries() as usize {
            self.returned.push_back(slot);
        }
    }
}

/// A completion queue's resident part.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub eqn: Option<Eqn>,
    pub doorbell_page: u32,
    /// Queue pairs, once for each direction, and XRC shared receive queues.
    pub users: u32,
    pub waiting: VecDeque<(Completion, Cause)>,
    pub blocked: bool,
    /// Overrun, or its memory did not answer: it takes no completion any more.
    pub failed: bool,
    pub record: RecordRead,
    /// Queue pairs in the error state that stopped flushing because completions had to wait here.
    pub flushing: BTreeSet<Qpn>,
    pub arm_request: Option<ArmRequest>,
    /// An event is due and held back until then.
    pub held_until_ns: Option<u64>,
}

/// How far the reading of a consumer record has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecordRead {
    #[default]
    Idle,
    InFlight,
    /// What it held; `None` when host memory did not answer.
    Arrived(Option<u32>),
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
    /// A queue pair in RESET, as it is created.
    pub fn new(new: &NewQp, sq: Ring, rq: Ring) -> Self {
        Self {
            state: QpState::Reset,
            service: new.service,
            doorbell_page: new.doorbell_page,
            pdn: new.pdn,
            serial: 0,
            signal_all: new.signal_all,
            privileged: new.privileged,
            selective: new.selective.then(Default::default),
            send_cqn: new.send_cqn,
            receive_cqn: new.receive_cqn,
            sq,
            sq_producer: 0,
            sq_fetch: 0,
            sq_consumer: 0,
            sq_fetching: false,
            sq_starved: false,
            srqn: new.srqn,
            xrc_domain: new.xrc_domain,
            taken: None,
            last_wqe_told: false,
            rq,
            rq_producer: 0,
            rq_consumer: 0,
            waiting: VecDeque::new(),
            replay: ReplayBuffer::default(),
            transmit: TransmitState::Idle,
            transmit_epoch: 0,
            transmit_plan: None,
            gathered: None,
            failing: None,
            deadlines: Deadlines::default(),
            replies: Replies::default(),
            owed: None,
            owed_queued: false,
            cnp_due: false,
            next_cnp_ns: 0,
            inbound: VecDeque::new(),
            inbound_blocked: false,
            receive_plan: None,
            atomic: AtomicRead::Idle,
            receive_wqe: None,
            receive_fetching: false,
            arrived: VecDeque::new(),
            local_barrier: None,
            sqd_notify: false,
            leaving: false,
        }
    }

    /// A packet of the peer that is missing, and of which the peer is still to hear.
    pub fn first_gap(&self) -> Option<Psn> {
        self.selective.as_ref()?.gaps.front().copied()
    }

    /// What is being gathered must not leave, and what was resolved for it is of no use.
    pub fn recall_transmit(&mut self) {
        self.transmit_epoch = self.transmit_epoch.wrapping_add(1);
        self.transmit_plan = None;
    }

    /// The oldest send work request that is not finished.
    pub fn pop_oldest(&mut self) -> Option<WqeId> {
        self.replay.pop_front().map(|entry| entry.wqe).or_else(|| self.waiting.pop_front())
    }

    /// The receive work request of the message that is arriving, or of the next one.
    pub fn current_receive(&self) -> u16 {
        if self.srqn.is_some() { self.taken.unwrap_or(0) } else { self.rq_consumer }
    }

    /// It has a receive work request to use up, from its own ring or in hand.
    pub const fn has_receive(&self) -> bool {
        if self.srqn.is_some() { self.taken.is_some() } else { self.rq_producer != self.rq_consumer }
    }

    /// Uses up the next receive work request; its index is the answer.
    pub fn consume_receive(&mut self) -> u16 {
        if self.srqn.is_some() {
            return self.taken.take().unwrap_or(0);
        }
        let index = self.rq_consumer;
        self.rq_consumer = index.wrapping_add(1);
        index
    }

    /// Back to the indices of a new queue pair.
    pub fn rewind(&mut self) {
        (self.sq_producer, self.sq_fetch, self.sq_consumer) = (0, 0, 0);
        (self.rq_producer, self.rq_consumer) = (0, 0);
        self.last_wqe_told = false;
        if self.xrc_domain.is_some() {
            // Until the next request names a queue it has none.
            (self.srqn, self.receive_cqn) = (None, Cqn(NO_OBJECT));
        }
    }
}
