//! How a run ends: SIGINT and SIGTERM set a flag and wake whoever waits.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether somebody has asked for the end.
#[derive(Clone, Debug)]
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    pub fn watch() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
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
