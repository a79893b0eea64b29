//! A machine without a running guest: qtest reads and writes its memory, ports and so its PCI devices from outside.
//!
//! In: what else belongs on QEMU's command line (devices, memory). Out: a [`QtestMachine`] in about 0.3 s.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::Qemu;
use super::qmp::{Qmp, is_try_again};
use super::run_folder::RunFolder;
use super::running::{Awaited, Running};
use crate::deadline::Deadline;
use crate::{Error, Result};

const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// A machine under qtest, killed when dropped.
#[derive(Debug)]
pub struct QtestMachine {
    running: Running,
    connection: BufReader<UnixStream>,
}

impl Qemu {
    /// Starts a machine under qtest. The caller's arguments name machine, memory and devices.
    pub fn start_qtest(&self, name: &str, run_folder: &Arc<RunFolder>, arguments: &[OsString]) -> Result<QtestMachine> {
        let awaited = Awaited::listen(run_folder, "qtest")?;
        let mut all: Vec<OsString> =
            ["-accel", "qtest", "-display", "none", "-nodefaults", "-qtest-log", "none", "-qtest"]
                .map(OsString::from)
                .to_vec();
        all.push(format!("unix:{}", awaited.path().display()).into());
        all.extend_from_slice(arguments);
        let mut running = self.start(name, run_folder, &all)?;
        let connection = running.accept(&awaited, &Deadline::new("QEMU connects to qtest", COMMAND_LIMIT))?;
        Ok(QtestMachine { running, connection: BufReader::new(connection) })
    }
}

impl QtestMachine {
    pub fn qmp(&mut self) -> &mut Qmp {
        self.running.qmp()
    }

    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// A second handle on qtest's connection, for a driver that speaks the protocol itself. Only one of the two may be
    /// used at a time.
    pub fn stream(&self) -> Result<UnixStream> {
        let step = || "duplicating qtest's connection".to_owned();
        self.connection
            .get_ref()
            .try_clone()
            .map_err(|error| Error::Connection { step: step(), reason: error.to_string() })
    }

    /// Sends one qtest command and returns what follows `OK`.
    pub fn command(&mut self, command: &str) -> Result<String> {
        self.exchange(command).map_err(|error| self.running.explain(error))
    }

    /// Reads `size_bytes` (1, 2, 4 or 8) of guest-physical address space.
    pub fn read(&mut self, address: u64, size_bytes: u32) -> Result<u64> {
        let answer = self.command(&format!("read{} {address:#x}", letter(size_bytes)))?;
        self.number(&answer)
    }

    pub fn write(&mut self, address: u64, size_bytes: u32, value: u64) -> Result<()> {
        self.command(&format!("write{} {address:#x} {value:#x}", letter(size_bytes))).map(|_| ())
    }

    /// Reads a 32-bit word of configuration space through ports 0xcf8 and 0xcfc.
    pub fn read_config(&mut self, bus: u8, device: u8, function: u8, offset: u8) -> Result<u32> {
        self.command(&format!("outl 0xcf8 {:#x}", config_address(bus, device, function, offset)))?;
        let answer = self.command("inl 0xcfc")?;
        self.number(&answer).map(|value| value as u32)
    }

    pub fn write_config(&mut self, bus: u8, device: u8, function: u8, offset: u8, value: u32) -> Result<()> {
        self.command(&format!("outl 0xcf8 {:#x}", config_address(bus, device, function, offset)))?;
        self.command(&format!("outl 0xcfc {value:#x}")).map(|_| ())
    }

    fn number(&self, answer: &str) -> Result<u64> {
        let digits = answer.trim_start_matches("0x");
        u64::from_str_radix(digits, 16)
            .map_err(|_| Error::GuestAnswer { step: "qtest reads".into(), answer: answer.to_owned() })
    }

    fn exchange(&mut self, command: &str) -> Result<String> {
        let deadline = Deadline::new(format!("qtest executes {command}"), COMMAND_LIMIT);
        let broken = |error: std::io::Error| match deadline.remaining() {
            Err(passed) if is_try_again(&error) => passed,
            _ => Error::Connection { step: deadline.step().to_owned(), reason: error.to_string() },
        };
        self.connection.get_mut().write_all(format!("{command}\n").as_bytes()).map_err(broken)?;
        loop {
            self.connection.get_ref().set_read_timeout(Some(deadline.remaining()?)).map_err(broken)?;
            let mut line = String::new();
            if self.connection.read_line(&mut line).map_err(broken)? == 0 {
                return Err(broken(std::io::ErrorKind::UnexpectedEof.into()));
            }
            match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
                ("OK", rest) => return Ok(rest.to_owned()),
                ("IRQ", _) => {}
                _ => return Err(Error::GuestAnswer { step: deadline.step().to_owned(), answer: line }),
            }
        }
    }
}

fn letter(size_bytes: u32) -> char {
    match size_bytes {
        1 => 'b',
        2 => 'w',
        4 => 'l',
        _ => 'q',
    }
}

fn config_address(bus: u8, device: u8, function: u8, offset: u8) -> u32 {
    0x8000_0000
        | u32::from(bus) << 16
        | u32::from(device & 31) << 11
        | u32::from(function & 7) << 8
        | u32::from(offset & 0xfc)
}
