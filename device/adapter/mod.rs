//! An adapter: its functions, its port on the switch, and the one thread that runs them all.
//!
//! The engine thread polls the functions' vfio-user connections, the rings from other ports and the timers, and runs the
//! functions in bounded steps; clients' requests are served between steps, so that no map vanishes under a copy and
//! each ledger has one writer. It sleeps when there is nothing to do.

mod attachment;
mod engine_thread;
mod packets;
mod port;
mod step;
mod watch;

pub use engine_thread::{AdapterError, AdapterHandle, AdapterOptions};
pub use packets::{Packet, PacketDirection, PacketReading, PacketTrace, TransportHeaders};
pub use port::{AdapterPort, Taker};

use crate::function::{EthernetFunction, RdmaFunction};
use attachment::Attachment;

/// What the engine thread owns.
pub struct Adapter {
    pub name: String,
    /// Function 0, the RNIC.
    pub function: RdmaFunction,
    /// Function 1.
    pub ethernet: EthernetFunction,
    pub port: AdapterPort,
    /// The record of packets, while somebody watches.
    pub packets: PacketTrace,
    client: Attachment,
    ethernet_client: Attachment,
}

impl Adapter {
    /// A client is attached to the RNIC.
    pub fn is_attached(&self) -> bool {
        self.client.is_attached()
    }

    /// Plugs the port's cable in, or pulls it: frames are lost while it is out, and the drivers are told of each change.
    pub fn set_link(&mut self, up: bool) {
        self.port.set_link(up);
        self.ethernet.device.set_link_up(up);
        let now_ns = self.function.tick();
        self.function.engine.handle_link(now_ns, &mut self.function.link, up);
    }

    /// Clients of the RNIC that have come and gone.
    pub fn clients(&self) -> u64 {
        self.client.clients()
    }

    /// Clients of the Ethernet function that have come and gone.
    pub fn ethernet_clients(&self) -> u64 {
        self.ethernet_client.clients()
    }

    /// A client is attached to the Ethernet function.
    pub fn is_ethernet_attached(&self) -> bool {
        self.ethernet_client.is_attached()
    }
}
