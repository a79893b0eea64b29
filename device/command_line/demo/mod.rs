//! `rnic demo`: two hosts, one RDMA operation, every PCIe crossing of both counted and compared with the story.

mod crossings;
mod hosts;
mod operation;
mod options;
mod print;
mod report;
mod story;
mod wire;

use crate::exit::Exit;
use crate::signals::Signals;
use hosts::Host;
pub use options::DemoOptions;
use options::Fault;
use report::Report;
use rnic_ci::{HeldFolder, Lab, Progress};
use rnic_device::adapter::AdapterError;
use rnic_device::server::{Server, adapter_options};
use rnic_switch::{FaultScript, SwitchConfig};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use wire::Tap;

/// Why there is no report.
#[derive(Debug)]
pub enum Failure {
    Environment(String),
    TimeLimit(String),
    /// The device or the driver refused a step.
    Refused(String),
}

impl From<rnic_ci::Error> for Failure {
    fn from(error: rnic_ci::Error) -> Self {
        match error {
            rnic_ci::Error::Timeout { .. } => Self::TimeLimit(error.to_string()),
            other => Self::Environment(other.to_string()),
        }
    }
}

impl From<AdapterError> for Failure {
    fn from(error: AdapterError) -> Self {
        Self::Environment(error.to_string())
    }
}

/// Says what takes time, on a terminal only.
struct Steps {
    terminal: bool,
    start: Instant,
}

impl Progress for Steps {
    fn step(&mut self, sentence: &str) {
        if self.terminal {
            tell!("[{:6.2} s] {sentence}", self.start.elapsed().as_secs_f64());
        }
    }
}

pub fn run(options: &DemoOptions) -> Exit {
    if let Err(sentence) = options.check() {
        tell!("rnic demo: {sentence}");
        return Exit::Usage;
    }
    match demonstrate(options) {
        Ok(report) => {
            let whole = report.hosts.iter().all(|host| host.remainder == 0);
            let refusal = report.refusal_is_whole(options.is_refused());
            if report.is_right() && whole && refusal { Exit::Success } else { Exit::Mismatch }
        }
        Err(Failure::Environment(sentence)) => fail(&sentence, Exit::Environment),
        Err(Failure::TimeLimit(sentence)) => fail(&sentence, Exit::TimeLimit),
        Err(Failure::Refused(sentence)) => fail(&sentence, Exit::Mismatch),
    }
}

fn fail(sentence: &str, exit: Exit) -> Exit {
    tell!("rnic demo: {sentence}");
    exit
}

fn demonstrate(options: &DemoOptions) -> Result<Report, Failure> {
    let start = Instant::now();
    let mut steps = Steps { terminal: std::io::stderr().is_terminal() && !options.json, start };
    let lab = hosts::prepare(options, &mut steps)?;
    // The limit is for what comes now: downloads and the first boot have limits of their own.
    let until = Instant::now() + Duration::from_secs(options.time_limit);
    // Sockets have short paths, in a folder that goes with the run.
    let folder = HeldFolder::create("rnic-demo-")?;
    let (server, tap) = serve(options, folder.path())?;
    let hosts = hosts::start(options, &server, lab.as_ref(), &mut steps)?;
    steps.step("bringing both sides up");
    let mut report = operation::operate(options, &server, &hosts, until, &mut steps)?;
    let captured = options.capture.as_ref().map(|path| crate::capture::finish(&server, path));
    report.nak = tap.as_ref().and_then(|tap| tap.refusal(&server));
    report.qemu = lab.as_ref().map(|lab| lab.qemu().version().to_string());
    report.accelerator = lab.as_ref().map(|lab| format!("{:?}", lab.acceleration()).to_lowercase());
    report.elapsed_ms = start.elapsed().as_millis() as u64;
    show(options, &report)?;
    keep_traces(options, &hosts)?;
    captured.transpose().map_err(Failure::Environment)?;
    if options.keep {
        linger(lab.as_ref(), &hosts)?;
    }
    Ok(report)
}

/// Both adapters on their switch; with a tap on the wire where a refusal is to be shown.
fn serve(options: &DemoOptions, folder: &std::path::Path) -> Result<(Server, Option<Tap>), Failure> {
    let adapters = vec![adapter_options("A", folder), adapter_options("B", folder)];
    let server = Server::start(adapters, SwitchConfig::default())?;
    let tap = options.is_refused().then(Tap::default);
    let file = options.capture.as_deref().map(crate::capture::open).transpose().map_err(Failure::Environment)?;
    let sink: Option<Box<dyn Write + Send>> = match (&tap, file) {
        (Some(tap), file) => Some(Box::new(tap.beside(file))),
        (None, file) => file,
    };
    if let Some(sink) = sink {
        let started = server.switch.capture().start(sink, crate::capture::by_time_of_day());
        started.map_err(|error| Failure::Environment(error.to_string()))?;
    }
    // What is fetched travels from B to A, in responses.
    let (receiver, kind) = if options.op.fetches() { ("A", "response") } else { ("B", "request") };
    if let (Some(Fault::Drop(number)), Some(receiver)) = (options.fault, server.adapter(receiver)) {
        let script: FaultScript =
            format!("drop:{kind}:{number}").parse().map_err(|error| Failure::Environment(format!("{error}")))?;
        receiver.call(move |adapter| adapter.port.switch.set_fault_script(script))?;
    }
    Ok((server, tap))
}

/// The report, on standard output; on standard error when the capture is there.
fn show(options: &DemoOptions, report: &Report) -> Result<(), Failure> {
    let text = if options.json {
        serde_json::to_string(report).map_err(|error| Failure::Environment(error.to_string()))? + "\n"
    } else {
        let mut text = print::text(report);
        for host in &report.hosts {
            if let Some(details) = &host.bring_up {
                text += &print::bring_up(&host.name, details);
            }
        }
        text
    };
    if options.capture.as_deref() == Some(std::path::Path::new("-")) {
        let written = std::io::stderr().write_all(text.as_bytes());
        written.map_err(|error| Failure::Environment(format!("standard error: {error}")))?;
    } else {
        let written = std::io::stdout().write_all(text.as_bytes());
        written.map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
    }
    Ok(())
}

fn keep_traces(options: &DemoOptions, hosts: &[Host; 2]) -> Result<(), Failure> {
    let Some(folder) = &options.trace else { return Ok(()) };
    for (name, host) in ["A", "B"].iter().zip(hosts) {
        if let Some(log) = host.trace_log() {
            let to = folder.join(format!("{name}.trace"));
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::copy(&log, &to))
                .map_err(|error| Failure::Environment(format!("{}: {error}", to.display())))?;
        }
    }
    Ok(())
}

/// Until here a signal ends the demo at once, and its guests with it.
fn linger(lab: Option<&Lab>, hosts: &[Host; 2]) -> Result<(), Failure> {
    let signals = Signals::watch().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    if let Some(lab) = lab {
        tell!("logs: {}", lab.run_folder().logs().display());
    }
    let processes: Vec<_> = hosts.iter().filter_map(Host::process_id).map(|id| id.to_string()).collect();
    let processes =
        if processes.is_empty() { String::new() } else { format!("; QEMU processes: {}", processes.join(" ")) };
    tell!("the hosts stay until Ctrl-C{processes}");
    signals.wait();
    Ok(())
}
