//! Bugs planted on purpose: each property test must find its own, or it proves nothing.
//!
//! A test switches one on for its thread; outside tests there is nothing to switch.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// The bug of this name is switched on.
#[cfg(test)]
pub(crate) fn planted(name: &str) -> bool {
    PLANTED.get() == Some(name)
}

/// The bug of this name is switched on: never outside tests.
#[cfg(not(test))]
pub(crate) const fn planted(_name: &str) -> bool {
    false
}

/// Runs `body` with the bug switched on.
#[cfg(test)]
pub(crate) fn with_planted<T>(name: &'static str, body: impl FnOnce() -> T) -> T {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    PLANTED.set(Some(name));
    let _off = Off;
    body()
}
