//! Frames as they leave an adapter and as they reach one: what the checkers see of the engine's work.

use crate::check::content;
use crate::check::packet::{ACKNOWLEDGE, ATOMIC_WRITE, FLUSH, Packet, step};
use crate::check::requester::{Answer, Jump};
use crate::check::responder::Arrival;
use crate::check::standing::Receive;
use crate::connection::Doom;
use crate::message::{Message, pool};
use crate::run::{Checked, Simulation};
use rnic_pcie::{Cause, Class, Origin};
use rnic_wire::{Frame, IcrcState};
use std::rc::Rc;

/// Minimum delays of the RNR timer codes, in units of 10 us.
const RNR_DELAYS: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// What an AETH syndrome tells a sender.
fn answer(syndrome: u8) -> Option<Answer> {
    match syndrome >> 5 {
        0 => Some(Answer::Ack),
        2 if syndrome & 0x1e == 0 => Some(Answer::Gap { first: syndrome & 1 == 0 }),
        1 => Some(Answer::ReceiverNotReady { delay_ns: RNR_DELAYS[usize::from(syndrome & 31)] * 10_000 }),
        3 if syndrome == 0x60 => Some(Answer::SequenceNak),
        3 => Some(Answer::Refusal),
        _ => None,
    }
}

impl Simulation {
    /// Whose packet it is: connection, and the side that has the destination queue pair.
    fn place_of(&self, packet: &Packet) -> Option<(usize, usize)> {
        let host = self.hosts.iter().position(|host| host.gid == packet.dest)?;
        self.places.get(&(host, packet.dest_qp)).copied()
    }

    pub(crate) fn frame_leaves(&mut self, host: usize, frame: &Frame) -> Checked {
        self.frames += 1;
        let Some(packet) = Packet::read(frame.bytes()) else {
            return Err(format!("host {host} sends a frame that is no RoCE packet: {:02x?}", frame.bytes()));
        };
        let (opcode, psn) = (packet.opcode, packet.psn);
        let aeth = packet.aeth.map_or(0, |(syndrome, msn)| u64::from(syndrome) << 32 | u64::from(msn));
        self.enter(
            "sends",
            host,
            [opcode.into(), packet.dest_qp.into(), psn.into(), aeth | packet.payload.len() as u64],
        );
        if frame.icrc == IcrcState::Present && !packet.is_intact() {
            return Err(format!("host {host} sends opcode {opcode:#x} PSN {psn:#x} with a wrong ICRC or checksum"));
        }
        if packet.is_unreliable() {
            let named = format!("host {host} to {:#x}, opcode {opcode:#x}: PSN {psn:#x}", packet.dest_qp);
            return self.parcel_leaves(host, &packet).map_err(|what| format!("{named}: {what}"));
        }
        let Some((number, to)) = self.place_of(&packet) else {
            return Err(format!("host {host} sends opcode {opcode:#x} to {:#x}, which nobody has", packet.dest_qp));
        };
        let from = 1 - to;
        if packet.source != self.hosts[host].gid || self.connections[number].ends[from].host != host {
            return Err(format!("host {host} sends opcode {opcode:#x} PSN {psn:#x} in another's name"));
        }
        if packet.extended != self.connections[number].extended {
            return Err(format!("opcode {opcode:#x} PSN {psn:#x} is of another transport"));
        }
        let result = if packet.is_response() {
            self.response_leaves(number, to, &packet)
        } else {
            self.request_leaves(number, from, &packet)
        };
        result.map_err(|what| format!("host {host} to {:#x}, opcode {opcode:#x}: PSN {psn:#x}: {what}", packet.dest_qp))
    }

