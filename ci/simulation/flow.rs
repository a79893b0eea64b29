//! One direction of a connection.

use crate::check::requester::RequesterCheck;
use crate::check::responder::ResponderCheck;
use crate::connection::{Doom, Posted, Profile};
use crate::host::Region;
use crate::message::{AtomicWork, Message, Places};
use crate::operations::Fault;
use crate::unread::Unread;
use crate::views::View;
use rnic_abi::CompletionStatus;
use std::collections::VecDeque;
use std::rc::Rc;

/// One direction: what the sender has posted, what the receiver has, and the checks between them.
#[derive(Debug)]
pub struct Flow {
    pub outstanding: VecDeque<Rc<Message>>,
    pub next_number: u64,
    pub next_psn: u32,
    pub unsignaled: usize,
    /// Moved out while its key changes.
    pub target: Option<Region>,
    pub writes: Places,
    pub shadow: Vec<u8>,
    pub arena: Region,
    /// The sender's own memory, for what READs and atomics bring.
    pub landing: Region,
    pub landings: Places,
    /// The receiver's words that this flow's atomics work on, and what they are once all of them are executed.
    pub words: Region,
    pub view: Option<View>,
    pub word_values: Vec<u64>,
    pub receives: VecDeque<Posted>,
    pub receive_places: Places,
    pub next_receive: u64,
    /// Receives with smaller numbers were posted in INIT.
    pub early: u64,
    /// Receives that no message is meant for yet, by size; and messages that no receive is posted for.
    pub unmatched_receives: VecDeque<u32>,
    pub unmatched_messages: VecDeque<Rc<Message>>,
    /// Messages on their way that end with a receive completion.
    pub arriving: VecDeque<Rc<Message>>,
    /// Messages that failed: their bytes may have arrived, or not.
    pub doubtful: Vec<Rc<Message>>,
    pub doubtful_atomics: Vec<AtomicWork>,
    /// READs and atomics that completed lately: an answer to a repeated request may still be under way.
    pub answered: VecDeque<Rc<Message>>,
    pub requester: RequesterCheck,
    /// The newest message that began although no receive was promised for it.
    pub question: Option<u64>,
    pub responder: ResponderCheck,
    /// Since the connection was made: a send, and a receive, that failed.
    pub failed: bool,
    pub receive_failed: bool,
    /// Of an extended connection: the message whose receive failed. Earlier ones may complete elsewhere after it.
    pub failed_at: Option<u64>,
    /// A send was flushed, whatever failed.
    pub flushed: bool,
    pub unread: Unread,
    /// A key of it was taken away under traffic.
    pub rekeyed: bool,
    /// Receives are posted late.
    pub dry: bool,
    /// A fault that waits for its turn.
    pub wanted: Option<&'static Fault>,
}

/// Bytes at the end of the receives' region that are no receive's: what reaches beyond the region begins there.
pub const BEHIND_RECEIVES: u32 = 4096;
/// READs and atomics of one flow that are remembered after their completion.
const ANSWERED: usize = 64;

impl Flow {
    pub fn new(target: Region, arena: Region, landing: Region, words: Region, view: Option<View>) -> Self {
        let (target_bytes, arena_bytes) = (target.buffer.length_bytes, arena.buffer.length_bytes);
        Self {
            outstanding: VecDeque::new(),
            next_number: 0,
            next_psn: 0,
            unsignaled: 0,
            target: Some(target),
            writes: Places::new(target_bytes as u32),
            shadow: vec![0; target_bytes as usize],
            arena,
            landings: Places::new(landing.buffer.length_bytes as u32),
            landing,
            word_values: vec![0; words.buffer.length_bytes as usize / 8],
            words,
            view,
            receives: VecDeque::new(),
            receive_places: Places::new(arena_bytes as u32 - BEHIND_RECEIVES),
            next_receive: 0,
            early: 0,
            unmatched_receives: VecDeque::new(),
            unmatched_messages: VecDeque::new(),
            arriving: VecDeque::new(),
            doubtful: Vec::new(),
            doubtful_atomics: Vec::new(),
            answered: VecDeque::new(),
            requester: RequesterCheck::new(0, 1, 0, 0),
            question: None,
            responder: ResponderCheck::new(0),
            failed: false,
            receive_failed: false,
            failed_at: None,
            flushed: false,
            unread: Unread::default(),
            rekeyed: false,
            dry: false,
            wanted: None,
        }
    }

