//! Frames as they reach an adapter, and reads that its host memory refused: what the receiver may do, and what may fail.

use crate::check::content;
use crate::check::credits::promise;
use crate::check::packet::{ACKNOWLEDGE, ATOMIC_WRITE, FLUSH, Packet, step};
use crate::check::requester::Answer;
use crate::check::responder::Arrival;
use crate::check::standing::Receive;
use crate::connection::Doom;
use crate::frames::answer;
use crate::message::Message;
use crate::run::{Checked, Simulation};
use rnic_pcie::{Cause, Class, Origin};
use rnic_wire::{Frame, IcrcState};
use std::rc::Rc;

impl Simulation {
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
            } else if let Some((syndrome, _)) = packet.aeth {
                flow.requester.on_promise(promise(syndrome));
            }
            // A sender that knows less than the checker may still place it.
            self.hosts[host].counted.placed_most += 1;
            return Ok(true);
        }
        if packet.is_response() {
            let Some(answer) = packet.aeth.and_then(|(syndrome, _)| answer(syndrome)) else { return Ok(true) };
            let requester = &mut connection.flows[to].requester;
            if !requester.on_answer(packet.psn, answer, now_ns) {
                self.coverage.item(47);
            } else {
                if let (Answer::Ack, Some((syndrome, _))) = (answer, packet.aeth) {
                    requester.on_promise(promise(syndrome));
                }
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
