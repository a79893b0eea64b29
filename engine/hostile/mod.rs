//! Hostile input: what a guest, a peer and a host's memory can do, in six bodies.
//!
//! Each body takes bytes, reads them as a script and checks what must hold whatever they say: no panic, no step
//! without end, no byte written where nobody allowed it, an answer or a completion for everything that was asked,
//! a diagnostic for every refusal, and queue pairs beside the attacked one that go on. The corpus of a body is run
//! first, then a search; and each body must find the bug that is planted for it.

mod accesses;
mod commands;
mod frames;
mod memory;
mod traffic;
mod work_requests;
mod world;

use crate::planted::with_planted;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use std::time::Duration;

type Body = fn(&[u8]) -> Result<(), TestCaseError>;

/// Values out of bytes; zeros when they have ended.
pub(crate) struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.word())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.word())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.word())
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    /// One of these.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}

/// The time to stop, so that a slow machine tries fewer cases.
struct Stop {
    #[expect(clippy::disallowed_types, reason = "the search is limited by time, what it searches is not")]
    started: std::time::Instant,
    limit: Duration,
}

impl Stop {
    /// Ten seconds, unless somebody has time for a longer search.
    #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "see above")]
    fn new() -> Self {
        let seconds = std::env::var("RNIC_SEARCH_SECONDS").ok().and_then(|text| text.parse().ok());
        Self { started: std::time::Instant::now(), limit: Duration::from_secs(seconds.unwrap_or(10)) }
    }

    fn is_due(&self) -> bool {
        self.started.elapsed() > self.limit
    }
}

fn search(body: Body) -> Result<(), TestError<Vec<u8>>> {
    let stop = Stop::new();
    // What is left when the time is over is generated and skipped: it must not be much.
    let cases = 20_000u32.saturating_mul(stop.limit.as_secs() as u32);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let strategy = proptest::collection::vec(any::<u8>(), 0..400);
    TestRunner::new(config).run(&strategy, |bytes| if stop.is_due() { Ok(()) } else { body(&bytes) })
}

/// The corpus, then a search.
fn finds_nothing(name: &str, body: Body) {
    let folder = format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut entries = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is committed") {
        let path = entry.expect("a directory entry").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        body(&bytes).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
        entries += 1;
    }
    assert!(entries >= 4, "the corpus in {folder} is missing");
    if let Err(TestError::Fail(reason, bytes)) = search(body) {
        if let Some(folder) = std::env::var_os("RNIC_KEEP_FAILURES") {
            std::fs::write(std::path::Path::new(&folder).join(format!("{name}.bin")), &bytes).expect("writable");
        }
        panic!("{reason}\n{bytes:?}");
    }
}

fn finds_planted(bug: &'static str, body: Body) {
    let found = with_planted(bug, || search(body));
    assert!(matches!(found, Err(TestError::Fail(..))), "{bug} was not found");
}

macro_rules! body_tests {
    ($($name:ident, $bug:literal;)*) => {
        $(mod $name {
            #[test]
            fn any_bytes_are_survived() {
                super::super::finds_nothing(stringify!($name), super::super::$name::body);
            }

            #[test]
            fn the_planted_bug_is_found() {
                super::super::finds_planted($bug, super::super::$name::body);
            }
        })*
    };
}

mod tests {
    body_tests! {
        accesses, "doorbell_length_unchecked";
        commands, "refusal_undiagnosed";
        work_requests, "key_range_unchecked";
        frames, "ghost_acknowledgements_count";
        memory, "waiter_forgotten";
        traffic, "duplicates_executed";
    }

    #[test]
    fn a_read_that_completes_without_its_response_is_found() {
        super::finds_planted("passed_over_reads_complete", super::traffic::body);
    }
}
