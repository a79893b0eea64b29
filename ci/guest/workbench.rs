//! A guest for a person: a console on a socket, one command with its exit status, or both, with an adapter that somebody
//! serves.
//!
//! Our own kernel and image are restored from the snapshot, which takes a fraction of a second, as long as nothing is
//! asked for that changes the machine; everything else is booted from its beginning. The image's first program (see
//! `image/init`) takes the commands; whoever brings an initial file system of their own has the console alone.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::control::Control;
use super::exchange::Exchange;
use super::machine::{self, Connections, Serial};
use super::{Acceleration, AdapterFunction, GuestMemory, Host, snapshot, start};
use crate::deadline::Deadline;
use crate::qemu::{Awaited, Running};
use crate::{Error, Result};

/// What the guest is made of; what is not named is ours.
#[derive(Debug, Clone, Default)]
pub struct WorkbenchSpec {
    pub name: String,
    /// The adapter's functions, function 0 first.
    pub adapter: Vec<AdapterFunction>,
    pub kernel: Option<PathBuf>,
    pub initial_file_system: Option<PathBuf>,
    /// More kernel arguments.
    pub append: Option<String>,
    pub memory_mib: Option<u32>,
    /// Commands will be given: a kernel in which they cannot be taken is to end, instead of offering a shell.
    pub commands: bool,
    /// A folder of this machine that the guest finds in `/share`.
    pub share: Option<PathBuf>,
    /// More of QEMU's command line.
    pub extra_arguments: Vec<OsString>,
    /// A kernel module that is loaded, in place of the image's `rnic`, before the adapter is plugged in.
    pub module: Option<PathBuf>,
}

impl WorkbenchSpec {
    /// Nothing in it changes the machine that the snapshot was made of.
    pub fn can_be_restored(&self) -> bool {
        let WorkbenchSpec { kernel, initial_file_system, append, memory_mib, share, extra_arguments, .. } = self;
        kernel.is_none()
            && initial_file_system.is_none()
            && append.is_none()
            && memory_mib.is_none()
            && share.is_none()
            && extra_arguments.is_empty()
    }

    /// Our first program runs in it and takes commands.
    pub fn takes_commands(&self) -> bool {
        self.initial_file_system.is_none()
    }
}

/// The running guest; its QEMU is killed when this is dropped.
#[derive(Debug)]
pub struct Workbench {
    running: Running,
    console: UnixStream,
    control: Control,
    exchange: Exchange,
    is_ready: bool,
    share: bool,
}

const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// How 9p is mounted, and what the kernel of our image loads for it, in the order of its dependencies.
const MOUNT_SHARE: &str = "for m in netfs 9pnet 9pnet_virtio 9p; do xzcat /lib/modules/$m.ko.xz >/tmp/$m.ko 2>/dev/null && insmod /tmp/$m.ko 2>/dev/null; rm -f /tmp/$m.ko; done; \
    mkdir -p /share && mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 rnic-share /share";

/// Up to ten seconds for the kernel to find function 0 behind the root port.
const AWAIT_ADAPTER: &str =
    "i=0; until [ -e /sys/bus/pci/devices/0000:01:00.0 ]; do i=$((i+1)); [ $i -gt 100 ] && exit 1; sleep 0.1; done";

/// Some seconds for a driver to take function 0. Its link is there while it probes; writing 0 to `enable`, which is refused with a
/// driver and does nothing without, waits for the end of that.
const AWAIT_DRIVER: &str = "cd /sys/bus/pci/devices/0000:01:00.0; i=0; \
    until [ -e driver ] && { echo 0 >enable; [ -e driver ]; } 2>/dev/null; do \
    i=$((i+1)); [ $i -gt 100 ] && { dmesg | tail -n 20; exit 1; }; usleep 20000; done; \
    basename \"$(ls -l driver | sed 's/.*-> //')\"";

