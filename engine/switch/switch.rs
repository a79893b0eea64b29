//! The switch: its ports, and what they share.
//!
//! In: a name and a way to wake for each new port. Out: the port. A port that joins gets a ring to and from every other;
//! the others find theirs in their mail, which they read at their next call.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rnic_wire::Frame;
use thiserror::Error;

use crate::capture::Capture;
use crate::counters::{Counters, PortStatistics};
use crate::forward::{ForwardConfig, Forwarding, PortIndex};
use crate::port::Port;
use crate::ring::{Consumer, Producer, ring};
use crate::wake::{Sleeper, Wake};

/// The most ports a switch has at one time.
pub const PORTS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    pub forward: ForwardConfig,
    /// Frames a ring between two ports holds, rounded up to a power of two.
    pub ring_frames: usize,
}

impl SwitchConfig {
    const RING_FRAMES_MAX: usize = 1 << 16;
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self { forward: ForwardConfig::default(), ring_frames: 256 }
    }
}

/// Why a port could not be added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PortError {
    #[error("the switch has {max} ports already, so {name:?} cannot be added")]
    TooMany { name: String, max: usize },
    #[error("the switch has a port {name:?} already")]
    NameTaken { name: String },
}

/// A handle on the switch; all clones are the same switch, which lives as long as one of them or a port.
#[derive(Clone, Debug)]
pub struct Switch(Arc<Fabric>);

/// What the ports share.
#[derive(Debug)]
pub struct Fabric {
    pub ring_frames: usize,
    pub forwarding: Forwarding,
    pub capture: Capture,
    members: Mutex<Members>,
}

#[derive(Debug)]
struct Members {
    /// In ascending order of index.
    ports: Vec<Arc<Member>>,
    next_serial: u64,
}

/// What others know of a port.
#[derive(Debug)]
pub struct Member {
    pub index: PortIndex,
    /// Never used again, unlike the index.
    pub serial: u64,
    pub name: String,
    pub sleeper: Sleeper,
    pub counters: Counters,
    mail: Mutex<Vec<Mail>>,
    mail_waits: AtomicBool,
}

/// What changed among the other ports.
#[derive(Debug)]
pub enum Mail {
    Joined { peer: Arc<Member>, to_peer: Producer<Frame>, from_peer: Consumer<Frame> },
    Left { serial: u64 },
}

impl Switch {
    pub fn new(config: SwitchConfig) -> Self {
        Self(Arc::new(Fabric {
            ring_frames: config.ring_frames.clamp(2, SwitchConfig::RING_FRAMES_MAX).next_power_of_two(),
            forwarding: Forwarding::new(config.forward),
            capture: Capture::new(),
            members: Mutex::new(Members { ports: Vec::new(), next_serial: 0 }),
        }))
    }

    /// Adds a port. Its owner must go on receiving: frames for it wait in its rings, and their senders with them.
    pub fn port(&self, name: &str, wake: Arc<dyn Wake>) -> Result<Port, PortError> {
        let mut members = self.0.members();
        if members.ports.iter().any(|member| member.name == name) {
            return Err(PortError::NameTaken { name: name.to_owned() });
        }
        let taken = |index: &usize| members.ports.iter().all(|member| usize::from(member.index) != *index);
        let Some(index) = (0..PORTS_MAX).find(taken) else {
            return Err(PortError::TooMany { name: name.to_owned(), max: PORTS_MAX });
        };
        let member = Arc::new(Member::new(index as PortIndex, members.next_serial, name, wake));
        members.next_serial += 1;
        for peer in &members.ports {
            let (from_member, to_peer) = ring(self.0.ring_frames, Frame::new);
            let (from_peer, to_member) = ring(self.0.ring_frames, Frame::new);
            member.send(Mail::Joined { peer: Arc::clone(peer), to_peer: from_member, from_peer: to_member });
            peer.send(Mail::Joined { peer: Arc::clone(&member), to_peer: from_peer, from_peer: to_peer });
        }
        let place = members.ports.partition_point(|peer| usize::from(peer.index) < index);
        members.ports.insert(place, Arc::clone(&member));
        drop(members);
        Ok(Port::new(Arc::clone(&self.0), member))
    }

    pub fn capture(&self) -> &Capture {
        &self.0.capture
    }

    /// The names and counts of the present ports.
    pub fn statistics(&self) -> Vec<(String, PortStatistics)> {
        let members = self.0.members();
        members.ports.iter().map(|member| (member.name.clone(), member.counters.snapshot())).collect()
    }

    /// How many MAC and IP addresses the table holds, aged ones included.
    pub fn learned_addresses(&self) -> (usize, usize) {
        self.0.forwarding.sizes()
    }
}

impl Fabric {
    /// Takes a port out, once it has left its rings. Those who wait for room at it are woken to find it gone.
    pub fn leave(&self, leaver: &Member) {
        let mut members = self.members();
        members.ports.retain(|member| member.serial != leaver.serial);
        self.forwarding.forget(leaver.index);
        for member in &members.ports {
            member.send(Mail::Left { serial: leaver.serial });
            member.sleeper.wake();
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    fn new(index: PortIndex, serial: u64, name: &str, wake: Arc<dyn Wake>) -> Self {
        Self {
            index,
            serial,
            name: name.to_owned(),
            sleeper: Sleeper::new(wake),
            counters: Counters::default(),
            mail: Mutex::new(Vec::new()),
            mail_waits: AtomicBool::new(false),
        }
    }

    fn send(&self, mail: Mail) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push(mail);
        self.mail_waits.store(true, Ordering::Release);
    }

    #[inline]
    pub fn has_mail(&self) -> bool {
        self.mail_waits.load(Ordering::Relaxed)
    }

    pub fn take_mail(&self) -> Vec<Mail> {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        self.mail_waits.store(false, Ordering::Relaxed);
        std::mem::take(&mut mail)
    }
}

/// The port's name, for logs.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
