//! The front end: the one place where the bytes of a hardware interface become neutral types and back.
//!
//! In: MMIO accesses, command slots, work queue entries. Out: [`Input`], [`Command`], [`SendWork`],
//! [`ScatterList`]; and, the other way, completions, events and command answers as bytes. The rest of the engine
//! knows these types only, so that another interface is another implementation of [`FrontEnd`].

pub mod commands;
pub mod native;
pub mod work;

use crate::context::queue_pair::Service;
use crate::numbers::{Cqn, Eqn, Qpn, Srqn};
pub use commands::{Answer, COUNTERS_AN_ANSWER, Command, CommandError, CounterGroup};
use rnic_abi::Diagnostic;
pub use work::{
    Binding, Body, Completion, CompletionKind, DatagramSource, Destination, Element, EventRecord, Operation, Placement,
    Registration, ScatterList, SendWork, Status, TakesReceive,
};

/// How a send doorbell was rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellForm {
    /// An 8-byte store.
    Value,
    /// A 64-byte line with the same fields.
    Line,
    /// A 64-byte line that is the first slot of the newest work request.
    WorkRequest([u8; 64]),
}

/// What a host access to a BAR means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Send {
        page: u32,
        qpn: Qpn,
        producer: u16,
        form: DoorbellForm,
    },
    Receive {
        page: u32,
        qpn: Qpn,
        producer: u16,
    },
    SharedReceive {
        page: u32,
        srqn: Srqn,
        producer: u16,
    },
    ArmCq {
        page: u32,
        cqn: Cqn,
        consumer: u32,
        sequence: u8,
        solicited_only: bool,
    },
    UpdateEq {
        page: u32,
        eqn: Eqn,
        consumer: u32,
        arm: bool,
    },
    Commands {
        producer: u16,
    },
    Enable,
    Disable,
    /// The driver has read the last diagnostic.
    ClearDiagnostic,
    /// The driver tells the tools beside the device where it is.
    Mark(u64),
    /// A store of a doorbell line that has not become whole, and not the one that rings.
    PieceOfLine,
    /// Nothing more than a register that changed.
    Register,
}

/// Where the command rings are, once the device is enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandRings {
    pub commands: u64,
    pub completions: u64,
    pub log_slots: u8,
}

/// What the registers show of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterView {
    pub now_ns: u64,
    pub enabled: bool,
    pub fatal: bool,
    pub link_up: bool,
    pub mac: [u8; 6],
    pub doorbell_pages: u32,
    pub vectors: u32,
    pub port_mtu_bytes: u32,
    pub last_diagnostic: u32,
    pub last_object: u32,
}

/// What the front end was told to expect of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub qpn: Qpn,
    pub slot_index: u16,
    /// Slots up to the producer index.
    pub available_slots: u16,
    /// The queue pair's: it decides on opcodes and segments.
    pub service: Service,
}

/// The codec of one hardware interface.
pub trait FrontEnd: Send + std::fmt::Debug {
    /// Understands a write to a BAR.
    fn write(&mut self, bar: u8, offset: u64, data: &[u8], view: &RegisterView) -> Result<Input, Diagnostic>;

    /// Answers a read of a BAR; bytes that do not exist read as zero.
    fn read(&self, bar: u8, offset: u64, data: &mut [u8], view: &RegisterView) -> Result<(), Diagnostic>;

    /// Back to the state after power-on.
    fn reset(&mut self);

    /// The latest value of the driver's mark.
    fn mark(&self) -> u64;

    fn command_rings(&self) -> Result<CommandRings, Diagnostic>;

    /// Bytes of a command slot and of a command completion slot.
    fn command_bytes(&self) -> usize;

    fn decode_command(&self, slot: &[u8]) -> Result<Command, CommandError>;

    /// The command asks for an event when it is done.
    fn wants_event(&self, slot: &[u8]) -> bool;

    /// Writes the completion of the command in `slot_bytes` into `out`.
    fn encode_answer(
        &self,
        slot: u16,
        slot_bytes: &[u8],
        answer: &Result<Answer, CommandError>,
        phase: bool,
        out: &mut [u8],
    );

    /// Bytes of one slot of a send queue.
    fn send_slot_bytes(&self) -> usize;

    /// Slots that the work request in `first_slot` says it has, and no more than it could have.
    fn send_slots(&self, first_slot: &[u8]) -> u16;

    /// Understands a whole send work request.
    fn decode_send(&self, expected: Expected, bytes: &[u8]) -> Result<SendWork, Diagnostic>;

    /// Understands a receive work request.
    fn decode_receive(&self, bytes: &[u8]) -> Result<ScatterList, Diagnostic>;

    /// A slot's number as it stands in the index ring of a shared receive queue.
    fn decode_shared_index(&self, bytes: [u8; 2]) -> u16 {
        u16::from_le_bytes(bytes)
    }

    fn completion_bytes(&self) -> usize;

    fn encode_completion(&self, completion: &Completion, now_ns: u64, phase: bool, out: &mut [u8]);

    fn event_bytes(&self) -> usize;

    fn encode_event(&self, event: &EventRecord, phase: bool, out: &mut [u8]);

    /// The consumer index that a consumer record holds.
    fn decode_record(&self, bytes: &[u8; 8]) -> u32;
}
