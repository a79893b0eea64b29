//! The vfio-user server: the socket side of a function, against an unmodified QEMU.
//!
//! A [`Listener`] hands out one client; a [`Connection`] serves it for whoever polls its socket, with no thread of
//! its own; a [`Backend`] is the device. What comes in is bytes and file descriptors from a client that may be
//! hostile; what goes out is callbacks, replies, and DMA messages. In the order of a message's way:
//!
//! `listener` (`socket_path`, `refusal`) → `receive` (`passed_fds`) → `parser` → `dispatch` → `negotiate`,
//! `commands` or `dma_message` → `reply` → `output`; `message` has the layouts, `device_tables` what a PCI device
//! answers, `probe` the check that guest RAM is shared, `server_adapter` the public crate's server as a cross-check.

pub mod backend;
mod commands;
pub mod connection;
pub mod device_tables;
mod dispatch;
pub mod dma_message;
pub mod listener;
pub mod message;
pub mod negotiate;
mod notices;
mod output;
pub mod parser;
mod passed_fds;
pub mod probe;
mod receive;
mod refusal;
mod reply;
pub mod server_adapter;
pub mod socket_path;

#[cfg(test)]
mod tests;

pub use backend::{Backend, DmaMap, DmaUnmap, IrqAction, IrqRequest};
pub use connection::{CloseReason, Closed, Connection, Progress};
pub use dma_message::{DmaRefusal, MAX_DMA_BYTES, MAX_IN_FLIGHT};
pub use listener::Listener;
pub use negotiate::ClientCapabilities;
pub use server_adapter::ServerAdapter;
pub use socket_path::{BindError, BoundPath, bind as bind_path};
