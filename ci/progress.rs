//! Where long steps say what they are doing, so that a person does not stare at a silent terminal.

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
        eprintln!("rnic: {sentence}");
    }
}
