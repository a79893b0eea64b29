//! The engine thread: steps while there is work, sleep in between, requests from other threads, a clean end.

use super::step::StepState;
use super::{Adapter, AdapterPort, Attachment, PacketTrace};
use crate::bell::Bell;
use crate::function::ethernet::{DEFAULT_MTU, EthernetConfig};
use crate::function::{EthernetFunction, RdmaFunction};
use crate::vfio_user::{BindError, Listener};
use rnic_engine::EngineConfig;
use rnic_pcie::LinkSettings;
use rnic_switch::{Impairment, PortError, Switch, Wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What an adapter is started with.
#[derive(Clone, Debug)]
pub struct AdapterOptions {
    pub name: String,
    /// Where the RNIC's client connects.
    pub socket: PathBuf,
    /// Where the Ethernet function's does.
    pub ethernet_socket: PathBuf,
    pub engine: EngineConfig,
    /// Generation and width of the PCIe link.
    pub link: LinkSettings,
    /// What happens to the frames that the switch brings to this adapter.
    pub impairment: Impairment,
    /// Every frame carries its ICRC, also inside the process.
    pub always_seal: bool,
}

/// Why an adapter could not be started, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    #[error("adapter {name}: {source}")]
    Bind { name: String, source: BindError },
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("adapter {name}: its thread could not be started: {source}")]
    Thread { name: String, source: std::io::Error },
    #[error("adapter {0}: its thread has ended")]
    Ended(String),
    #[error("adapter {name}: its thread does not answer within {limit:?}")]
    TimeLimit { name: String, limit: Duration },
}

type Request = Box<dyn FnOnce(&mut Adapter) + Send>;

/// An adapter as other threads see it. Dropping it ends the adapter.
pub struct AdapterHandle {
    name: String,
    socket: PathBuf,
    ethernet_socket: PathBuf,
    requests: Option<Sender<Request>>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl AdapterHandle {
    /// Listens on the adapter's sockets and starts its thread.
    pub fn start(options: AdapterOptions, switch: &Switch) -> Result<Self, AdapterError> {
        let AdapterOptions { name, socket, ethernet_socket, engine, link, impairment, always_seal } = options;
        let bell = Bell::new().map_err(|source| AdapterError::Thread { name: name.clone(), source })?;
        let bell = Arc::new(bell);
        let attachment = |title: String, path| match Listener::bind(path) {
            Ok(listener) => Ok(Attachment::new(title, listener)),
            Err(source) => Err(AdapterError::Bind { name: name.clone(), source }),
        };
        let client = attachment(format!("adapter {name}"), &socket)?;
        let ethernet_client = attachment(format!("adapter {name}, Ethernet"), &ethernet_socket)?;
        let wake: Arc<dyn Wake> = bell.clone();
        let mut port = AdapterPort::new(switch.port(&name, wake)?);
        port.always_seal = always_seal;
        port.switch.set_impairment(impairment);
        let (requests, inbox) = channel();
        let adapter = Adapter {
            name: name.clone(),
            ethernet: EthernetFunction::new(EthernetConfig { mac: engine.mac, mtu: DEFAULT_MTU }),
            function: RdmaFunction::with_link(engine, link),
            port,
            packets: PacketTrace::default(),
            client,
            ethernet_client,
        };
        let own_bell = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name(format!("rnic-{name}"))
            .spawn(move || run(adapter, &own_bell, &inbox))
            .map_err(|source| AdapterError::Thread { name: name.clone(), source })?;
        Ok(Self { name, socket, ethernet_socket, requests: Some(requests), bell, thread: Some(thread) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn socket(&self) -> &PathBuf {
        &self.socket
    }

    pub fn ethernet_socket(&self) -> &PathBuf {
        &self.ethernet_socket
    }

    /// [`Adapter::set_link`].
    pub fn set_link(&self, up: bool) -> Result<(), AdapterError> {
        self.call(move |adapter| adapter.set_link(up))
    }

    /// Runs `ask` in the adapter's thread, between two steps, and waits for what it says.
    pub fn call<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Adapter) -> T + Send + 'static,
    ) -> Result<T, AdapterError> {
        self.send(ask)?.recv().map_err(|_| self.ended())
    }

    /// The same, and waits no longer than this. What was asked may still run later.
    pub fn call_within<T: Send + 'static>(
        &self,
        limit: Duration,
        ask: impl FnOnce(&mut Adapter) -> T + Send + 'static,
    ) -> Result<T, AdapterError> {
        self.send(ask)?.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => AdapterError::TimeLimit { name: self.name.clone(), limit },
            RecvTimeoutError::Disconnected => self.ended(),
        })
    }

    fn send<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Adapter) -> T + Send + 'static,
    ) -> Result<Receiver<T>, AdapterError> {
        let (answer, answers) = channel();
        let request: Request = Box::new(move |adapter| {
            let _ = answer.send(ask(adapter));
        });
        let requests = self.requests.as_ref().ok_or_else(|| self.ended())?;
        requests.send(request).map_err(|_| self.ended())?;
        self.bell.wake();
        Ok(answers)
    }

    fn ended(&self) -> AdapterError {
        AdapterError::Ended(self.name.clone())
    }
}