impl Workbench {
    /// Starts QEMU and plugs the adapter in. A guest that is booted has not necessarily executed anything.
    pub fn start(host: &Host, acceleration: Acceleration, spec: &WorkbenchSpec, saved: &Path) -> Result<Workbench> {
        let run_folder = &host.run_folder;
        let listen = |name| Awaited::listen(run_folder, name);
        let (console, control, exchange) = (listen("console")?, listen("control")?, listen("exchange")?);
        let connections =
            Connections { control: control.path(), exchange: exchange.path(), serial: Serial::Socket(console.path()) };
        let memory_mib = spec.memory_mib.unwrap_or(host.image.memory_mib);
        let mut arguments = machine::arguments(acceleration, GuestMemory::Shared, memory_mib, &connections);
        let restored = spec.can_be_restored();
        arguments.extend(if restored { vec!["-incoming".into(), "defer".into()] } else { boot_arguments(host, spec) });
        let mut running = host.qemu.start(&spec.name, run_folder, &arguments)?;
        let deadline = Deadline::new(format!("QEMU of guest {} connects its ports", spec.name), CONNECT_LIMIT);
        let console = running.accept(&console, &deadline)?;
        let control = Control::new(running.accept(&control, &deadline)?);
        let exchange = Exchange::new(running.accept(&exchange, &deadline)?);
        if restored {
            snapshot::load(running.qmp(), saved).map_err(|error| running.explain(error))?;
        }
        let share = spec.share.is_some();
        let mut workbench = Workbench { running, console, control, exchange, is_ready: restored, share };
        if restored {
            spec.module.as_deref().map_or(Ok(()), |module| workbench.load_module(module))?;
            let plugged = start::plug_in(&mut workbench.running, &spec.adapter);
            plugged.map_err(|error| workbench.running.explain(error))?;
            workbench.await_adapter()?;
        }
        Ok(workbench)
    }

    /// The restored guest's kernel finds out by itself that the slot is not empty any more.
    fn await_adapter(&mut self) -> Result<()> {
        match self.run_to_end(AWAIT_ADAPTER, "waiting for the adapter to appear in the guest")? {
            0 => Ok(()),
            status => Err(Error::GuestAnswer {
                step: "the adapter that was plugged in appeared on its bus".into(),
                answer: format!("status {status}"),
            }),
        }
    }

    /// Loads it in place of ours, while there is no device yet.
    fn load_module(&mut self, module: &Path) -> Result<()> {
        let place = self.send(module, COMMAND_LIMIT)?;
        // What insmod says is one word of the kernel's log.
        let load = format!("rmmod rnic; dmesg -c >/dev/null; insmod {place} 2>&1 || {{ dmesg | tail -n 20; false; }}");
        match self.shell(&load, "loading the module")? {
            (0, _) => Ok(()),
            (_, lines) => Err(Error::ModuleLoad { module: module.display().to_string(), lines }),
        }
    }

    /// The driver that has function 0, waiting a moment for one; and if there is none the kernel's latest words.
    pub fn driver(&mut self) -> Result<std::result::Result<String, String>> {
        match self.shell(AWAIT_DRIVER, "waiting for a driver")? {
            (0, name) => Ok(Ok(name)),
            (_, log) => Ok(Err(log)),
        }
    }

    fn shell(&mut self, command: &str, what: &str) -> Result<(i32, String)> {
        let deadline = self.deadline(what.into(), COMMAND_LIMIT);
        let done = super::run_shell(&mut self.control, &self.exchange, command, &deadline);
        let (status, printed) = done.map_err(|error| self.running.explain(error))?;
        Ok((status, String::from_utf8_lossy(&printed).trim_end().to_owned()))
    }

    /// The serial console.
    pub fn console(&self) -> &UnixStream {
        &self.console
    }

    /// The running command's standard output.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Whether the guest takes commands; waits a moment for it. What is shared is mounted then.
    pub fn poll_ready(&mut self, moment: Duration) -> Result<bool> {
        if self.is_ready {
            return Ok(true);
        }
        match self.control.await_ready(&Deadline::new("waiting for a moment", moment)) {
            Ok(()) => self.is_ready = true,
            Err(Error::Timeout { .. }) => return Ok(false),
            Err(error) => return Err(self.running.explain(error)),
        }
        if self.share {
            let status = self.run_to_end(MOUNT_SHARE, "mounting the shared folder")?;
            if status != 0 {
                return Err(Error::GuestAnswer {
                    step: "the shared folder was mounted (9p over virtio, which its kernel needs)".into(),
                    answer: format!("status {status}"),
                });
            }
        }
        Ok(true)
    }

