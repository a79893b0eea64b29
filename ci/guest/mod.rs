//! Guests: started from a snapshot in a fraction of a second, or from their beginning, with an adapter that somebody
//! serves over vfio-user.
//!
//! In: a [`GuestSpec`]. Out: a [`Guest`], which takes a program, runs it and carries its conversation. [`machine`] is
//! QEMU's command line, [`accelerator`] proves KVM, [`snapshot`] saves and restores, [`control`] and [`exchange`] are
//! the two connections into the guest; [`workbench`] is a guest for a person at a terminal.

pub mod accelerator;
pub mod control;
pub mod exchange;
pub mod machine;
pub mod snapshot;
mod start;
pub mod workbench;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::image::Image;
use crate::qemu::qmp::Qmp;
use crate::qemu::trace::Trace;
use crate::qemu::{Qemu, RunFolder, Running};
use crate::{Error, Result};
use control::Control;
use exchange::Exchange;
pub use start::{boot, restore};

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceleration {
    Tcg,
    Kvm,
}

/// How the adapter's server reaches the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestMemory {
    /// QEMU sends a descriptor for the memory: the server maps it.
    #[default]
    Shared,
    /// QEMU sends a descriptor of a private mapping, in which the server sees stale zeros: a fault to be detected.
    PrivateDescriptor,
    /// QEMU sends no descriptor: every access of the server is a message, which QEMU's trace can count.
    Messages,
}

/// One PCI function of the adapter: where its vfio-user server listens.
#[derive(Debug, Clone)]
pub struct AdapterFunction {
    pub socket: PathBuf,
    /// How long QEMU waits for each reply. QEMU's own 5 s make a device dead for good when a debugger stops the server.
    pub message_timeout_ms: u32,
}

impl AdapterFunction {
    pub fn new(socket: impl Into<PathBuf>) -> AdapterFunction {
        AdapterFunction { socket: socket.into(), message_timeout_ms: 60_000 }
    }
}

/// What a guest is to be.
#[derive(Debug, Clone, Default)]
pub struct GuestSpec {
    /// Names the guest's log files and stands in errors.
    pub name: String,
    /// The adapter's functions, function 0 first; empty: no adapter.
    pub adapter: Vec<AdapterFunction>,
    /// Boot from the beginning with the adapter present, instead of a restore followed by hot-plug.
    pub cold_boot: bool,
    pub memory: GuestMemory,
    /// Let QEMU write a trace of its vfio-user client: [`Guest::trace`].
    pub trace: bool,
    /// More of QEMU's command line. A device given here changes the machine, which then can only be booted cold.
    pub extra_arguments: Vec<OsString>,
}

impl GuestSpec {
    /// A guest with a one-function adapter.
    pub fn new(name: &str, adapter_socket: &Path) -> GuestSpec {
        GuestSpec { name: name.to_owned(), adapter: vec![AdapterFunction::new(adapter_socket)], ..GuestSpec::default() }
    }

    /// A guest without an adapter.
    pub fn without_adapter(name: &str) -> GuestSpec {
        GuestSpec { name: name.to_owned(), ..GuestSpec::default() }
    }
}

/// What guests are made from.
#[derive(Debug)]
pub struct Host {
    pub qemu: Qemu,
    pub image: Image,
    pub run_folder: Arc<RunFolder>,
}

/// A running guest; its QEMU is killed when it is dropped.
#[derive(Debug)]
pub struct Guest {
    running: Running,
    control: Control,
    exchange: Exchange,
    serial_log: PathBuf,
    trace: Option<Trace>,
}

/// A megabyte takes far below a second; the limit is for machines that are busy with other guests.
const PAYLOAD_LIMIT: Duration = Duration::from_secs(60);
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

impl Guest {
    /// Sends a statically linked program, or any file, and returns its path in the guest: `/payload/<file name>`.
    pub fn send_payload(&mut self, path: &Path) -> Result<String> {
        let guest_path = payload_path(path)?;
        let deadline = self.deadline(format!("sending {}", path.display()), PAYLOAD_LIMIT);
        self.control.send_payload(path, &guest_path, &deadline).map_err(|error| self.running.explain(error))?;
        Ok(guest_path)
    }

    /// Starts a shell command whose input and output are the [exchange](Guest::exchange); its standard error goes to
    /// the serial log. One command runs at a time: [`Guest::wait_exit`] comes before the next.
    pub fn run(&mut self, command: &str) -> Result<()> {
        let deadline = self.deadline(format!("starting {command}"), COMMAND_LIMIT);
        self.control.run(command, &deadline).map_err(|error| self.running.explain(error))
    }

