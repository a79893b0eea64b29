//! What the stations' drivers see: sends that end in their order, and receives that are the messages that came.

use super::{Candidate, Mistake, Parcel, Service, Station};
use crate::check::packet::{ahead, step};
use crate::connection::{Phase, Posted};
use crate::message::pool;
use crate::operations::Family;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::{CompletionOpcode, CompletionStatus, EventType};
use rnic_shim::verbs::*;
use std::rc::Rc;

impl Mistake {
    fn status(self) -> CompletionStatus {
        match self {
            Self::LKey | Self::LKeyRange | Self::LKeyPd => CompletionStatus::LOC_PROT_ERR,
            Self::Opcode | Self::Operation => CompletionStatus::LOC_QP_OP_ERR,
            Self::TooLong => CompletionStatus::LOC_LEN_ERR,
        }
    }

    fn items(self) -> &'static [usize] {
        match self {
            Self::LKey | Self::LKeyRange | Self::LKeyPd => &[59, 77],
            Self::Opcode | Self::Operation => &[68, 69, 77],
            Self::TooLong => &[67, 77],
        }
    }
}

impl Simulation {
    pub(crate) fn judge_station(&mut self, number: usize, completion: &WorkCompletion) -> Checked {
        if completion.opcode & CompletionOpcode::RECV.0 != 0 {
            self.judge_station_receive(number, completion)
        } else {
            self.judge_station_send(number, completion)
        }
    }

    fn judge_station_send(&mut self, number: usize, completion: &WorkCompletion) -> Checked {
        let station = &mut self.unreliable.stations[number];
        let place = station.outstanding.iter().position(|parcel| parcel.message.number == completion.wr_id);
        let Some(place) = place else { return Err("it is not outstanding".into()) };
        if usize::from(completion.retired) != place + 1 {
            return Err(format!("the driver retires {} requests with it, not {}", completion.retired, place + 1));
        }
        let unread = station.unread;
        for parcel in station.outstanding.drain(..place).filter(|parcel| !unread.is_silent(parcel.message.number)) {
            if parcel.message.signaled {
                return Err(format!("signaled request {} before it has no completion", parcel.message.number));
            }
            if parcel.mistake.is_some() {
                return Err(format!(
                    "request {} before it has succeeded in silence, and must fail",
                    parcel.message.number
                ));
            }
        }
        let Some(parcel) = station.outstanding.pop_front() else { return Ok(()) };
        if completion.status() != CompletionStatus::SUCCESS {
            station.unread.failed(parcel.message.number, completion.opcode);
        }
        self.judge_station_status(number, &parcel, completion)
    }

    fn judge_station_status(&mut self, number: usize, parcel: &Rc<Parcel>, completion: &WorkCompletion) -> Checked {
        let line = self.unreliable.line_of(number);
        let (running, excused) = (line.phase == Phase::Running, line.excused);
        let station = &mut self.unreliable.stations[number];
        let message = &parcel.message;
        let left = ahead(station.leaving, step(message.first_psn, message.packets)) >= 0;
        match completion.status() {
            CompletionStatus::SUCCESS => {
                if parcel.mistake.is_some() || station.stopped {
                    return Err(format!("it must fail: {:?}", parcel.mistake));
                }
                if !left {
                    return Err(format!("its last packet has not left: {:#x} is next", station.leaving));
                }
                if !message.signaled {
                    return Err("it was not signaled, and succeeded".into());
                }
                if completion.opcode != message.operation.opcode.0 {
                    return Err(format!("opcode {:#x} is not that of {}", completion.opcode, message.operation.name));
                }
                self.coverage.item(72);
                Ok(())
            }
            CompletionStatus::WR_FLUSH_ERR => {
                if running && !station.stopped && !excused {
                    return Err("nothing has failed".into());
                }
                station.stopped = true;
                station.forget(message);
                self.coverage.items(&[73, 74]);
                Ok(())
            }
            status => {
                let right = parcel.mistake.map(Mistake::status) == Some(status) && !station.stopped;
                station.stopped = true;
                station.forget(message);
                if !right && !excused {
                    return Err(format!("message {} has no reason for it: {:?}", message.number, parcel.mistake));
                }
                self.coverage.items(parcel.mistake.map_or(&[][..], Mistake::items));
                Ok(())
            }
        }
    }

    fn judge_station_receive(&mut self, number: usize, completion: &WorkCompletion) -> Checked {
        let line = self.unreliable.line_of(number);
        let (running, excused) = (line.phase == Phase::Running, line.excused);
        let station = &mut self.unreliable.stations[number];
        let posted = match station.shared {
            Some(queue) => self.take_shared(queue, completion.wr_id)?,
            None => station.take_receive(completion.wr_id)?,
        };
        match completion.status() {
            CompletionStatus::SUCCESS => self.station_receives(number, posted, completion),
            CompletionStatus::WR_FLUSH_ERR if !running || excused => {
                self.coverage.items(&[73, 74]);
                Ok(())
            }
            _ if excused => Ok(()),
            _ => Err("nothing that a peer sends may lead to it".into()),
        }
    }

