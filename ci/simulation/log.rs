//! What happened, in order: every frame, post, completion and event of a run. Equal logs are equal runs.

use std::fmt::{self, Write as _};
use std::io::Write;

/// One line of the log.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub time_ns: u64,
    pub what: &'static str,
    /// The host it happened at.
    pub host: usize,
    pub numbers: [u64; 4],
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.numbers;
        write!(f, "{} host {} {} {a:#x} {b:#x} {c:#x} {d:#x}", self.time_ns, self.host, self.what)
    }
}

/// The log: a digest always, the lines where somebody wants them, the latest for whoever explains a failure.
pub struct Log {
    digest: u64,
    entries: u64,
    latest: Vec<Entry>,
    sink: Option<Box<dyn Write>>,
    line: String,
    failure: Option<std::io::Error>,
}

const LATEST: usize = 4096;

impl Log {
    pub fn new(sink: Option<Box<dyn Write>>) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, entries: 0, latest: Vec::new(), sink, line: String::new(), failure: None }
    }

    pub fn enter(&mut self, entry: Entry) {
        let mut mix =
            |word: u64| self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        mix(entry.time_ns);
        mix(entry.host as u64);
        mix(entry.what.bytes().fold(0, |word, byte| word.rotate_left(8) ^ u64::from(byte)));
        entry.numbers.into_iter().for_each(mix);
        match self.latest.len() {
            LATEST => self.latest[(self.entries % LATEST as u64) as usize] = entry,
            _ => self.latest.push(entry),
        }
        self.entries += 1;
        if let Some(sink) = &mut self.sink {
            self.line.clear();
            let _ = writeln!(self.line, "{entry}");
            if let Err(error) = sink.write_all(self.line.as_bytes()) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// The digest of all entries.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The last `count` entries, oldest first.
    pub fn latest(&self, count: usize) -> Vec<Entry> {
        let start = if self.latest.len() < LATEST { 0 } else { (self.entries % LATEST as u64) as usize };
        let ordered = self.latest[start..].iter().chain(&self.latest[..start]);
        ordered.skip(self.latest.len().saturating_sub(count)).copied().collect()
    }

    /// Whether every line has been written.
    pub fn finish(&mut self) -> std::io::Result<()> {
        if let Some(sink) = &mut self.sink {
            sink.flush()?;
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}
