//! How properties run here: the committed corpus first, then as many cases as 10 seconds give, at most 200,000.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::path::Path;
use std::time::{Duration, Instant};

const CASES: u32 = 200_000;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The files of a body's corpus.
pub(crate) fn corpus(body: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(body);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.sort();
    files
}

/// Runs corpus and cases; the error says what failed.
pub(crate) fn run(
    name: &str,
    strategy: impl Strategy<Value = Vec<u8>>,
    body: fn(&[u8]) -> Result<(), TestCaseError>,
) -> Result<(), String> {
    for (file, bytes) in corpus(name) {
        body(&bytes).map_err(|error| format!("{file}: {error}"))?;
    }
    cases(strategy, body)
}

/// Runs cases alone: a planted bug must be found without the corpus too.
pub(crate) fn cases(
    strategy: impl Strategy<Value = Vec<u8>>,
    body: fn(&[u8]) -> Result<(), TestCaseError>,
) -> Result<(), String> {
    let start = Instant::now();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&strategy, |bytes| {
        if start.elapsed() > TIME_LIMIT {
            return Ok(());
        }
        body(&bytes)
    });
    outcome.map_err(|error| match error {
        TestError::Fail(reason, bytes) => format!("{reason}; bytes {bytes:02x?}"),
        TestError::Abort(reason) => reason.to_string(),
    })
}
