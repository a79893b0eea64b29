//! How a port's thread goes to sleep without missing a frame.
//!
//! In: the owner says that it is about to sleep; others push frames. Out: one wake-up a sleep, and none while awake.
//! It rests on the store-load rule: each side stores (a frame; "I sleep"), fences, then looks at what the other stored,
//! so at least one of the two sees the other's store. The fences are the callers', so that a flood needs only one.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the thread that owns a port, for example by writing an eventfd. May be called from any thread, and once too often.
pub trait Wake: Send + Sync {
    fn wake(&self);
}

/// For an owner that never sleeps, or that drives all its ports itself.
#[derive(Clone, Copy, Debug)]
pub struct NeverSleeps;

impl Wake for NeverSleeps {
    fn wake(&self) {}
}

/// Whether a port's owner sleeps, and how to wake it.
pub struct Sleeper {
    asleep: AtomicBool,
    wake: std::sync::Arc<dyn Wake>,
}

impl Sleeper {
    pub fn new(wake: std::sync::Arc<dyn Wake>) -> Self {
        Self { asleep: AtomicBool::new(false), wake }
    }

    /// The owner is about to sleep; a SeqCst fence and a last look at its rings must follow.
    pub fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
    }

    /// The owner is awake. Acquire, so that it sees all that its waker did before.
    pub fn get_up(&self) {
        self.asleep.swap(false, Ordering::AcqRel);
    }

    /// Called behind a SeqCst fence that follows what the sleeper is to see.
    pub fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.wake.wake();
        }
    }

    /// For a sleeper known to wait for something else than a frame.
    pub fn wake(&self) {
        self.wake.wake();
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").field("asleep", &self.asleep).finish_non_exhaustive()
    }
}
