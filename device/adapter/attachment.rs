//! A function's client: where it is listened for, its connection, and the DMA message that the connection could not take.

use crate::function::{QUESTION, SharingCheck};
use crate::vfio_user::probe::SHARE_ON;
use crate::vfio_user::{Backend, CloseReason, Connection, DmaRefusal, Listener};
use rnic_pcie::{DmaFault, Link, MessageKind, OutboundMessage};
use rustix::event::epoll::EventFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// At most one client at a time; a second one is refused.
pub struct Attachment {
    /// The function's, in the log.
    name: String,
    listener: Listener,
    connection: Option<Connection>,
    unsent: Option<OutboundMessage>,
    /// Clients that have come and gone.
    clients: u64,
    /// The socket was seen to have something, or nobody has looked since it had.
    due: bool,
    /// Steps in which a look may still be left out, because the socket was seen to be silent.
    silent_steps: u32,
}

/// Looks at a socket that may be left out once it was seen silent: in the step for what woke the thread, and in one that
/// finds nothing left. Then the thread sleeps, and is told; and where it has no time to sleep, it looks in the third step.
const SILENT_STEPS: u32 = 2;

impl Attachment {
    pub fn new(name: String, listener: Listener) -> Self {
        Self { name, listener, connection: None, unsent: None, clients: 0, due: false, silent_steps: 0 }
    }

    pub fn is_attached(&self) -> bool {
        self.connection.is_some()
    }

    pub fn clients(&self) -> u64 {
        self.clients
    }

    /// There is reason to look at the socket.
    pub fn is_due(&self) -> bool {
        let wants = |connection: &Connection| {
            connection.wants_write() || connection.has_work() || connection.negotiates_until().is_some()
        };
        self.due || self.connection.as_ref().is_some_and(wants)
    }

    /// A look at the socket, which is a system call, would most likely find nothing.
    pub fn may_be_left_out(&mut self) -> bool {
        let silent = self.silent_steps > 0;
        self.silent_steps = self.silent_steps.saturating_sub(1);
        silent && !self.is_due()
    }

    /// Serves so many of the client's requests. True if there may be more to do.
    pub fn serve(&mut self, backend: &mut dyn Backend, requests: u32) -> bool {
        let Some(connection) = &mut self.connection else {
            self.due = false;
            return false;
        };
        let served = if let Err(closed) = connection.expire(Instant::now(), backend) {
            Err(closed)
        } else if connection.wants_write() {
            connection.on_writable(backend).map(|progress| progress.served > 0)
        } else {
            Ok(false)
        };
        let served = match served {
            Ok(any) if connection.wants_read() => {
                connection.on_readable(backend, requests).map(|progress| any || progress.served > 0)
            }
            other => other,
        };
        match served {
            Ok(any) => {
                let silent = connection.is_silent();
                self.due = any && !silent;
                self.silent_steps = if silent { SILENT_STEPS } else { 0 };
                self.due || connection.has_work()
            }
            Err(closed) => {
                let level = if closed.reason == CloseReason::Silent { log::Level::Warn } else { log::Level::Info };
                log::log!(level, "{}: the client has gone: {}", self.name, closed.reason);
                self.connection = None;
                self.unsent = None;
                self.clients += 1;
                true
            }
        }
    }

    /// DMA in flight was called back.
    pub fn revoke_dma(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.revoke_dma();
        }
    }

    /// Asks the client what it reads where the function has read, until it is known that guest memory is shared. Only a
    /// client that speaks as QEMU does is asked: others need not know DMA messages when they share their memory.
    pub fn check_sharing(&mut self, sharing: &mut SharingCheck, link: &mut Link, now_ns: u64) {
        let Some(connection) = &mut self.connection else { return };
        if let Some(place) = sharing.take_stale() {
            log::warn!(
                "{}: guest memory at {:#x} came with a descriptor that does not show what the guest writes \
                 (share=off): every DMA reads stale bytes and loses what it writes; {SHARE_ON}",
                self.name,
                place.iova.0
            );
        }
        if connection.can_request_dma()
            && connection.client().is_some_and(|client| client.write_multiple)
            && let Some(range) = sharing.question(link, now_ns)
            && connection.request_dma_read(QUESTION, range.iova.0, range.length_bytes).is_err()
        {
            sharing.not_asked();
        }
    }

    /// When a client that has not negotiated by then is let go.
    pub fn negotiates_until(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(Connection::negotiates_until)
    }

    /// Accepts a client, or refuses it while another one is attached. One that has hung up is no reason to refuse: the new
    /// one waits until its end was read, which is in the next step where anything is read at all.
    pub fn accept(&mut self) {
        let ends = |connection: &Connection| connection.wants_read() && connection.has_hung_up();
        if self.connection.as_ref().is_some_and(ends) {
            self.due = true;
            return;
        }
        let busy = self.connection.is_some();
        match self.listener.on_readable(busy) {
            Ok(Some(stream)) => match Connection::new(stream) {
                Ok(mut connection) => {
                    connection.set_name(self.name.clone());
                    log::info!("{}: a client is attached", self.name);
                    self.connection = Some(connection);
                    self.due = true;
                }
                Err(error) => log::warn!("{}: a client could not be attached: {error}", self.name),
            },
            Ok(None) => {}
            Err(error) => log::warn!("{}: accepting a client failed: {error}", self.name),
        }
    }

    /// Sends DMA that travels by message, as far as the connection takes it.
    pub fn send_messages(&mut self, link: &mut Link) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let mut any = false;
        while connection.can_request_dma() {
            let Some(message) = self.unsent.take().or_else(|| link.next_message()) else { break };
            let sent = match &message.kind {
                MessageKind::Read { iova, length_bytes } => {
                    connection.request_dma_read(message.id.0, iova.0, *length_bytes)
                }
                MessageKind::Write { iova, data } => connection.request_dma_write(message.id.0, iova.0, data),
            };
            match sent {
                Ok(()) => any = true,
                Err(DmaRefusal::Busy) => {
                    self.unsent = Some(message);
                    break;
                }
                Err(refusal) => {
                    log::debug!("{}: a DMA message was not sent: {refusal:?}", self.name);
                    link.message_answered(message.id, Err(DmaFault::UnsupportedRequest));
                    any = true;
                }
            }
        }
        any
    }

    /// Ends the connection with what the socket still takes.
    pub fn shutdown(&mut self, backend: &mut dyn Backend) {
        if let Some(mut connection) = self.connection.take() {
            connection.shutdown(backend);
        }
    }

    /// What a sleeper watches for new clients.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// What a sleeper watches of the client, and for what.
    pub fn client(&self) -> Option<(BorrowedFd<'_>, EventFlags)> {
        let connection = self.connection.as_ref()?;
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, connection.wants_read());
        flags.set(EventFlags::OUT, connection.wants_write());
        Some((connection.as_fd(), flags))
    }

    /// What a sleep ended with.
    pub fn note_slept(&mut self, ready: bool) {
        self.due |= ready;
        self.silent_steps = if ready { 0 } else { SILENT_STEPS };
    }
}
