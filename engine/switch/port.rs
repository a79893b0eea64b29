//! A port: where an adapter, or a way out of the process, meets the switch.
//!
//! In: frames to transmit, pulled by the room there is. Out: frames from other ports, in turn, through the egress half.
//! A port is owned by one thread; it has no clock (every call says what time it is) and no system call but the wake-up
//! of another's sleeping owner. The owner's loop: receive and transmit until nothing moves, then `before_sleep`; if it
//! says true, sleep until woken or until `next_release_ns`. Who has transmitted all that it has for now and goes on with other
//! work says so by `wake_receivers`.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rnic_wire::Frame;

use crate::address::Addresses;
use crate::capture::{CapturedPort, Direction};
use crate::counters::{DropReason, PortStatistics};
use crate::egress::Egress;
use crate::fault_script::FaultScript;
use crate::forward::{PortIndex, TableView};
use crate::impair::Impairment;
use crate::inlets::Inlets;
use crate::planted::planted;
use crate::ring::Producer;
use crate::switch::{Fabric, Mail, Member, PORTS_MAX};

/// Frames that a receiver may sleep through while more follow: to wake it takes a system call, and often longer than
/// these take to build.
const WAKE_AFTER: u32 = 64;

#[derive(Debug)]
pub struct Port {
    fabric: Arc<Fabric>,
    member: Arc<Member>,
    table: TableView,
    /// In ascending order of index, so that a flood goes the same way in every run.
    outlets: Vec<Outlet>,
    /// By port index: the place in `outlets`.
    outlet_of: [Option<u8>; PORTS_MAX],
    inlets: Inlets,
    egress: Egress,
    /// Carries frames from the rings into the egress half.
    carrier: Frame,
    /// `before_sleep` was called last.
    asleep: bool,
    /// The owner was told that there is no room, and may wait for it.
    starved: bool,
    /// Frames were transmitted whose receivers have not been woken.
    unannounced: bool,
}

#[derive(Debug)]
struct Outlet {
    peer: Arc<Member>,
    ring: Producer<Frame>,
    /// Frames since its owner was last woken.
    unannounced: u32,
}

impl Outlet {
    /// Called behind a SeqCst fence that follows the frames.
    fn announce(&mut self) {
        self.unannounced = 0;
        self.peer.sleeper.wake_if_asleep();
    }
}

/// What became of a transmitted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    Unicast { port: PortIndex },
    Flooded { copies: usize },
    Dropped(DropReason),
}

impl Port {
    pub(crate) fn new(fabric: Arc<Fabric>, member: Arc<Member>) -> Self {
        let mut port = Self {
            table: fabric.forwarding.view(),
            fabric,
            member,
            outlets: Vec::new(),
            outlet_of: [None; PORTS_MAX],
            inlets: Inlets::default(),
            egress: Egress::new(),
            carrier: Frame::new(),
            asleep: false,
            starved: false,
            unannounced: false,
        };
        port.read_mail();
        port
    }

    pub fn name(&self) -> &str {
        &self.member.name
    }

    pub fn index(&self) -> PortIndex {
        self.member.index
    }

    pub fn statistics(&self) -> PortStatistics {
        self.member.counters.snapshot()
    }

    /// A view of the counts that other threads may keep, even beyond the life of the port.
    pub fn statistics_reader(&self) -> StatisticsReader {
        StatisticsReader(Arc::clone(&self.member))
    }

