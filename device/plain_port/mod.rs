//! A plain port: where a QEMU without an adapter joins the switch, by `-netdev stream` over a Unix socket.
//!
//! In and out: Ethernet frames, as [`framing`] has them. The port has a thread of its own, which sleeps until the peer,
//! the switch or the end has something for it. One peer at a time; one whose framing is lost is closed with a line
//! that says why, and one that does not read loses frames, so that nobody on the switch waits for it.

mod framing;
#[cfg(test)]
mod tests;

use crate::bell::Bell;
use crate::vfio_user::BindError;
use crate::vfio_user::socket_path::{self, BoundPath};
use framing::{Deframer, Framer};
use rnic_switch::{FaultScript, Port, PortError, Switch, Wake};
use rnic_wire::Frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames that one step takes from each side.
const FRAMES: usize = 32;
/// How long nobody is accepted after that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a plain port could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PlainPortError {
    #[error("plain port {name}: {source}")]
    Bind { name: String, source: BindError },
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("plain port {name}: its thread could not be started: {source}")]
    Thread { name: String, source: std::io::Error },
}

/// A plain port as other threads see it. Dropping it ends the port.
pub struct PlainPort {
    name: String,
    socket: PathBuf,
    bell: Arc<Bell>,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// What other threads ask of the port's: looked for when the bell has rung.
#[derive(Default)]
struct Orders {
    end: AtomicBool,
    script: Mutex<Option<FaultScript>>,
}

impl Orders {
    fn take_script(&self) -> Option<FaultScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PlainPort {
    /// Listens for a peer, and starts the port's thread.
    pub fn start(name: &str, socket: &Path, switch: &Switch) -> Result<Self, PlainPortError> {
        let thread_failed = |source| PlainPortError::Thread { name: name.to_owned(), source };
        let bell = Arc::new(Bell::new().map_err(thread_failed)?);
        let bind_failed = |source| PlainPortError::Bind { name: name.to_owned(), source };
        let listener = socket_path::bind(socket).map_err(bind_failed)?;
        let wake: Arc<dyn Wake> = bell.clone();
        let orders = Arc::new(Orders::default());
        let worker = Worker {
            name: name.to_owned(),
            port: switch.port(name, wake)?,
            listener,
            peer: None,
            frame: Frame::new(),
            paused: false,
        };
        let (own_bell, own_orders) = (Arc::clone(&bell), Arc::clone(&orders));
        let thread = std::thread::Builder::new()
            .name(format!("port-{name}"))
            .spawn(move || worker.run(&own_bell, &own_orders))
            .map_err(thread_failed)?;
        Ok(Self { name: name.to_owned(), socket: socket.to_owned(), bell, orders, thread: Some(thread) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What happens to frames on their way to the peer, from now on.
    pub fn set_fault_script(&self, script: FaultScript) {
        *self.orders.script.lock().unwrap_or_else(PoisonError::into_inner) = Some(script);
        self.bell.wake();
    }
}

impl Drop for PlainPort {
    fn drop(&mut self) {
        self.orders.end.store(true, Ordering::Relaxed);
        self.bell.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("plain port {}: its thread has panicked", self.name);
        }
    }
}

/// What the thread owns.
struct Worker {
    name: String,
    port: Port,
    listener: BoundPath,
    peer: Option<Peer>,
    frame: Frame,
    /// Accepting failed for want of descriptors or memory: nobody is looked for until after the next sleep.
    paused: bool,
}

struct Peer {
    stream: UnixStream,
    input: Deframer,
    output: Framer,
    /// Frames that it did not read in time.
    lost: u64,
}

impl Worker {
    fn run(mut self, bell: &Bell, orders: &Orders) {
        while !orders.end.load(Ordering::Relaxed) {
            let moved = self.step();
            // A peer that has gone is noticed before its successor is looked at.
            let look = !self.paused && (self.peer.is_none() || !moved);
            if look && self.accept() {
                continue;
            }
            if !moved && self.sleep(bell) {
                let script = orders.take_script();
                script.into_iter().for_each(|script| self.port.set_fault_script(script));
            }
        }
    }

    fn now_ns(&self) -> u64 {
        crate::clock::now_ns()
    }

    /// Takes a new peer, or refuses it while one is there. False if none has called.
    fn accept(&mut self) -> bool {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let client = match accept_with(self.listener.socket(), flags) {
            Ok(client) => client,
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(errno) => {
                log::warn!("plain port {}: a peer cannot be accepted: {errno}; trying again shortly", self.name);
                self.paused = true;
                return false;
            }
        };
        if self.peer.is_some() {
            log::warn!("plain port {}: a second peer is refused while one is there", self.name);
            return true;
        }
        log::info!("plain port {}: a peer is there", self.name);
        let (input, output) = (Deframer::new(), Framer::default());
        self.peer = Some(Peer { stream: client.into(), input, output, lost: 0 });
        true
    }

    /// Moves some frames each way. True if there may be more.
    fn step(&mut self) -> bool {
        let now_ns = self.now_ns();
        let mut moved = self.hand_over(now_ns);
        let Some(peer) = &mut self.peer else { return moved };
        let outcome = peer.exchange(&mut self.port, &mut self.frame, now_ns);
        match outcome {
            Ok(any) => moved |= any,
            Err(reason) => {
                log::warn!("plain port {}: its peer is closed: {reason} ({} frames not read)", self.name, peer.lost);
                self.peer = None;
                moved = true;
            }
        }
        moved
    }

    /// Frames of the switch to whoever is there; nobody there, they are dropped.
    fn hand_over(&mut self, now_ns: u64) -> bool {
        for _ in 0..FRAMES {
            if !self.port.receive(&mut self.frame, now_ns) {
                return false;
            }
            if let Some(peer) = &mut self.peer {
                peer.lost += u64::from(!peer.output.push(&mut self.frame));
            }
        }
        true
    }

    /// True if the bell has rung.
    fn sleep(&mut self, bell: &Bell) -> bool {
        if !self.port.before_sleep() {
            return false;
        }
        let now_ns = self.now_ns();
        let release = self.port.next_release_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
        let pause = std::mem::take(&mut self.paused).then_some(ACCEPT_PAUSE);
        let timeout = [release, pause].into_iter().flatten().min();
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
        let mut fds = vec![PollFd::new(bell, PollFlags::IN)];
        if pause.is_none() {
            fds.push(PollFd::from_borrowed_fd(self.listener.socket(), PollFlags::IN));
        }
        if let Some(peer) = &self.peer {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, peer.input.has_room());
            flags.set(PollFlags::OUT, !peer.output.is_empty());
            // Without interest its end would still wake, again and again, while what it sent waits for room.
            if !flags.is_empty() {
                fds.push(PollFd::from_borrowed_fd(peer.stream.as_fd(), flags));
            }
        }
        let rung = poll(&mut fds, timeout.as_ref()).is_ok() && !fds[0].revents().is_empty();
        if rung {
            bell.quiet();
        }
        rung
    }
}

impl Peer {
    /// Frames out and in; the reason why the peer is no more.
    fn exchange(&mut self, port: &mut Port, frame: &mut Frame, now_ns: u64) -> Result<bool, String> {
        let mut moved = self.output.flush(&mut self.stream).map_err(|error| format!("writing failed: {error}"))?;
        for _ in 0..FRAMES {
            // A frame is taken only when the switch has room for it everywhere: until then its sender waits.
            if port.room() == 0 {
                return Ok(moved);
            }
            if !self.input.next(frame).map_err(|bad| bad.to_string())? {
                break;
            }
            port.transmit(frame, now_ns);
            moved = true;
        }
        if !self.input.has_room() {
            return Ok(moved);
        }
        match self.input.fill(&mut self.stream) {
            Ok(0) => Err("it has gone".to_owned()),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(moved),
            Err(error) => Err(format!("reading failed: {error}")),
        }
    }
}
