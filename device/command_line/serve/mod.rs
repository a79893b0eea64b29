//! `rnic serve`: adapters on one switch, until a signal.
//!
//! In: [`options`] and a TOML [`file`], both made of [`values`]. Out: a [`configuration`], served, and [`report`]ed with
//! what to paste into a QEMU command line.

mod configuration;
mod conflicts;
mod congestion;
mod file;
mod options;
mod report;
mod values;

use crate::exit::Exit;
use crate::signals::Endings;
use crate::sockets;
use crate::supervise::{self, Supervision};
use configuration::Configuration;
pub use options::ServeOptions;
use rnic_device::server::Server;
use std::io::{self, Write};
use std::path::Path;

/// How it fails: a mistake of whoever configured it, or something that is missing.
enum Failure {
    Mistake(String),
    Environment(String),
}

pub fn run(options: &ServeOptions) -> Exit {
    let (message, exit) = match start(options) {
        Ok(()) => return Exit::Success,
        Err(Failure::Mistake(message)) => (message, Exit::Usage),
        Err(Failure::Environment(message)) => (message, Exit::Environment),
    };
    tell!("rnic serve: {message}");
    exit
}

fn start(options: &ServeOptions) -> Result<(), Failure> {
    let mut configuration = match &options.config {
        Some(path) => file::read(path).map_err(Failure::Mistake)?,
        None => Configuration::default(),
    };
    options.apply(&mut configuration).map_err(Failure::Mistake)?;
    if configuration.adapters.is_empty() {
        return Err(Failure::Mistake("there is no adapter to serve: describe one as [[adapter]], or name one".into()));
    }
    if let Some(sentence) = conflicts::find(&configuration) {
        return Err(Failure::Mistake(sentence));
    }
    configuration.folder.get_or_insert_with(sockets::default_folder);
    for adapter in &mut configuration.adapters {
        adapter.mac = Some(adapter.mac());
    }
    if options.print_config {
        let text = file::write(&configuration).map_err(Failure::Environment)?;
        return print(&text).map_err(Failure::Environment);
    }
    let name = options.name.to_string();
    let strict = configuration.adapters.iter().all(|adapter| adapter.strict);
    let supervision = Supervision { name, strict, record: options.record };
    serve(&configuration, &supervision).map_err(Failure::Environment)
}

fn serve(configuration: &Configuration, supervision: &Supervision) -> Result<(), String> {
    let endings = Endings::watch().map_err(|error| format!("signals cannot be watched: {error}"))?;
    let folder = configuration.folder.clone().unwrap_or_else(sockets::default_folder);
    sockets::make_folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // What is printed is pasted elsewhere: the sockets' paths must hold there too.
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let management = supervise::listen(&folder, &supervision.name)?;
    let adapters = configuration.adapters.iter().map(|adapter| adapter.options(&folder)).collect();
    let mut server = Server::start(adapters, configuration.switch.config()).map_err(|error| error.to_string())?;
    for name in &configuration.plain_ports {
        let added = server.add_plain_port(name.as_str(), &folder.join(format!("{name}.port.sock")));
        added.map_err(|error| error.to_string())?;
    }
    if let Some(path) = &configuration.capture {
        crate::capture::start(&server, path)?;
    }
    let text = report::text(configuration, &server);
    // Standard output may carry the capture.
    if configuration.capture.as_deref() == Some(Path::new("-")) {
        std::io::stderr().write_all(text.as_bytes()).map_err(|error| format!("standard error: {error}"))?;
    } else {
        print(&text)?;
    }
    supervise::run(&server, management, supervision, &endings)?;
    match &configuration.capture {
        Some(path) => crate::capture::finish(&server, path),
        None => Ok(()),
    }
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("standard output: {error}"))
}
