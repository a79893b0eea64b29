//! Tests that concern the crate as a whole, and what the tests of its modules share.

mod any_bytes;
mod any_packet;
mod four_tests;
mod known_answers;
mod refusals;

pub(crate) mod vectors;

pub(crate) use four_tests::four_header_tests;