    /// Stores a file in the guest as an executable, and returns its path there.
    pub fn send(&mut self, path: &Path, limit: Duration) -> Result<String> {
        let guest_path = super::payload_path(path)?;
        let deadline = self.deadline(format!("sending {}", path.display()), limit);
        self.control.send_payload(path, &guest_path, &deadline).map_err(|error| self.running.explain(error))?;
        Ok(guest_path)
    }

    /// Starts a command; [`Workbench::exit_status`] tells of its end.
    pub fn run(&mut self, command: &str) -> Result<()> {
        let deadline = self.deadline(format!("starting {command}"), COMMAND_LIMIT);
        self.control.run(command, &deadline).map_err(|error| self.running.explain(error))
    }

    /// The command's exit status, if it ended within `moment`.
    pub fn exit_status(&mut self, moment: Duration) -> Result<Option<i32>> {
        match self.control.await_exit(&Deadline::new("waiting for a moment", moment)) {
            Ok(status) => Ok(Some(status)),
            Err(Error::Timeout { .. }) => Ok(None),
            Err(error) => Err(self.running.explain(error)),
        }
    }

    fn run_to_end(&mut self, command: &str, what: &str) -> Result<i32> {
        self.run(command)?;
        let deadline = self.deadline(what.into(), COMMAND_LIMIT);
        self.control.await_exit(&deadline).map_err(|error| self.running.explain(error))
    }

    /// How QEMU ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.running.ended()
    }

    /// The file with what QEMU printed to its standard error.
    pub fn standard_error(&self) -> &Path {
        self.running.standard_error()
    }

    fn deadline(&self, step: String, limit: Duration) -> Deadline {
        Deadline::new(format!("guest {}: {step}", self.running.name()), limit)
    }
}

/// Kernel, initial file system, the adapter present from the beginning, and what else was asked for.
fn boot_arguments(host: &Host, spec: &WorkbenchSpec) -> Vec<OsString> {
    let kernel = spec.kernel.as_ref().unwrap_or(&host.image.kernel);
    let initial = spec.initial_file_system.as_ref().unwrap_or(&host.image.initial_file_system);
    // Whoever brings a kernel of their own gets its own choices, but for the console and the end.
    let mut append =
        if spec.kernel.is_none() { machine::KERNEL_ARGUMENTS } else { "console=ttyS0 panic=-1" }.to_owned();
    if spec.commands {
        append += " rnic.commands";
    }
    if let Some(more) = &spec.append {
        append = format!("{append} {more}");
    }
    let mut arguments: Vec<OsString> =
        vec!["-kernel".into(), kernel.into(), "-initrd".into(), initial.into(), "-append".into(), append.into()];
    for (number, function) in spec.adapter.iter().enumerate() {
        let device = machine::adapter_device(number, function, spec.adapter.len());
        arguments.extend(["-device".into(), device.to_string().into()]);
    }
    if let Some(folder) = &spec.share {
        let path = machine::escaped(folder);
        arguments.extend(["-fsdev".into(), format!("local,id=share,path={path},security_model=none").into()]);
        arguments.extend(["-device".into(), "virtio-9p-pci,fsdev=share,mount_tag=rnic-share".into()]);
    }
    arguments.extend_from_slice(&spec.extra_arguments);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_unchanged_machine_is_restored() {
        let plain = WorkbenchSpec { name: "x".into(), ..WorkbenchSpec::default() };
        assert!(plain.can_be_restored() && plain.takes_commands());
        for changed in [
            WorkbenchSpec { kernel: Some("k".into()), ..plain.clone() },
            WorkbenchSpec { append: Some("a".into()), ..plain.clone() },
            WorkbenchSpec { memory_mib: Some(512), ..plain.clone() },
            WorkbenchSpec { share: Some("/s".into()), ..plain.clone() },
            WorkbenchSpec { extra_arguments: vec!["-s".into()], ..plain.clone() },
        ] {
            assert!(!changed.can_be_restored() && changed.takes_commands(), "{changed:?}");
        }
        let own = WorkbenchSpec { initial_file_system: Some("i".into()), ..plain };
        assert!(!own.can_be_restored() && !own.takes_commands());
    }
}
