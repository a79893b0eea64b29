//! `rnic demo`: two hosts, one RDMA operation, every PCIe crossing of both counted and compared with the story.

mod crossings;
mod hosts;
mod options;
mod print;
mod report;
mod story;

use crate::agent::{Opened, Order, Verified};
use crate::exit::Exit;
use crate::signals::Signals;
use hosts::Host;
pub use options::DemoOptions;
use options::{Fault, HostsKind};
use report::{HostReport, Report};
use rnic_ci::{Lab, Progress};
use rnic_device::adapter::AdapterError;
use rnic_device::server::{Server, adapter_options};
use rnic_shim::transaction::{self, Role, TransactionSpec};
use rnic_shim::verbs::{DoorbellForm, MrLayout};
use rnic_switch::{FaultScript, SwitchConfig};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

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
            eprintln!("[{:6.2} s] {sentence}", self.start.elapsed().as_secs_f64());
        }
    }
}

pub fn run(options: &DemoOptions) -> Exit {
    if let Err(sentence) = options.check() {
        eprintln!("rnic demo: {sentence}");
        return Exit::Usage;
    }
    match demonstrate(options) {
        Ok(report) => {
            let right = report.matches_story && report.data_verified && report.imm_verified;
            let whole = report.hosts.iter().all(|host| host.remainder == 0);
            if right && whole { Exit::Success } else { Exit::Mismatch }
        }
        Err(Failure::Environment(sentence)) => fail(&sentence, Exit::Environment),
        Err(Failure::TimeLimit(sentence)) => fail(&sentence, Exit::TimeLimit),
        Err(Failure::Refused(sentence)) => fail(&sentence, Exit::Mismatch),
    }
}

fn fail(sentence: &str, exit: Exit) -> Exit {
    eprintln!("rnic demo: {sentence}");
    exit
}

fn demonstrate(options: &DemoOptions) -> Result<Report, Failure> {
    let start = Instant::now();
    let mut steps = Steps { terminal: std::io::stderr().is_terminal() && !options.json, start };
    let lab = hosts::prepare(options, &mut steps)?;
    // The limit is for what comes now: downloads and the first boot have limits of their own.
    let until = Instant::now() + Duration::from_secs(options.time_limit);
    let folder = sockets_folder(lab.as_ref())?;
    let server = serve(options, folder.path())?;
    let hosts = hosts::start(options, &server, lab.as_ref(), &mut steps)?;
    steps.step("bringing both sides up");
    let mut report = operate(options, &server, &hosts, until, &mut steps)?;
    report.qemu = lab.as_ref().map(|lab| lab.qemu().version().to_string());
    report.accelerator = lab.as_ref().map(|lab| format!("{:?}", lab.acceleration()).to_lowercase());
    report.elapsed_ms = start.elapsed().as_millis() as u64;
    show(options, &report)?;
    keep_traces(options, &hosts)?;
    if let Some(path) = &options.capture {
        crate::serve::finish_capture(&server, path).map_err(Failure::Environment)?;
    }
    if options.keep {
        linger(lab.as_ref(), &hosts)?;
    }
    Ok(report)
}

/// Sockets have short paths, in a folder that goes with the run.
fn sockets_folder(_lab: Option<&Lab>) -> Result<tempfile::TempDir, Failure> {
    let made = tempfile::Builder::new().prefix("rnic-demo-").tempdir();
    made.map_err(|error| Failure::Environment(format!("a folder for the sockets: {error}")))
}

fn serve(options: &DemoOptions, folder: &std::path::Path) -> Result<Server, Failure> {
    let adapters = vec![adapter_options("A", folder), adapter_options("B", folder)];
    let server = Server::start(adapters, SwitchConfig::default())?;
    if let Some(path) = &options.capture {
        crate::serve::start_capture(&server, path).map_err(Failure::Environment)?;
    }
    if let (Some(Fault::Drop(number)), Some(b)) = (options.fault, server.adapter("B")) {
        let script: FaultScript =
            format!("drop:{number}").parse().map_err(|error| Failure::Environment(format!("{error}")))?;
        b.call(move |adapter| adapter.port.switch.set_fault_script(script))?;
    }
    Ok(server)
}

fn spec(options: &DemoOptions, role: Role) -> TransactionSpec {
    use options::{Doorbell, Op};
    let lossy = matches!(options.fault, Some(Fault::Drop(_)));
    TransactionSpec {
        operation: match options.op {
            Op::Write => transaction::Operation::Write,
            Op::WriteImm => transaction::Operation::WriteImm,
            Op::Send => transaction::Operation::Send,
            Op::SendImm => transaction::Operation::SendImm,
        },
        length_bytes: options.length,
        path_mtu_bytes: options.mtu_bytes(),
        armed: options.armed && role == Role::Responder,
        signaled: !options.unsignaled,
        inline: options.inline,
        doorbell: match options.doorbell {
            Doorbell::Value => DoorbellForm::Word,
            Doorbell::Line => DoorbellForm::Line,
            Doorbell::Wqe => DoorbellForm::Wqe,
        },
        layout: MrLayout::List,
        fault: match options.fault {
            Some(Fault::BadRkey) => Some(transaction::Fault::BadRkey),
            Some(Fault::Bounds) => Some(transaction::Fault::OutOfBounds),
            Some(Fault::Permission) => Some(transaction::Fault::NoRemoteWrite),
            Some(Fault::Drop(_)) | None => None,
        },
        seed: options.seed,
        // 67 ms where a packet is lost on purpose; half a second where a busy machine must not look like a loss.
        timeout: if lossy { 14 } else { 17 },
        limit_ms: options.time_limit.clamp(1, 60) * 1000,
        ..TransactionSpec::default()
    }
}

