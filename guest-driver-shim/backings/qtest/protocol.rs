//! The qtest protocol: one text line out, one line back.
//!
//! In: a stream to QEMU's qtest character device. Out: words and bytes of guest-physical address space and ports.

use crate::backing::{BackingError, Result};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub(super) const QEMU: &str = "QEMU under qtest";
/// Bytes of memory in one command.
const CHUNK_BYTES: usize = 32 << 10;
/// The longest answer: a chunk in hexadecimal and a few words.
const LONGEST_LINE: u64 = 2 * CHUNK_BYTES as u64 + 64;

#[derive(Debug)]
pub(super) struct Qtest {
    stream: BufReader<UnixStream>,
    limit: Duration,
}

fn broken(what: impl Into<String>) -> BackingError {
    BackingError::Protocol { peer: QEMU, what: what.into() }
}

impl Qtest {
    pub fn new(stream: UnixStream, limit: Duration) -> Result<Self> {
        stream.set_read_timeout(Some(limit)).map_err(BackingError::io("setting qtest's read limit"))?;
        stream.set_write_timeout(Some(limit)).map_err(BackingError::io("setting qtest's write limit"))?;
        Ok(Self { stream: BufReader::new(stream), limit })
    }

    /// Sends a command and returns what follows `OK`. Interrupt notices in between are skipped.
    fn command(&mut self, command: &str) -> Result<String> {
        let what = || format!("qtest command {}", command.get(..40).unwrap_or(command));
        let line = format!("{command}\n");
        self.stream.get_mut().write_all(line.as_bytes()).map_err(BackingError::io(what()))?;
        let start = Instant::now();
        loop {
            let mut answer = String::new();
            let mut bounded = self.stream.by_ref().take(LONGEST_LINE);
            bounded.read_line(&mut answer).map_err(BackingError::io(what()))?;
            let answer = answer
                .strip_suffix('\n')
                .ok_or_else(|| broken(format!("no whole line as the answer to {}", what())))?;
            match answer.split_once(' ').unwrap_or((answer, "")) {
                ("OK", rest) => return Ok(rest.trim().to_owned()),
                ("IRQ", _) if start.elapsed() < self.limit => {}
                _ => return Err(broken(format!("{} answered {answer:?}", what()))),
            }
        }
    }

    fn number(&mut self, command: &str) -> Result<u64> {
        let answer = self.command(command)?;
        let digits = answer.strip_prefix("0x").unwrap_or(&answer);
        u64::from_str_radix(digits, 16).map_err(|_| broken(format!("{command} answered {answer:?}")))
    }

    pub fn read32(&mut self, address: u64) -> Result<u32> {
        Ok(self.number(&format!("readl {address:#x}"))? as u32)
    }

    pub fn read64(&mut self, address: u64) -> Result<u64> {
        self.number(&format!("readq {address:#x}"))
    }

    pub fn write32(&mut self, address: u64, value: u32) -> Result<()> {
        self.command(&format!("writel {address:#x} {value:#x}")).map(drop)
    }

    pub fn write64(&mut self, address: u64, value: u64) -> Result<()> {
        self.command(&format!("writeq {address:#x} {value:#x}")).map(drop)
    }

    pub fn port_in32(&mut self, port: u16) -> Result<u32> {
        Ok(self.number(&format!("inl {port:#x}"))? as u32)
    }

    pub fn port_out32(&mut self, port: u16, value: u32) -> Result<()> {
        self.command(&format!("outl {port:#x} {value:#x}")).map(drop)
    }

    pub fn port_out16(&mut self, port: u16, value: u16) -> Result<()> {
        self.command(&format!("outw {port:#x} {value:#x}")).map(drop)
    }

    pub fn zero(&mut self, address: u64, length_bytes: u64) -> Result<()> {
        match length_bytes {
            0 => Ok(()),
            _ => self.command(&format!("memset {address:#x} {length_bytes:#x} 0x0")).map(drop),
        }
    }

    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        for (at, chunk) in (address..).step_by(CHUNK_BYTES).zip(bytes.chunks(CHUNK_BYTES)) {
            let mut line = format!("write {at:#x} {:#x} 0x", chunk.len());
            for byte in chunk {
                let _ = write!(line, "{byte:02x}");
            }
            self.command(&line)?;
        }
        Ok(())
    }

    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        for (at, chunk) in (address..).step_by(CHUNK_BYTES).zip(bytes.chunks_mut(CHUNK_BYTES)) {
            let answer = self.command(&format!("read {at:#x} {:#x}", chunk.len()))?;
            let digits = answer.strip_prefix("0x").unwrap_or(&answer).as_bytes();
            let short = || broken(format!("{} digits for {} bytes", digits.len(), answer.len()));
            if digits.len() != chunk.len() * 2 {
                return Err(short());
            }
            for (byte, pair) in chunk.iter_mut().zip(digits.chunks_exact(2)) {
                let text = std::str::from_utf8(pair).map_err(|_| short())?;
                *byte = u8::from_str_radix(text, 16).map_err(|_| short())?;
            }
        }
        Ok(())
    }
}
