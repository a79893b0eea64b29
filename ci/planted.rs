//! Bugs planted on purpose, each of which a property body must find. They exist in this crate's own tests only.

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether the bug of this name is there, in this thread.
#[cfg(test)]
pub(crate) fn planted(name: &str) -> bool {
    PLANTED.get() == Some(name)
}

#[cfg(not(test))]
pub(crate) const fn planted(_name: &str) -> bool {
    false
}

/// Plants the bug while `run` runs.
#[cfg(test)]
pub(crate) fn with_planted<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    PLANTED.set(Some(name));
    let result = run();
    PLANTED.set(None);
    result
}
