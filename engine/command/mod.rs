//! The command queue: create, modify, destroy, query.
//!
//! In: a doorbell. Out: one completion a command, in order. A command that misses something in host memory, or
//! that has to wait until no read of an object is in flight, is run again from its start; what it has done before
//! that must not be done twice stands in its progress.

mod caches;
mod completion_queues;
mod counters;
mod keys;
mod modify;
mod multicast;
mod objects;
mod queue_pairs;
mod shared_receive_queues;
mod tables;
pub mod transitions;

use crate::engine::Engine;
use crate::front_end::{Answer, Command, CommandError, CommandRings, EventRecord};
use crate::host::Host;
use crate::inspect::CommandQueueView;
use crate::pending::{Awaited, Stop};
use crate::planted::planted;
use rnic_abi::{CommandStatus, Diagnostic};
use rnic_pcie::{Cause, Class, DmaRange, DmaTag, Iova, Origin, Submitted};

/// The largest command slot of any front end.
const SLOT_BYTES: usize = 128;

/// A command that has been read.
#[derive(Debug)]
struct Running {
    bytes: [u8; SLOT_BYTES],
    command: Result<Command, CommandError>,
    progress: Progress,
}

/// What a command that waits has done.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Pages of a list that were read.
    pages: Vec<u64>,
    /// Lines of page lists that were brought into the cache.
    warmed: u64,
    /// The completion queue's new ring begins with this index.
    first_index: Option<u32>,
    /// The object is gone, or another one; reads up to this one have to come home.
    barrier: Option<Option<DmaTag>>,
}

/// The rings and where they stand.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    rings: CommandRings,
    producer: u16,
    consumer: u16,
    fetching: bool,
    running: Option<Running>,
}

impl CommandQueue {
    pub fn new(rings: CommandRings) -> Self {
        Self { rings, ..Self::default() }
    }

    const fn slots(&self) -> u16 {
        1 << self.rings.log_slots
    }

    pub(crate) fn view(&self) -> CommandQueueView {
        CommandQueueView {
            commands: self.rings.commands,
            completions: self.rings.completions,
            slots: self.slots().into(),
            producer: self.producer,
            consumer: self.consumer,
            busy: self.fetching || self.running.is_some(),
        }
    }

    /// Slot of the command that is next or running, and its phase.
    const fn position(&self) -> (u16, bool) {
        (self.consumer & (self.slots() - 1), self.consumer >> self.rings.log_slots & 1 == 0)
    }
}

/// Why a command has no answer yet, or will be refused.
#[derive(Debug)]
pub(crate) enum Halt {
    Blocked,
    Refused(CommandError),
}

impl From<CommandError> for Halt {
    fn from(error: CommandError) -> Self {
        Self::Refused(error)
    }
}

/// A lookup's stop as a command sees it.
pub(crate) fn halt(stop: Stop, object: u32) -> Halt {
    match stop {
        Stop::Blocked => Halt::Blocked,
        Stop::Broken(diagnostic) => CommandError::new(CommandStatus::DMA_FAULT, diagnostic, object).into(),
        Stop::Refused(_) => missing(object),
    }
}

/// The object does not exist.
pub(crate) fn missing(object: u32) -> Halt {
    CommandError::new(CommandStatus::NO_SUCH_OBJECT, Diagnostic::ObjectMissing, object).into()
}

impl Engine {
    pub(crate) fn command_doorbell(&mut self, host: &mut Host, producer: u16) {
        if !self.enabled || self.fatal {
            let diagnostic = if self.fatal { Diagnostic::DeviceFatal } else { Diagnostic::DeviceDisabled };
            return self.diagnose(host.now_ns, diagnostic, 0, producer.into());
        }
        if producer.wrapping_sub(self.commands.consumer) > self.commands.slots() {
            return self.diagnose(host.now_ns, Diagnostic::CommandDoorbellRange, 0, producer.into());
        }
        self.commands.producer = producer;
        self.resume_commands(host);
    }

    /// Runs commands until the ring is empty or one has to wait.
    pub(crate) fn resume_commands(&mut self, host: &mut Host) {
        while self.enabled && !self.fatal && !self.commands.fetching {
            let Some(mut running) = self.commands.running.take() else {
                if self.commands.consumer == self.commands.producer || !self.fetch_command(host) {
                    return;
                }
                continue;
            };
            let (slot, _) = self.commands.position();
            let answer = match running.command {
                Ok(command) => self.execute_command(host, &command, slot, &mut running.progress),
                Err(error) => Err(error.into()),
            };
            match answer {
                Ok(answer) => self.answer_command(host, &running.bytes, &Ok(answer)),
                Err(Halt::Refused(error)) => {
                    if !planted("refusal_undiagnosed") {
                        self.diagnose(host.now_ns, error.diagnostic, error.object, slot.into());
                    }
                    self.answer_command(host, &running.bytes, &Err(error));
                }
                Err(Halt::Blocked) => {
                    self.commands.running = Some(running);
                    return;
                }
            }
        }
    }

