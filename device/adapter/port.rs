//! The adapter's port: between its functions and the switch.
//!
//! Frames for the RNIC's own addresses turn round here, through the same frames as all others. A frame goes to the RNIC
//! if it is RoCE, addressed to one of its GIDs or to a group that its queue pairs are attached to, and the RNIC is enabled;
//! every other goes to the Ethernet function. What is sent to such a group goes both ways.

use rnic_engine::Engine;
use rnic_switch::Port;
use rnic_wire::{Frame, Gid, IcrcState, is_roce};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Frames that have turned round and wait for the engine.
const TURNED_FRAMES: usize = 256;

/// A switch port with a way back to its own adapter.
#[derive(Debug)]
pub struct AdapterPort {
    pub switch: Port,
    turned: VecDeque<Frame>,
    spare: Vec<Frame>,
    /// Every frame that leaves carries its ICRC, also inside the process.
    pub always_seal: bool,
    link_up: bool,
    /// Frames that left or arrived while the link was down, and are lost.
    pub link_down_frames: u64,
}

/// Which function a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    Rnic,
    Ethernet,
}

impl AdapterPort {
    pub fn new(switch: Port) -> Self {
        Self {
            switch,
            turned: VecDeque::new(),
            spare: Vec::new(),
            always_seal: false,
            link_up: true,
            link_down_frames: 0,
        }
    }

    /// Frames that may be transmitted now without loss.
    pub fn room(&mut self) -> usize {
        self.switch.room().min(TURNED_FRAMES - self.turned.len())
    }

    pub fn transmit(&mut self, engine: &Engine, frame: &mut Frame, now_ns: u64) {
        if self.always_seal {
            frame.seal();
        }
        if !self.link_up {
            self.link_down_frames += 1;
            return;
        }
        match destination(frame.bytes()) {
            Some(gid) if engine.owns_gid(&gid.0) => self.turn(frame),
            Some(gid) if engine.joined_group(&gid.0) => self.transmit_to_group(frame, now_ns),
            _ => {
                self.switch.transmit(frame, now_ns);
            }
        }
    }

    /// Transmits a frame of the Ethernet function.
    pub fn transmit_ethernet(&mut self, engine: &Engine, frame: &mut Frame, now_ns: u64) {
        match taker(engine, frame) {
            Taker::Rnic if is_group(frame) => self.transmit_to_group(frame, now_ns),
            Taker::Rnic => self.turn(frame),
            Taker::Ethernet => {
                self.switch.transmit(frame, now_ns);
            }
        }
    }

    /// The group has members here and may have others elsewhere.
    fn transmit_to_group(&mut self, frame: &mut Frame, now_ns: u64) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.copy_from(frame);
        self.turned.push_back(copy);
        self.switch.transmit(frame, now_ns);
    }

    fn turn(&mut self, frame: &mut Frame) {
        let empty = self.spare.pop().unwrap_or_default();
        self.turned.push_back(std::mem::replace(frame, empty));
    }

    /// The next frame, and which function it is for.
    pub fn receive(&mut self, engine: &Engine, frame: &mut Frame, now_ns: u64) -> Option<Taker> {
        if let Some(turned) = self.turned.pop_front() {
            let used = std::mem::replace(frame, turned);
            self.spare.push(used);
            return Some(Taker::Rnic);
        }
        while self.switch.receive(frame, now_ns) {
            if self.link_up {
                return Some(taker(engine, frame));
            }
            self.link_down_frames += 1;
        }
        None
    }

    /// Plugs the cable in, or pulls it.
    pub(super) fn set_link(&mut self, up: bool) {
        self.link_up = up;
    }

    pub fn has_turned(&self) -> bool {
        !self.turned.is_empty()
    }

    /// What waits belongs to an adapter that was reset.
    pub fn discard_turned(&mut self) {
        self.turned.clear();
    }
}

fn taker(engine: &Engine, frame: &Frame) -> Taker {
    let is_for_rnic = engine.is_enabled()
        && (frame.icrc != IcrcState::NotRoce || is_roce(frame.bytes()))
        && destination(frame.bytes()).is_some_and(|gid| engine.owns_gid(&gid.0) || engine.joined_group(&gid.0));
    if is_for_rnic { Taker::Rnic } else { Taker::Ethernet }
}

fn is_group(frame: &Frame) -> bool {
    destination(frame.bytes()).is_some_and(Gid::is_multicast)
}

/// The destination address of an IP frame, as a GID.
fn destination(frame: &[u8]) -> Option<Gid> {
    const VLAN: [u8; 2] = [0x81, 0x00];
    let tag = if frame.get(12..14)? == VLAN { 4 } else { 0 };
    let network = frame.get(14 + tag..)?;
    match network.first()? >> 4 {
        4 => <[u8; 4]>::try_from(network.get(16..20)?).ok().map(|ip| Gid::from_ipv4(Ipv4Addr::from(ip))),
        6 => <[u8; 16]>::try_from(network.get(24..40)?).ok().map(|ip| Gid::from_ipv6(Ipv6Addr::from(ip))),
        _ => None,
    }
}
