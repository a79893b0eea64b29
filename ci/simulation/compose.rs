//! What the next message of a direction is: its operation, its length, its place, and what is wrong with it.

use crate::aim::*;
use crate::message::Message;
use crate::operations::{FAULTS, Family, Fault, FaultKind, OPERATIONS, Operation, named};
use crate::run::Simulation;
use crate::views::{Over, State, View};
use rnic_abi::WorkOpcode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const INLINE_BYTES: u32 = 224;
/// Behind the segment that names the queue.
const EXTENDED_INLINE_BYTES: u32 = 208;

impl Simulation {
    /// What the message after this one shall be: nothing while a fault waits for its turn.
    fn choose_fault(&mut self, number: usize, side: usize) -> Option<&'static Fault> {
        let connection = &mut self.connections[number];
        if connection.doom.is_some() || !connection.runs() || self.healed_ns.is_some() {
            return None;
        }
        let shared = connection.shares(1 - side);
        let flow = &mut connection.flows[side];
        if let Some(fault) = flow.wanted {
            // No receive may be left that was meant for another message.
            if !flow.unmatched_receives.is_empty() {
                return None;
            }
            flow.wanted = None;
            return Some(fault);
        }
        if !self.random.per_million(self.plan.faults) {
            return None;
        }
        let rare = [
            FaultKind::PeerGone,
            FaultKind::NeverReady,
            FaultKind::NeverReady,
            FaultKind::ReceiveSmall,
            FaultKind::ReceiveKey,
            FaultKind::ReceiveRange,
        ];
        let drawn = &FAULTS[self.random.index(FAULTS.len())];
        let stale = flow.view.as_ref().and_then(View::stale_key).is_some();
        let wanted = match self.random.below(3) {
            0 => self.random.pick(&rare),
            1 if stale => FaultKind::RKey,
            _ => drawn.kind,
        };
        let fault = FAULTS.iter().find(|fault| fault.kind == wanted).unwrap_or(drawn);
        let impatient = connection.profile.rnr_retry < 7;
        if fault.kind == FaultKind::NeverReady && !impatient {
            return None;
        }
        if shared && (fault.kind.needs_receive() || fault.kind == FaultKind::PeerGone) {
            // What a shared queue holds is not for this message alone, and is not lost with one of its users.
            return None;
        }
        if fault.kind.needs_receive() && !flow.unmatched_receives.is_empty() {
            flow.wanted = Some(fault);
            return None;
        }
        Some(fault)
    }

    pub(crate) fn new_message(&mut self, number: usize, side: usize, last: bool) -> Option<Rc<Message>> {
        let fault = if last { None } else { self.choose_fault(number, side) };
        let extended = self.connections[number].extended;
        let mut operation = self.choose_operation(fault, last, extended);
        let invalidates =
            if last || fault.is_some() { None } else { self.choose_invalidation(number, side, operation) };
        if invalidates.is_some() {
            operation = named(WorkOpcode::SEND_INV);
        }
        let mut view = !last && self.goes_through_view(number, side, operation, fault);
        let (mtu, reach) = (self.connections[number].profile.mtu, self.plan.reach_bytes);
        let mut length = if last { 0 } else { length(&mut self.random, mtu, reach) };
        if let Some(fault) = fault {
            let small = matches!(fault.kind, FaultKind::RKeyRight | FaultKind::RKeyPd | FaultKind::LKeyPd);
            length = length.clamp(2, if small { 4096 } else { 64 * mtu });
        }
        let queue = self.choose_queue(number, side);
        let random = &mut self.random;
        let connection = &mut self.connections[number];
        let sender = connection.ends[side].host;
        let inline_bytes = if connection.extended { EXTENDED_INLINE_BYTES } else { INLINE_BYTES };
        let shared = queue.map(|queue| self.shared[queue].entry_bytes);
        if let Some(entry_bytes) = shared.filter(|_| operation.family == Family::Send) {
            length = length.min(entry_bytes);
        }
        let flow = &mut connection.flows[side];
        if operation.consumes_receive()
            && let Some(size) = flow.unmatched_receives.pop_front()
            && operation.family == Family::Send
        {
            length = length.min(size);
        }
        let landing = match operation.family {
            Family::Send | Family::Write | Family::Local => 0,
            Family::Read => flow.landings.take(length)?,
            Family::Atomic => {
                length = 8;
                flow.landings.take(length)?
            }
            Family::AtomicWrite => {
                length = 8;
                flow.landings.take(0)?
            }
            Family::Flush => {
                length = length.min(4096);
                flow.landings.take(0)?
            }
        };
        let fault = fault.filter(|_| length >= 2);
        if let Some(shown) = flow.view.as_ref().filter(|shown| view && shown.over == Over::Target) {
            length = length.min(shown.length);
        }
        view &= length > 0;
        let mut message = Message {
            number: flow.next_number,
            operation,
            length,
            pieces: match operation.family {
                Family::Read | Family::Flush => piece(random, length),
                _ => pieces(random, length),
            },
            at: 0,
            address: 0,
            rkey: 0,
            immediate: random.draw() as u32,
            signaled: last
                || random.per_million(self.plan.signaled)
                || flow.unsignaled * 2 >= 1 << self.plan.log_cqes_per_qp,
            solicited: random.one_in(3),
            inline: length <= inline_bytes
                && !operation.brings_data()
                && operation.family != Family::Flush
                && fault.is_none()
                && random.per_million(self.plan.inlined),
            first_psn: flow.next_psn,
            packets: if operation.family == Family::Flush { 1 } else { length.div_ceil(mtu).max(1) },
            landing,
            atomic: None,
            // What was asked for is asked for again while its key holds.
            fence: random.one_in(7) || invalidates.is_some(),
            starts: RefCell::default(),
            fault,
            placed: false,
            alone: Cell::new(!view),
            view,
            queue,
            invalidates,
        };
        let receiver = &self.hosts[connection.ends[1 - side].host];
        match operation.family {
            Family::Send | Family::Local => {}
            Family::Write if view => aim_through_view(random, flow, &mut message),
            Family::Write => aim(random, flow, &mut message),
            Family::Read | Family::Flush => {
                message.at = message.pieces.first().map_or(0, |(from, _)| *from);
                let shown = flow.view.as_ref().filter(|_| view).map(View::extent);
                aim_at(random, shown.unwrap_or(extent(&receiver.source.memory)), &mut message);
            }
            Family::Atomic | Family::AtomicWrite => aim_at_word(random, flow, sender, &mut message),
        }
        let wrong = match fault.map(|fault| fault.kind) {
            Some(FaultKind::RKeyRight) => Some(&receiver.shut),
            Some(FaultKind::RKeyPd) => Some(&receiver.foreign),
            _ => None,
        };
        if let Some(region) = wrong {
            (message.address, message.rkey) = (region.memory.start(), region.memory.key);
        }
        if fault.is_some_and(|fault| fault.kind == FaultKind::RKey)
            && let Some(key) = flow.view.as_ref().and_then(View::stale_key)
        {
            message.rkey = key;
            self.coverage.note("keys that were closed", 1);
        }
        if message.atomic.is_some()
            && fault.is_some_and(|fault| fault.kind != FaultKind::LandingKey && fault.kind != FaultKind::PeerGone)
        {
            message.atomic = None;
        }
        if let Some(work) = message.atomic {
            flow.word_values[work.word] = work.after;
        }
        let message = Rc::new(message);
        self.settle_fault(number, side, &message);
        Some(message)
    }

    /// Where the receiver's receive comes from, if it is not its own.
    fn choose_queue(&mut self, number: usize, side: usize) -> Option<usize> {
        let connection = &self.connections[number];
        let receiver = connection.ends[1 - side];
        if !connection.extended {
            return receiver.shared;
        }
        let queues = self.extended_queues_of(receiver.host);
        Some(self.random.pick(&queues))
    }

    fn choose_operation(&mut self, fault: Option<&Fault>, last: bool, extended: bool) -> &'static Operation {
        if last {
            return &OPERATIONS[2];
        }
        loop {
            let operation = &OPERATIONS[self.random.weighted(OPERATIONS.iter().map(|operation| operation.weight))];
            // They are those of a reliable connection, but for these.
            let exists = !(extended && matches!(operation.family, Family::AtomicWrite | Family::Flush));
            if exists && fault.is_none_or(|fault| fault.kind.fits(operation.family)) {
                return operation;
            }
        }
    }

    /// A SEND may take the receiver's key out of use.
    fn choose_invalidation(&mut self, number: usize, side: usize, operation: &Operation) -> Option<u32> {
        let connection = &mut self.connections[number];
        let (idle, runs) = (connection.doom.is_none() && self.healed_ns.is_none(), connection.runs());
        let view = connection.flows[side].view.as_mut()?;
        let fits = view.state == State::Open && view.can_be_invalidated() && operation.opcode == WorkOpcode::SEND;
        if !(idle && runs && fits && self.random.one_in(4)) {
            return None;
        }
        view.state = State::Closing;
        Some(view.extent().2)
    }

    fn goes_through_view(&mut self, number: usize, side: usize, operation: &Operation, fault: Option<&Fault>) -> bool {
        let connection = &self.connections[number];
        let open = connection.flows[side].view.as_ref().is_some_and(|view| view.serves(operation));
        let ranges = [FaultKind::RKeyBehind, FaultKind::RKeyBefore, FaultKind::RKeyWraps];
        let fits = fault.is_none_or(|fault| ranges.contains(&fault.kind));
        open && fits && connection.runs() && !self.random.one_in(4)
    }
}
