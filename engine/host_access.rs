//! The host's accesses to the BARs. In: bytes at an offset. Out: the part of the engine that they are for.

use crate::command::CommandQueue;
use crate::engine::Engine;
use crate::front_end::{Input, RegisterView};
use crate::host::Host;
use crate::queues::ArmRequest;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaPort, HostAccess, Observed, Origin};

/// A write by the host to a BAR, after write combining.
#[derive(Clone, Copy, Debug)]
pub struct HostWrite<'a> {
    pub bar: u8,
    pub offset: u64,
    pub data: &'a [u8],
    /// How it was seen to arrive.
    pub observed: Observed,
    /// Part of a 64-byte line that did not arrive whole.
    pub torn: bool,
}

impl HostWrite<'_> {
    pub(crate) fn count(&self, host: &mut Host, origin: Origin) {
        let access = HostAccess::Write { address: self.offset, bytes: self.data.len() as u32 };
        host.port.count(origin, self.bar, access, self.observed);
    }

    /// Its first bytes as a number.
    fn stored(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(self.data).for_each(|(byte, stored)| *byte = *stored);
        u64::from_le_bytes(bytes)
    }

    /// What was wrong: the access's size, or what it stored.
    fn value_of(&self, diagnostic: Diagnostic) -> u64 {
        match diagnostic {
            Diagnostic::RegisterAccess | Diagnostic::DoorbellAccess => self.data.len() as u64,
            _ => self.stored(),
        }
    }
}

impl Engine {
    /// A posted write by the host.
    pub fn handle_write(&mut self, now_ns: u64, port: &mut dyn DmaPort, access: &HostWrite) {
        let host = &mut Host { port, now_ns };
        let view = self.register_view(now_ns);
        match self.front_end.write(access.bar, access.offset, access.data, &view) {
            Ok(input) => self.handle_input(host, access, input),
            Err(diagnostic) => {
                access.count(host, Origin::new(Class::RegisterWrite, Cause::Maintenance));
                self.diagnose(now_ns, diagnostic, access.offset as u32, access.value_of(diagnostic));
            }
        }
        if !access.torn {
            self.torn_line = None;
        }
        self.settle(host);
    }

    /// A store of a torn line that rings nothing.
    fn piece_of_line(&mut self, host: &mut Host, access: &HostWrite) {
        access.count(host, Origin::new(Class::Doorbell, Cause::Maintenance));
        self.diagnose_torn_line(host, access, access.offset as u32);
    }

    /// Once a line, whichever of its stores come.
    pub(crate) fn diagnose_torn_line(&mut self, host: &mut Host, access: &HostWrite, object: u32) {
        let line = access.offset & !63;
        if self.torn_line != Some(line) {
            self.torn_line = Some(line);
            self.diagnose(host.now_ns, Diagnostic::DoorbellTornLine, object, access.offset);
        }
    }

    /// A read by the host. What does not exist reads as zero.
    pub fn handle_read(&mut self, now_ns: u64, port: &mut dyn DmaPort, bar: u8, offset: u64, data: &mut [u8]) {
        let bytes = data.len() as u32;
        let origin = Origin::new(Class::RegisterRead, Cause::Maintenance);
        port.count(origin, bar, HostAccess::Read { address: offset, bytes }, Observed { messages: 1, bytes });
        let view = self.register_view(now_ns);
        if let Err(diagnostic) = self.front_end.read(bar, offset, data, &view) {
            self.diagnose(now_ns, diagnostic, offset as u32, bytes.into());
            self.settle(&mut Host { port, now_ns });
        }
    }

    fn register_view(&self, now_ns: u64) -> RegisterView {
        let last = self.diagnostics.last;
        RegisterView {
            now_ns,
            enabled: self.enabled,
            fatal: self.fatal,
            link_up: self.link_up,
            mac: self.config.mac,
            doorbell_pages: self.config.doorbell_pages,
            vectors: self.config.vectors.into(),
            port_mtu_bytes: self.config.port_mtu_bytes,
            last_diagnostic: last.map_or(0, |(diagnostic, _)| diagnostic.number()),
            last_object: last.map_or(0, |(_, object)| object),
        }
    }

    fn handle_input(&mut self, host: &mut Host, access: &HostWrite, input: Input) {
        let register = Origin::new(Class::RegisterWrite, Cause::Maintenance);
        let doorbell = !matches!(
            input,
            Input::Commands { .. }
                | Input::Enable
                | Input::Disable
                | Input::ClearDiagnostic
                | Input::Mark(_)
                | Input::Register
        );
        if doorbell && !self.running() {
            access.count(host, register);
            let diagnostic = if self.fatal { Diagnostic::DeviceFatal } else { Diagnostic::DeviceDisabled };
            return self.diagnose(host.now_ns, diagnostic, access.offset as u32, access.stored());
        }
        match input {
            Input::Send { page, qpn, producer, form } => self.send_doorbell(host, access, page, qpn, producer, form),
            Input::Receive { page, qpn, producer } => self.receive_doorbell(host, access, page, qpn, producer),
            Input::SharedReceive { page, srqn, producer } => {
                self.shared_receive_doorbell(host, access, page, srqn, producer);
            }
            Input::ArmCq { page, cqn, consumer, sequence, solicited_only } => {
                let request = ArmRequest { consumer, sequence, solicited_only };
                self.arm_doorbell(host, access, page, cqn, request);
            }
            Input::UpdateEq { page, eqn, consumer, arm } => self.update_eq(host, access, page, eqn, consumer, arm),
            Input::Commands { producer } => {
                access.count(host, register);
                self.command_doorbell(host, producer);
            }
            Input::Enable => {
                access.count(host, register);
                self.enable(host);
            }
            Input::Disable => {
                access.count(host, register);
                self.handle_reset();
            }
            Input::ClearDiagnostic => {
                access.count(host, register);
                self.diagnostics.last = None;
            }
            Input::Mark(value) => {
                access.count(host, register);
                self.marked = Some(value);
            }
            Input::PieceOfLine => self.piece_of_line(host, access),
            Input::Register => access.count(host, register),
        }
    }

    /// A doorbell that is not taken, for its page or for its producer index.
    pub(crate) fn refuse_doorbell(
        &mut self,
        host: &Host,
        diagnostic: Diagnostic,
        object: u32,
        page: u32,
        producer: u16,
    ) {
        let value = if diagnostic == Diagnostic::DoorbellForeignPage { page } else { producer.into() };
        self.diagnose(host.now_ns, diagnostic, object, value.into());
    }

    fn enable(&mut self, host: &mut Host) {
        match self.front_end.command_rings() {
            Ok(rings) => {
                self.commands = CommandQueue::new(rings);
                self.enabled = true;
            }
            Err(diagnostic) => self.diagnose(host.now_ns, diagnostic, 0, 0),
        }
    }
}
