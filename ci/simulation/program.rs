//! The program: what is posted, when, and with which mistakes.

use crate::aim::*;
use crate::connection::*;
use crate::message::{Message, POOL_BYTES};
use crate::operations::{FAULTS, Family, Fault, FaultKind, OPERATIONS, Operation, named};
use crate::run::{Checked, Simulation, explain};
use crate::views::{Over, State, View};
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const INLINE_BYTES: u32 = 224;

impl Simulation {
    pub(crate) fn limit(&self) -> usize {
        1 << self.plan.log_cqes_per_qp
    }

    pub(crate) fn post_some(&mut self) -> Checked<bool> {
        let mut any = false;
        for _ in 0..1 + self.connections.len() / 4 {
            let number = self.random.index(self.connections.len());
            let side = self.random.index(2);
            any |= self.post_receives(number, side)?;
            any |= self.post_sends(number, side)?;
        }
        Ok(any)
    }

    fn post_sends(&mut self, number: usize, side: usize) -> Checked<bool> {
        let connection = &self.connections[number];
        let in_error = connection.phase == Phase::Ending;
        let healed = self.healed_ns.is_some();
        let late = connection.late.is_some_and(|(late, _)| late == side);
        if late || connection.gone == Some(side) || !(in_error || connection.runs()) {
            return Ok(false);
        }
        let flow = &connection.flows[side];
        let free = self.limit().saturating_sub(flow.outstanding.len());
        // Only unsignaled requests are left: they may have ended in silence.
        let silent = !flow.outstanding.is_empty() && flow.unsignaled >= flow.outstanding.len();
        // Posting in the error state is accepted, and flushed: sometimes.
        let seldom = if in_error { 50 } else { 4 };
        let eager = !in_error && connection.doom.is_none();
        // A fetch that memory refused leaves requests behind that end with a later one.
        let left = in_error && connection.is_excused() && !flow.outstanding.is_empty();
        let closes = (silent && (healed || in_error)) || (left && self.random.one_in(50));
        if (healed && !closes) || !(eager || closes || self.random.one_in(seldom)) {
            return Ok(false);
        }
        let wanted = if closes {
            1
        } else {
            self.random.between(1, 4).min(self.plan.operations.saturating_sub(self.posted)) as usize
        };
        let mut messages = Vec::new();
        for _ in 0..wanted.min(free) {
            match self.new_message(number, side, closes) {
                Some(message) => messages.push(message),
                None => break,
            }
        }
        if messages.is_empty() {
            return Ok(false);
        }
        self.submit(number, side, &messages)?;
        Ok(true)
    }

    /// What the message after this one shall be: nothing while a fault waits for its turn.
    fn choose_fault(&mut self, number: usize, side: usize) -> Option<&'static Fault> {
        let connection = &mut self.connections[number];
        if connection.doom.is_some() || !connection.runs() || self.healed_ns.is_some() {
            return None;
        }
        let shared = connection.ends[1 - side].shared.is_some();
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
        let rare = [FaultKind::PeerGone, FaultKind::NeverReady, FaultKind::ReceiveSmall, FaultKind::ReceiveKey];
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

