//! Both ends of a connection under one trait: a driver of ours on the model host, and Linux' rdma_rxe in a guest.

use crate::bench::station::{PSN, Retries, Station};
use rnic_abi::WorkOpcode;
use rnic_ci::deadline::Deadline;
use rnic_ci::guest::Guest;
use rnic_shim::exchange::Endpoint;
use rnic_shim::verbs::*;
use std::fmt::Write as _;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(40);
/// Where a side's messages begin, and where those of the other side go.
pub const SOURCE: u64 = 0;
pub const TARGET: u64 = 0x8000;
const ROOM: u32 = 0x8000;
/// The peer's first PSN is not ours.
const RXE_PSN: u32 = 0xff_fffe;

/// One operation of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// As the peer's program names it.
    pub name: &'static str,
    pub opcode: WorkOpcode,
    pub length_bytes: u32,
    pub immediate: u32,
    /// Of an atomic: what is compared or added, and what is put there.
    pub operands: (u64, u64),
    /// The peer's key, if it is not the right one.
    pub key: Option<u32>,
}

/// What a side is told at the end of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub status: u8,
    /// Of a receive.
    pub length_bytes: u32,
    pub immediate: u32,
}

/// One end of a connection.
pub trait Side {
    fn fill(&mut self, offset: u64, bytes: &[u8]);
    fn holds(&mut self, offset: u64, length_bytes: u32) -> Vec<u8>;
    fn receive(&mut self);
    fn post(&mut self, work: &Work, peer: &Endpoint);
    fn complete(&mut self) -> Done;
    /// How the other side reaches this one.
    fn endpoint(&self) -> Endpoint;
}

/// A driver of ours, in this process.
pub struct Model {
    station: Station,
    own: Endpoint,
}

impl Model {
    pub fn open(mut station: Station) -> Model {
        let own = station.create_queue_pair();
        Model { station, own }
    }

    /// Leaves a queue pair behind, whatever state it is in, and connects another.
    pub fn connect_anew(&mut self) {
        self.station.device.destroy_queue_pair(Qpn(self.own.qpn)).expect("destroyed");
        self.own = self.station.create_queue_pair();
    }

    pub fn connect(&mut self, peer: &Endpoint) {
        self.station.connect(&self.own, peer, Retries::default());
    }
}

impl Side for Model {
    fn fill(&mut self, offset: u64, bytes: &[u8]) {
        let iova = self.station.buffer.iova + offset;
        self.station.device.backing().copy_in(iova, bytes).expect("written");
    }

    fn holds(&mut self, offset: u64, length_bytes: u32) -> Vec<u8> {
        let mut bytes = vec![0; length_bytes as usize];
        let iova = self.station.buffer.iova + offset;
        self.station.device.backing().copy_out(iova, &mut bytes).expect("read");
        bytes
    }

    fn receive(&mut self) {
        let elements = [self.station.region.sge(TARGET, ROOM)];
        let receive = ReceiveRequest { wr_id: 2, elements: &elements };
        self.station.device.post_receive(Qpn(self.own.qpn), &[receive]).expect("posted");
    }

    fn post(&mut self, work: &Work, peer: &Endpoint) {
        let takes_from_peer = !matches!(work.name, "send" | "send_imm" | "write" | "write_imm");
        let elements = [self.station.region.sge(if takes_from_peer { TARGET } else { SOURCE }, work.length_bytes)];
        let (first, second) = work.operands;
        let payload = match work.name {
            "cmp_swap" => Payload::Atomic(Operands::CompareSwap { compare: first, swap: second }, &elements),
            "fetch_add" => Payload::Atomic(Operands::FetchAdd { add: first }, &elements),
            _ => Payload::Elements(&elements),
        };
        let remote = remote(work, peer);
        let request = SendRequest {
            wr_id: 1,
            opcode: work.opcode,
            payload,
            remote: (!work.name.starts_with("send")).then_some(remote),
            datagram: None,
            srqn: None,
            immediate: work.immediate,
            signaled: true,
            solicited: false,
            fence: false,
        };
        self.station.device.post_send(Qpn(self.own.qpn), &[request], DoorbellForm::Word).expect("posted");
    }

