//! An adapter: its functions, its port on the switch, and the one thread that runs them all.
//!
//! The engine thread polls the vfio-user connection, the rings from other ports and the timers, and runs the engine
//! in bounded steps; the client's requests are served between steps, so that no map vanishes under a copy and the
//! ledger has one writer. It sleeps when there is nothing to do.

mod engine_thread;
mod port;
mod step;

pub use engine_thread::{AdapterError, AdapterHandle, AdapterOptions};
pub use port::AdapterPort;

use crate::function::RdmaFunction;
use crate::vfio_user::{Connection, Listener};

/// What the engine thread owns.
pub struct Adapter {
    pub name: String,
    pub function: RdmaFunction,
    pub port: AdapterPort,
    listener: Listener,
    connection: Option<Connection>,
    /// Clients that have come and gone.
    clients: u64,
}

impl Adapter {
    /// A client is attached.
    pub fn is_attached(&self) -> bool {
        self.connection.is_some()
    }

    /// Plugs the port's cable in, or pulls it: frames are lost while it is out, and the driver is told of each change.
    pub fn set_link(&mut self, up: bool) {
        self.port.set_link(up);
        let now_ns = self.function.tick();
        self.function.engine.handle_link(now_ns, &mut self.function.link, up);
    }

    pub fn clients(&self) -> u64 {
        self.clients
    }
}