    /// Sets what happens to frames on their way to this port.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.egress.set_impairment(impairment);
    }

    /// Sets the faults on chosen packets on their way to this port.
    pub fn set_fault_script(&mut self, script: FaultScript) {
        self.egress.set_fault_script(script);
    }

    /// How many frames may be transmitted now with no loss, wherever they go: the least room of the rings to other ports.
    /// There may be more, but 0 means that there is none.
    pub fn room(&mut self) -> usize {
        self.look_for_mail();
        let room = self.least_room();
        self.starved = room == 0;
        if self.starved {
            self.wake_receivers();
        }
        room
    }

    /// Wakes whoever sleeps while frames from here wait for it.
    pub fn wake_receivers(&mut self) {
        if !self.unannounced {
            return;
        }
        self.unannounced = false;
        // Orders the frames before the look at whether their receivers sleep.
        fence(Ordering::SeqCst);
        self.outlets.iter_mut().filter(|outlet| outlet.unannounced > 0).for_each(Outlet::announce);
    }

    fn least_room(&mut self) -> usize {
        let capacity = self.fabric.ring_frames;
        // A quarter is enough to build on; less is worth a look at the consumer's index.
        let rooms = self.outlets.iter_mut().map(|outlet| outlet.ring.room(capacity / 4));
        rooms.min().unwrap_or(capacity)
    }

    /// Gives a frame to the switch: its contents go, and another buffer, whose contents mean nothing, comes in its place.
    pub fn transmit(&mut self, frame: &mut Frame, now_ns: u64) -> Forwarded {
        self.look_for_mail();
        let length_bytes = frame.length() as u64;
        self.member.counters.transmitted_frames.add(1);
        self.member.counters.transmitted_bytes.add(length_bytes);
        if self.fabric.capture.is_running() {
            self.record(Direction::Inbound, frame, now_ns);
        }
        let Some(addresses) = Addresses::of(frame.bytes()) else {
            return self.dropped(DropReason::Runt);
        };
        if !self.table.load().knows_source(&addresses, self.member.index, now_ns) {
            self.member.counters.learned_frames.add(1);
            self.fabric.forwarding.learn(&addresses, self.member.index, now_ns);
        }
        match self.table.load().destination(&addresses, now_ns) {
            Some(port) if port == self.member.index => self.dropped(DropReason::Hairpin),
            Some(port) => self.unicast(port, frame),
            None => self.flood(frame),
        }
    }

    fn unicast(&mut self, port: PortIndex, frame: &mut Frame) -> Forwarded {
        if self.outlet_place(port).is_none() {
            // The port joined, and its address was learned, since this port last read its mail.
            self.read_mail();
        }
        let Some(outlet) = self.outlet_place(port).and_then(|place| self.outlets.get_mut(place)) else {
            return self.dropped(DropReason::PortLeft);
        };
        if planted("unicast_swallowed") && frame.length() % 8 == 5 {
            return Forwarded::Unicast { port };
        }
        if !outlet.ring.push(frame) {
            self.starved = true;
            return self.dropped(DropReason::NoRoom);
        }
        outlet.unannounced += 1;
        let is_enough = outlet.unannounced >= WAKE_AFTER;
        self.unannounced = true;
        self.member.counters.forwarded_frames.add(1);
        if is_enough {
            self.wake_receivers();
        }
        Forwarded::Unicast { port }
    }

    #[inline]
    fn outlet_place(&self, port: PortIndex) -> Option<usize> {
        self.outlet_of.get(usize::from(port)).copied().flatten().map(usize::from)
    }

    /// Copies the frame into every ring but the last, which takes the frame itself.
    fn flood(&mut self, frame: &mut Frame) -> Forwarded {
        let counters = &self.member.counters;
        let Some((last, others)) = self.outlets.split_last_mut() else {
            return self.dropped(DropReason::NoOtherPort);
        };
        counters.flooded_frames.add(1);
        let mut copies = 0;
        for outlet in others {
            self.carrier.copy_from(frame);
            copies += usize::from(outlet.ring.push(&mut self.carrier));
        }
        copies += usize::from(last.ring.push(frame));
        counters.forwarded_frames.add(copies as u64);
        counters.drop(DropReason::NoRoom, (self.outlets.len() - copies) as u64);
        self.starved |= copies < self.outlets.len();
        fence(Ordering::SeqCst);
        self.outlets.iter_mut().for_each(Outlet::announce);
        self.unannounced = false;
        Forwarded::Flooded { copies }
    }

    fn dropped(&self, reason: DropReason) -> Forwarded {
        self.member.counters.drop(reason, 1);
        Forwarded::Dropped(reason)
    }

    /// Takes the next frame for this port: its contents come, and the buffer given in goes. False if there is none now.
    pub fn receive(&mut self, frame: &mut Frame, now_ns: u64) -> bool {
        self.get_up();
        let received = match self.egress.is_active() {
            false => self.inlets.take(frame, &self.member.counters),
            true => self.receive_held(frame, now_ns),
        };
        if received {
            self.member.counters.received_frames.add(1);
            self.member.counters.received_bytes.add(frame.length() as u64);
            if self.fabric.capture.is_running() {
                self.record(Direction::Outbound, frame, now_ns);
            }
        }
        received
    }

    /// Through the egress half: all that waits goes in, so that its times do not depend on when it is asked for.
    fn receive_held(&mut self, frame: &mut Frame, now_ns: u64) -> bool {
        let counters = &self.member.counters;
        while !self.egress.is_full() && self.inlets.take(&mut self.carrier, counters) {
            self.egress.accept(&mut self.carrier, now_ns, counters);
        }
        self.egress.release(frame, now_ns)
    }

    /// Says that the owner is about to sleep. False if it must not: frames wait, or room it was refused has appeared.
    /// Whatever happens after a true calls the port's [`crate::Wake`]; frames that are held back do not, see
    /// [`Port::next_release_ns`].
    pub fn before_sleep(&mut self) -> bool {
        self.wake_receivers();
        self.look_for_mail();
        self.asleep = true;
        self.member.sleeper.fall_asleep();
        if self.starved {
            self.wait_for_room(true);
        }
        // Orders both announcements before the last look; the other sides have the same fence between their store and look.
        fence(Ordering::SeqCst);
        let frames_wait = !self.egress.is_full() && !self.inlets.is_empty();
        let stay_up = frames_wait || self.member.has_mail() || (self.starved && self.least_room() > 0);
        if stay_up {
            self.get_up();
        }
        !stay_up
    }

    /// When the next frame that is held back is due; in the past if it is now.
    pub fn next_release_ns(&self) -> Option<u64> {
        self.egress.next_release_ns()
    }

    /// Frames that are held back by impairments now.
    pub fn held_frames(&self) -> usize {
        self.egress.held_frames()
    }

    #[inline]
    fn get_up(&mut self) {
        if self.asleep {
            self.asleep = false;
            self.member.sleeper.get_up();
            self.wait_for_room(false);
        }
        self.look_for_mail();
    }

    fn wait_for_room(&mut self, waits: bool) {
        for outlet in &mut self.outlets {
            let full = outlet.ring.room(1) == 0;
            outlet.ring.wait_for_room(waits && full);
        }
    }

    #[cold]
    fn record(&self, direction: Direction, frame: &Frame, now_ns: u64) {
        let port = CapturedPort { serial: self.member.serial, name: &self.member.name };
        self.fabric.capture.record(port, direction, frame, now_ns);
    }

    #[inline]
    fn look_for_mail(&mut self) {
        if self.member.has_mail() {
            self.read_mail();
        }
    }

    #[cold]
    fn read_mail(&mut self) {
        for mail in self.member.take_mail() {
            match mail {
                Mail::Joined { peer, to_peer, from_peer } => {
                    let place = self.outlets.partition_point(|outlet| outlet.peer.index < peer.index);
                    self.outlets.insert(place, Outlet { peer: Arc::clone(&peer), ring: to_peer, unannounced: 0 });
                    self.inlets.add(peer, from_peer);
                }
                Mail::Left { serial } => {
                    if let Some(place) = self.outlets.iter().position(|outlet| outlet.peer.serial == serial) {
                        let never_taken = self.outlets.remove(place).ring.leave();
                        self.member.counters.drop(DropReason::PortLeft, never_taken as u64);
                    }
                }
            }
        }
        self.inlets.remove_left();
        self.outlet_of = [None; PORTS_MAX];
        for (place, outlet) in self.outlets.iter().enumerate() {
            if let Some(entry) = self.outlet_of.get_mut(usize::from(outlet.peer.index)) {
                *entry = Some(place as u8);
            }
        }
    }
}

/// Leaves every ring, so that each frame left in one is counted by whoever leaves it last, then the switch.
impl Drop for Port {
    fn drop(&mut self) {
        self.read_mail();
        let mut never_taken = self.egress.held_frames();
        never_taken += self.outlets.drain(..).map(|outlet| outlet.ring.leave()).sum::<usize>();
        never_taken += self.inlets.leave();
        self.member.counters.drop(DropReason::PortLeft, never_taken as u64);
        self.fabric.leave(&self.member);
    }
}

/// Reads a port's counts from any thread.
#[derive(Clone, Debug)]
pub struct StatisticsReader(Arc<Member>);

impl StatisticsReader {
    pub fn read(&self) -> PortStatistics {
        self.0.counters.snapshot()
    }
}
