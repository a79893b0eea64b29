//! The two hosts: guests in QEMU, or drivers in this process; either way a conversation with an agent each.

use super::Failure;
use super::options::{DemoOptions, HostsKind};
use crate::agent::{self, Order};
use rnic_ci::deadline::Deadline;
use rnic_ci::guest::exchange::Exchange;
use rnic_ci::guest::{Guest, GuestMemory, GuestSpec};
use rnic_ci::{Lab, Progress};
use rnic_device::server::Server;
use rnic_shim::backing::Backing;
use rnic_shim::backings::socket::{MemoryAccess, Socket};
use serde::de::DeserializeOwned;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest answer of an agent: a report.
const LONGEST_ANSWER: usize = 1 << 20;

/// One host.
pub struct Host {
    name: String,
    place: Place,
}

enum Place {
    Guest(Box<Guest>),
    Model { exchange: Exchange, thread: Option<JoinHandle<()>> },
}

impl Host {
    /// Gives an order and waits for its answer.
    pub fn order<T: DeserializeOwned>(&self, order: &Order, until: Instant) -> Result<T, Failure> {
        self.say(order, until)?;
        self.hear(order, until)
    }

    pub fn say(&self, order: &Order, until: Instant) -> Result<(), Failure> {
        let mut line = serde_json::to_string(order).map_err(|error| Failure::Environment(error.to_string()))?;
        line.push('\n');
        Ok(self.exchange().send(line.as_bytes(), &self.deadline(order, until)?)?)
    }

    pub fn hear<T: DeserializeOwned>(&self, order: &Order, until: Instant) -> Result<T, Failure> {
        let line = self.exchange().receive_line(LONGEST_ANSWER, &self.deadline(order, until)?)?;
        agent::understand(&line).map_err(|sentence| {
            let sentence = format!("host {}, {}: {sentence}", self.name, step_name(order));
            if sentence.contains("took longer than") {
                Failure::TimeLimit(sentence)
            } else {
                Failure::Refused(sentence)
            }
        })
    }

    fn exchange(&self) -> &Exchange {
        match &self.place {
            Place::Guest(guest) => guest.exchange(),
            Place::Model { exchange, .. } => exchange,
        }
    }

    fn deadline(&self, order: &Order, until: Instant) -> Result<Deadline, Failure> {
        let step = format!("host {} did {}", self.name, step_name(order));
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::TimeLimit(format!("the time limit passed before {step}")));
        }
        Ok(Deadline::new(step, left))
    }

    /// QEMU's trace of this guest's device.
    pub fn trace_log(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Guest(guest) => guest.trace().map(|trace| trace.log().to_owned()),
            Place::Model { .. } => None,
        }
    }

    pub fn process_id(&self) -> Option<u32> {
        match &self.place {
            Place::Guest(guest) => Some(guest.process_id()),
            Place::Model { .. } => None,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Place::Model { exchange, thread } = &mut self.place {
            let _ = exchange.stream().shutdown(std::net::Shutdown::Both);
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn step_name(order: &Order) -> &'static str {
    match order {
        Order::Open { .. } => "the bring-up",
        Order::Connect { .. } => "the connection",
        Order::Ready { .. } => "the arming",
        Order::Post => "the post",
        Order::Wait => "the wait for the completion",
        Order::Verify => "the verification",
        Order::Aftermath => "the look at the aftermath",
        Order::Report => "the report",
    }
}

/// What the guests need, prepared once; nothing for model hosts.
pub fn prepare(options: &DemoOptions, progress: &mut dyn Progress) -> Result<Option<Lab>, Failure> {
    if options.hosts == HostsKind::Model {
        return Ok(None);
    }
    let mut lab_options = rnic_ci::Options::from_environment();
    lab_options.accelerator = options.accel;
    lab_options.offline |= options.offline;
    if let Some(mirror) = &options.mirror {
        lab_options.mirror = Some(mirror.clone());
    }
    let lab = Lab::prepare(&lab_options, progress)?;
    if options.keep {
        lab.run_folder().keep_logs();
    }
    Ok(Some(lab))
}

/// Starts both hosts, at the same time.
pub fn start(
    options: &DemoOptions,
    server: &Server,
    lab: Option<&Lab>,
    progress: &mut dyn Progress,
) -> Result<[Host; 2], Failure> {
    let sockets = ["A", "B"].map(|name| (name, server.adapter(name).map(|adapter| adapter.socket().clone())));
    let sockets = sockets.map(|(name, socket)| (name, socket.unwrap_or_default()));
    match lab {
        None => {
            let [a, b] = sockets.map(|(name, socket)| model_host(name, &socket, options));
            Ok([a?, b?])
        }
        Some(lab) => {
            progress.step(if options.cold_boot { "booting two guests" } else { "restoring two guests" });
            let program = std::env::current_exe()
                .map_err(|error| Failure::Environment(format!("this program's own file is unknown: {error}")))?;
            std::thread::scope(|scope| {
                let started = sockets
                    .each_ref()
                    .map(|(name, socket)| scope.spawn(|| guest_host(name, socket, options, lab, &program)));
                let [a, b] = started.map(|thread| {
                    let gone = || Failure::Environment("the thread that starts a guest has panicked".to_owned());
                    thread.join().unwrap_or_else(|_| Err(gone()))
                });
                Ok([a?, b?])
            })
        }
    }
}

fn guest_host(name: &str, socket: &Path, options: &DemoOptions, lab: &Lab, program: &Path) -> Result<Host, Failure> {
    let mut spec = GuestSpec::new(name, socket);
    spec.cold_boot = options.cold_boot;
    spec.trace = options.trace.is_some();
    spec.memory = if options.unshared { GuestMemory::Messages } else { GuestMemory::Shared };
    let mut guest = lab.guest(&spec)?;
    let path = guest.send_payload(program)?;
    guest.run(&format!("{path} guest-agent"))?;
    Ok(Host { name: name.to_owned(), place: Place::Guest(Box::new(guest)) })
}

fn model_host(name: &str, socket: &Path, options: &DemoOptions) -> Result<Host, Failure> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| Failure::Environment(format!("a socket pair: {error}")))?;
    let socket = socket.to_owned();
    let access = if options.unshared { MemoryAccess::ByMessage } else { MemoryAccess::Shared };
    if options.unshared {
        // Between orders the device's messages are served, as QEMU serves them whatever its guest does.
        let set = theirs.set_read_timeout(Some(Duration::from_millis(1)));
        set.map_err(|error| Failure::Environment(format!("a socket pair: {error}")))?;
    }
    let thread = std::thread::Builder::new().name(format!("host-{name}")).spawn(move || {
        let open = || {
            let limit = Duration::from_secs(10);
            let opened = Socket::connect(&socket, Default::default(), access, limit);
            opened.map(|socket| Box::new(socket) as Box<dyn Backing>).map_err(|error| error.to_string())
        };
        let _ = agent::serve(&theirs, &theirs, open);
    });
    let thread = thread.map_err(|error| Failure::Environment(format!("host {name}: {error}")))?;
    let place = Place::Model { exchange: Exchange::new(ours), thread: Some(thread) };
    Ok(Host { name: name.to_owned(), place })
}
