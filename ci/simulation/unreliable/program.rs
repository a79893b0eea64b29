//! What the stations' drivers post.

use super::{Mistake, Parcel, QKEY, STRANGE_QKEY, Service, Station};
use crate::aim::{NO_KEY, inline_bytes, length, pieces};
use crate::check::packet::step;
use crate::connection::{Phase, Posted};
use crate::message::{Message, POOL_BYTES};
use crate::operations::{Family, OPERATIONS, Operation, named};
use crate::run::{Checked, Simulation, explain};
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Inline bytes behind a datagram segment.
const INLINE_BYTES: u32 = 192;
/// Shorter messages say who they are by their immediate data.
const TELLING_BYTES: u32 = 16;
/// One in so many posts is one that must fail, or a datagram that its receiver does not take.
const MISTAKES: u64 = 150;
const STRANGERS: u64 = 40;

impl Simulation {
    pub(crate) fn post_unreliable(&mut self) -> Checked<bool> {
        let mut any = false;
        // Most of a run's operations are those of reliable connections.
        if !self.random.one_in(6) {
            return Ok(false);
        }
        let stations = self.unreliable.stations.len();
        for _ in 0..stations.div_ceil(8) {
            let station = self.random.index(stations);
            any |= self.post_station_receives(station)?;
            any |= self.post_station_sends(station)?;
        }
        Ok(any)
    }

    fn post_station_receives(&mut self, number: usize) -> Checked<bool> {
        let ending = self.unreliable.line_of(number).phase == Phase::Ending;
        let station = &mut self.unreliable.stations[number];
        let free = (1usize << self.plan.log_cqes_per_qp).saturating_sub(station.receives.len());
        let seldom = ending || station.dry || self.healed_ns.is_some();
        let unwanted = seldom && !self.random.one_in(20);
        if unwanted || station.gone || station.shared.is_some() || !(ending || self.unreliable.runs(number)) {
            return Ok(false);
        }
        let mut posted = false;
        for _ in 0..self.random.index(4).min(free) {
            posted |= self.post_station_receive(number)?;
        }
        Ok(posted)
    }

    fn post_station_receive(&mut self, number: usize) -> Checked<bool> {
        let station = &mut self.unreliable.stations[number];
        let size = station.receive_bytes;
        let Some(at) = station.places.take(size) else { return Ok(false) };
        let mut elements = Vec::new();
        let (mut from, mut rest) = (u64::from(at), size);
        while rest > 0 {
            let taken = if elements.len() == 3 { rest } else { self.random.between(1, rest.into()) as u32 };
            elements.push(station.arena.memory.sge(from, taken));
            (from, rest) = (from + u64::from(taken), rest - taken);
        }
        let (wr_id, host, qpn) = (station.next_receive, station.host, station.qpn);
        station.next_receive += 1;
        station.receives.push_back(Posted { number: wr_id, at, size });
        let request = ReceiveRequest { wr_id, elements: &elements };
        let opened = &mut self.hosts[host];
        opened.device.post_receive(qpn, &[request]).map_err(explain("posting a receive"))?;
        opened.counted.receive_doorbells += 1;
        self.enter("receives", host, [qpn.0.into(), wr_id, size.into(), 0]);
        Ok(true)
    }

    fn post_station_sends(&mut self, number: usize) -> Checked<bool> {
        if self.unreliable.stations[number].gone {
            return Ok(false);
        }
        let (ending, running) = (self.unreliable.line_of(number).phase == Phase::Ending, self.unreliable.runs(number));
        let station = &self.unreliable.stations[number];
        let free = (1usize << self.plan.log_cqes_per_qp).saturating_sub(station.outstanding.len());
        // Only unsignaled requests are left: they may have ended in silence.
        let silent = !station.outstanding.is_empty() && station.unsignaled >= station.outstanding.len();
        let healed = self.healed_ns.is_some();
        // A fetch that memory refused leaves requests behind that end with a later one.
        let left = ending && self.unreliable.line_of(number).excused && !station.outstanding.is_empty();
        let closes = (silent && (healed || ending)) || (left && self.random.one_in(50));
        let wanted = match (running && !station.stopped, closes) {
            (_, true) => 1,
            (true, false) if !healed => {
                self.random.between(1, 4).min(self.plan.operations.saturating_sub(self.posted)) as usize
            }
            _ => return Ok(false),
        };
        let mut parcels = Vec::new();
        for _ in 0..wanted.min(free) {
            match self.new_parcel(number, closes) {
                Some(parcel) => parcels.push(parcel),
                None => break,
            }
        }
        if parcels.is_empty() {
            return Ok(false);
        }
        self.submit_parcels(number, &parcels)?;
        Ok(true)
    }

