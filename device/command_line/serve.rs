//! `rnic serve`: adapters on one switch, until a signal.

use crate::exit::Exit;
use crate::signals::Signals;
use crate::sockets;
use clap::Args;
use rnic_device::server::{Server, adapter_options};
use rnic_switch::{CaptureOptions, SwitchConfig};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rnic serve\n  rnic serve A B C --capture wire.pcapng")]
pub struct ServeOptions {
    /// Names of the adapters.
    #[arg(default_values = ["A", "B"])]
    adapters: Vec<String>,
    /// Folder for the sockets [default: $XDG_RUNTIME_DIR/rnic].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Write every frame on the switch to this file as pcapng (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

pub fn run(options: &ServeOptions) -> Exit {
    if let Err(message) = check_names(&options.adapters) {
        eprintln!("rnic serve: {message}");
        return Exit::Usage;
    }
    match serve(options) {
        Ok(()) => Exit::Success,
        Err(message) => {
            eprintln!("rnic serve: {message}");
            Exit::Environment
        }
    }
}

/// A name becomes a file name and stands in command lines: plain characters, short, and each once.
fn check_names(names: &[String]) -> Result<(), String> {
    const LONGEST: usize = 32;
    for (at, name) in names.iter().enumerate() {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if name.is_empty() || name.len() > LONGEST || !plain || name.starts_with('.') {
            return Err(format!(
                "{name:?} is no name for an adapter: 1 to {LONGEST} letters, digits, '.', '_' or '-', no '.' in front"
            ));
        }
        if names[..at].contains(name) {
            return Err(format!("two adapters have the name {name:?}"));
        }
    }
    Ok(())
}

fn serve(options: &ServeOptions) -> Result<(), String> {
    let signals = Signals::watch().map_err(|error| format!("signals cannot be watched: {error}"))?;
    let folder = options.folder.clone().unwrap_or_else(sockets::default_folder);
    sockets::make_folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // What is printed is pasted elsewhere: the sockets' paths must hold there too.
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let adapters = options.adapters.iter().map(|name| adapter_options(name, &folder)).collect();
    let server = Server::start(adapters, SwitchConfig::default()).map_err(|error| error.to_string())?;
    if let Some(path) = &options.capture {
        start_capture(&server, path)?;
    }
    print_adapters(&server, options.capture.as_deref() == Some(Path::new("-")))?;
    signals.wait();
    match &options.capture {
        Some(path) => finish_capture(&server, path),
        None => Ok(()),
    }
}

/// Where a capture goes: a file, a pipe, or standard output.
pub fn open_sink(path: &Path) -> Result<Box<dyn Write + Send>, String> {
    Ok(match path.to_str() {
        Some("-") => Box::new(io::stdout()),
        _ => Box::new(File::create(path).map_err(|error| format!("capture to {}: {error}", path.display()))?),
    })
}

fn start_capture(server: &Server, path: &Path) -> Result<(), String> {
    let started = server.switch.capture().start(open_sink(path)?, CaptureOptions::default());
    started.map_err(|error| format!("capture to {}: {error}", path.display()))
}

/// Writes what is left of a capture; an error names the file.
pub fn finish_capture(server: &Server, path: &Path) -> Result<(), String> {
    let flushed = server.switch.capture().flush();
    flushed.map_err(|error| format!("capture to {}: {error}", path.display()))
}

/// What to paste into a QEMU command line; on standard error when standard output carries the capture.
fn print_adapters(server: &Server, to_stderr: bool) -> Result<(), String> {
    let mut text = String::new();
    for adapter in &server.adapters {
        let mac = rnic_device::server::mac_of(adapter.name()).map(|byte| format!("{byte:02x}")).join(":");
        text += &format!("adapter {}  MAC {mac}  socket {}\n", adapter.name(), adapter.socket().display());
        text += &format!(
            "  -device '{{\"driver\":\"vfio-user-pci\",\"bus\":\"rp0\",\"rombar\":0,\"x-msg-timeout\":60000,\"socket\":{{\"type\":\"unix\",\"path\":\"{}\"}}}}'\n",
            adapter.socket().display()
        );
    }
    text += "with -machine q35,memory-backend=m0 -object memory-backend-memfd,id=m0,size=2G,share=on -m 2G\n";
    text += "     -device pcie-root-port,id=rp0,chassis=1,slot=1\n";
    if to_stderr {
        eprint!("{text}");
        return Ok(());
    }
    let mut out = io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("standard output: {error}"))
}
