//! Frames as they leave an adapter and as they reach one: what the checkers see of the engine's work.

use crate::check::packet::{ACKNOWLEDGE, Packet, step};
use crate::check::requester::{Answer, Jump};
use crate::check::{content, credits};
use crate::connection::Doom;
use crate::message::pool;
use crate::run::{Checked, Simulation};
use rnic_wire::{Frame, IcrcState};

/// Minimum delays of the RNR timer codes, in units of 10 us.
const RNR_DELAYS: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// What an AETH syndrome tells a sender.
pub(crate) fn answer(syndrome: u8) -> Option<Answer> {
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
    pub(crate) fn place_of(&self, packet: &Packet) -> Option<(usize, usize)> {
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
        // With slow memory it is not known what the sender has heard by now.
        let exact = self.plan.memory.hold == 0 && !selective && !sent.again;
        if first && !sent.again {
            flow.question = None;
        }
        if let Some((promised, unacked)) = flow.requester.promise().filter(|_| exact)
            && message.operation.consumes_receive()
        {
            let asked = flow.question == Some(message.number);
            let asks = credits::check_begin(promised, unacked, &flow.outstanding, &message, (at, asked))?;
            if first && asks {
                flow.question = Some(message.number);
            }
            coverage.note("messages beyond the credits", (first && asks).into());
        }
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
        let (doom, profile, shares) = (connection.doom, connection.profile, connection.shares(1 - to));
        let flow = &mut connection.flows[to];
        let Some((syndrome, msn)) = packet.aeth else { return Err("no AETH".into()) };
        let psn = packet.psn;
        match answer(syndrome) {
            Some(Answer::Ack) => {
                flow.responder.on_ack(psn, msn)?;
                let posted = flow.receives.len();
                credits::check_promise(syndrome, step(psn, 1), posted, &flow.arriving, shares)?;
            }
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
}
