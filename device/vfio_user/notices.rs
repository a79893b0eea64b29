//! Warnings about what a client does, at a rate that the client cannot drive up.

use std::fmt;
use std::time::{Duration, Instant};

/// So many lines may come at once.
const BURST_LINES: u32 = 16;
/// One more line is allowed each time this has passed.
const REFILL: Duration = Duration::from_secs(1);

/// The log of one connection.
#[derive(Debug)]
pub struct Notices {
    name: String,
    lines_left: u32,
    refilled: Instant,
    suppressed: u64,
}

impl Notices {
    pub fn new(name: String) -> Self {
        Self { name, lines_left: BURST_LINES, refilled: Instant::now(), suppressed: 0 }
    }

    pub fn rename(&mut self, name: String) {
        self.name = name;
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes a line, unless too many came of late.
    pub fn warn(&mut self, line: fmt::Arguments<'_>) {
        if !log::log_enabled!(log::Level::Warn) {
            return;
        }
        if !self.allows(Instant::now()) {
            self.suppressed += 1;
            return;
        }
        let name = &self.name;
        match std::mem::take(&mut self.suppressed) {
            0 => log::warn!("{name}: {line}"),
            suppressed => log::warn!("{name}: {line} ({suppressed} lines left out before this one)"),
        }
    }

    fn allows(&mut self, now: Instant) -> bool {
        let refills = now.saturating_duration_since(self.refilled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            self.refilled = now;
            self.lines_left = u64::from(self.lines_left).saturating_add(refills).min(BURST_LINES.into()) as u32;
        }
        match self.lines_left.checked_sub(1) {
            Some(left) => {
                self.lines_left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_burst_and_then_to_the_rate() {
        let mut notices = Notices::new("test".into());
        let start = notices.refilled;
        let at_once = (0..1000).filter(|_| notices.allows(start)).count();
        assert_eq!(at_once, BURST_LINES as usize);
        let later = start + Duration::from_secs(3);
        assert_eq!((0..1000).filter(|_| notices.allows(later)).count(), 3);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!((0..1000).filter(|_| notices.allows(much_later)).count(), BURST_LINES as usize);
    }
}
