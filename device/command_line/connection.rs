//! Which server a command talks to, and what can go wrong on the way: every failure is a sentence and an exit number.

use crate::exit::Exit;
use crate::sockets;
use clap::Args;
use rnic_device::management::reports::server::ServerReport;
use rnic_device::management::{ClientError, ManagementClient, Reason, Request, folder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
pub struct ServerChoice {
    /// The server to ask, by the name it was started with [default: the only one that runs].
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Folder of the servers' sockets [default: $XDG_RUNTIME_DIR/rnic].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Why a command ends before its time.
#[derive(Debug)]
pub enum Failure {
    /// A name that does not exist, options that do not fit.
    Usage(String),
    Environment(String),
    TimeLimit(String),
    /// Whoever read standard output has enough: no fault.
    Closed,
}

impl Failure {
    /// Says it on standard error, and gives the exit number.
    pub fn report(self, command: &str) -> Exit {
        let (sentence, exit) = match self {
            Self::Usage(sentence) => (sentence, Exit::Usage),
            Self::Environment(sentence) => (sentence, Exit::Environment),
            Self::TimeLimit(sentence) => (sentence, Exit::TimeLimit),
            Self::Closed => return Exit::Success,
        };
        tell!("rnic {command}: {}", harmless(&sentence));
        exit
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::TimeLimit { .. } => Self::TimeLimit(error.to_string()),
            ClientError::Refused(refusal) if refusal.reason == Reason::NotFound => Self::Usage(error.to_string()),
            _ => Self::Environment(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Environment(format!("standard output: {error}")),
        }
    }
}

/// Runs a command's body and turns its failure into its exit number.
pub fn exit_of(command: &str, result: Result<(), Failure>) -> Exit {
    result.map_or_else(|failure| failure.report(command), |()| Exit::Success)
}

/// A server that answers.
pub struct Connection {
    client: ManagementClient,
    pub server: ServerReport,
}

/// What became of a name in the folder.
pub enum Found {
    Running(Box<Connection>),
    Dead,
    /// It is there and does not answer as it should.
    Broken(ClientError),
}

impl ServerChoice {
    pub fn in_folder(folder: Option<PathBuf>) -> Self {
        Self { server: None, folder }
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(sockets::default_folder)
    }

    /// The server of the name, or the only one that runs.
    pub fn connect(&self) -> Result<Connection, Failure> {
        let folder = self.folder();
        if let Some(name) = &self.server {
            return match find(&folder, name) {
                Found::Running(connection) => Ok(*connection),
                Found::Dead => Err(Failure::Environment(format!(
                    "the server {name} is dead (it was killed): start it again with rnic serve"
                ))),
                Found::Broken(error @ ClientError::NoServer { .. }) => Err(self.no_such(&folder, &error)),
                Found::Broken(error) => Err(error.into()),
            };
        }
        let mut running = Vec::new();
        let mut broken = None;
        for name in names(&folder)? {
            match find(&folder, &name) {
                Found::Running(connection) => running.push(*connection),
                Found::Dead => {}
                Found::Broken(error) => broken = Some(error),
            }
        }
        match (running.pop(), broken) {
            (Some(one), _) if running.is_empty() => Ok(one),
            (Some(one), _) => {
                let mut names: Vec<_> = running.iter().map(|other| other.server.name.clone()).collect();
                names.push(one.server.name);
                Err(Failure::Usage(format!("several servers run ({}): choose one with --server", names.join(", "))))
            }
            (None, Some(error)) => Err(error.into()),
            (None, None) => {
                let place = folder.display();
                Err(Failure::Environment(format!("no server runs in {place}: start one with rnic serve")))
            }
        }
    }

    fn no_such(&self, folder: &Path, error: &ClientError) -> Failure {
        match folder::servers(folder) {
            Ok(names) if !names.is_empty() => Failure::Usage(format!("{error}; there are: {}", names.join(", "))),
            _ => Failure::Environment(error.to_string()),
        }
    }
}

pub fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    folder::servers(folder).map_err(|error| Failure::Environment(format!("{}: {error}", folder.display())))
}

/// Asks the server of this name who it is.
pub fn find(folder: &Path, name: &str) -> Found {
    let uid = rustix::process::geteuid().as_raw();
    let connected = ManagementClient::connect(&folder::socket_of(folder, name), uid);
    let asked = connected.and_then(|mut client| {
        let server = client.ask(&Request::Server {})?;
        Ok(Connection { client, server })
    });
    match asked {
        Ok(connection) => Found::Running(Box::new(connection)),
        Err(ClientError::Dead { .. }) => Found::Dead,
        Err(error) => Found::Broken(error),
    }
}

impl Connection {
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Failure> {
        Ok(self.client.ask(request)?)
    }

    /// The adapter of this name, or all.
    pub fn adapters(&self, wanted: Option<&str>) -> Result<Vec<String>, Failure> {
        let all: Vec<String> = self.server.adapters.iter().map(|adapter| adapter.name.clone()).collect();
        match wanted {
            None => Ok(all),
            Some(name) if all.iter().any(|known| known == name) => Ok(vec![name.to_owned()]),
            Some(name) => {
                let server = &self.server.name;
                Err(Failure::Usage(format!("server {server} has no adapter {name:?}; it has: {}", all.join(", "))))
            }
        }
    }
}

/// What another process says may not steer the terminal: control characters are shown as what they are.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if !text.contains(steers) {
        return text.into();
    }
    let shown =
        |character: char| if steers(character) { character.escape_unicode().to_string() } else { character.into() };
    text.chars().map(shown).collect::<String>().into()
}

