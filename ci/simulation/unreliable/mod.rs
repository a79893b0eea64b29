//! Queue pairs without acknowledgements: unreliable connections and datagrams, beside the reliable connections of a run.
//!
//! A [`Station`] is one of these queue pairs; stations that live and end together are a [`Line`]: the two of a
//! connection, the one of a datagram queue pair. What a sender posts is judged where it leaves ([`wire`]); what reaches
//! a receiver says which messages it has to deliver, which ones it may, and what its memory holds ([`polling`]).

mod build;
mod ending;
mod groups;
mod polling;
mod program;
mod wire;

use crate::check::packet::ahead;
use crate::check::row::Row;
use crate::connection::{Phase, Posted};
use crate::host::Region;
use crate::message::{Message, Places};
use crate::unread::Unread;
use rnic_shim::verbs::{Cqn, Qpn};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Uc,
    Ud,
}

/// What must fail on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    LKey,
    LKeyRange,
    LKeyPd,
    /// An opcode that nobody has.
    Opcode,
    /// One that this service has not.
    Operation,
    /// A datagram that no port takes.
    TooLong,
}

/// A message to a station.
#[derive(Debug)]
pub struct Parcel {
    pub message: Message,
    /// A station; of a datagram to a group its sender.
    pub to: usize,
    pub group: Option<usize>,
    pub mistake: Option<Mistake>,
    /// A datagram with another Q_Key than the receiver's.
    pub stranger: bool,
}

/// A message that reached a receiver whole, and has no completion yet.
#[derive(Debug)]
pub struct Candidate {
    pub parcel: Rc<Parcel>,
    pub from: usize,
    /// A receive was posted for it in any case.
    pub certain: bool,
    /// Of a datagram: what stands in front of it.
    pub header: [u8; 40],
}

/// One queue pair.
#[derive(Debug)]
pub struct Station {
    pub service: Service,
    pub line: usize,
    pub host: usize,
    pub qpn: Qpn,
    pub send_cq: Cqn,
    pub receive_cq: Cqn,
    /// The shared receive queue that its receives come from, and whether it has told that it takes no more.
    pub shared: Option<usize>,
    pub last_receive: bool,
    /// Of a connection.
    pub peer: usize,
    /// Posted and not known to be done, in order.
    pub outstanding: VecDeque<Rc<Parcel>>,
    pub next_number: u64,
    pub next_psn: u32,
    pub unsignaled: usize,
    /// The packet that leaves next, and messages that packets may still be on their way of.
    pub leaving: u32,
    pub history: VecDeque<Rc<Parcel>>,
    /// A send has failed: the send queue stands still.
    pub stopped: bool,
    pub unread: Unread,
    /// Its adapter has begun anew: it is in RESET.
    pub gone: bool,
    pub receives: VecDeque<Posted>,
    pub next_receive: u64,
    pub receive_bytes: u32,
    pub arena: Region,
    pub places: Places,
    /// Of a connection: where the peer writes, and what stands there by the packets that came.
    pub target: Option<Region>,
    pub shadow: Vec<u8>,
    /// The same when the line was set up.
    pub before: Vec<u8>,
    /// Places of which it is not known whether the last packet was taken.
    pub unsure: Vec<(u32, u32)>,
    pub row: Row,
    pub candidates: VecDeque<Candidate>,
    /// The message that is under way was sure of its receive when it began.
    pub begun_certain: bool,
    pub dry: bool,
}

/// Stations that are set up, and end, together.
#[derive(Debug)]
pub struct Line {
    pub stations: Vec<usize>,
    pub phase: Phase,
    pub mtu: u32,
    /// Memory refused a read of it, or its adapter has ended: it is to be set up anew.
    pub excused: bool,
}

/// A multicast group, and the stations that listen to it.
#[derive(Debug)]
pub struct Group {
    pub gid: [u8; 16],
    pub members: Vec<usize>,
}

/// All of them in a run.
#[derive(Debug, Default)]
pub struct Unreliable {
    pub stations: Vec<Station>,
    pub lines: Vec<Line>,
    /// Host and queue pair number: station.
    pub places: BTreeMap<(usize, u32), usize>,
    pub groups: Vec<Group>,
}

/// The Q_Key of all datagram queue pairs; and what a datagram has whose sender does not know it.
pub const QKEY: u32 = 0x1100_0000;
pub const STRANGE_QKEY: u32 = 0x1100_1000;

impl Unreliable {
    pub fn line_of(&self, station: usize) -> &Line {
        &self.lines[self.stations[station].line]
    }

    pub fn runs(&self, station: usize) -> bool {
        self.line_of(station).phase == Phase::Running
    }
}

impl Station {
    /// Messages that are to be delivered: each may have taken a receive.
    pub fn takers(&self) -> usize {
        let takes = |candidate: &&Candidate| candidate.parcel.message.operation.consumes_receive();
        self.candidates.iter().filter(takes).count()
    }

    /// A byte of the target that stood there before, or that a packet of a message may have put there.
    pub fn is_explained(&self, history: &VecDeque<Rc<Parcel>>, pool: &[u8], at: u32, byte: u8) -> bool {
        let mut writers = history.iter().map(|parcel| &parcel.message).filter(|message| message.overlaps(at, 1));
        self.before[at as usize] == byte || writers.any(|message| message.byte(pool, at - message.at) == Some(byte))
    }

    /// The oldest receive completes, and is this one.
    pub fn take_receive(&mut self, wr_id: u64) -> Result<Posted, String> {
        let oldest = self.receives.front().copied();
        let Some(posted) = oldest.filter(|posted| posted.number == wr_id) else {
            return Err(format!("the oldest receive is {oldest:?}"));
        };
        self.receives.pop_front();
        self.places.free();
        Ok(posted)
    }

    /// Nothing that was posted completes any more, and nothing is waited for.
    pub fn lose(&mut self) {
        (self.gone, self.stopped) = (true, false);
        self.outstanding.clear();
        self.receives.clear();
        self.places.clear();
        self.candidates.clear();
    }

    pub fn remember(&mut self, parcel: &Rc<Parcel>) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Rc::clone(parcel));
    }

    /// It failed. Where no packet of it has left, none ever will.
    pub fn forget(&mut self, message: &Message) {
        if ahead(self.leaving, message.first_psn) <= 0 {
            self.history.retain(|parcel| parcel.message.number != message.number);
        }
    }
}

/// Operations and services as they are counted.
pub const OPERATIONS: [&str; 7] =
    ["UC SEND", "UC SEND_IMM", "UC WRITE", "UC WRITE_IMM", "UD SEND", "UD SEND_IMM", "UD send that fails"];
/// Messages that are remembered of a sender.
const HISTORY: usize = 4096;
