//! Arbitrary bytes against each part that a guest or a client can reach: the corpus first, then generated cases.
//! Each body finds the bug that is planted for it.

mod config_space;
mod dma;
mod write_combine;

use crate::planted::with_planted;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::path::Path;
use std::time::{Duration, Instant};

type Body = fn(&[u8]) -> Result<(), TestCaseError>;

const CASES: u32 = 200_000;
const BUDGET: Duration = Duration::from_secs(10);

/// The committed inputs of a body; there must be some.
fn run_corpus(name: &str, body: Body) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no inputs in {}", folder.display());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        body(&bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

/// Generated inputs until the cases or the time run out; what was found, if anything.
fn run_generated(body: Body) -> Result<(), String> {
    let start = Instant::now();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(
            &prop::collection::vec(any::<u8>(), 0..200),
            |bytes| {
                if start.elapsed() > BUDGET { Ok(()) } else { body(&bytes) }
            },
        )
        .map_err(|error| error.to_string())
}

fn check(name: &str, body: Body) {
    run_corpus(name, body);
    run_generated(body).unwrap();
}

fn finds(bug: &'static str, body: Body) {
    assert!(with_planted(bug, || run_generated(body)).is_err(), "{bug}: not found");
}

/// Values out of an input; zeros once it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[test]
fn config_space_accesses() {
    check("config_space", config_space::body);
    finds("config space writes status bits", config_space::body);
}

#[test]
fn dma_against_a_model_of_bytes() {
    check("dma", dma::body);
    finds("unmap removes what it only touches", dma::body);
    finds("mapped pieces do not wait for messages", dma::body);
}

#[test]
fn stores_to_the_doorbell_bar() {
    check("write_combine", write_combine::body);
    finds("combiner takes any slot of the line", write_combine::body);
}
