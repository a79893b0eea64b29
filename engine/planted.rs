//! Bugs that the hostile bodies must find, in test builds only: a body that misses its bug proves nothing.

#[cfg(test)]
thread_local! {
    static SWITCHED_ON: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether the bug `name` is switched on in this thread.
#[cfg(test)]
pub(crate) fn planted(name: &str) -> bool {
    SWITCHED_ON.get() == Some(name)
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn planted(_: &str) -> bool {
    false
}

/// Runs `work` with the bug switched on.
#[cfg(test)]
pub(crate) fn with_planted<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    SWITCHED_ON.set(Some(name));
    let result = work();
    SWITCHED_ON.set(None);
    result
}
