//! `rnic guest`: a guest with a served adapter, for a person: a console on the terminal, or one command.
//!
//! In: the name of an adapter, and what differs from our own kernel and image. Out: the terminal joined to the guest's
//! serial console ([`console`], [`terminal`]), or a command's output and exit status ([`command`]). Whatever ends
//! this process ends the guest with it. [`reload`] is a guest with a kernel module that has just been built.

mod command;
mod console;
mod reload;
mod terminal;

use crate::connection;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::sockets;
use clap::{Args, Subcommand};
use rnic_ci::guest::AdapterFunction;
use rnic_ci::guest::workbench::{Workbench, WorkbenchSpec};
use rnic_ci::{Accelerator, GuestKernel, Lab, Options, StandardError};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Without options the guest is our own kernel and image, restored from a snapshot in half a second. --kernel, --append,
--memory, --share and QEMU's own arguments boot it from its beginning, which takes some seconds without KVM.

On the console Ctrl-] ends the guest; Ctrl-C, Ctrl-Z and the rest go to it. Leaving its shell (exit, Ctrl-D) and
`poweroff -f` end it, too. Standard input that is no terminal is typed in, and its end leaves the shell.

With --exec the command runs in a shell of the guest; its standard output comes here, its standard error (and the
kernel's messages) on standard error; its standard input is empty. With --initrd there is no --exec: the command is
carried out by rnic's own first program.

A kernel of your own needs CONFIG_SERIAL_8250_CONSOLE, CONFIG_BLK_DEV_INITRD and CONFIG_DEVTMPFS; for --exec and --send
CONFIG_VIRTIO_PCI and CONFIG_VIRTIO_CONSOLE; for --share CONFIG_9P_FS and CONFIG_NET_9P_VIRTIO, built in.

Examples:
  rnic guest                                                a console, adapter A attached
  rnic guest B                                              the same with adapter B
  rnic guest A --exec 'cat /sys/bus/pci/devices/*/vendor'
  rnic guest A --rdma --exec 'ibv_devinfo -v'
  rnic guest A --rdma --kernel-version 7.3
  rnic guest A --rdma --packages strace,gdb
  rnic guest A --send target/release/mydriver --exec mydriver
  rnic guest reload A                                       a kernel module, built anew from its source
  rnic guest A --kernel ~/linux/arch/x86/boot/bzImage --share ~/linux/out --exec 'insmod /share/rnic.ko && dmesg'
  rnic guest A --kernel bzImage --initrd root.cpio --append 'console=ttyS0 debug'
  rnic guest A -- -gdb tcp::1234                            more of QEMU's arguments

Exit: the command's own with --exec, and 125 if rnic failed before it ended; else 0 the guest ended; 2 usage;
3 no adapter of this name, no QEMU, or the guest failed; 4 it did not boot in time; 130 a signal."
)]
pub struct GuestOptions {
    #[command(subcommand)]
    subcommand: Option<GuestSubcommand>,
    #[command(flatten)]
    common: CommonOptions,
    /// Boot this kernel (bzImage, or an ELF image with a PVH note).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel_version", "rdma"])]
    kernel: Option<PathBuf>,
    /// Boot this initial file system instead of ours.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rdma", "packages", "share", "send", "exec"])]
    initrd: Option<PathBuf>,
    /// Our image with the kernel module, the rdma-core provider, ibverbs-utils and perftest inside; built when needed.
    #[arg(long)]
    rdma: bool,
    /// More kernel arguments.
    #[arg(long, value_name = "ARGUMENTS")]
    append: Option<String>,
    /// Memory of the guest: MiB, or with M or G behind [default: 256, and more where the image needs it].
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    memory: Option<u32>,
    /// A folder of this machine that the guest finds, writable, in /share (9p).
    #[arg(long, value_name = "FOLDER")]
    share: Option<PathBuf>,
    /// Seconds that the guest may take to boot.
    #[arg(long, value_name = "SECONDS", default_value_t = BOOT_LIMIT_S, value_parser = clap::value_parser!(u32).range(1..=86400))]
    boot_limit: u32,
    /// More of QEMU's command line.
    #[arg(last = true, value_name = "QEMU-ARGS")]
    qemu_arguments: Vec<OsString>,
}

/// What a guest with our image has, and one with a module that has just been built as well.
#[derive(Debug, Clone, Args)]
pub struct CommonOptions {
    /// Name of a served adapter, or path of its socket.
    #[arg(default_value = "A")]
    adapter: String,
    /// The kernel of our image: Debian trixie's, that of its backports, or one that looks for faults (built the first time).
    #[arg(long, value_name = "6.12|7.3|6.12-debug", default_value = "6.12")]
    kernel_version: GuestKernel,
    /// Debian packages that our image has as well, with all that they depend on; unpacked, their scripts do not run.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    packages: Vec<String>,
    /// Put this file into the guest as /payload/NAME, executable and on its PATH; repeat for more.
    #[arg(long, value_name = "FILE")]
    send: Vec<PathBuf>,
    /// Run this shell command in the guest, and end with its exit status.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    #[arg(long, value_name = "auto|tcg|kvm", default_value = "auto")]
    accel: Accelerator,
    /// Use this QEMU [default: the one on PATH if it will do, else Debian's package].
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
    /// Fetch nothing.
    #[arg(long)]
    offline: bool,
    /// Folder of the sockets [default: $XDG_RUNTIME_DIR/rnic].
    #[arg(long)]
    folder: Option<PathBuf>,
}