    /// A new connection from `psn` on.
    pub fn restart(&mut self, psn: u32, window: u32, profile: &Profile, selective: bool, lag_ns: u64) {
        self.forget_sends();
        self.forget_receives();
        self.next_psn = psn;
        (self.next_number, self.next_receive, self.unsignaled) = (0, 0, 0);
        (self.failed, self.receive_failed, self.flushed, self.wanted) = (false, false, false, None);
        (self.unread, self.rekeyed, self.failed_at) = (Unread::default(), false, None);
        self.early = 0;
        self.answered.clear();
        self.requester =
            RequesterCheck::new(psn, window, profile.timeout_ns(), profile.retry_cnt.into()).lagging(lag_ns);
        self.responder = ResponderCheck::new(psn);
        if selective {
            self.requester = self.requester.clone().selective();
            self.responder = self.responder.clone().selective();
        }
    }

    /// The sender has nothing posted any more.
    pub fn forget_sends(&mut self) {
        for message in std::mem::take(&mut self.outstanding) {
            self.doubt(&message);
        }
        self.writes.clear();
        self.landings.clear();
    }

    /// It may have been executed, or not.
    pub fn doubt(&mut self, message: &Rc<Message>) {
        self.doubtful.extend(message.writes().then(|| Rc::clone(message)));
        self.doubtful_atomics.extend(message.atomic);
        if let Some(view) = self.view.as_mut().filter(|_| message.writes_through_view()) {
            view.doubtful.push(Rc::clone(message));
        }
    }

    /// Remembers a message whose answers may come again.
    pub fn remember(&mut self, message: &Rc<Message>) {
        if self.answered.len() == ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back(Rc::clone(message));
    }

    /// The oldest receive completes, and is this one.
    pub fn take_receive(&mut self, wr_id: u64) -> Result<Posted, String> {
        let oldest = self.receives.front().copied();
        let Some(posted) = oldest.filter(|posted| posted.number == wr_id) else {
            return Err(format!("the oldest receive is {oldest:?}"));
        };
        self.receives.pop_front();
        self.receive_places.free();
        Ok(posted)
    }

    /// Nor has the receiver.
    pub fn forget_receives(&mut self) {
        self.receives.clear();
        self.receive_places.clear();
        self.unmatched_receives.clear();
        self.unmatched_messages.clear();
        self.arriving.clear();
    }

    /// Whether there is a reason for an answer with this syndrome, of an error: in what this flow's doom is, or in what was
    /// wrong with it before memory refused a read, which hides everything.
    pub fn may_be_refused(&self, doom: Option<Doom>, own: bool, syndrome: u8) -> bool {
        let faults = self.outstanding.iter().filter_map(|message| message.fault);
        let wrong = faults.filter_map(|fault| refusal(fault.status)).any(|known| known == syndrome);
        match doom {
            Some(Doom::Fault { .. }) => own && wrong,
            Some(Doom::Rekey { .. }) => own && syndrome == ACCESS_REFUSED,
            Some(Doom::Memory) => syndrome == OPERATION_FAILED || wrong || (self.rekeyed && syndrome == ACCESS_REFUSED),
            Some(Doom::Reset) | None => false,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.receives.is_empty()
    }
}

/// Syndromes of the errors that end a connection.
const INVALID_REQUEST: u8 = 0x61;
const ACCESS_REFUSED: u8 = 0x62;
const OPERATION_FAILED: u8 = 0x63;

/// The syndrome that the sender of a message hears, which then ends with this status.
fn refusal(status: CompletionStatus) -> Option<u8> {
    match status {
        CompletionStatus::REM_INV_REQ_ERR => Some(INVALID_REQUEST),
        CompletionStatus::REM_ACCESS_ERR => Some(ACCESS_REFUSED),
        CompletionStatus::REM_OP_ERR => Some(OPERATION_FAILED),
        _ => None,
    }
}
