//! How a hostile body is run, in every crate that has one: its corpus, then generated cases until there were 200,000 of
//! them or ten seconds have passed. Each crate includes this file for its tests; the crates know nothing else of each
//! other.
//!
//! In: a body, a strategy, and the folder of its corpus. Out: what was tried, or the case that failed. A body that was
//! not tried enough fails.
#![allow(dead_code, reason = "not every crate uses all of it")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the search is limited by time, not its object"
)]

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::path::Path;
use std::time::{Duration, Instant};

const ENOUGH_CASES: u64 = 200_000;
const ENOUGH_SECONDS: u64 = 10;
/// The clock is looked at after so many cases.
const ROUND: u32 = 64;
/// Steps by which a failing case is made smaller.
const SHRINKING: u32 = 500;

/// How much a search has tried.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    pub cases: u64,
    pub time: Duration,
}

impl Tried {
    /// 200,000 cases, or ten seconds of them.
    pub fn is_enough(&self) -> bool {
        self.cases >= ENOUGH_CASES || (self.time >= Duration::from_secs(ENOUGH_SECONDS) && self.cases > 0)
    }
}

/// Ten seconds, unless somebody has time for a longer search.
fn time_limit() -> Duration {
    let seconds = std::env::var("RNIC_SEARCH_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(ENOUGH_SECONDS).max(ENOUGH_SECONDS))
}

/// Generated cases through a body. Cases are counted where they run: none is generated and left out.
pub fn search<S: Strategy<Value = Vec<u8>>>(
    strategy: &S,
    body: impl Fn(&[u8]) -> Result<(), TestCaseError>,
) -> Result<Tried, TestError<Vec<u8>>> {
    let (start, limit) = (Instant::now(), time_limit());
    let most = if limit > Duration::from_secs(ENOUGH_SECONDS) { u64::MAX } else { ENOUGH_CASES };
    let cases = std::cell::Cell::new(0u64);
    while cases.get() < most && start.elapsed() < limit {
        let config =
            Config { cases: ROUND, failure_persistence: None, max_shrink_iters: SHRINKING, ..Config::default() };
        TestRunner::new(config).run(strategy, |bytes| {
            cases.set(cases.get() + 1);
            body(&bytes)
        })?;
    }
    Ok(Tried { cases: cases.get(), time: start.elapsed() })
}

/// The corpus of a body, `corpus/NAME` of the crate at `root`, each file by name. There must be some.
pub fn corpus(root: &str, name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(root).join("corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a directory entry").path()).collect();
    files.sort();
    assert!(files.len() >= 3, "the corpus in {} is missing: {} cases", folder.display(), files.len());
    let read = |path: &Path| std::fs::read(path).expect("a readable file");
    files.iter().map(|path| (path.display().to_string(), read(path))).collect()
}

/// The corpus, then the search: it finds nothing, and has tried enough. `RNIC_KEEP_FAILURES=FOLDER` keeps what it finds,
/// to be put into the corpus.
pub fn finds_nothing<S: Strategy<Value = Vec<u8>>>(
    root: &str,
    name: &str,
    strategy: &S,
    body: impl Fn(&[u8]) -> Result<(), TestCaseError>,
) {
    let corpus = corpus(root, name);
    for (file, bytes) in &corpus {
        body(bytes).unwrap_or_else(|fault| panic!("{file}: {fault}"));
    }
    match search(strategy, body) {
        Ok(tried) => {
            println!("{name}: {} cases of the corpus, {} generated in {:?}", corpus.len(), tried.cases, tried.time);
            assert!(tried.is_enough(), "{name} was not tried enough: {tried:?}");
        }
        Err(TestError::Abort(reason)) => panic!("{name}: {reason}"),
        Err(TestError::Fail(reason, bytes)) => {
            if let Some(folder) = std::env::var_os("RNIC_KEEP_FAILURES") {
                std::fs::write(Path::new(&folder).join(format!("{name}.bin")), &bytes).expect("writable");
            }
            panic!("{name}: {reason}\n{bytes:?}");
        }
    }
}

/// A bug that is planted in the crate must not escape the search, corpus apart. `planted` runs what it is given with the
/// bug switched on.
pub fn finds<S: Strategy<Value = Vec<u8>>>(bug: &str, strategy: &S, body: impl Fn(&[u8]) -> Result<(), TestCaseError>) {
    let found = search(strategy, body);
    assert!(matches!(found, Err(TestError::Fail(..))), "{bug} was not found: {found:?}");
}

/// A bug that a short search may miss must not escape the corpus.
pub fn corpus_finds(root: &str, name: &str, bug: &str, body: impl Fn(&[u8]) -> Result<(), TestCaseError>) {
    let found = corpus(root, name).iter().any(|(_, bytes)| body(bytes).is_err());
    assert!(found, "{bug} was not found by the corpus of {name}");
}

#[test]
fn enough_is_many_cases_or_a_long_time() {
    let tried = |cases, seconds| Tried { cases, time: Duration::from_secs(seconds) }.is_enough();
    assert!(tried(200_000, 1) && tried(500, 10));
    assert!(!tried(199_999, 9) && !tried(0, 60));
}
