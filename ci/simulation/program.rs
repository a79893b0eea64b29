//! The program: what is posted, when, and with which mistakes.

use crate::aim::*;
use crate::connection::*;
use crate::message::{Message, POOL_BYTES};
use crate::operations::{Fault, FaultKind};
use crate::run::{Checked, Simulation, explain};
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::*;
use std::rc::Rc;

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
        if late || !connection.sends(side) || connection.gone[side] || !(in_error || connection.runs()) {
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

    /// Books the message, and the fate that its fault means for the connection.
    pub(crate) fn settle_fault(&mut self, number: usize, side: usize, message: &Rc<Message>) {
        let connection = &mut self.connections[number];
        let shares = connection.shares(1 - side);
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
            if !shares && flow.arriving.len() > flow.receives.len() {
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
        let Connection { ends, extended, .. } = self.connections[number];
        let end = ends[side];
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
                    srqn: message.queue.filter(|_| extended).map(|queue| self.shared[queue].srqn),
                    fence: message.fence,
                }
            })
            .collect();
        for message in messages {
            let [length, psn] = [message.length, message.first_psn].map(u64::from);
            self.enter("posts", end.host, [end.qpn.0.into(), message.number, psn, length]);
            self.note_message(message);
            self.coverage.note("messages of extended connections", extended.into());
            if let Some(Fault { kind: FaultKind::PeerGone, .. }) = message.fault {
                self.vanish(number, 1 - side)?;
            }
        }
        let form = self.random.pick(&[DoorbellForm::Word, DoorbellForm::Line, DoorbellForm::Wqe]);
        let host = &mut self.hosts[end.host];
        host.device.post_send(end.qpn, &requests, form).map_err(explain("posting sends"))?;
        host.counted.send_doorbells += 1;
        self.note_refusals(end.host);
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
            let mut elements = landing_elements(landing, message, kind == Some(FaultKind::LandingKey));
            if let Some(last) = elements.last_mut().filter(|_| kind == Some(FaultKind::AtomicLength)) {
                last.length_bytes -= 1;
            }
            return elements;
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
}
