//! QEMU's own trace of its vfio-user client: a count of crossings that does not come from the device.
//!
//! In: an event list for QEMU's command line, and the log it then writes. Out: [`TraceRecord`]s. Debian builds QEMU
//! with the "log" backend, which writes one line an event to the file named by `-D`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::file;
use crate::planted::planted;

/// Messages on the socket in both directions, BAR accesses, and vectors as they fire.
pub const EVENTS: &[&str] = &[
    "vfio_user_recv_hdr",
    "vfio_user_recv_request",
    "vfio_user_send_write",
    "vfio_user_region_rw",
    "vfio_user_dma_map",
    "vfio_user_dma_unmap",
    "vfio_region_read",
    "vfio_region_write",
    "vfio_msi_interrupt",
    "vfio_msix_vector_do_use",
    "vfio_msix_vector_release",
];

/// One event: its name and what follows it, for example `vfio_region_write` and ` (0000:01:00.0:region2+0x0, 0x1, 8)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRecord {
    pub event: String,
    pub detail: String,
}

impl TraceRecord {
    /// The number behind `name` in the detail: `size 0x30` gives 0x30 for `size`.
    pub fn number(&self, name: &str) -> Option<u64> {
        let mut words = self.detail.split_whitespace();
        words.find(|word| *word == name)?;
        let word = words.next()?;
        match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        }
    }
}

/// A trace that is being written.
#[derive(Debug, Clone)]
pub struct Trace {
    log: PathBuf,
    arguments: Vec<String>,
}

impl Trace {
    /// Writes the event list into `folder` and names the log there.
    pub fn prepare(folder: &Path, name: &str, events: &[&str]) -> Result<Trace> {
        let list = folder.join(format!("{name}.trace-events"));
        let log = folder.join(format!("{name}.trace"));
        let mut output = fs::File::create(&list).map_err(file("creation", &list))?;
        for event in events {
            writeln!(output, "{event}").map_err(file("writing", &list))?;
        }
        let arguments =
            vec!["-trace".into(), format!("events={}", list.display()), "-D".into(), log.display().to_string()];
        Ok(Trace { log, arguments })
    }

    /// What QEMU's command line gets.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What has been written so far; a line still being written is left for the next call.
    pub fn records(&self) -> Result<Vec<TraceRecord>> {
        let text = match fs::read(&self.log) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(file("reading", &self.log)(error)),
        };
        Ok(parse(&String::from_utf8_lossy(&text)))
    }
}

/// Records of whole lines. With `-msg timestamp=on` or older builds a prefix `pid@time:` stands before the event.
pub(crate) fn parse(text: &str) -> Vec<TraceRecord> {
    let whole = |line: &str| line.ends_with('\n') || planted("half_line_taken");
    text.split_inclusive('\n')
        .filter(|line| whole(line))
        .filter_map(|line| parse_line(line.trim_end_matches('\n')))
        .collect()
}

fn parse_line(line: &str) -> Option<TraceRecord> {
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    let event = first.rsplit(':').next()?;
    let is_name = !event.is_empty() && event.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| TraceRecord { event: event.to_owned(), detail: rest.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_records() {
        let text = "vfio_user_recv_hdr  (/tmp/a) id 0x3 cmd 0x4 size 0x30 flags 0x1\n12@1700000000.5:vfio_msi_interrupt  (a) vector 2 0xfee0/0x4021\nvfio_reg";
        let records = parse(text);
        assert_eq!(records.len(), 2, "the last line is not whole");
        assert_eq!((records[0].number("size"), records[0].number("cmd")), (Some(0x30), Some(4)));
        assert_eq!((records[1].event.as_str(), records[1].number("vector")), ("vfio_msi_interrupt", Some(2)));
        assert_eq!(records[1].number("absent"), None);
    }
}
