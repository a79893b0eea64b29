//! Work requests on the keys of views: bound or registered, and taken back.

use super::*;
use crate::connection::Doom;
use crate::message::{Message, POOL_BYTES};
use crate::operations::{Fault, FaultKind, LOCAL_FAULTS, named};
use crate::run::{Checked, Simulation, explain};
use rnic_abi::WorkOpcode;
use std::rc::Rc;

impl Simulation {
    pub(crate) fn open_view(&mut self, number: usize, side: usize) -> Checked {
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
    pub(crate) fn close_view(&mut self, number: usize, side: usize) -> Checked {
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
            connection.flows[side].rekeyed = true;
            self.coverage.note("keys invalidated under traffic", 1);
        }
        self.post_local(number, side, opcode, key, payload, None)
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
        self.note_refusals(end.host);
        self.posted += 1;
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