/// The same of JSON, which leaves some control characters as they are: they stand in strings only.
fn harmless_json(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.into(),
    };
    if text.contains(char::is_control) { text.chars().map(shown).collect() } else { text.into() }
}

/// Writes text to standard output, whole.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(harmless(text).as_bytes())?;
    Ok(out.flush()?)
}

/// Writes one JSON object, a line.
pub fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(object).map_err(|error| Failure::Environment(error.to_string()))?;
    print(&(harmless_json(&text) + "\n"))
}

/// A number as drivers write it: decimal, or hexadecimal with 0x.
pub fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no number of at most 64 bits, decimal or with 0x"))
}

/// A queue pair's number.
pub fn parse_qpn(text: &str) -> Result<u32, String> {
    let number = parse_number(text)?;
    u32::try_from(number).ok().filter(|qpn| *qpn < 1 << 24).ok_or_else(|| format!("{text}: a QPN has 24 bits"))
}

/// Nanoseconds of the adapter's clock as seconds.
pub fn seconds(time_ns: u64) -> String {
    format!("{}.{:06} s", time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(parse_number("17"), Ok(17));
        assert_eq!(parse_number("0x11"), Ok(17));
        assert_eq!(parse_number("0xffffffffffffffff"), Ok(u64::MAX));
        for wrong in ["", "0x", "-1", "1g", "0x1_0000_0000_0000_0000"] {
            assert!(parse_number(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_qpn("0xffffff"), Ok(0xff_ffff));
        assert!(parse_qpn("0x1000000").is_err());
    }

    #[test]
    fn nothing_that_is_said_steers_the_terminal() {
        assert_eq!(harmless("a\tb\né\n"), "a\tb\né\n");
        let json = harmless_json(&serde_json::to_string("\u{9b}2J\u{7f}\u{1b}").expect("JSON"));
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), "\u{9b}2J\u{7f}\u{1b}");
        assert_eq!(harmless("\u{1b}[2Jgone\r\u{9b}"), "\\u{1b}[2Jgone\\u{d}\\u{9b}");
    }

    #[test]
    fn times_are_seconds_with_microseconds() {
        assert_eq!(seconds(12_003_456_789), "12.003456 s");
    }
}
