//! One bounded step of the engine thread: messages, frames in, frames out, timers.

use super::Adapter;
use crate::function::QUESTION;
use crate::vfio_user::probe::SHARE_ON;
use crate::vfio_user::{CloseReason, Closed, Connection, DmaRefusal};
use rnic_pcie::{MessageKind, OutboundMessage};
use rnic_wire::Frame;
use std::time::Instant;

/// Requests of the client that one step serves.
const REQUESTS: u32 = 256;
/// Frames that one step receives, and transmits: about 64 KiB each at path MTU 4096.
const FRAMES: usize = 16;

/// What the thread keeps between steps.
#[derive(Debug, Default)]
pub struct StepState {
    frame: Frame,
    /// A message that the connection could not take yet.
    unsent: Option<OutboundMessage>,
}

impl Adapter {
    /// Runs everything once. True when there may be more to do.
    pub fn step(&mut self, state: &mut StepState) -> bool {
        self.function.tick();
        let mut more = self.serve_client();
        self.function.run_timers();
        more |= self.function.deliver_completions();
        more |= self.receive_frames(&mut state.frame);
        more |= self.transmit_frames(&mut state.frame);
        more |= self.send_messages(state);
        self.check_sharing();
        more
    }

    fn serve_client(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let served = if let Err(closed) = connection.expire(Instant::now(), &mut self.function) {
            Err(closed)
        } else if connection.wants_write() {
            connection.on_writable(&mut self.function).map(|progress| progress.served > 0)
        } else {
            Ok(false)
        };
        let served = match served {
            Ok(any) if connection.wants_read() => {
                connection.on_readable(&mut self.function, REQUESTS).map(|progress| any || progress.served > 0)
            }
            other => other,
        };
        match served {
            Ok(any) => {
                if self.function.take_revoked() {
                    connection.revoke_dma();
                    self.port.discard_turned();
                }
                any || connection.has_work()
            }
            Err(closed) => {
                self.client_gone(&closed);
                true
            }
        }
    }

    fn client_gone(&mut self, closed: &Closed) {
        let level = if closed.reason == CloseReason::Silent { log::Level::Warn } else { log::Level::Info };
        log::log!(level, "adapter {}: the client has gone: {}", self.name, closed.reason);
        self.connection = None;
        self.clients += 1;
        self.function.take_revoked();
        self.port.discard_turned();
    }

    /// Accepts a client, or refuses it while another one is attached.
    pub fn accept(&mut self) {
        let busy = self.connection.is_some();
        match self.listener.on_readable(busy) {
            Ok(Some(stream)) => match Connection::new(stream) {
                Ok(mut connection) => {
                    connection.set_name(self.name.clone());
                    log::info!("adapter {}: a client is attached", self.name);
                    self.connection = Some(connection);
                }
                Err(error) => log::warn!("adapter {}: a client could not be attached: {error}", self.name),
            },
            Ok(None) => {}
            Err(error) => log::warn!("adapter {}: accepting a client failed: {error}", self.name),
        }
    }

    fn receive_frames(&mut self, frame: &mut Frame) -> bool {
        let now_ns = self.function.now_ns();
        for _ in 0..FRAMES {
            if !self.function.engine.can_receive() || !self.link_has_room() || !self.port.receive(frame, now_ns) {
                return false;
            }
            self.function.engine.handle_frame(now_ns, &mut self.function.link, frame);
        }
        true
    }

    /// Transmission is pulled: a frame is built only when there is room for it everywhere it could go.
    fn transmit_frames(&mut self, frame: &mut Frame) -> bool {
        let now_ns = self.function.now_ns();
        if !self.function.engine.has_output() {
            return false;
        }
        let room = self.port.room().min(FRAMES);
        for _ in 0..room {
            if !self.link_has_room() {
                return false;
            }
            let function = &mut self.function;
            if !function.engine.poll_transmit(now_ns, &mut function.link, frame) {
                return false;
            }
            self.port.transmit(&self.function.engine, frame, now_ns);
        }
        room > 0
    }

    fn link_has_room(&self) -> bool {
        rnic_pcie::DmaPort::has_room(&self.function.link)
    }

    /// Sends DMA that travels by message, as far as the connection takes it.
    fn send_messages(&mut self, state: &mut StepState) -> bool {
        let Some(connection) = &mut self.connection else {
            state.unsent = None;
            return false;
        };
        let mut any = false;
        while connection.can_request_dma() {
            let Some(message) = state.unsent.take().or_else(|| self.function.link.next_message()) else { break };
            let sent = match &message.kind {
                MessageKind::Read { iova, length_bytes } => {
                    connection.request_dma_read(message.id.0, iova.0, *length_bytes)
                }
                MessageKind::Write { iova, data } => connection.request_dma_write(message.id.0, iova.0, data),
            };
            match sent {
                Ok(()) => any = true,
                Err(DmaRefusal::Busy) => {
                    state.unsent = Some(message);
                    break;
                }
                Err(refusal) => {
                    log::debug!("adapter {}: a DMA message was not sent: {refusal:?}", self.name);
                    let fault = rnic_pcie::DmaFault::UnsupportedRequest;
                    self.function.link.message_answered(message.id, Err(fault));
                    any = true;
                }
            }
        }
        any
    }

    /// Asks the client what it reads where the device has read, until it is known that guest memory is shared. Only a
    /// client that speaks as QEMU does is asked: others need not know DMA messages when they share their memory.
    fn check_sharing(&mut self) {
        if let Some(place) = self.function.take_stale_memory() {
            log::warn!(
                "adapter {}: guest memory at {:#x} came with a descriptor that does not show what the guest writes                  (share=off): every DMA reads stale bytes and loses what it writes; {SHARE_ON}",
                self.name,
                place.iova.0
            );
        }
        let Some(connection) = &mut self.connection else { return };
        if connection.can_request_dma()
            && connection.client().is_some_and(|client| client.write_multiple)
            && let Some(range) = self.function.sharing_question()
            && connection.request_dma_read(QUESTION, range.iova.0, range.length_bytes).is_err()
        {
            self.function.sharing_not_asked();
        }
    }
}
