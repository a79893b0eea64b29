//! Packets of the stations: each leaves once and in its turn; each that arrives is taken or dropped by rule, and nobody
//! answers.

use super::{Candidate, Parcel, QKEY, STRANGE_QKEY, Service, Station};
use crate::check::content;
use crate::check::packet::{Packet, TRANSPORT, UC, ahead, step};
use crate::check::row::{Fate, Position};
use crate::message::pool;
use crate::operations::Family;
use crate::run::{Checked, Simulation};
use std::rc::Rc;

/// The message that a packet belongs to, and which of its packets it is.
fn parcel_of(station: &Station, psn: u32) -> Option<(Rc<Parcel>, u32)> {
    // The latest that begins there: what failed before it took no packet.
    let sent = station.history.iter().rev().filter(|parcel| parcel.mistake.is_none());
    let mut fitting = sent.filter_map(|parcel| {
        let number = ahead(psn, parcel.message.first_psn);
        (0..parcel.message.packets as i32).contains(&number).then(|| (Rc::clone(parcel), number as u32))
    });
    fitting.next()
}

impl Simulation {
    /// The station that sent a packet.
    fn sender_of(&self, packet: &Packet, to: usize) -> Option<usize> {
        let host = self.hosts.iter().position(|host| host.gid == packet.source)?;
        match packet.deth {
            Some((_, source_qp)) => self.unreliable.places.get(&(host, source_qp)).copied(),
            None => Some(self.unreliable.stations[to].peer),
        }
    }

    /// The station that sent a packet, and the one that it is for.
    fn stations_of(&self, packet: &Packet) -> Option<(usize, usize)> {
        let host = self.hosts.iter().position(|host| host.gid == packet.dest)?;
        let to = *self.unreliable.places.get(&(host, packet.dest_qp))?;
        let from = self.sender_of(packet, to)?;
        let (sender, receiver) = (&self.unreliable.stations[from], &self.unreliable.stations[to]);
        let service = if packet.opcode & TRANSPORT == UC { Service::Uc } else { Service::Ud };
        (sender.service == service && receiver.service == service).then_some((from, to))
    }

    pub(crate) fn parcel_leaves(&mut self, host: usize, packet: &Packet) -> Checked {
        let group = self.group_of(packet);
        let stations = match group {
            Some(_) => self.sender_of(packet, 0).map(|from| (from, from)),
            None => self.stations_of(packet),
        };
        let Some((from, to)) = stations else { return Err("nobody has such a queue pair".into()) };
        if let Some(group) = group {
            self.check_group_address(packet, group)?;
        }
        let mtu = self.unreliable.line_of(from).mtu;
        let station = &mut self.unreliable.stations[from];
        if station.host != host || packet.source != self.hosts[host].gid {
            return Err("in another's name".into());
        }
        if packet.psn != station.leaving {
            return Err(format!("{:#x} is to leave next, and each packet leaves once", station.leaving));
        }
        let Some((parcel, at)) =
            parcel_of(station, packet.psn).filter(|(parcel, _)| (parcel.to, parcel.group) == (to, group))
        else {
            return Err("no message that is posted has this packet".into());
        };
        station.leaving = step(packet.psn, 1);
        let transport = packet.opcode & TRANSPORT;
        content::check_carried(packet, &parcel.message, at, mtu, pool(host), transport)?;
        if let Some((qkey, source)) = packet.deth {
            let right = (if parcel.stranger { STRANGE_QKEY } else { QKEY }, self.unreliable.stations[from].qpn.0);
            if (qkey, source) != right {
                return Err(format!("Q_Key {qkey:#x} and sender {source:#x} are to be {right:x?}"));
            }
        }
        if !packet.payload.is_empty() && !parcel.message.inline {
            self.hosts[host].counted.gathered += 1;
        }
        Ok(())
    }

    /// An intact packet is about to be the receiver's.
    pub(crate) fn parcel_arrives(&mut self, host: usize, packet: &Packet) {
        match self.group_of(packet) {
            Some(group) => {
                let Some(from) = self.sender_of(packet, 0) else { return };
                for member in self.members_at(group, host) {
                    self.coverage.note("copies of multicast packets", 1);
                    self.parcel_reaches(from, member, packet);
                }
            }
            None => {
                if let Some((from, to)) = self.stations_of(packet) {
                    self.parcel_reaches(from, to, packet);
                }
            }
        }
    }