const BOOT_LIMIT_S: u32 = 180;

#[derive(Debug, Subcommand)]
enum GuestSubcommand {
    /// Build a kernel module from its changed source, and start a guest in which it has the adapter.
    Reload(Box<reload::ReloadOptions>),
}

fn mebibytes(text: &str) -> Result<u32, String> {
    const ALLOWED: std::ops::RangeInclusive<u32> = 128..=65536;
    let (digits, unit) = match text.strip_suffix(['G', 'g']) {
        Some(digits) => (digits, 1024),
        None => (text.strip_suffix(['M', 'm']).unwrap_or(text), 1),
    };
    let size = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| ALLOWED.contains(size))
        .ok_or_else(|| format!("{text:?} is no size from 128M to 64G: give MiB, or for example 512M or 2G"))
}

/// How it ends before the guest does.
enum Failure {
    Usage(String),
    Environment(String),
    TimeLimit(String),
    /// A signal has asked for the end.
    Signal,
    /// A module that does not build, or does not get hold of its adapter.
    Module(String),
}

impl From<rnic_ci::Error> for Failure {
    fn from(error: rnic_ci::Error) -> Self {
        match error {
            rnic_ci::Error::ModuleBuild { .. } | rnic_ci::Error::ModuleLoad { .. } => Self::Module(error.to_string()),
            error => Self::Environment(error.to_string()),
        }
    }
}

pub fn run(options: &GuestOptions) -> Exit {
    match &options.subcommand {
        Some(GuestSubcommand::Reload(reload)) => exit_of(start(&reload.guest(), Some(reload)), &reload.common.exec),
        None => exit_of(start(options, None), &options.common.exec),
    }
}

fn exit_of(ended: Result<Exit, Failure>, exec: &Option<String>) -> Exit {
    let failure = match ended {
        Ok(exit) => return exit,
        Err(failure) => failure,
    };
    let (message, exit) = match failure {
        Failure::Usage(message) => (message, Exit::Usage),
        Failure::Environment(message) => (message, Exit::Environment),
        Failure::TimeLimit(message) => (message, Exit::TimeLimit),
        Failure::Signal => ("ended by a signal".into(), Exit::Signal),
        Failure::Module(message) => (message, Exit::Mismatch),
    };
    tell!("rnic guest: {message}");
    // A number of ours must not be taken for the command's.
    match (exec.is_some(), exit) {
        (true, Exit::Environment | Exit::TimeLimit | Exit::Mismatch) => Exit::NotTheCommands,
        (_, exit) => exit,
    }
}

fn start(options: &GuestOptions, reload: Option<&reload::ReloadOptions>) -> Result<Exit, Failure> {
    let begin = Instant::now();
    let mut spec = spec(options)?;
    let signals = Signals::watch().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let usual = Options::from_environment();
    let laboratory = Options {
        qemu: options.common.qemu.clone().or(usual.qemu.clone()),
        offline: options.common.offline,
        accelerator: options.common.accel,
        kernel: options.common.kernel_version,
        packages: options.common.packages.clone(),
        ..usual
    };
    let prepare = if options.rdma { Lab::prepare_rdma } else { Lab::prepare };
    let lab = prepare(&laboratory, &mut StandardError)?;
    spec.module = reload.map(|reload| reload.build(&lab)).transpose()?;
    let mut bench = lab.workbench(&spec)?;
    if let Some(module) = &spec.module {
        reload::await_driver(&mut bench, module, options.common.exec.is_some(), begin)?;
    }
    let limit = Duration::from_secs(options.boot_limit.into());
    let ended = match &options.common.exec {
        Some(line) => command::run(&mut bench, &options.common.send, line, limit, &signals),
        None => console::run(&mut bench, &options.common.send, &spec, &signals),
    };
    // What a person ended, or what ended as it should, leaves no logs behind.
    if ended.is_ok() || matches!(ended, Err(Failure::Signal)) {
        lab.run_folder().drop_logs();
    }
    ended
}

