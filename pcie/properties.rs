//! Arbitrary bytes against each part that a guest or a client can reach: the corpus first, then generated cases.
//! Each body finds the bug that is planted for it.

mod config_space;
mod dma;
mod write_combine;

use crate::planted::with_planted;
use crate::search;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

type Body = fn(&[u8]) -> Result<(), TestCaseError>;

fn inputs() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn check(name: &str, body: Body) {
    search::finds_nothing(env!("CARGO_MANIFEST_DIR"), name, &inputs(), body);
}

fn finds(bug: &'static str, body: Body) {
    with_planted(bug, || search::finds(bug, &inputs(), body));
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
