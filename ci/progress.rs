//! Where long steps say what they are doing, so that a person does not stare at a silent terminal.

use std::fmt;
use std::io::Write;

/// A line on standard error. Where that cannot be written nobody listens, and the work goes on.
pub fn tell(sentence: fmt::Arguments<'_>) {
    // One write, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("{sentence}\n").as_bytes());
}

/// Receives one sentence for each step that may take longer than a second.
pub trait Progress {
    fn step(&mut self, sentence: &str);
}

/// Says nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _sentence: &str) {}
}

/// Prints each sentence to standard error.
#[derive(Debug, Clone, Copy)]
pub struct StandardError;

impl Progress for StandardError {
    fn step(&mut self, sentence: &str) {
        tell(format_args!("rnic: {sentence}"));
    }
}