    fn new_message(&mut self, number: usize, side: usize, last: bool) -> Option<Rc<Message>> {
        let fault = if last { None } else { self.choose_fault(number, side) };
        let mut operation = self.choose_operation(fault, last);
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
        let random = &mut self.random;
        let connection = &mut self.connections[number];
        let sender = connection.ends[side].host;
        let shared = connection.ends[1 - side].shared.map(|queue| self.shared[queue].entry_bytes);
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
            inline: length <= INLINE_BYTES
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

    fn choose_operation(&mut self, fault: Option<&Fault>, last: bool) -> &'static Operation {
        if last {
            return &OPERATIONS[2];
        }
        loop {
            let operation = &OPERATIONS[self.random.weighted(OPERATIONS.iter().map(|operation| operation.weight))];
            if fault.is_none_or(|fault| fault.kind.fits(operation.family)) {
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

    /// Books the message, and the fate that its fault means for the connection.
    pub(crate) fn settle_fault(&mut self, number: usize, side: usize, message: &Rc<Message>) {
        let connection = &mut self.connections[number];
        let flow = &mut connection.flows[side];
        flow.next_number += 1;
        flow.next_psn = crate::check::packet::step(flow.next_psn, message.packets);
        if message.packets > 0 {
            flow.responder.expect_message(flow.next_psn);
        }
        if message.operation.is_answered() {
            flow.responder.expect_question(message.first_psn, flow.next_psn);
        }
        flow.outstanding.push_back(Rc::clone(message));
        flow.unsignaled = if message.signaled { 0 } else { flow.unsignaled + 1 };
        if message.operation.consumes_receive() {
            flow.arriving.push_back(Rc::clone(message));
            if connection.ends[1 - side].shared.is_none() && flow.arriving.len() > flow.receives.len() {
                flow.unmatched_messages.push_back(Rc::clone(message));
            }
        }
        if let Some(fault) = message.fault {
            connection.doom = Some(Doom::Fault { flow: side, fault });
            self.coverage.note(fault.name, 1);
        }
    }

    /// Posts a batch with one doorbell.
    fn submit(&mut self, number: usize, side: usize, messages: &[Rc<Message>]) -> Checked {
        let end = self.connections[number].ends[side];
        let landing = &self.connections[number].flows[side].landing.memory;
        let sges: Vec<Vec<Sge>> = messages.iter().map(|message| self.elements(end.host, landing, message)).collect();
        let inlined: Vec<Vec<u8>> = messages.iter().map(|message| inline_bytes(end.host, message)).collect();
        let requests: Vec<SendRequest> = (0..messages.len())
            .map(|at| {
                let message = &messages[at];
                let opcode = match message.fault {
                    Some(Fault { kind: FaultKind::Opcode, .. }) => WorkOpcode(0x3e),
                    _ => message.operation.opcode,
                };
                let shaped = message.operation.is_remote() && opcode == message.operation.opcode;
                SendRequest {
                    wr_id: message.number,
                    opcode,
                    payload: match operands(message) {
                        Some(operands) => Payload::Atomic(operands, &sges[at]),
                        None if opcode == WorkOpcode::FLUSH => {
                            Payload::Flush { length_bytes: message.length, placement: message.placement() }
                        }
                        None if message.inline => Payload::Inline(&inlined[at]),
                        None => Payload::Elements(&sges[at]),
                    },
                    remote: shaped.then_some(Remote { address: message.address, rkey: message.rkey }),
                    immediate: message.invalidates.unwrap_or(message.immediate),
                    signaled: message.signaled,
                    solicited: message.solicited,
                    datagram: None,
                    srqn: None,
                    fence: message.fence,
                }
            })
            .collect();
        for message in messages {
            let [length, psn] = [message.length, message.first_psn].map(u64::from);
            self.enter("posts", end.host, [end.qpn.0.into(), message.number, psn, length]);
            self.note_message(message);
            if let Some(Fault { kind: FaultKind::PeerGone, .. }) = message.fault {
                self.vanish(number, 1 - side)?;
            }
        }
        let form = self.random.pick(&[DoorbellForm::Word, DoorbellForm::Line, DoorbellForm::Wqe]);
        let host = &mut self.hosts[end.host];
        host.device.post_send(end.qpn, &requests, form).map_err(explain("posting sends"))?;
        host.counted.send_doorbells += 1;
        self.posted += messages.len() as u64;
        Ok(())
    }

    fn note_message(&mut self, message: &Message) {
        self.coverage.items(message.operation.items);
        self.coverage.note(message.operation.name, 1);
        if message.length == 0 {
            self.coverage.item(65);
            if message.rkey == NO_KEY {
                self.coverage.item(15);
            }
        }
        if message.inline {
            self.coverage.item(64);
        }
        if message.view {
            self.coverage.note("messages through a view", 1);
        }
        if !message.signaled {
            self.coverage.items(&[70, 71]);
        }
    }

    fn elements(&self, host: usize, landing: &MemoryRegion, message: &Message) -> Vec<Sge> {
        let host = &self.hosts[host];
        let source = &host.source;
        let kind = message.fault.map(|fault| fault.kind);
        if message.operation.brings_data() {
            return landing_elements(landing, message, kind == Some(FaultKind::LandingKey));
        }
        let mut elements: Vec<Sge> =
            message.pieces.iter().map(|(from, length)| source.memory.sge((*from).into(), *length)).collect();
        if let Some(last) = elements.last_mut() {
            match kind {
                Some(FaultKind::LKey | FaultKind::BothKeys) => last.lkey = NO_KEY,
                Some(FaultKind::LKeyRange) => {
                    last.address = source.memory.start() + POOL_BYTES as u64 - u64::from(last.length_bytes) + 1;
                }
                Some(FaultKind::LKeyPd) => {
                    (last.lkey, last.address) = (host.foreign.memory.key, host.foreign.memory.start());
                    last.length_bytes = last.length_bytes.min(4096);
                }
                _ => {}
            }
        }
        elements
    }

    /// Posts receives: for messages that wait for one, and for some that do not exist yet.
    fn post_receives(&mut self, number: usize, side: usize) -> Checked<bool> {
        let limit = self.limit();
        let connection = &mut self.connections[number];
        let (runs, doomed) = (connection.runs(), connection.doom.is_some());
        if connection.gone == Some(1 - side) || connection.ends[1 - side].shared.is_some() {
            return Ok(false);
        }
        if !(runs || connection.phase == Phase::Ending && self.random.one_in(50)) {
            return Ok(false);
        }
        let never = connection.doom.and_then(|doom| doom.kind()) == Some(FaultKind::NeverReady);
        let flow = &connection.flows[side];
        let ahead = !flow.dry && flow.wanted.is_none() && self.healed_ns.is_none() && !doomed;
        let hurries = !flow.dry || self.healed_ns.is_some() || self.random.one_in(20);
        let free = limit.saturating_sub(flow.receives.len());
        let mut wanted = if hurries { flow.unmatched_messages.len().min(free) } else { 0 };
        if ahead && wanted < free {
            wanted += self.random.index(4).min(free - wanted);
        }
        if never || wanted == 0 {
            return Ok(false);
        }
        let mut posted = 0;
        for _ in 0..wanted {
            posted += u64::from(self.post_receive(number, side)?);
        }
        Ok(posted > 0)
    }

    fn post_receive(&mut self, number: usize, side: usize) -> Checked<bool> {
        let random = &mut self.random;
        let connection = &mut self.connections[number];
        let (mtu, in_error) = (connection.profile.mtu, !connection.runs());
        let end = connection.ends[1 - side];
        let flow = &mut connection.flows[side];
        let matched = flow.unmatched_messages.front().cloned();
        let needed =
            matched.as_ref().filter(|message| message.operation.family == Family::Send).map(|message| message.length);
        let kind = matched.as_ref().and_then(|message| message.fault).map(|fault| fault.kind);
        let size = match needed {
            // Every byte of it will be used.
            Some(length) if kind == Some(FaultKind::ReceiveRange) => length,
            Some(length) => length + random.below(3) as u32,
            None => random.pick(&[0, 64, mtu, 4 * mtu]),
        };
        let Some(at) = flow.receive_places.take(size) else { return Ok(false) };
        let mut rest = size;
        if kind == Some(FaultKind::ReceiveSmall) {
            rest = needed.unwrap_or(1).saturating_sub(1 + random.below(u64::from(needed.unwrap_or(1)).min(16)) as u32);
        }
        let mut elements = Vec::new();
        let mut from = u64::from(at);
        while rest > 0 {
            let mut taken = if elements.len() == 3 { rest } else { random.between(1, rest.into()) as u32 };
            if kind == Some(FaultKind::ReceiveRange) && elements.is_empty() {
                taken = taken.min(BEHIND_RECEIVES);
            }
            elements.push(flow.arena.memory.sge(from, taken));
            (from, rest) = (from + u64::from(taken), rest - taken);
        }
        match (kind, elements.first_mut()) {
            (Some(FaultKind::ReceiveKey), Some(first)) => first.lkey = NO_KEY,
            (Some(FaultKind::ReceiveRange), Some(first)) => {
                first.address =
                    flow.arena.memory.start() + flow.arena.memory.length_bytes() - u64::from(first.length_bytes) + 1;
            }
            _ => {}
        }
        let wr_id = flow.next_receive;
        flow.next_receive += 1;
        flow.receives.push_back(Posted { number: wr_id, at, size });
        match matched {
            Some(_) => drop(flow.unmatched_messages.pop_front()),
            None if !in_error => flow.unmatched_receives.push_back(size),
            None => {}
        }
        let host = &mut self.hosts[end.host];
        let request = ReceiveRequest { wr_id, elements: &elements };
        host.device.post_receive(end.qpn, &[request]).map_err(explain("posting a receive"))?;
        host.counted.receive_doorbells += 1;
        self.enter("receives", end.host, [end.qpn.0.into(), wr_id, size.into(), 0]);
        Ok(true)
    }
}
