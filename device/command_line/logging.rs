//! The log: on standard error, quiet by default, and at a rate that no guest can drive up.
//!
//! Each line of the program has an allowance of its own. Lines beyond it are counted, and the next one that is let
//! through says how many were left out.

use log::{Log, Metadata, Record};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So many lines of one place in the program may come at once.
const BURST_LINES: u32 = 20;
/// One more is allowed each time this has passed.
const REFILL: Duration = Duration::from_millis(500);

/// Starts it. Warnings by default, one `-v` for information, two for more, `-q` for errors alone; `RUST_LOG` decides
/// where it is set.
pub fn start(louder: u8, quiet: bool) {
    let level = match (quiet, louder) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let environment = env_logger::Env::default().default_filter_or(level);
    let inner = env_logger::Builder::from_env(environment).format_target(false).build();
    log::set_max_level(inner.filter());
    // It can be set once; there is nobody else to set it.
    let _ = log::set_boxed_logger(Box::new(RateLimited { inner, places: Mutex::default() }));
}

/// A place in the program.
type Place = (&'static str, u32);

struct RateLimited {
    inner: env_logger::Logger,
    /// Bounded by the places that there are.
    places: Mutex<HashMap<Place, Allowance>>,
}

impl Log for RateLimited {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.inner.matches(record) {
            return;
        }
        let place = (record.file_static().unwrap_or(""), record.line().unwrap_or(0));
        let left_out = match self.places.lock() {
            Ok(mut places) => {
                places.entry(place).or_insert_with(|| Allowance::new(Instant::now())).take(Instant::now())
            }
            Err(_) => Some(0),
        };
        match left_out {
            None => {}
            Some(0) => self.inner.log(record),
            Some(count) => {
                let text = format!("{} ({count} lines like this left out before it)", record.args());
                let arguments = format_args!("{text}");
                let whole = Record::builder().metadata(record.metadata().clone()).args(arguments).build();
                self.inner.log(&whole);
            }
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// What a place may still say.
#[derive(Debug)]
struct Allowance {
    lines: u32,
    refilled: Instant,
    left_out: u64,
}

impl Allowance {
    const fn new(now: Instant) -> Self {
        Self { lines: BURST_LINES, refilled: now, left_out: 0 }
    }

    /// How many lines were left out before the one that may be written now; `None` when it is left out too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let refills = now.saturating_duration_since(self.refilled).as_millis() / REFILL.as_millis();
        if refills > 0 {
            self.refilled = now;
            self.lines = u32::try_from(refills).unwrap_or(u32::MAX).saturating_add(self.lines).min(BURST_LINES);
        }
        match self.lines.checked_sub(1) {
            Some(lines) => {
                self.lines = lines;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let written = (0..1000).filter(|_| allowance.take(start).is_some()).count();
        assert_eq!(written, BURST_LINES as usize);
        assert_eq!(allowance.take(start + REFILL), Some(1000 - u64::from(BURST_LINES)));
        assert_eq!(allowance.take(start + REFILL), None);
        let later = start + 1000 * REFILL;
        assert_eq!(allowance.take(later), Some(1));
        assert_eq!((0..1000).filter(|_| allowance.take(later).is_some()).count(), BURST_LINES as usize - 1);
    }
}