    /// A message has arrived: the first of those that came whole, but for such as may have found no receive.
    fn station_receives(&mut self, number: usize, posted: Posted, completion: &WorkCompletion) -> Checked {
        let station = &self.unreliable.stations[number];
        let mut bytes = vec![0; posted.size as usize];
        let arena = station.shared.map_or(&station.arena, |queue| &self.shared[queue].arena);
        let (host, iova) = (station.host, arena.buffer.iova + u64::from(posted.at));
        self.hosts[host].read(iova, &mut bytes).map_err(explain("reading what was received"))?;
        let (line, stations) = (self.unreliable.line_of(number), &self.unreliable.stations);
        let (station, settled) = (&stations[number], line.phase == Phase::Running && !line.excused);
        let is_it = |candidate: &Candidate| self.is_delivered(candidate, completion, &bytes);
        let Some(place) = station.candidates.iter().position(is_it) else {
            if line.excused {
                return Ok(());
            }
            let length = completion.byte_len;
            return Err(format!("a message of {length} bytes, and none of {:?} is", brief(station)));
        };
        let skipped = station.candidates.iter().take(place);
        if let Some(missed) = skipped.clone().find(|candidate| candidate.certain && settled) {
            let number = missed.parcel.message.number;
            return Err(format!("message {number} before it arrived whole, found a receive, and was not delivered"));
        }
        let lost = skipped.count();
        (0..lost).for_each(|_| self.coverage.item(24));
        let station = &mut self.unreliable.stations[number];
        station.candidates.drain(..lost);
        let Some(candidate) = station.candidates.pop_front() else { return Ok(()) };
        let mtu = self.unreliable.line_of(number).mtu;
        let counted = &mut self.hosts[host].counted;
        counted.receives_least += 1;
        counted.placed_least += match candidate.parcel.message.packets {
            _ if completion.datagram.is_some() => 1,
            _ => u64::from(candidate.parcel.message.length.div_ceil(mtu)),
        };
        self.coverage.items(&[26, 72]);
        self.check_target_of(number, &candidate)
    }

    /// Whether a completion, and the bytes in its buffer, are those of a message.
    fn is_delivered(&self, candidate: &Candidate, completion: &WorkCompletion, bytes: &[u8]) -> bool {
        let message = &candidate.parcel.message;
        let sender = &self.unreliable.stations[candidate.from];
        let (write, datagram) = (message.operation.family == Family::Write, sender.service == Service::Ud);
        let opcode = if write { CompletionOpcode::RECV_RDMA_WITH_IMM } else { CompletionOpcode::RECV };
        let front = if datagram { 40 } else { 0 };
        let immediate = message.operation.immediate.then_some(message.immediate);
        let found =
            (completion.opcode, completion.byte_len, completion.immediate, completion.src_qpn, completion.solicited);
        if found != (opcode.0, message.length + front, immediate, sender.qpn.0, message.solicited) {
            return false;
        }
        let Some(origin) = completion.datagram else {
            let length = if write { 0 } else { message.length as usize };
            return !datagram && message.carries(pool(sender.host), 0, &bytes[..length]);
        };
        let Some((header, payload)) = bytes.split_at_checked(40) else { return false };
        origin.source_mac == self.hosts[sender.host].mac
            && header == candidate.header
            && message.carries(pool(sender.host), 0, &payload[..message.length as usize])
    }

    /// A WRITE with immediate: its bytes are there, where no later one has written.
    fn check_target_of(&mut self, number: usize, candidate: &Candidate) -> Checked {
        let message = &candidate.parcel.message;
        let station = &self.unreliable.stations[number];
        let Some(target) = station.target.as_ref().filter(|_| message.writes()) else { return Ok(()) };
        let (host, iova) = (station.host, target.buffer.iova + u64::from(message.at));
        let mut bytes = vec![0; message.length as usize];
        self.hosts[host].read(iova, &mut bytes).map_err(explain("reading what was written"))?;
        let sender = &self.unreliable.stations[candidate.from];
        // An earlier one may have come once more, or late.
        let others = sender.history.iter().filter(|other| other.message.number != message.number);
        let alone = !others.into_iter().any(|other| other.message.overlaps(message.at, message.length));
        if !alone {
            return Ok(());
        }
        if !message.carries(pool(sender.host), 0, &bytes) {
            return Err(format!(
                "the {} bytes at {iova:#x} are not those of message {}",
                message.length, message.number
            ));
        }
        self.coverage.item(40);
        Ok(())
    }

    pub(crate) fn judge_station_event(&mut self, number: usize, event: Event) -> Checked {
        let line = self.unreliable.line_of(number);
        if event.event_type == EventType::QP_FATAL && line.excused {
            return Ok(());
        }
        Err(format!("{event:?} of a station whose line is {line:?}"))
    }
}

fn brief(station: &Station) -> Vec<(u64, &'static str, u32, bool)> {
    let first = station.candidates.iter().take(6);
    first
        .map(|candidate| {
            let message = &candidate.parcel.message;
            (message.number, message.operation.name, message.length, candidate.certain)
        })
        .collect()
}
