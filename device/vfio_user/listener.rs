//! The socket on a path where clients arrive: one is handed out, every further one is told that the device is busy.
//!
//! Nothing here waits. An inner epoll watches the listening socket, the clients being refused and a timer, and the
//! owner polls that epoll's descriptor: readable means that [`Listener::on_readable`] is due.

use super::refusal::Refusal;
use super::socket_path::{self, BindError, BoundPath};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// So many clients may be in the course of being refused; beyond that the oldest is cut off.
const MAX_REFUSALS: usize = 8;
/// Connections taken from the kernel in one call.
const MAX_ACCEPTS: usize = 16;
/// How often deadlines are looked at while there are any.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A listening socket with a file of its own, which goes when this is dropped.
#[derive(Debug)]
pub struct Listener {
    path: BoundPath,
    epoll: OwnedFd,
    timer: OwnedFd,
    ticking: bool,
    /// Accepting failed for want of descriptors or memory: the socket is not watched until the next tick.
    paused: bool,
    refusals: Vec<Refusal>,
}

impl Listener {
    /// Listens on the path. A stale socket file is replaced; a living server, or a file that is no socket, is not.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let bound = socket_path::bind(path)?;
        Self::watching(bound).map_err(|error| BindError::Io { path: path.into(), step: "watching it", error })
    }

    fn watching(path: BoundPath) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        watch(&epoll, path.socket())?;
        watch(&epoll, timer.as_fd())?;
        Ok(Self { path, epoll, timer, ticking: false, paused: false, refusals: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        self.path.path()
    }

    /// Takes new clients and brings refusals forward. While `busy` every new client is refused; else the first is
    /// the result and the owner is busy from then on.
    pub fn on_readable(&mut self, busy: bool) -> io::Result<Option<UnixStream>> {
        self.end_tick()?;
        let taken = self.accept(busy)?;
        let now = Instant::now();
        self.refusals.retain_mut(|refusal| !refusal.advance(now));
        self.set_ticking(self.paused || !self.refusals.is_empty())?;
        Ok(taken)
    }

    /// Clients in the course of being refused.
    pub fn refusals(&self) -> usize {
        self.refusals.len()
    }

    fn accept(&mut self, busy: bool) -> io::Result<Option<UnixStream>> {
        for _ in 0..MAX_ACCEPTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(self.path.socket(), flags) {
                Ok(client) if busy => self.refuse(client.into())?,
                Ok(client) => return Ok(Some(client.into())),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    let path = self.path.path().display();
                    log::warn!("{path}: a client cannot be accepted: {errno}; trying again shortly");
                    epoll::delete(&self.epoll, self.path.socket())?;
                    self.paused = true;
                    break;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    fn refuse(&mut self, client: UnixStream) -> io::Result<()> {
        if self.refusals.len() >= MAX_REFUSALS {
            // Closing takes it off the epoll.
            self.refusals.remove(0);
        }
        watch(&self.epoll, client.as_fd())?;
        self.refusals.push(Refusal::new(client, Instant::now()));
        Ok(())
    }

    fn end_tick(&mut self) -> io::Result<()> {
        let mut expirations = [0; 8];
        match rustix::io::read(&self.timer, &mut expirations) {
            Ok(_) if self.paused => {
                self.paused = false;
                watch(&self.epoll, self.path.socket())
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_ticking(&mut self, on: bool) -> io::Result<()> {
        if self.ticking != on {
            let every = if on { TICK } else { Timespec { tv_sec: 0, tv_nsec: 0 } };
            timerfd_settime(
                &self.timer,
                TimerfdTimerFlags::empty(),
                &Itimerspec { it_interval: every, it_value: every },
            )?;
            self.ticking = on;
        }
        Ok(())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}