    fn request_leaves(&mut self, number: usize, from: usize, packet: &Packet) -> Checked {
        let named = content::message_of(&self.connections[number].flows[from].outstanding, packet.psn)
            .and_then(|(message, _)| message.queue)
            .filter(|_| packet.extended)
            .map(|queue| self.shared[queue].srqn.0);
        let connection = &mut self.connections[number];
        let selective = connection.selective;
        let (mtu, host, profile) = (connection.profile.mtu, connection.ends[from].host, connection.profile);
        let flow = &mut connection.flows[from];
        let Some((message, at)) = content::message_of(&flow.outstanding, packet.psn) else {
            return Err("no message that is posted and not completed has this packet".into());
        };
        if message.fault.is_some_and(|fault| fault.kind.is_local()) {
            return Err(format!("a packet of a message with {}", message.fault.map_or("", |fault| fault.name)));
        }
        content::check(packet, &message, at, mtu, pool(host))?;
        if packet.queue != named {
            return Err(format!("names queue {:x?}, and the message {named:x?}", packet.queue));
        }
        let answered = message.operation.is_answered();
        let sent = if answered {
            message.starts.borrow_mut().push(at);
            flow.requester.on_question(packet.psn, message.packets - at, self.now_ns)?
        } else {
            flow.requester.on_sent(packet.psn, self.now_ns)?
        };
        let (first, last) = (at == 0, answered || at + 1 == message.packets);
        if first && !sent.again && !connection.drains[from].lets_begin(message.first_psn, self.plan.memory.hold > 0) {
            return Err("a message begins while its send queue is drained".into());
        }
        let coverage = &mut self.coverage;
        if answered && flow.requester.unanswered() > profile.rd_atomics.into() {
            return Err(format!("{} READs and atomics are outstanding", flow.requester.unanswered()));
        }
        if message.fence && first && !sent.again {
            // Its own question, if it is one, has just been added.
            if flow.requester.unanswered() > usize::from(answered) {
                return Err("a fenced request leaves before an answer has come".into());
            }
            coverage.item(44);
        }
        if answered {
            coverage.items(if at == 0 { &[31, 43] } else { &[28, 112] });
        }
        coverage.items(if last { &[9, 10, 42, 110] } else { &[9, 10, 110] });
        if last && message.solicited && message.operation.consumes_receive() {
            coverage.item(36);
        }
        match sent.jump {
            Some(_) if selective => coverage.note("selective repetitions", 1),
            Some(Jump::Nak) => coverage.items(&[48, 49]),
            Some(Jump::ReceiverNotReady) => coverage.item(54),
            Some(Jump::Timeout) => coverage.items(&[57, 58]),
            Some(Jump::Skip) | None => {}
        }
        if sent.jump.is_some() && !first {
            coverage.item(50);
        }
        if packet.psn == 0 && !sent.again {
            coverage.note("PSN wraps", 1);
            coverage.item(1);
        }
        if !packet.payload.is_empty() && !message.inline {
            self.hosts[host].counted.gathered += 1;
        }
        Ok(())
    }

    fn response_leaves(&mut self, number: usize, to: usize, packet: &Packet) -> Checked {
        let connection = &mut self.connections[number];
        if !packet.payload.is_empty() {
            self.hosts[connection.ends[1 - to].host].counted.gathered += 1;
        }
        if connection.has_given_up(to) {
            // Nobody waits for it, and what it answers is not known any more.
            return Ok(());
        }
        if packet.opcode != ACKNOWLEDGE {
            return self.answer_leaves(number, to, packet);
        }
        let (doom, profile) = (connection.doom, connection.profile);
        let flow = &mut connection.flows[to];
        let Some((syndrome, msn)) = packet.aeth else { return Err("no AETH".into()) };
        let psn = packet.psn;
        match answer(syndrome) {
            Some(Answer::Ack) => flow.responder.on_ack(psn, msn)?,
            Some(Answer::SequenceNak) => {
                flow.responder.on_sequence_nak(psn, msn)?;
                self.coverage.items(&[3, 4, 111]);
            }
            Some(Answer::Gap { first }) => {
                flow.responder.on_gap(psn, first, msn)?;
                self.coverage.note("gaps told of", 1);
                return Ok(());
            }
            Some(Answer::ReceiverNotReady { .. }) => {
                flow.responder.on_receiver_not_ready(psn, msn)?;
                if syndrome & 31 != profile.min_rnr_timer {
                    return Err(format!("RNR timer {}, not {}", syndrome & 31, profile.min_rnr_timer));
                }
                let Some((message, at)) = content::message_of(&flow.outstanding, psn) else {
                    return Err("RNR for a packet of no message".into());
                };
                if !message.takes_receive(at) {
                    return Err(format!("RNR for packet {at} of {}, which takes no receive", message.operation.name));
                }
                self.coverage.item(17);
            }
            Some(Answer::Refusal) => {
                // Memory may refuse what a READ repeats, far behind what was answered.
                if !(matches!(doom, Some(Doom::Memory)) && flow.responder.refuses_repeated(psn)) {
                    flow.responder.on_refusal(psn, msn)?;
                }
                if !flow.may_be_refused(doom, doom.is_some_and(|doom| doom.flow() == Some(to)), syndrome) {
                    return Err(format!("refused with syndrome {syndrome:#x}, and nothing was wrong"));
                }
            }
            None => return Err(format!("syndrome {syndrome:#x}")),
        }
        self.coverage.items(&[32, 33, 34]);
        Ok(())
    }

