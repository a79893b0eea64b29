#![cfg_attr(not(test), no_std)]
//! What guest and device agree on: BAR map, registers, doorbells, rings, commands, events, limits.
//!
//! The datasheet, `docs/hardware-abi.md`, explains it; the C header `guest-driver-shim/include/rnic_abi.h` is
//! generated from it. Everything is little-endian. Reserved fields are written as zero and ignored when read,
//! unless a rule says that the device refuses them.
//!
//! The layouts of one version never change: `golden/` holds each version's, and a test compares.

#[macro_use]
mod layout;

pub mod command;
pub mod completion;
pub mod diagnostic;
pub mod doorbell;
pub mod event;
pub mod limits;
pub mod page_list;
pub mod registers;
pub mod work_request;

pub use command::{CommandOpcode, CommandStatus};
pub use completion::{CompletionOpcode, CompletionStatus, Cqe};
pub use diagnostic::Diagnostic;
pub use event::{Eqe, EventType};
pub use layout::{ConstantLayout, FieldLayout, StructLayout};
pub use page_list::PageListFields;
pub use work_request::{
    AtomicSegment, BindSegment, ControlSegment, DataSegment, DatagramSegment, FlushSegment, RegisterSegment,
    RemoteSegment, WorkOpcode, XrcSegment,
};

/// Major version: a driver refuses a device whose major it does not know.
pub const VERSION_MAJOR: u16 = 1;
/// Minor version: additions that an older driver may ignore.
pub const VERSION_MINOR: u16 = 3;

/// PCI vendor and device (0x12b7 is UDP port 4791).
pub const PCI_VENDOR_ID: u16 = 0x1234;
pub const PCI_DEVICE_ID: u16 = 0x12b7;

/// Every structure of the interface, in the order of the datasheet.
pub fn structures() -> [StructLayout; 37] {
    [
        page_list::PageListFields::layout(),
        work_request::ControlSegment::layout(),
        work_request::RemoteSegment::layout(),
        work_request::AtomicSegment::layout(),
        work_request::XrcSegment::layout(),
        work_request::DataSegment::layout(),
        work_request::RegisterSegment::layout(),
        work_request::BindSegment::layout(),
        completion::Cqe::layout(),
        completion::ConsumerRecord::layout(),
        event::Eqe::layout(),
        command::CommandHeader::layout(),
        command::CompletionHeader::layout(),
        command::SetTable::layout(),
        command::FlushCaches::layout(),
        command::SetGid::layout(),
        command::CreateEq::layout(),
        command::CreateCq::layout(),
        command::ModifyCq::layout(),
        command::ResizeCq::layout(),
        command::CqPosition::layout(),
        command::CreateSrq::layout(),
        command::ModifySrq::layout(),
        command::SrqState::layout(),
        command::CreateQp::layout(),
        command::AddressVector::layout(),
        work_request::FlushSegment::layout(),
        work_request::DatagramSegment::layout(),
        command::QpAttributes::layout(),
        command::MulticastGroup::layout(),
        command::RegisterKey::layout(),
        command::AllocateKey::layout(),
        command::ObjectNumber::layout(),
        command::DeviceLimits::layout(),
        command::QueueState::layout(),
        command::QueryCounters::layout(),
        command::CounterValues::layout(),
    ]
}

/// Every constant of the interface, in the order of the datasheet.
pub fn constants() -> impl Iterator<Item = ConstantLayout> {
    registers::CONSTANTS
        .iter()
        .chain(doorbell::CONSTANTS)
        .chain(work_request::CONSTANTS)
        .chain(completion::CONSTANTS)
        .chain(event::CONSTANTS)
        .chain(command::CONSTANTS)
        .chain(limits::CONSTANTS)
        .copied()
}

#[cfg(test)]
mod tests;
