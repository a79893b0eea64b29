//! Two adapters joined by a wire, each with host memory and a driver that speaks the interface byte by byte.
#![allow(dead_code, unused_imports)]

pub mod driver;
pub mod host;
pub mod packets;
pub mod port;
pub mod request;

pub use driver::{gid, pages};
pub use host::*;
pub use packets::{Carried, Forged};
pub use request::{Request, all_rights, data_segment};

use rnic_engine::EngineConfig;

pub const PDN: u32 = 7;
pub const PSN: u32 = 1000;
pub const IP_A: [u8; 4] = [10, 0, 0, 1];
pub const IP_B: [u8; 4] = [10, 0, 0, 2];

/// What a connection is made with, on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub mtu: u8,
    pub psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
}

impl Attributes {
    pub const fn mtu(mtu: u8) -> Self {
        Self {
            mtu,
            psn: PSN,
            timeout: 14,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
        }
    }
}

/// Whether this packet is lost.
pub type Losing = Box<dyn FnMut(&Carried) -> bool>;

/// Both hosts and the wire between them.
pub struct Fabric {
    pub a: Host,
    pub b: Host,
    /// Frames that were carried or lost.
    pub wire: Vec<Carried>,
    /// Decides by direction and number whether a frame is lost.
    pub drop: Box<dyn FnMut(char, usize) -> bool>,
    /// Decides by the packet itself, where it is given.
    pub drop_packet: Option<Losing>,
}

impl Fabric {
    pub fn new(config: EngineConfig, mtu: u8) -> Self {
        Self::with(config, &Attributes::mtu(mtu))
    }

    pub fn with(config: EngineConfig, attributes: &Attributes) -> Self {
        let mut fabric = Self::unconnected(config);
        fabric.a.bring_up();
        fabric.b.bring_up();
        fabric.connect(attributes);
        fabric
    }

    pub fn unconnected(config: EngineConfig) -> Self {
        let a = Host::new(config.clone(), IP_A, 0x11);
        let b = Host::new(config, IP_B, 0x12);
        Self { a, b, wire: Vec::new(), drop: Box::new(|_, _| false), drop_packet: None }
    }

    pub fn connect(&mut self, attributes: &Attributes) {
        let (a, b) = (self.a.qpn, self.b.qpn);
        self.a.connect(a, (IP_B, b), attributes);
        self.b.connect(b, (IP_A, a), attributes);
        self.clear_logs();
    }

    /// Another pair of queue pairs, `further` numbers above the first.
    pub fn connect_another(&mut self, further: u32, attributes: &Attributes) {
        let (a, b) = (self.a.qpn + further, self.b.qpn + further);
        self.a.create_qp(a);
        self.b.create_qp(b);
        self.a.connect(a, (IP_B, b), attributes);
        self.b.connect(b, (IP_A, a), attributes);
        self.clear_logs();
    }

    pub fn clear_logs(&mut self) {
        self.a.port.log.clear();
        self.b.port.log.clear();
        self.wire.clear();
    }

    /// Carries frames until neither side has one to send.
    pub fn run(&mut self) {
        loop {
            let mut idle = true;
            for from in ['a', 'b'] {
                while let Some(mut frame) = self.side(from).transmit() {
                    idle = false;
                    frame.seal();
                    let lost = (self.drop)(from, self.wire.len());
                    let mut carried = Carried::new(from, frame.bytes(), lost);
                    if let Some(drop) = self.drop_packet.as_mut() {
                        carried.lost = drop(&carried);
                    }
                    let lost = carried.lost;
                    self.wire.push(carried);
                    if !lost {
                        self.side(if from == 'a' { 'b' } else { 'a' }).receive(frame);
                    }
                }
            }
            if idle {
                return;
            }
        }
    }

    fn side(&mut self, name: char) -> &mut Host {
        if name == 'a' { &mut self.a } else { &mut self.b }
    }

    /// Lets the clock jump to the next deadline, so often as it takes, and carries what comes of it.
    pub fn run_timers(&mut self, jumps: usize) {
        for _ in 0..jumps {
            let Some(next) = [&self.a, &self.b].iter().filter_map(|host| host.engine.poll_timeout()).min() else {
                return;
            };
            self.advance_to(next);
        }
    }

    pub fn advance_to(&mut self, now_ns: u64) {
        self.a.advance_to(now_ns);
        self.b.advance_to(now_ns);
        self.run();
    }

    /// Packets of one side, in order.
    pub fn sent_by(&self, from: char) -> Vec<&Carried> {
        self.wire.iter().filter(|packet| packet.from == from).collect()
    }

    /// PSNs of one side's packets.
    pub fn psns(&self, from: char) -> Vec<u32> {
        self.sent_by(from).iter().map(|packet| packet.psn).collect()
    }

    /// PSN and syndrome of one side's acknowledgements.
    pub fn answers(&self, from: char) -> Vec<(u32, u8)> {
        self.sent_by(from).iter().filter(|packet| packet.is_ack()).map(|packet| (packet.psn, packet.syndrome)).collect()
    }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
