//! The protocol over a socket pair, raw bytes on the client's side: one file per message, then the stream as a whole.

mod back_pressure;
mod crate_client;
mod device_info;
mod dma_map;
mod dma_messages;
mod dma_unmap;
mod framing;
mod irq_info;
mod listener;
mod passed_fds;
mod recorder;
mod region_access;
mod region_info;
mod reset;
mod rig;
mod set_irqs;
mod silent_client;
mod stream_fuzz;
mod unsupported;
mod version;
mod write_multi;
