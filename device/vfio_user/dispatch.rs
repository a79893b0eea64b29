//! One whole message in, at most one reply out.
//!
//! The rules that hold for every command are kept here and nowhere else: each request is answered once, in order;
//! an error is a header with an errno that is not 0; a request with NO_REPLY is never answered.

use super::backend::{Backend, DmaMap, DmaUnmap};
use super::commands::{device_info, dma_map, dma_unmap, irq_info, region_access, region_info, set_irqs, write_multi};
use super::dma_message::{DmaMessages, DmaReply};
use super::message::{Command, Header};
use super::negotiate::{self, ClientCapabilities};
use super::notices::Notices;
use super::output::Output;
use super::passed_fds::MessageFds;
use super::probe::SHARE_ON;
use super::reply::Reply;
use crate::planted::planted;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use vfio_user::DmaMapFlags;

/// The state of a connection apart from the bytes that come in.
#[derive(Debug)]
pub struct Session {
    /// What the client said in VERSION; `None` before it.
    pub client: Option<ClientCapabilities>,
    pub dma: DmaMessages,
    pub output: Output,
    pub notices: Notices,
    reply: Reply,
    /// RAM came with a descriptor, or the user has been told that it did not.
    ram_judged: bool,
}

/// A whole message.
#[derive(Debug)]
pub struct Message<'a> {
    pub header: Header,
    pub body: &'a [u8],
    pub fds: MessageFds,
}

impl Session {
    pub fn new(name: String) -> Self {
        Self {
            client: None,
            dma: DmaMessages::new(),
            output: Output::default(),
            notices: Notices::new(name),
            reply: Reply::default(),
            ram_judged: false,
        }
    }

    /// Serves the message. The error is that of sending the reply.
    pub fn serve(
        &mut self,
        message: Message<'_>,
        backend: &mut dyn Backend,
        socket: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let header = message.header;
        if header.is_reply() {
            self.take_reply(&header, message.body, backend);
            return Ok(());
        }
        self.reply.clear();
        let body = message.body;
        let outcome = self.perform(message, backend);
        if let Err(errno) = outcome {
            let Header { message_id, size_bytes, .. } = header;
            let command = header.command();
            let place = region_access::place(command, body).map_or(String::new(), |place| format!(" at {place}"));
            self.notices
                .warn(format_args!("{command} (id {message_id}, {size_bytes} bytes){place} is refused: {errno}"));
        }
        let planted_bug = outcome.is_err() && planted("vfio_user_error_to_no_reply");
        if header.no_reply() && !planted_bug {
            return Ok(());
        }
        let (bytes, fd) = self.reply.finish(&header, outcome);
        // SAFETY: the descriptor stands in the backend's region table, whose owner keeps it open while it stands there.
        let fd = fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        self.output.send(socket, bytes, fd)
    }

    /// Answers all that is in flight with `CANCELED`; what the client still answers is discarded.
    pub fn revoke_all(&mut self, backend: &mut dyn Backend) {
        self.dma.revoke(DmaUnmap::All, |id| backend.dma_answered(id, Err(Errno::CANCELED)));
    }

    /// The reply buffer's share of the memory of a connection.
    pub fn reply_capacity_bytes(&self) -> usize {
        self.reply.capacity_bytes()
    }

    fn perform(&mut self, message: Message<'_>, backend: &mut dyn Backend) -> Result<(), Errno> {
        let Message { header, body, fds } = message;
        let command = header.command();
        let negotiating = command == Command::VERSION;
        if !header.is_command() || negotiating == self.client.is_some() {
            return Err(Errno::INVAL);
        }
        if !fds.is_empty() && !command.takes_fds() {
            self.notices.warn(format_args!("{command} came with file descriptors, which are closed"));
        }
        if header.no_reply() && !command.may_be_posted() {
            return Err(Errno::INVAL);
        }
        let reply = &mut self.reply;
        match command {
            Command::REGION_WRITE => region_access::write(body, backend, reply),
            Command::REGION_READ => region_access::read(body, backend, reply),
            Command::REGION_WRITE_MULTI => write_multi::write(body, backend, reply),
            Command::VERSION => self.negotiate(body),
            Command::DMA_MAP => self.map(body, fds, backend),
            Command::DMA_UNMAP => dma_unmap::unmap(body, &mut self.dma, backend, reply),
            Command::DEVICE_GET_INFO => device_info::get(body, backend, reply),
            Command::DEVICE_GET_REGION_INFO => {
                region_info::get(body, backend, self.client_takes_fds(), &mut self.reply)
            }
            Command::DEVICE_GET_IRQ_INFO => irq_info::get(body, backend, reply),
            Command::DEVICE_SET_IRQS => set_irqs::set(body, fds, backend),
            Command::DEVICE_RESET if body.is_empty() => {
                self.revoke_all(backend);
                backend.reset()
            }
            Command::DEVICE_RESET => Err(Errno::INVAL),
            // The answer that makes a client do without features.
            Command::DEVICE_FEATURE => Err(Errno::NOTTY),
            // Known, but not offered; or this side's to send.
            command if command.name().is_some() => Err(Errno::NOTSUP),
            _ => Err(Errno::INVAL),
        }
    }

    fn negotiate(&mut self, body: &[u8]) -> Result<(), Errno> {
        match negotiate::client_capabilities(body) {
            Ok(capabilities) => {
                negotiate::answer(&mut self.reply)?;
                log::debug!("{}: client capabilities {capabilities:?}", self.notices.name());
                self.client = Some(capabilities);
                Ok(())
            }
            Err(refusal) => {
                self.notices.warn(format_args!("the client is refused: {refusal}"));
                Err(Errno::INVAL)
            }
        }
    }

    fn map(&mut self, body: &[u8], fds: MessageFds, backend: &mut dyn Backend) -> Result<(), Errno> {
        let map = dma_map::understood(body, fds)?;
        self.judge_ram(&map);
        backend.dma_map(map)
    }

    /// The client's main memory is what it maps writable first. Later maps without a descriptor are device memory
    /// and other small things, about which nothing can be done.
    fn judge_ram(&mut self, map: &DmaMap) {
        if self.ram_judged || !map.permissions.contains(DmaMapFlags::WRITE) {
            return;
        }
        self.ram_judged = true;
        if map.file.is_none() {
            let DmaMap { iova, size_bytes, .. } = map;
            self.notices.warn(format_args!(
                "guest RAM at {iova:#x} ({size_bytes} bytes) came without a file descriptor: every DMA is a message \
                 and slow; {SHARE_ON}"
            ));
        }
    }

    fn client_takes_fds(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.max_msg_fds > 0)
    }

    fn take_reply(&mut self, header: &Header, body: &[u8], backend: &mut dyn Backend) {
        match self.dma.reply(header, body) {
            DmaReply::Answers { id, answer } => backend.dma_answered(id, answer),
            DmaReply::Late => {}
            DmaReply::ShiftedPayload { id } => {
                self.notices.warn(format_args!(
                    "the client shifts the data of DMA messages by four bytes, as QEMU before 11.1 does: the \
                     transfer fails; use QEMU 11.1 or newer, or give it shared memory: {SHARE_ON}"
                ));
                backend.dma_answered(id, Err(Errno::PROTO));
            }
            DmaReply::Stray => {
                let command = header.command();
                self.notices.warn(format_args!("a reply to {command} (id {}) was not asked for", header.message_id));
            }
        }
    }
}

/// What a message costs of the caller's budget.
pub fn cost(header: &Header, body: &[u8]) -> u32 {
    match header.command() {
        Command::REGION_WRITE_MULTI => write_multi::cost(body),
        _ => 1,
    }
}
