//! Keys that work requests give their memory: windows of both types and fast regions, opened, used, and closed under
//! traffic.
//!
//! A view belongs to a direction: its receiver opens it by a work request of its own send queue, the sender uses it, and
//! either closes it. Behind it lies a region that nothing else writes, or what READs and atomics work on anyway. Once the
//! completion that closes it has been seen, not a byte may change through it.

use crate::aim::NO_KEY;
use crate::host::Region;
use crate::message::Message;
use crate::operations::{Family, Operation};
use crate::run::{Checked, Simulation};
use rnic_abi::command::*;
use rnic_shim::verbs::*;
use std::rc::Rc;

mod judged;
mod work;

/// The region behind a view that is written.
const REGION_BYTES: u32 = 48 << 10;
/// A view is opened, and closed, in one of so many turns.
const OPENED_ONE_IN: u64 = 30;
const CLOSED_ONE_IN: u64 = 150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Window(WindowType),
    Fast,
}

/// The memory that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Target,
    Source,
    Words,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    /// A work request is on its way to it.
    Opening,
    Open,
    Closing,
}

#[derive(Debug)]
pub struct View {
    pub region: Region,
    /// What the messages that ended have made of the region, and those of which it is not known.
    pub shadow: Vec<u8>,
    pub doubtful: Vec<Rc<Message>>,
    pub kind: Kind,
    pub key: Option<WorkKey>,
    registration: Option<Registration>,
    pub state: State,
    pub over: Over,
    /// The first byte that it shows, in the region, as peers name it, and how many.
    from: u32,
    base: u64,
    pub length: u32,
    /// The region when it was closed; nothing changes until it is opened again.
    frozen: Option<Vec<u8>>,
}

impl View {
    /// Address of the first byte, size and key, for peers.
    pub fn extent(&self) -> (u64, u64, u32) {
        (self.base, self.length.into(), self.key.as_ref().map_or(NO_KEY, |key| key.key))
    }

    /// Whether a message of this family may go through it.
    pub fn serves(&self, operation: &Operation) -> bool {
        let fits = match self.over {
            Over::Target => operation.family == Family::Write,
            Over::Source => operation.family == Family::Read,
            Over::Words => matches!(operation.family, Family::Atomic | Family::AtomicWrite),
        };
        self.state == State::Open && fits
    }

    /// Its adapter has begun anew: there is no key any more.
    pub fn lose(&mut self, device: &mut Device) {
        self.key = None;
        if let Some(registration) = self.registration.take() {
            device.release_registration(registration);
        }
        self.state = State::Closed;
    }

    /// The key of before, while there is none.
    pub fn stale_key(&self) -> Option<u32> {
        self.key.as_ref().filter(|key| self.state == State::Closed && key.key & 0xff != 0).map(|key| key.key)
    }

    /// Through a work request or a message that names it.
    pub fn can_be_invalidated(&self) -> bool {
        self.kind != Kind::Window(WindowType::One)
    }

    /// Offsets of the region for a message, and where the window begins in it.
    pub fn place(&self) -> (u32, u32) {
        (self.from, self.length)
    }
}

impl Simulation {
    pub(crate) fn build_view(&mut self, receiver: usize) -> Result<Option<View>> {
        if !self.plan.views || self.random.one_in(2) {
            return Ok(None);
        }
        let windows = [WindowType::One, WindowType::TwoA, WindowType::TwoB].map(Kind::Window);
        let kinds = [windows[0], windows[1], windows[2], Kind::Fast];
        let layout = self.random.pick(&[MrLayout::Contiguous, MrLayout::List]);
        Ok(Some(View {
            region: self.hosts[receiver].open_region(REGION_BYTES.into(), layout)?,
            shadow: vec![0; REGION_BYTES as usize],
            doubtful: Vec::new(),
            kind: self.random.pick(&kinds),
            key: None,
            registration: None,
            state: State::Closed,
            over: Over::Target,
            from: 0,
            base: 0,
            length: 0,
            frozen: None,
        }))
    }

    /// The connection is made anew: so is the key.
    pub(crate) fn renew_view(&mut self, number: usize, side: usize) -> Result<()> {
        let receiver = self.connections[number].ends[1 - side].host;
        let Some(view) = &mut self.connections[number].flows[side].view else { return Ok(()) };
        let host = &mut self.hosts[receiver];
        if let Some(key) = view.key.take() {
            host.device.release_key(&key)?;
        }
        if let Some(registration) = view.registration.take() {
            host.device.release_registration(registration);
        }
        view.key = Some(match view.kind {
            Kind::Window(window) => host.device.allocate_window(host.pd, window)?,
            Kind::Fast => host.device.allocate_fast_region(host.pd, REGION_BYTES / 4096 + 1)?,
        });
        view.state = State::Closed;
        Ok(())
    }

    /// Opens and closes, now and then.
    pub(crate) fn keep_view(&mut self, number: usize, side: usize) -> Checked<bool> {
        let connection = &self.connections[number];
        let (flow, owner) = (&connection.flows[side], 1 - side);
        let Some(view) = &flow.view else { return Ok(false) };
        debug_assert!(connection.sends(owner), "a view is opened by a send queue");
        let late = connection.late.is_some_and(|(late, _)| late == owner);
        let full = connection.flows[owner].outstanding.len() >= self.limit();
        if self.healed_ns.is_some() || connection.doom.is_some() || connection.gone != [false; 2] || late || full {
            return Ok(false);
        }
        match view.state {
            State::Closed if flow.wanted.is_none() && self.random.one_in(OPENED_ONE_IN) => {
                self.open_view(number, side)?
            }
            State::Open if self.random.one_in(CLOSED_ONE_IN) => self.close_view(number, side)?,
            State::Open if self.random.one_in(CLOSED_ONE_IN) => return self.change_shown(number, side),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A region that a window shows is not changed, and stays what it is.
    fn change_shown(&mut self, number: usize, side: usize) -> Checked<bool> {
        let receiver = self.connections[number].ends[1 - side].host;
        let Some(view) = &mut self.connections[number].flows[side].view else { return Ok(false) };
        if view.kind == Kind::Fast || view.over != Over::Target {
            return Ok(false);
        }
        let change = RegionChange { access: Some(ACCESS_LOCAL_WRITE), ..RegionChange::default() };
        let key = view.region.memory.key;
        match self.hosts[receiver].device.reregister_memory(&mut view.region.memory, change) {
            Ok(()) => Err(format!("connection {number}, flow {side}: region {key:#x} is changed under its window")),
            Err(_) => {
                self.coverage.item(89);
                Ok(true)
            }
        }
    }
}
