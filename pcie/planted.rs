//! Bugs planted on purpose, so that each fuzz body is shown to find one. They exist in the crate's own tests only.

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Is the bug of this name switched on, in this thread?
#[cfg(test)]
pub(crate) fn planted(name: &str) -> bool {
    PLANTED.with(|planted| planted.get() == Some(name))
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn planted(_name: &str) -> bool {
    false
}

/// Switches the bug on while `run` runs.
#[cfg(test)]
pub(crate) fn with_planted<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    PLANTED.with(|planted| planted.set(Some(name)));
    let result = run();
    PLANTED.with(|planted| planted.set(None));
    result
}
