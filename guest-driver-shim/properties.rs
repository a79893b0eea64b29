//! How properties run here: see `ci/search.rs`.

use crate::search;
use proptest::strategy::Strategy;
use proptest::test_runner::TestCaseError;

type Body = fn(&[u8]) -> Result<(), TestCaseError>;

/// Runs corpus and cases.
pub(crate) fn run(name: &str, strategy: &impl Strategy<Value = Vec<u8>>, body: Body) {
    search::finds_nothing(env!("CARGO_MANIFEST_DIR"), name, strategy, body);
}

/// Runs cases alone: a planted bug must be found without the corpus too.
pub(crate) fn finds(bug: &'static str, strategy: &impl Strategy<Value = Vec<u8>>, body: Body) {
    crate::planted::with_planted(bug, || search::finds(bug, strategy, body));
}
