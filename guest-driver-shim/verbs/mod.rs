//! Verbs over a [`crate::backing::Backing`]: open a device, register memory, create queues, post, poll, wait.
//!
//! [`Device`] owns every object; objects are named by their numbers, as the hardware does. In path order: `device`
//! and `command` bring the hardware up, `memory_region` and `page_list` describe memory, `work_on_keys` what work requests
//! give its memory, `event_queue`,
//! `completion_queue` and `queue_pair` create, `send` and `receive` post, `poll` and `arm` learn what happened.

mod arm;
mod attributes;
mod command;
mod completion_queue;
mod datagram;
mod device;
mod error;
mod event_queue;
mod memory_region;
mod numbers;
mod page_list;
mod poll;
mod queue_pair;
mod receive;
mod ring;
mod send;
mod shared_receive;
mod work_on_keys;
mod wqe;

pub use arm::Awaited;
pub use attributes::{
    RtrAttributes, RtsAttributes, datagram_attributes, init_attributes, rtr_attributes, rts_attributes,
    state_attributes, unreliable, xrc_initiator, xrc_target,
};
pub use command::CommandRefused;
pub use completion_queue::CqSpec;
pub use datagram::{Datagram, DatagramOrigin, multicast_mac};
pub use device::{Device, OpenOptions};
pub use error::{Result, VerbsError};
pub use event_queue::Event;
pub use memory_region::{MemoryRegion, MrLayout, RegionChange, RegionSpec};
pub use poll::WorkCompletion;
pub use queue_pair::{QpSnapshot, QpSpec};
pub use receive::ReceiveRequest;
pub use send::DoorbellForm;
pub use shared_receive::SrqSpec;
pub use work_on_keys::{Bind, Registration, WindowType, WorkKey};
pub use wqe::{Operands, Payload, Remote, SendRequest, Sge};

/// A number of one kind of object.
macro_rules! object_numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), " {:#x}"), self.0)
            }
        })*
    };
}

object_numbers! {
    /// Queue pair number.
    Qpn;
    /// Completion queue number.
    Cqn;
    /// Event queue number.
    Eqn;
    /// Shared receive queue number.
    Srqn;
    /// Protection domain number: the hardware compares it, and knows no object behind it.
    Pdn;
}

#[cfg(test)]
mod tests;