    fn complete(&mut self) -> Done {
        let done = self.station.completion(LIMIT);
        Done { status: done.status, length_bytes: done.byte_len, immediate: done.immediate.unwrap_or(0) }
    }

    fn endpoint(&self) -> Endpoint {
        self.own
    }
}

/// Where in the peer's memory the work goes, or where it finds what it brings.
fn remote(work: &Work, peer: &Endpoint) -> Remote {
    let offset = if work.name == "read" { SOURCE } else { TARGET };
    Remote { address: peer.address + offset, rkey: work.key.unwrap_or(peer.rkey) }
}

/// rdma_rxe in a guest, by the program beside this file.
pub struct Rxe {
    pub guest: Guest,
    gid: [u8; 16],
    mac: [u8; 6],
    own: Endpoint,
}

impl Rxe {
    /// The program runs already.
    pub fn open(guest: Guest, gid: [u8; 16], mac: [u8; 6]) -> Rxe {
        let own = Endpoint { gid, mac, qpn: 0, psn: RXE_PSN, address: 0, rkey: 0, length_bytes: u64::from(2 * ROOM) };
        let mut rxe = Rxe { guest, gid, mac, own };
        assert_eq!(rxe.answer(), "ready");
        rxe.open_anew();
        rxe
    }

    /// A new queue pair: the old one is forgotten with its completions.
    pub fn open_anew(&mut self) {
        let answer = self.ask("open");
        let mut numbers = answer.split(' ').map(|word| word.parse::<u64>().unwrap_or_else(|_| panic!("{answer}")));
        let mut next = || numbers.next().expect("three numbers");
        let (qpn, address, rkey) = (next() as u32, next(), next() as u32);
        self.own = Endpoint { gid: self.gid, mac: self.mac, qpn, address, rkey, ..self.own };
    }

    /// `timeout` as in a queue pair's attributes: 4.096 us times two to its power.
    pub fn connect(&mut self, peer: &Endpoint, timeout: u8) {
        let groups: Vec<_> = peer.gid.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
        self.must(&format!("connect {} {} {PSN} {RXE_PSN} {timeout}", peer.qpn, groups.join(":")));
    }

    fn ask(&mut self, line: &str) -> String {
        let deadline = Deadline::new(format!("telling the peer: {line:.60}"), LIMIT);
        self.guest.exchange().send(format!("{line}\n").as_bytes(), &deadline).expect("told");
        let answer = self.answer();
        assert!(!answer.starts_with("error"), "{line:.60}: {answer}");
        answer
    }

    fn answer(&mut self) -> String {
        let deadline = Deadline::new("the peer's answer", LIMIT);
        let line = self.guest.exchange().receive_line(1 << 18, &deadline).expect("an answer");
        line.trim_end().to_owned()
    }

    fn must(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line:.60}");
    }
}

impl Side for Rxe {
    fn fill(&mut self, offset: u64, bytes: &[u8]) {
        let mut text = String::new();
        bytes.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string grows"));
        self.must(&format!("fill {offset} {text}"));
    }

    fn holds(&mut self, offset: u64, length_bytes: u32) -> Vec<u8> {
        let answer = self.ask(&format!("holds {offset} {length_bytes}"));
        let digits = |at: usize| u8::from_str_radix(&answer[at..at + 2], 16).expect("two digits");
        (0..answer.len()).step_by(2).map(digits).collect()
    }

    fn receive(&mut self) {
        self.must(&format!("receive {TARGET} {ROOM}"));
    }

    fn post(&mut self, work: &Work, peer: &Endpoint) {
        let Remote { address, rkey } = remote(work, peer);
        let offset = if work.name.starts_with("send") || work.name.starts_with("write") { SOURCE } else { TARGET };
        let Work { name, length_bytes, immediate, operands: (first, second), .. } = work;
        self.must(&format!("post {name} {offset} {length_bytes} {address} {rkey} {immediate} {first} {second}"));
    }

    fn complete(&mut self) -> Done {
        let answer = self.ask("complete");
        let numbers: Vec<u32> = answer.split(' ').map(|word| word.parse().expect("a number")).collect();
        Done { status: numbers[1] as u8, length_bytes: numbers[2], immediate: numbers[3] }
    }

    fn endpoint(&self) -> Endpoint {
        self.own
    }
}