    /// Somebody to send to: the peer, or any datagram station at another host.
    fn choose_receiver(&mut self, number: usize) -> Option<usize> {
        let stations = &self.unreliable.stations;
        let own = &stations[number];
        if own.service == Service::Uc {
            return Some(own.peer);
        }
        let others: Vec<usize> = (0..stations.len())
            .filter(|other| stations[*other].service == Service::Ud && stations[*other].host != own.host)
            .collect();
        if others.is_empty() { None } else { Some(self.random.pick(&others)) }
    }

    fn new_parcel(&mut self, number: usize, last: bool) -> Option<Rc<Parcel>> {
        let group = if last { None } else { self.choose_group(number) };
        let to = if group.is_some() { number } else { self.choose_receiver(number)? };
        let service = self.unreliable.stations[number].service;
        let mistaken = !last && self.healed_ns.is_none() && self.plan.faults > 0 && self.random.one_in(MISTAKES);
        let mistake = mistaken.then(|| self.choose_mistake(service));
        let (mtu, reach) = (self.unreliable.line_of(number).mtu, self.plan.reach_bytes);
        let mut operation = self.choose_unreliable(service, mistake, last);
        let receive_bytes = self.unreliable.stations[to].receive_bytes;
        let mut length = match service {
            _ if last => 0,
            Service::Uc => length(&mut self.random, mtu, reach),
            Service::Ud if self.random.one_in(4) => self.random.below(u64::from(mtu) + 1) as u32,
            Service::Ud => self.random.below(u64::from(receive_bytes - 40) + 1) as u32,
        };
        if service == Service::Uc && operation.family == Family::Send && !self.random.one_in(30) {
            length = length.min(receive_bytes);
        }
        match mistake {
            Some(Mistake::TooLong) => length = mtu + 1 + self.random.below(2000) as u32,
            Some(_) => length = length.clamp(2, 4096),
            None => {}
        }
        if operation.family == Family::Send && !operation.immediate && length < TELLING_BYTES {
            operation = named(WorkOpcode::SEND_IMM);
        }
        let signaled = last
            || self.random.per_million(self.plan.signaled)
            || self.unreliable.stations[number].unsignaled * 2 >= 1 << self.plan.log_cqes_per_qp;
        let stranger = service == Service::Ud && !last && self.random.one_in(STRANGERS);
        let random = &mut self.random;
        let station = &self.unreliable.stations[number];
        let mut message = Message {
            number: station.next_number,
            operation,
            length,
            pieces: pieces(random, length),
            at: 0,
            address: 0,
            rkey: 0,
            immediate: random.draw() as u32,
            signaled,
            solicited: random.one_in(3),
            inline: length <= INLINE_BYTES && mistake.is_none() && random.per_million(self.plan.inlined),
            first_psn: station.next_psn,
            packets: length.div_ceil(mtu).max(1),
            landing: 0,
            atomic: None,
            fence: false,
            starts: RefCell::default(),
            fault: None,
            placed: false,
            alone: Cell::new(false),
            view: false,
            queue: None,
            invalidates: None,
        };
        if operation.family == Family::Write
            && let Some(target) = &self.unreliable.stations[to].target
        {
            message.at = random.below(target.buffer.length_bytes - u64::from(length) + 1) as u32;
            (message.address, message.rkey) = (target.memory.start() + u64::from(message.at), target.memory.key);
        }
        let parcel = Rc::new(Parcel { message, to, group, mistake, stranger });
        self.book(number, &parcel);
        Some(parcel)
    }

    fn choose_mistake(&mut self, service: Service) -> Mistake {
        let local = [Mistake::LKey, Mistake::LKeyRange, Mistake::LKeyPd, Mistake::Opcode, Mistake::Operation];
        match service {
            Service::Ud if self.random.one_in(3) => Mistake::TooLong,
            _ => self.random.pick(&local),
        }
    }