    /// What a READ or an atomic asked for.
    fn answer_leaves(&mut self, number: usize, to: usize, packet: &Packet) -> Checked {
        let connection = &mut self.connections[number];
        let (mtu, host) = (connection.profile.mtu, connection.ends[1 - to].host);
        let flow = &mut connection.flows[to];
        let known = content::message_of(&flow.outstanding, packet.psn)
            .or_else(|| content::message_of(&flow.answered, packet.psn));
        let Some((message, at)) = known else { return Err("an answer of no message".into()) };
        if !message.operation.is_answered() {
            return Err(format!("an answer of {}, which has none", message.operation.name));
        }
        content::check_answer(packet, &message, at, mtu, pool(host))?;
        let end = step(message.first_psn, message.packets);
        let fresh = flow.responder.on_answer(packet.psn, end, packet.aeth.map(|(_, msn)| msn))?;
        let atomic = packet.original.is_some();
        self.coverage.items(match (fresh, atomic) {
            (true, false) => &[35],
            (true, true) => &[30, 35, 63],
            (false, false) => &[27],
            (false, true) => &[29],
        });
        Ok(())
    }

    /// True when the engine has to take it for a packet.
    pub(crate) fn frame_arrives(&mut self, host: usize, frame: &Frame) -> Checked<bool> {
        let Some(packet) = Packet::read(frame.bytes()) else {
            // Not even RoCE any more: the port gives it to nobody.
            return Ok(!rnic_wire::is_roce(frame.bytes()));
        };
        if frame.icrc != IcrcState::Deferred && !packet.is_intact() {
            self.coverage.note("corrupted frames", 1);
            return Ok(!rnic_wire::is_roce(frame.bytes()));
        }
        if packet.dest != self.hosts[host].gid && self.group_of(&packet).is_none() {
            return Ok(true);
        }
        let aeth = packet.aeth.map_or(0, |(syndrome, msn)| u64::from(syndrome) << 32 | u64::from(msn));
        self.enter("gets", host, [packet.opcode.into(), packet.dest_qp.into(), packet.psn.into(), aeth]);
        if packet.is_unreliable() {
            self.parcel_arrives(host, &packet);
            return Ok(true);
        }
        let Some((number, to)) = self.place_of(&packet) else { return Ok(true) };
        let now_ns = self.now_ns;
        let connection = &mut self.connections[number];
        if !connection.runs() {
            self.coverage.item(109);
            return Ok(true);
        }
        if packet.is_response() && packet.opcode != ACKNOWLEDGE {
            let flow = &mut connection.flows[to];
            if !flow.requester.on_brought(packet.psn, now_ns) {
                self.coverage.item(46);
            }
            // A sender that knows less than the checker may still place it.
            self.hosts[host].counted.placed_most += 1;
            return Ok(true);
        }
        if packet.is_response() {
            let Some(answer) = packet.aeth.and_then(|(syndrome, _)| answer(syndrome)) else { return Ok(true) };
            if !connection.flows[to].requester.on_answer(packet.psn, answer, now_ns) {
                self.coverage.item(47);
            } else {
                self.coverage.item(56);
            }
            return Ok(true);
        }
        let selective = connection.selective;
        let flow = &mut connection.flows[1 - to];
        // Its sender may have failed while it was on its way.
        let known = content::message_of(&flow.outstanding, packet.psn)
            .or_else(|| content::message_of(&flow.answered, packet.psn));
        let question = known.as_ref().filter(|(message, _)| message.operation.is_answered());
        let packets = question.map_or(1, |(message, at)| message.packets - at);
        let end = question.map(|(message, _)| step(message.first_psn, message.packets));
        let receive = self.receive_for(number, 1 - to, known.as_ref());
        let flow = &mut self.connections[number].flows[1 - to];
        let counted = &mut self.hosts[host].counted;
        counted.atomics_most += u64::from(packet.atomic.is_some());
        counted.atomic_writes_most += u64::from(packet.opcode == ATOMIC_WRITE);
        counted.flushes_most += u64::from(packet.opcode == FLUSH);
        let places = !packet.payload.is_empty() && packet.opcode != ATOMIC_WRITE;
        match flow.responder.on_received(packet.psn, packets, receive) {
            Arrival::InOrder => {
                self.hosts[host].counted.placed_most += u64::from(places);
                self.coverage.item(2);
            }
            Arrival::Gap => {
                // May be kept.
                self.hosts[host].counted.placed_most += u64::from(places && selective);
                self.coverage.note("packets behind a gap", 1);
            }
            Arrival::Duplicate => {
                end.into_iter().for_each(|end| flow.responder.on_repeated(packet.psn, end));
                // May be executed after all, if the receiver was not ready at first.
                self.hosts[host].counted.placed_most += u64::from(places);
                self.coverage.items(&[5, 26]);
            }
        }
        Ok(true)
    }

