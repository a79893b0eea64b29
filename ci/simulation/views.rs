//! Keys that work requests give their memory: windows of both types and fast regions, opened, used, and closed under
//! traffic.
//!
//! A view belongs to a direction: its receiver opens it by a work request of its own send queue, the sender uses it, and
//! either closes it. Behind it lies a region that nothing else writes, or what READs and atomics work on anyway. Once the
//! completion that closes it has been seen, not a byte may change through it.

use crate::aim::NO_KEY;
use crate::connection::Doom;
use crate::host::Region;
use crate::message::{Message, POOL_BYTES, pool};
use crate::operations::{FAULTS, Family, Fault, FaultKind, LOCAL_FAULTS, Operation, named};
use crate::run::{Checked, Simulation, explain};
use rnic_abi::WorkOpcode;
use rnic_abi::command::*;
use rnic_shim::verbs::*;
use std::rc::Rc;

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
        let late = connection.late.is_some_and(|(late, _)| late == owner);
        let full = connection.flows[owner].outstanding.len() >= self.limit();
        if self.healed_ns.is_some() || connection.doom.is_some() || connection.gone.is_some() || late || full {
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

    fn open_view(&mut self, number: usize, side: usize) -> Checked {
        self.check_frozen(number, side)?;
        let fault = (self.plan.faults > 0 && self.random.one_in(12)).then(|| &LOCAL_FAULTS[self.random.index(3)]);
        let over = self.random.pick(&[Over::Target, Over::Target, Over::Source, Over::Words]);
        let receiver = self.connections[number].ends[1 - side].host;
        let (from, length) = match over {
            Over::Target => {
                let length = self.random.between(4096, REGION_BYTES.into()) as u32;
                (self.random.below(u64::from(REGION_BYTES - length) + 1) as u32, length)
            }
            Over::Source => (0, POOL_BYTES as u32),
            Over::Words => (0, self.connections[number].flows[side].words.buffer.length_bytes as u32),
        };
        let zero_based = self.random.one_in(2);
        let flow = &mut self.connections[number].flows[side];
        let Some(view) = &mut flow.view else { return Ok(()) };
        let host = &mut self.hosts[receiver];
        let behind = match over {
            Over::Target => &view.region,
            Over::Source => &host.source,
            Over::Words => &flow.words,
        };
        let rights = match over {
            Over::Target => ACCESS_REMOTE_WRITE,
            Over::Source => ACCESS_REMOTE_READ,
            Over::Words => ACCESS_REMOTE_ATOMIC | ACCESS_REMOTE_WRITE,
        };
        let start = behind.memory.start() + u64::from(from);
        let zero_based = zero_based && !matches!(view.kind, Kind::Window(WindowType::One) | Kind::Fast);
        let kind = fault.map(|fault| fault.kind);
        let payload = match view.kind {
            Kind::Window(_) => Work::Bind(Bind {
                access: rights | if zero_based { ACCESS_ZERO_BASED } else { 0 },
                lkey: if kind == Some(FaultKind::BindRegion) { host.shut.memory.key } else { behind.memory.key },
                address: if kind == Some(FaultKind::BindRange) {
                    start + 1 + u64::from(POOL_BYTES as u32)
                } else {
                    start
                },
                length_bytes: length.into(),
            }),
            Kind::Fast => {
                let buffer = rnic_shim::backing::DmaBuffer {
                    iova: behind.buffer.iova + u64::from(from),
                    length_bytes: length.into(),
                };
                let listed = over == Over::Target && kind.is_none();
                let layout = if listed { MrLayout::List } else { MrLayout::Contiguous };
                // Rights that there are not, where a window would be bound wrongly.
                let access = if kind.is_some() { rights | 1 << 30 } else { rights | ACCESS_LOCAL_WRITE };
                let spec = RegionSpec::of_buffer(buffer, access, layout);
                if let Some(before) = view.registration.take() {
                    host.device.release_registration(before);
                }
                let prepared = host.device.prepare_registration(&spec).map_err(explain("describing a region"))?;
                view.registration = Some(prepared);
                Work::Register
            }
        };
        let refused = match (kind, view.kind) {
            (Some(FaultKind::FreeKey), _) => Some(&LOCAL_FAULTS[2]),
            (Some(_), Kind::Fast) => Some(&LOCAL_FAULTS[3]),
            _ => fault,
        };
        (view.over, view.from, view.length, view.state) = (over, from, length, State::Opening);
        view.base = if zero_based { 0 } else { start };
        view.frozen = None;
        let opcode = match (kind, view.kind) {
            (Some(FaultKind::FreeKey), _) => WorkOpcode::LOCAL_INV,
            (_, Kind::Fast) => WorkOpcode::REG_MR,
            _ => WorkOpcode::BIND_MW,
        };
        let key = view.key.as_mut().map_or(0, WorkKey::next_number);
        let payload = if kind == Some(FaultKind::FreeKey) { Work::Nothing } else { payload };
        self.post_local(number, side, opcode, key, payload, refused)
    }

    /// The receiver takes it back while the sender may be using it.
    fn close_view(&mut self, number: usize, side: usize) -> Checked {
        let connection = &mut self.connections[number];
        let flow = &mut connection.flows[side];
        let (before, used) = (flow.next_number, flow.outstanding.iter().any(|message| message.view));
        let Some(view) = &mut flow.view else { return Ok(()) };
        view.state = State::Closing;
        let own = view.key.as_mut().map_or(0, |key| key.key);
        let (opcode, key, payload) = if view.can_be_invalidated() {
            (WorkOpcode::LOCAL_INV, own, Work::Nothing)
        } else {
            // A type 1 window is closed by showing nothing.
            let (lkey, address) = (view.region.memory.key, view.region.memory.start());
            let nothing = Bind { access: ACCESS_REMOTE_WRITE, lkey, address, length_bytes: 0 };
            (WorkOpcode::BIND_MW, view.key.as_mut().map_or(0, WorkKey::next_number), Work::Bind(nothing))
        };
        if used {
            connection.doom = Some(Doom::Rekey { flow: side, before, view: true });
            self.coverage.note("keys invalidated under traffic", 1);
        }
        self.post_local(number, side, opcode, key, payload, None)
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

    /// A work request without packets, on the send queue of the view's owner.
    fn post_local(
        &mut self,
        number: usize,
        side: usize,
        opcode: WorkOpcode,
        key: u32,
        work: Work,
        fault: Option<&'static Fault>,
    ) -> Checked {
        let owner = 1 - side;
        let connection = &mut self.connections[number];
        let end = connection.ends[owner];
        let flow = &connection.flows[owner];
        let message = Rc::new(Message::without_packets(flow.next_number, named(opcode), key, flow.next_psn, fault));
        self.settle_fault(number, owner, &message);
        self.enter("posts", end.host, [end.qpn.0.into(), message.number, opcode.0.into(), key.into()]);
        self.coverage.items(message.operation.items);
        self.coverage.note(message.operation.name, 1);
        let view = &self.connections[number].flows[side].view;
        let payload = match (work, view.as_ref().and_then(|view| view.registration.as_ref())) {
            (Work::Bind(bind), _) => Payload::Bind(bind),
            (Work::Register, Some(registration)) => Payload::Register(registration),
            _ => Payload::Elements(&[]),
        };
        let request = SendRequest {
            wr_id: message.number,
            opcode,
            payload,
            remote: None,
            immediate: key,
            signaled: true,
            solicited: false,
            datagram: None,
            srqn: None,
            fence: false,
        };
        let host = &mut self.hosts[end.host];
        host.device.post_send(end.qpn, &[request], DoorbellForm::Line).map_err(explain("posting work on a key"))?;
        host.counted.send_doorbells += 1;
        self.posted += 1;
        Ok(())
    }

    /// A work request without packets has ended well: the view of the other direction is open, or closed.
    pub(crate) fn view_changes(&mut self, number: usize, owner: usize) -> Checked {
        let Some(view) = &mut self.connections[number].flows[1 - owner].view else {
            return Err("there is no key for it".into());
        };
        match view.state {
            State::Opening => {
                view.state = State::Open;
                let kind = view.kind;
                self.coverage.items(match kind {
                    Kind::Window(WindowType::One) => &[85, 86],
                    Kind::Window(_) => &[85, 87],
                    Kind::Fast => &[90],
                });
                Ok(())
            }
            State::Closing => self.view_closes(number, 1 - owner),
            state => Err(format!("the view is {state:?}")),
        }
    }

    /// Its key is of no use from here on.
    pub(crate) fn view_closes(&mut self, number: usize, side: usize) -> Checked {
        let found = self.view_bytes(number, side)?;
        let Some(view) = &mut self.connections[number].flows[side].view else { return Ok(()) };
        (view.state, view.frozen) = (State::Closed, Some(found));
        let used = self.plan.faults > 0 && view.stale_key().is_some() && self.random.one_in(4);
        let item = match view.kind {
            Kind::Window(WindowType::One) => 86,
            Kind::Window(_) => 88,
            Kind::Fast => 90,
        };
        self.coverage.item(item);
        let connection = &mut self.connections[number];
        if used && connection.flows[side].wanted.is_none() {
            // The sender goes on using its key.
            connection.flows[side].wanted = FAULTS.iter().find(|fault| fault.kind == FaultKind::RKey);
        }
        Ok(())
    }

    fn view_bytes(&mut self, number: usize, side: usize) -> Checked<Vec<u8>> {
        let connection = &self.connections[number];
        let Some(view) = &connection.flows[side].view else { return Ok(Vec::new()) };
        let mut bytes = vec![0; REGION_BYTES as usize];
        let (host, iova) = (connection.ends[1 - side].host, view.region.buffer.iova);
        self.hosts[host].read(iova, &mut bytes).map_err(explain("reading a region"))?;
        Ok(bytes)
    }

    /// Nothing was written since it was closed.
    pub(crate) fn check_frozen(&mut self, number: usize, side: usize) -> Checked {
        let found = self.view_bytes(number, side)?;
        let Some(view) = &self.connections[number].flows[side].view else { return Ok(()) };
        let Some(frozen) = &view.frozen else { return Ok(()) };
        match (0..found.len()).find(|at| found[*at] != frozen[*at]) {
            Some(at) => Err(format!(
                "connection {number}, flow {side}: byte {at} behind {:?} was written after it had been closed",
                view.kind
            )),
            None => Ok(()),
        }
    }

    /// The region behind it holds what the messages made of it.
    pub(crate) fn settle_view(&mut self, number: usize, side: usize) -> Checked {
        self.check_frozen(number, side)?;
        let found = self.view_bytes(number, side)?;
        let sender = self.connections[number].ends[side].host;
        let Some(view) = &mut self.connections[number].flows[side].view else { return Ok(()) };
        let doubtful = std::mem::take(&mut view.doubtful);
        for (at, byte) in found.iter().enumerate().filter(|(at, byte)| view.shadow[*at] != **byte) {
            let at = at as u32;
            let inside = |message: &&Rc<Message>| message.at <= at && at < message.at + message.length;
            let mut writers = doubtful.iter().filter(inside);
            if !writers.any(|message| message.byte(pool(sender), at - message.at) == Some(*byte)) {
                return Err(format!(
                    "connection {number}, flow {side}: byte {at} behind {:?} is {byte:#x}, which nobody sent",
                    view.kind
                ));
            }
        }
        view.shadow.copy_from_slice(&found);
        view.frozen = None;
        Ok(())
    }
}

/// What a work request without packets carries.
#[derive(Clone, Copy, Debug)]
enum Work {
    Bind(Bind),
    /// The view's registration.
    Register,
    Nothing,
}