    fn choose_unreliable(&mut self, service: Service, mistake: Option<Mistake>, last: bool) -> &'static Operation {
        let fits = |operation: &&Operation| match operation.family {
            Family::Send => !last || service == Service::Ud,
            Family::Write => service == Service::Uc && (!last || !operation.immediate) && mistake.is_none(),
            _ => false,
        };
        let rows: Vec<&'static Operation> = OPERATIONS.iter().filter(fits).collect();
        rows[self.random.weighted(rows.iter().map(|operation| operation.weight))]
    }

    fn book(&mut self, number: usize, parcel: &Rc<Parcel>) {
        let station = &mut self.unreliable.stations[number];
        let message = &parcel.message;
        station.next_number += 1;
        // What fails at once takes no PSN.
        if parcel.mistake.is_none() && !station.stopped {
            station.next_psn = step(station.next_psn, message.packets);
        }
        station.unsignaled = if message.signaled { 0 } else { station.unsignaled + 1 };
        station.outstanding.push_back(Rc::clone(parcel));
        station.remember(parcel);
        let coverage = &mut self.coverage;
        coverage.note(row_name(station.service, message.operation), 1);
        coverage.note("datagrams with another Q_Key", parcel.stranger.into());
        coverage.note("multicast datagrams", parcel.group.is_some().into());
        if parcel.mistake.is_some() {
            coverage.note(if station.service == Service::Uc { "UC send that fails" } else { "UD send that fails" }, 1);
        }
        if !message.signaled {
            coverage.items(&[70, 71]);
        }
    }

    fn submit_parcels(&mut self, number: usize, parcels: &[Rc<Parcel>]) -> Checked {
        let Station { host, qpn, service, .. } = self.unreliable.stations[number];
        let sges: Vec<Vec<Sge>> = parcels.iter().map(|parcel| self.parcel_elements(host, parcel)).collect();
        let inlined: Vec<Vec<u8>> = parcels.iter().map(|parcel| inline_bytes(host, &parcel.message)).collect();
        let mut requests = Vec::new();
        for (at, parcel) in parcels.iter().enumerate() {
            let message = &parcel.message;
            let opcode = match parcel.mistake {
                Some(Mistake::Opcode) => WorkOpcode(0x3e),
                Some(Mistake::Operation) => WorkOpcode::READ,
                _ => message.operation.opcode,
            };
            let remote = message.operation.is_remote() || opcode == WorkOpcode::READ;
            let datagram = self.destination_of(parcel);
            requests.push(SendRequest {
                wr_id: message.number,
                opcode,
                payload: if message.inline { Payload::Inline(&inlined[at]) } else { Payload::Elements(&sges[at]) },
                remote: remote.then_some(Remote { address: message.address, rkey: message.rkey }),
                immediate: message.immediate,
                signaled: message.signaled,
                solicited: message.solicited,
                datagram: (service == Service::Ud).then_some(datagram),
                srqn: None,
                fence: false,
            });
        }
        for parcel in parcels {
            let message = &parcel.message;
            let [length, psn] = [message.length, message.first_psn].map(u64::from);
            self.log.enter(crate::log::Entry {
                time_ns: self.now_ns,
                what: "posts",
                host,
                numbers: [qpn.0.into(), message.number, psn, length],
            });
        }
        let form = self.random.pick(&[DoorbellForm::Word, DoorbellForm::Line, DoorbellForm::Wqe]);
        let opened = &mut self.hosts[host];
        opened.device.post_send(qpn, &requests, form).map_err(explain("posting sends"))?;
        opened.counted.send_doorbells += 1;
        self.note_refusals(host);
        self.posted += parcels.len() as u64;
        Ok(())
    }

    fn destination_of(&self, parcel: &Parcel) -> Datagram {
        let receiver = &self.unreliable.stations[parcel.to];
        let qkey = if parcel.stranger { STRANGE_QKEY } else { QKEY };
        let (av, dest_qpn) = match parcel.group {
            Some(group) => self.address_of_group(group),
            None => (self.address_of(receiver.host), receiver.qpn.0),
        };
        Datagram { av, dest_qpn, qkey, pkey_index: 0 }
    }

    fn parcel_elements(&self, host: usize, parcel: &Parcel) -> Vec<Sge> {
        let (source, foreign) = (&self.hosts[host].source.memory, &self.hosts[host].foreign.memory);
        let pieces = parcel.message.pieces.iter();
        let mut elements: Vec<Sge> = pieces.map(|(from, length)| source.sge((*from).into(), *length)).collect();
        let Some(last) = elements.last_mut() else { return elements };
        match parcel.mistake {
            Some(Mistake::LKey) => last.lkey = NO_KEY,
            Some(Mistake::LKeyRange) => {
                last.address = source.start() + POOL_BYTES as u64 - u64::from(last.length_bytes) + 1;
            }
            Some(Mistake::LKeyPd) => (last.lkey, last.address) = (foreign.key, foreign.start()),
            _ => {}
        }
        elements
    }
}

fn row_name(service: Service, operation: &Operation) -> &'static str {
    match (service, operation.opcode) {
        (Service::Ud, WorkOpcode::SEND) => "UD SEND",
        (Service::Ud, _) => "UD SEND_IMM",
        (_, WorkOpcode::SEND) => "UC SEND",
        (_, WorkOpcode::SEND_IMM) => "UC SEND_IMM",
        (_, WorkOpcode::WRITE) => "UC WRITE",
        _ => "UC WRITE_IMM",
    }
}