    /// Whether a receive is there for a packet that comes now.
    fn receive_for(&self, number: usize, side: usize, known: Option<&(Rc<Message>, u32)>) -> Receive {
        // Nobody is asked about a message that is not known any more.
        let Some((message, at)) = known else { return Receive::Doubtful };
        if !message.takes_receive(*at) {
            return Receive::Sure;
        }
        let flow = &self.connections[number].flows[side];
        let place = flow.arriving.iter().position(|arriving| arriving.number == message.number);
        let sure = match (message.queue, place) {
            // It has taken its receive, and that has completed.
            (_, None) => true,
            // Others may take it while the packet waits for a read, or for one before it.
            (Some(queue), _) => {
                let waits = self.connections[number].selective || self.plan.memory.hold > 0;
                !waits && self.surely_left(queue) > 0
            }
            (None, Some(place)) => place < flow.receives.len(),
        };
        if sure { Receive::Sure } else { Receive::Doubtful }
    }

    /// A doorbell may have led to a read at once.
    pub(crate) fn note_refusals(&mut self, host: usize) {
        let refused = self.hosts[host].adapter.borrow_mut().take_faults();
        refused.into_iter().for_each(|origin| self.excuse(host, origin));
    }

    /// Memory has refused a read: whatever it was for may fail.
    pub(crate) fn excuse(&mut self, host: usize, origin: Origin) {
        let qpn = match origin.cause {
            Cause::Send { qpn, .. } | Cause::Packet { qpn, .. } => qpn,
            Cause::Receive { qpn_or_srqn, .. } => qpn_or_srqn,
            _ => return,
        };
        self.coverage.note("refused reads", 1);
        if matches!(origin.cause, Cause::Receive { .. }) {
            self.suspect_shared(host, qpn);
        }
        let fetch = origin.class == Class::WqeFetch;
        if let Some((number, side)) = self.places.get(&(host, qpn)) {
            let connection = &mut self.connections[*number];
            connection.doom = Some(Doom::Memory);
            if fetch {
                connection.flows[*side].unread.refused(connection.flows[*side].next_number);
            }
        }
        if let Some(station) = self.unreliable.places.get(&(host, qpn)) {
            let station = &mut self.unreliable.stations[*station];
            if fetch {
                station.unread.refused(station.next_number);
            }
            self.unreliable.lines[station.line].excused = true;
        }
    }
}