/// The guest, with everything that can be wrong about it said before anything is started.
fn spec(options: &GuestOptions) -> Result<WorkbenchSpec, Failure> {
    let folder = options.common.folder.clone().unwrap_or_else(sockets::default_folder);
    let adapter = sockets::find(&options.common.adapter, &folder).map_err(Failure::Environment)?;
    if !sockets::is_listened_on(&adapter.socket) {
        let socket = adapter.socket.display();
        return Err(Failure::Environment(format!("nobody listens on {socket}: start `rnic serve`")));
    }
    if stays_taken(&adapter.socket, &folder) {
        let name = &adapter.name;
        return Err(Failure::Environment(format!(
            "a guest is attached to adapter {name} already, and it takes one at a time (see `rnic list`): end that one, or \
             choose another adapter"
        )));
    }
    if options.common.exec.as_ref().is_some_and(|line| line.contains('\n')) {
        return Err(Failure::Usage("--exec takes one line: send a script with --send, or share its folder".into()));
    }
    if options.append.as_ref().is_some_and(|append| append.len() > 1500) {
        return Err(Failure::Usage("--append is longer than a kernel takes (about 2,000 characters in all)".into()));
    }
    if let Some(kernel) = &options.kernel {
        check_kernel(kernel).map_err(Failure::Environment)?;
    }
    for file in options.initrd.iter().chain(&options.common.send) {
        File::open(file).map_err(|error| Failure::Environment(format!("{}: {error}", file.display())))?;
    }
    let share = options.share.as_deref().map(shared).transpose().map_err(Failure::Environment)?;
    Ok(WorkbenchSpec {
        name: format!("guest-{}", adapter.name),
        // A server that is stopped in a debugger must not lose the device.
        adapter: adapter
            .functions()
            .into_iter()
            .map(|socket| AdapterFunction {
                socket: socket.to_path_buf(),
                message_timeout_ms: crate::qemu_args::MESSAGE_TIMEOUT_MS,
            })
            .collect(),
        kernel: options.kernel.clone(),
        initial_file_system: options.initrd.clone(),
        append: options.append.clone(),
        memory_mib: options.memory,
        commands: options.common.exec.is_some(),
        share,
        extra_arguments: options.qemu_arguments.clone(),
        module: None,
    })
}

/// A guest that has just ended is still attached for a moment.
fn stays_taken(socket: &Path, folder: &Path) -> bool {
    const PATIENCE: Duration = Duration::from_secs(1);
    let asked = Instant::now();
    while is_taken(socket, folder) {
        if asked.elapsed() > PATIENCE {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A server of the folder says that somebody is attached. Who cannot be asked is left to QEMU.
fn is_taken(socket: &Path, folder: &Path) -> bool {
    let names = connection::names(folder).unwrap_or_default();
    names.iter().any(|name| match connection::find(folder, name) {
        connection::Found::Running(server) => {
            let same = |path: &Path| path.canonicalize().ok() == socket.canonicalize().ok();
            server.server.adapters.iter().any(|adapter| same(&adapter.socket) && adapter.attached == Some(true))
        }
        _ => false,
    })
}

fn shared(folder: &Path) -> Result<PathBuf, String> {
    let folder = folder.canonicalize().map_err(|error| format!("--share {}: {error}", folder.display()))?;
    if !folder.is_dir() {
        return Err(format!("--share {}: it is no folder", folder.display()));
    }
    Ok(folder)
}

/// QEMU says little about a file that is no kernel.
fn check_kernel(path: &Path) -> Result<(), String> {
    const BOOT_MAGIC_AT: usize = 0x202;
    let mut head = [0u8; BOOT_MAGIC_AT + 4];
    let mut file = File::open(path).map_err(|error| format!("--kernel {}: {error}", path.display()))?;
    let is_whole = file.read_exact(&mut head).is_ok();
    if is_whole && (head[BOOT_MAGIC_AT..] == *b"HdrS" || head.starts_with(b"\x7fELF")) {
        return Ok(());
    }
    Err(format!("--kernel {}: it is neither a bzImage nor an ELF image", path.display()))
}

/// Waits until the guest takes commands, and sends it the files.
fn await_ready(
    bench: &mut Workbench,
    files: &[PathBuf],
    mut moment: impl FnMut(&mut Workbench) -> Result<(), Failure>,
) -> Result<(), Failure> {
    const MOMENT: Duration = Duration::from_millis(20);
    const SEND_LIMIT: Duration = Duration::from_secs(120);
    while !bench.poll_ready(MOMENT)? {
        moment(bench)?;
    }
    files.iter().try_for_each(|file| bench.send(file, SEND_LIMIT).map(drop))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_in_mebibytes_or_with_its_unit() {
        assert_eq!(["256", "512M", "2G", "2g"].map(mebibytes), [Ok(256), Ok(512), Ok(2048), Ok(2048)]);
        for wrong in ["", "M", "127", "65G", "1T", "-1", "4194304G"] {
            assert!(mebibytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_no_kernel_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("k");
        assert!(check_kernel(&path).is_err_and(|error| error.contains("No such file")));
        std::fs::write(&path, b"short").expect("written");
        assert!(check_kernel(&path).is_err_and(|error| error.contains("neither")));
        let mut image = vec![0; 0x300];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        std::fs::write(&path, &image).expect("written");
        assert_eq!(check_kernel(&path), Ok(()));
        assert!(shared(&path).is_err_and(|error| error.contains("no folder")));
    }
}
