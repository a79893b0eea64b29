//! Rules that are broken on purpose, in test builds and in builds of mutants only: a test that misses its bug proves
//! nothing. The product holds a constant.

#[cfg(test)]
thread_local! {
    static SWITCHED_ON: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether the bug `name` is switched on: by a test for its thread, or in a build of mutants for the whole process.
#[cfg(any(test, mutants))]
pub(crate) fn planted(name: &str) -> bool {
    #[cfg(test)]
    if SWITCHED_ON.get() == Some(name) {
        return true;
    }
    mutant(name)
}

/// A build with `--cfg mutants` breaks the rule that the environment names.
#[cfg(mutants)]
fn mutant(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("RNIC_MUTANT").ok()).as_deref() == Some(name)
}

#[cfg(all(test, not(mutants)))]
const fn mutant(_: &str) -> bool {
    false
}

#[cfg(not(any(test, mutants)))]
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
