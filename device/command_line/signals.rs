//! How a run ends: SIGINT, SIGTERM and SIGHUP set a flag and wake whoever waits.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether somebody has asked for the end.
#[derive(Clone, Debug)]
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    pub fn watch() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The second one ends the process at once.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits for a signal.
    pub fn wait(&self) {
        while !self.asked() {
            // A signal interrupts the pause; the time limit covers one that came just before it.
            std::thread::park_timeout(Duration::from_millis(200));
        }
    }
}

/// What a signal asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// SIGINT: end, if that harms nobody.
    Interrupt,
    /// SIGTERM, or SIGHUP: end.
    Terminate,
}

/// Signals as descriptors that can be polled with others: one byte a signal.
#[derive(Debug)]
pub struct Endings {
    interrupts: UnixStream,
    terminations: UnixStream,
    /// Its terminal is gone.
    hangups: UnixStream,
    closing: Arc<AtomicBool>,
}

impl Endings {
    pub fn watch() -> io::Result<Self> {
        let closing = Arc::new(AtomicBool::new(false));
        let pipe = |signal| -> io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            // While the end is under way, a further signal ends the process at once.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&closing))?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            Ok(ours)
        };
        let (interrupts, terminations, hangups) = (pipe(SIGINT)?, pipe(SIGTERM)?, pipe(SIGHUP)?);
        Ok(Self { interrupts, terminations, hangups, closing })
    }

    /// Readable when there is something to take.
    pub fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.interrupts.as_fd(), self.terminations.as_fd(), self.hangups.as_fd()]
    }

    /// The next signal; SIGTERM first.
    pub fn take(&self) -> Option<Ending> {
        let has = |mut pipe: &UnixStream| pipe.read(&mut [0]).is_ok_and(|length| length > 0);
        if has(&self.terminations) || has(&self.hangups) {
            return Some(Ending::Terminate);
        }
        has(&self.interrupts).then_some(Ending::Interrupt)
    }

    /// The end is under way.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }
}