    /// The running program's input and output.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Waits for the end of the command that [`Guest::run`] started, and returns its exit status.
    pub fn wait_exit(&mut self, limit: Duration) -> Result<i32> {
        let deadline = self.deadline("waiting for the program's end".into(), limit);
        self.control.await_exit(&deadline).map_err(|error| self.running.explain(error))
    }

    /// Runs a shell command to its end and returns its exit status and what it printed.
    pub fn shell(&mut self, command: &str, limit: Duration) -> Result<(i32, Vec<u8>)> {
        let deadline = self.deadline(format!("running {command}"), limit);
        let done = run_shell(&mut self.control, &self.exchange, command, &deadline);
        done.map_err(|error| self.running.explain(error))
    }

    /// Asks the guest to switch itself off, and waits for QEMU's end.
    pub fn power_off(&mut self, limit: Duration) -> Result<()> {
        let deadline = self.deadline("switching off".into(), limit);
        self.control.power_off(&deadline).map_err(|error| self.running.explain(error))?;
        self.running.wait(&deadline).map(|_| ())
    }

    /// Restarts the guest from its firmware on, the adapter staying where it is, and waits until it takes commands.
    /// A guest that was restored has no kernel to start, so it must have been booted cold.
    pub fn reboot(&mut self, limit: Duration) -> Result<()> {
        let deadline = self.deadline("starting again".into(), limit);
        // The command line says that a reboot is the end.
        self.running.qmp().execute("set-action", serde_json::json!({ "reboot": "reset" }))?;
        let rebooted = self.control.run("reboot -f", &deadline).and_then(|()| self.control.await_ready(&deadline));
        rebooted.map_err(|error| self.running.explain(error))
    }

    pub fn qmp(&mut self) -> &mut Qmp {
        self.running.qmp()
    }

    pub fn name(&self) -> &str {
        self.running.name()
    }

    /// The guest's console: kernel messages, and what programs print to standard error.
    pub fn serial_log(&self) -> &Path {
        &self.serial_log
    }

    /// QEMU's own account of its vfio-user client, if the spec asked for it.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// QEMU's end, if it ended.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.running.ended()
    }

    pub fn process_id(&self) -> u32 {
        self.running.process_id()
    }

    pub fn kill(&mut self) {
        self.running.kill();
    }

    fn deadline(&self, step: String, limit: Duration) -> Deadline {
        Deadline::new(format!("guest {}: {step}", self.running.name()), limit)
    }
}

/// Runs a shell command to its end; its exit status, and what it printed.
fn run_shell(control: &mut Control, exchange: &Exchange, command: &str, deadline: &Deadline) -> Result<(i32, Vec<u8>)> {
    control.run(&format!("( {command} ); code=$?; printf '\\004rnic: end\\n'; exit $code"), deadline)?;
    let mut printed = Vec::new();
    // The program blocks once nobody reads, so both connections are served.
    let status = loop {
        drain(exchange, &mut printed);
        let moment = Deadline::new("waiting for a moment", deadline.remaining()?.min(Duration::from_millis(5)));
        match control.await_exit(&moment) {
            Ok(status) => break status,
            Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error),
        }
    };
    // The exit status may overtake what was printed: they come over two connections.
    let patience = Deadline::new("the last output", Duration::from_secs(2));
    let mut end = take_end(&mut printed);
    while !end && patience.remaining().is_ok() {
        drain(exchange, &mut printed);
        end = take_end(&mut printed);
        std::thread::sleep(Duration::from_millis(u64::from(!end)));
    }
    Ok((status, printed))
}

/// Where a file that is sent lies in the guest.
fn payload_path(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte));
    if is_plain {
        return Ok(format!("/payload/{name}"));
    }
    let reason = "its name has characters that a shell would read".into();
    Err(Error::Image { path: path.display().to_string(), reason })
}

/// Takes the mark away that follows a shell command's output. False if it has not come.
fn take_end(printed: &mut Vec<u8>) -> bool {
    const END: &[u8] = b"\x04rnic: end\n";
    let at = printed.windows(END.len()).rposition(|bytes| bytes == END);
    at.map(|at| printed.drain(at..at + END.len())).is_some()
}

/// Takes what is there, without waiting for more; an error shows on the control connection too.
fn drain(exchange: &Exchange, printed: &mut Vec<u8>) {
    const KEPT_BYTES: usize = 64 << 20;
    let mut bytes = [0u8; 16 << 10];
    while let Ok((count, _)) = rustix::net::recv(exchange.stream(), &mut bytes[..], rustix::net::RecvFlags::DONTWAIT) {
        if count == 0 {
            return;
        }
        let room = KEPT_BYTES.saturating_sub(printed.len()).min(count);
        printed.extend_from_slice(&bytes[..room]);
    }
}
