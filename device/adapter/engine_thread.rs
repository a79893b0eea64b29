//! The engine thread: steps while there is work, sleep in between, requests from other threads, a clean end.

use super::step::StepState;
use super::watch::Watch;
use super::{Adapter, AdapterPort, Attachment, PacketTrace};
use crate::bell::Bell;
use crate::function::ethernet::{DEFAULT_MTU, EthernetConfig};
use crate::function::{EthernetFunction, RdmaFunction};
use crate::vfio_user::{BindError, Listener};
use rnic_engine::EngineConfig;
use rnic_pcie::LinkSettings;
use rnic_switch::{Impairment, PortError, Switch, Wake};
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
    /// How long the thread goes on looking for work before it sleeps.
    pub busy_poll: Duration,
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

/// Steps of a thread that does not sleep between two looks at all its sockets: a new client is seen nowhere else.
const LOOK_STEPS: u32 = 64;

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
        let AdapterOptions { name, socket, ethernet_socket, engine, link, impairment, always_seal, busy_poll } =
            options;
        let thread_failed = |source| AdapterError::Thread { name: name.clone(), source };
        let bell = Arc::new(Bell::new().map_err(thread_failed)?);
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
        let watch = Watch::new(&bell, [&adapter.client, &adapter.ethernet_client])
            .map_err(|errno| thread_failed(errno.into()))?;
        let thread = std::thread::Builder::new()
            .name(format!("rnic-{name}"))
            .spawn(move || run(adapter, watch, &inbox, busy_poll))
            .map_err(thread_failed)?;
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

fn run(mut adapter: Adapter, mut watch: Watch, inbox: &Receiver<Request>, busy_poll: Duration) {
    let busy_poll_ns = busy_poll.as_nanos() as u64;
    let mut state = StepState::default();
    let mut idle_since_ns = None;
    let mut unslept_steps = 0;
    while serve_requests(&mut adapter, inbox) {
        let more = adapter.step(&mut state);
        let now_ns = adapter.function.now_ns();
        let spins = !more && now_ns - *idle_since_ns.get_or_insert(now_ns) < busy_poll_ns;
        unslept_steps += 1;
        let looked = if more || spins {
            if more {
                idle_since_ns = None;
            } else {
                // Whoever it waits for may need this processor.
                std::thread::yield_now();
            }
            if unslept_steps < LOOK_STEPS {
                continue;
            }
            look(&mut adapter, &mut watch, Some(Duration::ZERO))
        } else {
            idle_since_ns = None;
            sleep(&mut adapter, &mut watch)
        };
        unslept_steps = 0;
        if let Err(error) = looked {
            log::error!("adapter {}: it ends, because its thread cannot sleep: {error}", adapter.name);
            break;
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
fn sleep(adapter: &mut Adapter, watch: &mut Watch) -> std::io::Result<()> {
    let can_receive = adapter.function.engine.can_receive();
    if adapter.port.has_turned() && can_receive {
        return Ok(());
    }
    // Frames that the engine cannot take now must not keep the thread awake: host memory's answer wakes it.
    if can_receive && !adapter.port.switch.before_sleep() {
        return Ok(());
    }
    let timeout = longest_sleep(adapter);
    look(adapter, watch, timeout)
}

/// Waits so long for clients or a ring of the bell, and notes what there is.
fn look(adapter: &mut Adapter, watch: &mut Watch, timeout: Option<Duration>) -> std::io::Result<()> {
    let clients = [&mut adapter.client, &mut adapter.ethernet_client];
    let seen = watch.wait([&*clients[0], &*clients[1]], timeout)?;
    for (client, (calls, ready)) in clients.into_iter().zip(seen.calls.into_iter().zip(seen.ready)) {
        if client.is_attached() {
            client.note_slept(ready);
        }
        if calls {
            client.accept();
        }
    }
    Ok(())
}

/// Until the first moment at which time alone gives the adapter something to do.
fn longest_sleep(adapter: &mut Adapter) -> Option<Duration> {
    let deadline = [
        adapter.function.next_deadline_ns(),
        adapter.ethernet.pci.sharing.deadline_ns(),
        adapter.port.switch.next_release_ns(),
    ];
    let deadline = deadline.into_iter().flatten().min();
    let deadline = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(adapter.function.tick())));
    let negotiation = adapter.client.negotiates_until().into_iter().chain(adapter.ethernet_client.negotiates_until());
    let negotiation = negotiation.map(|until| until.saturating_duration_since(Instant::now())).min();
    [deadline, negotiation].into_iter().flatten().min()
}