/// Every step of the operation, with the ledgers read right before and right after.
fn operate(
    options: &DemoOptions,
    server: &Server,
    hosts: &[Host; 2],
    until: Instant,
    steps: &mut Steps,
) -> Result<Report, Failure> {
    let [a, b] = hosts;
    let opened = bring_up(options, hosts, until)?;
    let flush = options.cold;
    b.order::<Value>(&Order::Ready { flush }, until)?;
    a.order::<Value>(&Order::Ready { flush }, until)?;
    let adapters = ["A", "B"].map(|name| server.adapter(name));
    let [Some(adapter_a), Some(adapter_b)] = adapters else {
        return Err(Failure::Environment("the adapters are gone".to_owned()));
    };
    steps.step("posting the operation");
    let marks = (crossings::mark(adapter_a)?, crossings::mark(adapter_b)?);
    b.say(&Order::Wait, until)?;
    a.order::<Value>(&Order::Post, until)?;
    a.order::<Value>(&Order::Wait, until)?;
    b.hear::<Value>(&Order::Wait, until)?;
    let [opened_a, opened_b] = &opened;
    let kernel = |opened: &Opened| opened.kernel.clone().filter(|_| options.hosts == HostsKind::Qemu);
    let (qpn_a, qpn_b) = (opened_a.endpoint.qpn, opened_b.endpoint.qpn);
    let mut host_a = crossings::read(adapter_a, marks.0, "requester", qpn_a, kernel(opened_a))?;
    let mut host_b = crossings::read(adapter_b, marks.1, "responder", qpn_b, kernel(opened_b))?;
    let verified_a: Verified = a.order(&Order::Verify, until)?;
    let verified_b: Verified = b.order(&Order::Verify, until)?;
    if options.details {
        host_a.bring_up = Some(a.order(&Order::Report, until)?);
        host_b.bring_up = Some(b.order(&Order::Report, until)?);
    }
    Ok(assemble(options, [host_a, host_b], &verified_a, &verified_b))
}

fn bring_up(options: &DemoOptions, hosts: &[Host; 2], until: Instant) -> Result<[Opened; 2], Failure> {
    let [a, b] = hosts;
    let open = |role| Order::Open { spec: Box::new(spec(options, role)), role };
    let (open_a, open_b) = (open(Role::Requester), open(Role::Responder));
    a.say(&open_a, until)?;
    b.say(&open_b, until)?;
    let (opened_a, opened_b): (Opened, Opened) = (a.hear(&open_a, until)?, b.hear(&open_b, until)?);
    b.order::<Value>(&Order::Connect { peer: opened_a.endpoint }, until)?;
    a.order::<Value>(&Order::Connect { peer: opened_b.endpoint }, until)?;
    Ok([opened_a, opened_b])
}

fn assemble(options: &DemoOptions, hosts: [HostReport; 2], a: &Verified, b: &Verified) -> Report {
    let story = story::of(options);
    let matches_story = story.matches(&hosts[0].crossings, &hosts[1].crossings);
    for (name, verified) in [("A", a), ("B", b)] {
        verified.faults.iter().for_each(|fault| eprintln!("rnic demo: host {name}: {fault}"));
    }
    let delivered = !matches!(options.fault, Some(Fault::BadRkey | Fault::Bounds | Fault::Permission));
    let expected = (delivered && options.op.has_immediate()).then_some(TransactionSpec::default().immediate);
    Report {
        schema: "rnic.demo/1",
        operation: options.op.name(),
        length_bytes: options.length,
        mtu: options.mtu_bytes(),
        packets: options.packets(),
        hosts_kind: if options.hosts == HostsKind::Qemu { "qemu" } else { "model" },
        qemu: None,
        accelerator: None,
        fault: options.fault.map(|fault| match fault {
            Fault::BadRkey => "bad-rkey".to_owned(),
            Fault::Bounds => "bounds".to_owned(),
            Fault::Permission => "permission".to_owned(),
            Fault::Drop(number) => format!("drop:{number}"),
        }),
        requester_status: a.status.clone().unwrap_or_else(|| "no completion asked for".to_owned()),
        responder_status: b.status.clone().unwrap_or_else(|| "no completion".to_owned()),
        data_verified: a.faults.is_empty() && b.faults.is_empty(),
        imm_verified: b.immediate == expected,
        data_sha256: b.data_sha256.clone(),
        story: [story.requester_total(), story.responder_total()],
        matches_story,
        hosts,
        elapsed_ms: 0,
    }
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
        eprint!("{text}");
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
        eprintln!("logs: {}", lab.run_folder().logs().display());
    }
    let processes: Vec<_> = hosts.iter().filter_map(Host::process_id).map(|id| id.to_string()).collect();
    eprintln!("the hosts stay until Ctrl-C; QEMU processes: {}", processes.join(" "));
    signals.wait();
    Ok(())
}