impl Drop for AdapterHandle {
    fn drop(&mut self) {
        self.requests = None;
        self.bell.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("adapter {}: its thread has panicked", self.name);
        }
    }
}

fn run(mut adapter: Adapter, bell: &Bell, inbox: &Receiver<Request>) {
    let mut state = StepState::default();
    loop {
        if !serve_requests(&mut adapter, inbox) {
            break;
        }
        if !adapter.step(&mut state) {
            sleep(&mut adapter, bell);
        }
    }
    adapter.client.shutdown(&mut adapter.function);
    adapter.ethernet_client.shutdown(&mut adapter.ethernet);
}

/// False when nobody holds the handle any more.
fn serve_requests(adapter: &mut Adapter, inbox: &Receiver<Request>) -> bool {
    use std::sync::mpsc::TryRecvError;
    loop {
        match inbox.try_recv() {
            Ok(request) => request(adapter),
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

/// Sleeps until a client, another port, another thread or a deadline has something for this adapter.
fn sleep(adapter: &mut Adapter, bell: &Bell) {
    let can_receive = adapter.function.engine.can_receive();
    if adapter.port.has_turned() && can_receive {
        return;
    }
    // Frames that the engine cannot take now must not keep the thread awake: host memory's answer wakes it.
    if can_receive && !adapter.port.switch.before_sleep() {
        return;
    }
    let deadline = [
        adapter.function.next_deadline_ns(),
        adapter.ethernet.pci.sharing.deadline_ns(),
        adapter.port.switch.next_release_ns(),
    ];
    let now_ns = adapter.function.tick();
    let timeout =
        deadline.into_iter().flatten().min().map(|deadline| Duration::from_nanos(deadline.saturating_sub(now_ns)));
    let negotiation = adapter.client.negotiates_until().into_iter().chain(adapter.ethernet_client.negotiates_until());
    let negotiation = negotiation.map(|until| until.saturating_duration_since(Instant::now())).min();
    let timeout = [timeout, negotiation]
        .into_iter()
        .flatten()
        .min()
        .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
    let clients = [&adapter.client, &adapter.ethernet_client];
    let mut fds = vec![PollFd::new(bell, PollFlags::IN)];
    fds.extend(clients.map(|client| PollFd::from_borrowed_fd(client.listener(), PollFlags::IN)));
    fds.extend(
        clients.iter().filter_map(|client| client.client()).map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)),
    );
    // Nothing is told from what a poll that failed, for a signal, has left in the list.
    let is_ready = poll(&mut fds, timeout.as_ref()).is_ok();
    let ready: Vec<bool> = fds.iter().map(|fd| is_ready && !fd.revents().is_empty()).collect();
    drop(fds);
    if ready[0] {
        bell.quiet();
    }
    note_ready(adapter, &ready[1..]);
}

/// Passes on what a sleep ended with: both listeners, then the clients that there are.
fn note_ready(adapter: &mut Adapter, ready: &[bool]) {
    let mut ready = ready.iter().copied();
    let mut next = || ready.next().unwrap_or(false);
    let listeners = [next(), next()];
    for (client, calls) in [&mut adapter.client, &mut adapter.ethernet_client].into_iter().zip(listeners) {
        if client.is_attached() && next() {
            client.note_ready();
        }
        if calls {
            client.accept();
        }
    }
}
