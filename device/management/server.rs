//! The management socket: clients of the user who started the server, served by whoever polls, never waited for.
//!
//! In: readiness. Out: replies. A client that does not read, sends nonsense or vanishes costs itself alone: reads and writes
//! never block, and both directions of a [`Session`] are bounded.

use super::protocol::{Reason, Refusal};
use super::session::{Answers, Session};
use crate::vfio_user::{BindError, BoundPath, bind_path};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Clients at a time; for a further one the client that has been silent longest goes.
const MAX_CLIENTS: usize = 16;
/// Bytes taken from a client in one turn.
const PIECE_BYTES: usize = 16 << 10;
/// Replies to one client in one turn.
const REPLIES: usize = 16;

/// A client's socket and its conversation.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    session: Session,
    heard: Instant,
}

/// A listening management socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct ManagementServer {
    path: BoundPath,
    owner_uid: u32,
    clients: Vec<Client>,
}

impl ManagementServer {
    /// Listens. A stale socket file is replaced; a living server is not. Clients must be the user `owner_uid`.
    pub fn bind(path: &Path, owner_uid: u32) -> Result<Self, BindError> {
        Ok(Self { path: bind_path(path)?, owner_uid, clients: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        self.path.path()
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Serves what there is to serve, and waits for it no longer than `timeout` or until one of `wakes` is readable.
    pub fn turn(&mut self, answers: &mut dyn Answers, wakes: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut fds = vec![PollFd::from_borrowed_fd(self.path.socket(), PollFlags::IN)];
        for client in &self.clients {
            let wanted = if client.session.wants_input() { PollFlags::IN } else { PollFlags::OUT };
            fds.push(PollFd::new(&client.stream, wanted));
        }
        fds.extend(wakes.iter().map(|wake| PollFd::from_borrowed_fd(*wake, PollFlags::IN)));
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let now = Instant::now();
        let mut ready_clients = ready.iter().skip(1);
        self.clients.retain_mut(|client| {
            let is_ready = ready_clients.next().copied().unwrap_or(false);
            !is_ready || client.serve(answers, now)
        });
        self.clients.retain(|client| !client.session.is_over());
        if ready[0] {
            self.accept(now)?;
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..MAX_CLIENTS {
            match accept_with(self.path.socket(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(stream) => self.welcome(stream.into(), now),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    log::warn!("{}: a client cannot be accepted: {errno}", self.path.path().display());
                    // Without this the socket stays readable and the poll returns at once, again and again.
                    std::thread::sleep(Duration::from_millis(20));
                    break;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn welcome(&mut self, stream: UnixStream, now: Instant) {
        let mut session = Session::default();
        match rustix::net::sockopt::socket_peercred(&stream) {
            Ok(peer) if peer.uid.as_raw() == self.owner_uid => {}
            Ok(peer) => {
                let message = format!("this server belongs to user {}, you are {}", self.owner_uid, peer.uid.as_raw());
                session.refuse(Refusal::new(Reason::NotYours, message));
            }
            Err(errno) => session.refuse(Refusal::new(Reason::NotYours, format!("who you are is not known: {errno}"))),
        }
        if self.clients.len() >= MAX_CLIENTS {
            let silent = self.clients.iter().enumerate().min_by_key(|(_, client)| client.heard);
            if let Some(at) = silent.map(|(at, _)| at) {
                self.clients.remove(at).cut_off();
            }
        }
        let mut client = Client { stream, session, heard: now };
        if client.write(&mut |_| Err(Refusal::new(Reason::Unavailable, ""))) && !client.session.is_over() {
            self.clients.push(client);
        }
    }
}

impl Client {
    /// False when the client is gone.
    fn serve(&mut self, answers: &mut dyn Answers, now: Instant) -> bool {
        if self.session.wants_input() {
            let mut piece = [0; PIECE_BYTES];
            match (&self.stream).read(&mut piece) {
                Ok(0) => {
                    self.session.closed();
                    return false;
                }
                Ok(length) => {
                    self.heard = now;
                    self.session.receive(&piece[..length], answers);
                }
                Err(error) if is_again(&error) => {}
                Err(_) => return false,
            }
        }
        self.write(answers)
    }

    /// Sends as much as the socket takes. False when the client is gone.
    fn write(&mut self, answers: &mut dyn Answers) -> bool {
        for _ in 0..REPLIES {
            if self.session.output().is_empty() {
                break;
            }
            match (&self.stream).write(self.session.output()) {
                Ok(0) => return false,
                Ok(length) => self.session.sent(length, answers),
                Err(error) if is_again(&error) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Another client needs the place: this one is told, as far as its socket takes it.
    fn cut_off(mut self) {
        if self.session.output().is_empty() {
            self.session
                .refuse(Refusal::new(Reason::Busy, "there are too many clients, and this one was silent longest"));
            let _ = (&self.stream).write(self.session.output());
        }
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsFd for ManagementServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.socket()
    }
}
