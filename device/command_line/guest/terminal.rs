//! The terminal in raw mode, and back.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io;

/// While this lives, every key goes through as it is.
pub struct RawTerminal(Termios);

impl RawTerminal {
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