    fn parcel_reaches(&mut self, from: usize, to: usize, packet: &Packet) {
        if !self.unreliable.runs(to) {
            self.coverage.item(109);
            return;
        }
        if self.unreliable.line_of(to).excused {
            let counted = &mut self.hosts[self.unreliable.stations[to].host].counted;
            (counted.placed_most, counted.receives_most) = (counted.placed_most + 1, counted.receives_most + 2);
            return;
        }
        let Some((parcel, at)) = parcel_of(&self.unreliable.stations[from], packet.psn) else {
            // It was on its way for so long that both ends were made anew meanwhile: what it does there is not known.
            let line = self.unreliable.stations[to].line;
            self.unreliable.lines[line].excused = true;
            self.coverage.note("packets of an earlier life", 1);
            let counted = &mut self.hosts[self.unreliable.stations[to].host].counted;
            (counted.placed_most, counted.receives_most) = (counted.placed_most + 1, counted.receives_most + 2);
            return;
        };
        match packet.deth {
            Some(_) => self.datagram_arrives(from, to, &parcel, packet),
            None => self.piece_arrives(from, to, &parcel, at, packet),
        }
    }

    /// Nobody else can have taken all that is posted.
    fn has_spare_receive(&self, number: usize) -> bool {
        let station = &self.unreliable.stations[number];
        match station.shared {
            Some(queue) => self.surely_left(queue) > 0,
            None => station.receives.len() > station.takers(),
        }
    }

    fn datagram_arrives(&mut self, from: usize, to: usize, parcel: &Rc<Parcel>, packet: &Packet) {
        // A copy that has to wait may find no room, or its queue pair in the group no more.
        let waits = parcel.group.is_some() && self.plan.memory.hold > 0;
        let certain = self.has_spare_receive(to) && !waits;
        let station = &mut self.unreliable.stations[to];
        let counted = &mut self.hosts[station.host].counted;
        if parcel.stranger || (parcel.to != to && parcel.group.is_none()) {
            return;
        }
        if parcel.message.length + 40 > station.receive_bytes {
            // It may look at a receive before it leaves it to the next.
            counted.receives_most += 2;
            self.coverage.note("messages too long for their receive", 1);
            return;
        }
        (counted.placed_most, counted.receives_most) = (counted.placed_most + 1, counted.receives_most + 2);
        let candidate = Candidate { parcel: Rc::clone(parcel), from, certain, header: packet.network_header() };
        station.candidates.push_back(candidate);
    }

    fn piece_arrives(&mut self, from: usize, to: usize, parcel: &Rc<Parcel>, at: u32, packet: &Packet) {
        let mtu = self.unreliable.line_of(to).mtu;
        let sender = self.unreliable.stations[from].host;
        let spare = self.has_spare_receive(to);
        let station = &mut self.unreliable.stations[to];
        let counted = &mut self.hosts[station.host].counted;
        let position = Position::of(packet.opcode & !TRANSPORT);
        let torn = station.row.torn;
        let fate = station.row.on_received(packet.psn, position);
        if station.row.torn > torn {
            self.coverage.item(23);
            self.coverage.note("UC messages torn", 1);
        }
        if fate == Fate::Dropped {
            return;
        }
        let message = &parcel.message;
        let send = message.operation.family == Family::Send;
        let takes = if send { position.first } else { message.operation.immediate && position.last };
        if position.first {
            station.begun_certain = true;
        }
        if takes {
            station.begun_certain = spare;
            counted.receives_most += 2;
        }
        let end = at * mtu + packet.payload.len() as u32;
        if send && end > station.receive_bytes {
            station.row.refuse();
            self.coverage.note("messages too long for their receive", 1);
            return;
        }
        counted.placed_most += u64::from(!packet.payload.is_empty());
        if !send && !packet.payload.is_empty() {
            let (place, length) = (message.at + at * mtu, packet.payload.len() as u32);
            if takes && !station.begun_certain {
                station.unsure.push((place, length));
            } else {
                station.write(message, pool(sender), place, length);
            }
        }
        if position.last && message.operation.consumes_receive() {
            let certain = station.begun_certain;
            let candidate = Candidate { parcel: Rc::clone(parcel), from, certain, header: [0; 40] };
            station.candidates.push_back(candidate);
        }
    }
}

impl Station {
    /// A packet's bytes, by the program, go into the shadow.
    fn write(&mut self, message: &crate::message::Message, pool: &[u8], place: u32, length: u32) {
        message.copy_out(pool, place - message.at, &mut self.shadow[place as usize..][..length as usize]);
    }
}
