//! A time limit that knows the name of the step it limits.

use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The end of the time a step may take.
#[derive(Debug, Clone)]
pub struct Deadline {
    step: String,
    limit: Duration,
    end: Instant,
}

impl Deadline {
    pub fn new(step: impl Into<String>, limit: Duration) -> Deadline {
        Deadline { step: step.into(), limit, end: Instant::now() + limit }
    }

    /// The step's name, for errors other than the time limit.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// The time that is left, never zero (a socket takes zero for "no limit"), or the error once it is over.
    pub fn remaining(&self) -> Result<Duration> {
        match self.end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.passed("")),
        }
    }

    /// The error of a limit that passed, with more to say than the step's name.
    pub fn passed(&self, detail: &str) -> Error {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        Error::Timeout { step: self.step.clone(), limit: self.limit, detail }
    }
}