    /// Reads the next command. False when the read is in flight or failed.
    fn fetch_command(&mut self, host: &mut Host) -> bool {
        let (slot, _) = self.commands.position();
        let length = self.front_end.command_bytes().min(SLOT_BYTES);
        let iova = Iova(self.commands.rings.commands.wrapping_add(u64::from(slot) * length as u64));
        let mut bytes = [0; SLOT_BYTES];
        let origin = Origin::new(Class::CommandFetch, Cause::Command { slot });
        match host.port.read(origin, &[DmaRange::new(iova, length as u32)], &mut bytes[..length]) {
            Ok(Submitted::Ready) => {
                self.start_command(bytes, length);
                true
            }
            Ok(Submitted::Pending(tag)) => {
                self.commands.fetching = true;
                self.pending.insert(tag, Awaited::Command);
                false
            }
            Err(_) => {
                self.commands_out_of_reach(host);
                false
            }
        }
    }

    fn start_command(&mut self, bytes: [u8; SLOT_BYTES], length: usize) {
        let command = self.front_end.decode_command(&bytes[..length]);
        self.commands.running = Some(Running { bytes, command, progress: Progress::default() });
    }

    pub(crate) fn command_arrived(&mut self, host: &mut Host, bytes: Option<&[u8]>) {
        self.commands.fetching = false;
        let length = self.front_end.command_bytes().min(SLOT_BYTES);
        let mut slot = [0; SLOT_BYTES];
        match bytes.filter(|bytes| bytes.len() == length) {
            Some(bytes) => {
                slot[..length].copy_from_slice(bytes);
                self.start_command(slot, length);
                self.resume_commands(host);
            }
            None => self.commands_out_of_reach(host),
        }
    }

    /// The command rings are out of reach: nothing can be answered any more.
    fn commands_out_of_reach(&mut self, host: &mut Host) {
        self.diagnose(host.now_ns, Diagnostic::CommandFetchFault, 0, self.commands.consumer.into());
        self.stop_for_good(host, Diagnostic::CommandFetchFault);
    }

    fn answer_command(&mut self, host: &mut Host, command: &[u8; SLOT_BYTES], answer: &Result<Answer, CommandError>) {
        let (slot, phase) = self.commands.position();
        let length = self.front_end.command_bytes().min(SLOT_BYTES);
        let mut out = [0; SLOT_BYTES];
        self.front_end.encode_answer(slot, command, answer, phase, &mut out[..length]);
        let iova = Iova(self.commands.rings.completions.wrapping_add(u64::from(slot) * length as u64));
        let cause = Cause::Command { slot };
        let origin = Origin::new(Class::CommandCompletion, cause);
        self.commands.consumer = self.commands.consumer.wrapping_add(1);
        if host.port.write(origin, &[DmaRange::new(iova, length as u32)], &out[..length]).is_err() {
            return self.commands_out_of_reach(host);
        }
        if self.front_end.wants_event(&command[..length]) {
            self.async_event(host, EventRecord::Command { slot }, cause);
        }
    }

    fn execute_command(
        &mut self,
        host: &mut Host,
        command: &Command,
        slot: u16,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let cause = Cause::Command { slot };
        match command {
            Command::QueryDevice => Ok(self.query_device()),
            Command::SetTable { kind, log_entries, pages } => {
                self.set_table(host, *kind, *log_entries, pages, cause, progress)
            }
            Command::FlushCaches(flush) => self.flush_caches(host, *flush),
            Command::SetGid { index, entry } => self.set_gid(*index, *entry),
            Command::QueryCounters { group, first } => self.query_counters(host, *group, *first),
            Command::CreateEq(new) => self.create_eq(host, new, cause, progress),
            Command::DestroyEq(eqn) => self.destroy_eq(*eqn),
            Command::CreateCq(new) => self.create_cq(host, new, cause, progress),
            Command::DestroyCq(cqn) => self.destroy_cq(*cqn),
            Command::ModifyCq { cqn, moderation } => self.modify_cq(host, *cqn, *moderation, cause),
            Command::ResizeCq { cqn, log_entries, pages } => {
                self.resize_cq(host, *cqn, *log_entries, pages, cause, progress)
            }
            Command::CreateQp(new) => self.create_qp(host, new, cause, progress),
            Command::ModifyQp(change) => self.modify_qp(host, change, cause),
            Command::QueryQp(qpn) => self.query_qp(host, *qpn, cause),
            Command::DestroyQp(qpn) => self.destroy_qp(*qpn),
            Command::AttachMulticast { qpn, gid } => self.attach_multicast(*qpn, *gid),
            Command::DetachMulticast { qpn, gid } => self.detach_multicast(*qpn, *gid),
            Command::CreateSrq(new) => self.create_srq(host, new, cause, progress),
            Command::ModifySrq { srqn, limit } => self.modify_srq(host, *srqn, *limit, cause),
            Command::QuerySrq(srqn) => self.query_srq(host, *srqn, cause),
            Command::DestroySrq(srqn) => self.destroy_srq(*srqn),
            Command::RegisterKey(new) => self.register_key(host, new, cause, progress),
            Command::ReregisterKey(new, changes) => self.reregister_key(host, new, *changes, cause, progress),
            Command::AllocateKey { key, pdn, kind } => self.allocate_key(host, *key, *pdn, *kind),
            Command::DeregisterKey(key) => self.deregister_key(host, *key, cause, progress),
        }
    }
}
