//! Standard output: what cannot be written there is an error with a sentence, but for a reader that has seen enough.

use crate::exit::Exit;
use std::io::{self, ErrorKind, Write};

/// A line on standard error, as `eprintln!` writes it, but that a standard error which cannot be written ends nobody.
macro_rules! tell {
    ($($sentence:tt)*) => { rnic_ci::tell(format_args!($($sentence)*)) };
}

/// Prints for `rnic COMMAND`.
pub fn print(command: &str, text: &str) -> Exit {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => {
            tell!("rnic {command}: standard output: {error}");
            Exit::Environment
        }
    }
}
