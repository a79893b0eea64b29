//! What a sleeping engine thread watches: its bell, both functions' listeners and clients, through one epoll.
//!
//! The bell is watched for edges: each ring ends one sleep, and nobody has to read it quiet. All else is watched for its
//! state, so that what was not dealt with ends the next sleep too. Nothing is allocated or registered where nothing has
//! changed since the last sleep.

use super::Attachment;
use crate::bell::Bell;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::time::Duration;

const BELL: u64 = 0;
/// Listeners from here on, then clients, in the order of the functions.
const LISTENERS: u64 = 1;
const FUNCTIONS: usize = 2;
const CLIENTS: u64 = LISTENERS + FUNCTIONS as u64;
const EVENTS: usize = 1 + 2 * FUNCTIONS;

pub struct Watch {
    epoll: OwnedFd,
    /// Of each function, the client that is registered, by its number, and what it is watched for. A client's descriptor
    /// leaves the epoll by being closed.
    clients: [Option<(u64, EventFlags)>; FUNCTIONS],
}

/// What ended a sleep, by function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Somebody wants to connect.
    pub calls: [bool; FUNCTIONS],
    /// The client's socket has something, or takes something again.
    pub ready: [bool; FUNCTIONS],
}

impl Watch {
    pub fn new(bell: &Bell, functions: [&Attachment; FUNCTIONS]) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        for (function, at) in functions.iter().zip(LISTENERS..) {
            epoll::add(&epoll, function.listener(), EventData::new_u64(at), EventFlags::IN)?;
        }
        Ok(Self { epoll, clients: [None; FUNCTIONS] })
    }

    /// Waits until something happens or the time is over; a signal ends it with nothing seen.
    pub fn wait(&mut self, functions: [&Attachment; FUNCTIONS], timeout: Option<Duration>) -> Result<Seen> {
        for (at, function) in functions.iter().enumerate() {
            self.follow(at, function)?;
        }
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Err(Errno::INTR) => 0,
            other => other?,
        };
        let mut seen = Seen::default();
        for event in &events[..count] {
            match event.data.u64() {
                at @ CLIENTS.. => note(&mut seen.ready, at - CLIENTS),
                at @ LISTENERS.. => note(&mut seen.calls, at - LISTENERS),
                BELL => {}
            }
        }
        Ok(seen)
    }

    /// Registers a client that is new, and what an old one is now watched for.
    fn follow(&mut self, at: usize, function: &Attachment) -> Result<()> {
        let now = function.client().map(|(client, flags)| (client, (function.clients(), flags)));
        let known = self.clients[at];
        if now.as_ref().map(|(_, wanted)| *wanted) == known {
            return Ok(());
        }
        if let Some((client, (number, flags))) = now {
            let data = EventData::new_u64(CLIENTS + at as u64);
            match known {
                Some((known, _)) if known == number => epoll::modify(&self.epoll, client, data, flags)?,
                _ => epoll::add(&self.epoll, client, data, flags)?,
            }
        }
        self.clients[at] = now.map(|(_, wanted)| wanted);
        Ok(())
    }
}

fn note(which: &mut [bool; FUNCTIONS], at: u64) {
    if let Some(flag) = which.get_mut(at as usize) {
        *flag = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{RdmaFunction, ethernet::EthernetFunction};
    use crate::vfio_user::Listener;
    use rnic_switch::Wake;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Instant;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));
    const SHORT: Duration = Duration::from_millis(20);

    fn attachment(folder: &Path, name: &str) -> Attachment {
        Attachment::new(name.to_owned(), Listener::bind(&folder.join(name)).expect("a listener"))
    }

    /// What a sleep ends with, and that it does not end by its time.
    fn woken(watch: &mut Watch, functions: [&Attachment; FUNCTIONS]) -> Seen {
        let start = Instant::now();
        let seen = watch.wait(functions, LONG).expect("a sleep");
        assert!(start.elapsed() < LONG.unwrap_or_default() / 2, "nothing woke it");
        seen
    }

    fn sleeps_through(watch: &mut Watch, functions: [&Attachment; FUNCTIONS]) -> bool {
        let start = Instant::now();
        watch.wait(functions, Some(SHORT)).expect("a sleep") == Seen::default() && start.elapsed() >= SHORT
    }

    #[test]
    fn each_ring_ends_one_sleep_also_when_it_came_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let functions = [attachment(folder.path(), "a"), attachment(folder.path(), "b")];
        let functions = functions.each_ref();
        let bell = Bell::new().expect("a bell");
        let mut watch = Watch::new(&bell, functions).expect("a watch");
        assert!(sleeps_through(&mut watch, functions));
        for rings in [1, 3] {
            (0..rings).for_each(|_| bell.wake());
            assert_eq!(woken(&mut watch, functions), Seen::default());
            assert!(sleeps_through(&mut watch, functions), "{rings} rings before one sleep end one");
        }
    }

    /// Both functions' clients, one after the other, with descriptors of the same number.
    #[test]
    fn clients_that_come_and_go_are_watched_for_what_they_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let [mut a, mut b] = ["a", "b"].map(|name| attachment(folder.path(), name));
        let (mut function, mut ethernet) = (RdmaFunction::new(Default::default()), EthernetFunction::new(ETHERNET));
        let bell = Bell::new().expect("a bell");
        let mut watch = Watch::new(&bell, [&a, &b]).expect("a watch");
        for _ in 0..3 {
            let mut clients = ["a", "b"].map(|name| UnixStream::connect(folder.path().join(name)).expect("connected"));
            assert_eq!(woken(&mut watch, [&a, &b]), Seen { calls: [true, true], ready: [false, false] });
            a.accept();
            b.accept();
            assert!(sleeps_through(&mut watch, [&a, &b]), "silent clients wake nobody");
            for at in [1, 0] {
                clients[at].write_all(&[0; 4]).expect("a part of a header");
                let seen = woken(&mut watch, [&a, &b]);
                assert_eq!(seen.ready.iter().position(|ready| *ready), Some(at));
                assert_eq!(woken(&mut watch, [&a, &b]), seen, "what nobody has read ends the next sleep too");
                if at == 0 {
                    a.serve(&mut function, 1)
                } else {
                    b.serve(&mut ethernet, 1)
                };
                assert!(sleeps_through(&mut watch, [&a, &b]));
            }
            drop(clients);
            assert_eq!(woken(&mut watch, [&a, &b]).ready, [true, true], "an end is something to read");
            a.serve(&mut function, 1);
            b.serve(&mut ethernet, 1);
            assert!(!a.is_attached() && !b.is_attached());
            assert!(sleeps_through(&mut watch, [&a, &b]));
        }
    }

    const ETHERNET: crate::function::ethernet::EthernetConfig =
        crate::function::ethernet::EthernetConfig { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 };
}
