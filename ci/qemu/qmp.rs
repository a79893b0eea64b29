//! QEMU's control protocol: JSON lines over a Unix socket.
//!
//! In: a connected socket. Out: command results and events. Replies carry an id, so that a reply which comes after its
//! time limit is not taken for another one; events that arrive meanwhile are kept in order, up to a bound.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::deadline::Deadline;
use crate::planted::planted;
use crate::{Error, Result};

/// Enough for any command but a snapshot, whose progress is polled.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
const LINE_LIMIT_BYTES: usize = 16 << 20;
const EVENTS_KEPT: usize = 1024;

/// An event: its name, and its data if it has any.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Value,
}

/// A control connection past its greeting.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    received: Vec<u8>,
    events: VecDeque<Event>,
    last_id: u64,
}

#[derive(Debug)]
pub(crate) enum Message {
    Greeting,
    Event(Event),
    Reply { id: Option<u64>, result: std::result::Result<Value, (String, String)> },
}

impl Qmp {
    /// Takes the greeting and leaves the negotiation mode.
    pub fn start(stream: UnixStream, deadline: &Deadline) -> Result<Qmp> {
        let mut qmp = Qmp { stream, received: Vec::new(), events: VecDeque::new(), last_id: 0 };
        while !matches!(qmp.receive(deadline)?, Message::Greeting) {}
        qmp.execute_until("qmp_capabilities", json!({}), deadline)?;
        Ok(qmp)
    }

    /// Executes a command within the usual limit and returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.execute_within(command, arguments, COMMAND_LIMIT)
    }

    pub fn execute_within(&mut self, command: &str, arguments: Value, limit: Duration) -> Result<Value> {
        self.execute_until(command, arguments, &Deadline::new(format!("QEMU executes {command}"), limit))
    }

    /// Waits for an event of this name; earlier events of other names stay kept.
    pub fn wait_event(&mut self, name: &str, limit: Duration) -> Result<Event> {
        let deadline = Deadline::new(format!("waiting for QEMU's event {name}"), limit);
        loop {
            if let Some(position) = self.events.iter().position(|event| event.name == name)
                && let Some(event) = self.events.remove(position)
            {
                return Ok(event);
            }
            if let Message::Event(event) = self.receive(&deadline)? {
                self.keep(event);
            }
        }
    }

    /// Writes guest-physical memory to a file, as QEMU sees it.
    pub fn save_memory(&mut self, address: u64, length_bytes: u64, path: &std::path::Path) -> Result<()> {
        self.execute("pmemsave", json!({ "val": address, "size": length_bytes, "filename": path }))?;
        Ok(())
    }

    fn execute_until(&mut self, command: &str, arguments: Value, deadline: &Deadline) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut line = json!({ "execute": command, "arguments": arguments, "id": id }).to_string();
        line.push('\n');
        self.stream.set_write_timeout(Some(deadline.remaining()?)).map_err(|error| broken(deadline, error))?;
        self.stream.write_all(line.as_bytes()).map_err(|error| broken(deadline, error))?;
        loop {
            match self.receive(deadline)? {
                Message::Event(event) => self.keep(event),
                Message::Reply { id: found, result } if found == Some(id) => {
                    return result.map_err(|(class, description)| Error::Qmp {
                        command: command.to_owned(),
                        class,
                        description,
                    });
                }
                // The reply to a command whose time limit passed, or a second greeting.
                Message::Reply { .. } | Message::Greeting => {}
            }
        }
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn receive(&mut self, deadline: &Deadline) -> Result<Message> {
        loop {
            let line = self.receive_line(deadline)?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return parse(&line).map_err(|reason| Error::Connection { step: deadline.step().to_owned(), reason });
        }
    }

    fn receive_line(&mut self, deadline: &Deadline) -> Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.received[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.received.split_off(searched + end + 1);
                return Ok(std::mem::replace(&mut self.received, rest));
            }
            searched = self.received.len();
            if searched > LINE_LIMIT_BYTES {
                return Err(broken(deadline, std::io::Error::other("a line without end")));
            }
            self.stream.set_read_timeout(Some(deadline.remaining()?)).map_err(|error| broken(deadline, error))?;
            let mut bytes = [0u8; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(broken(deadline, std::io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if is_try_again(&error) => {}
                Err(error) => return Err(broken(deadline, error)),
            }
        }
    }
}

/// A read that ended early for a reason that the deadline will judge.
pub(crate) fn is_try_again(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn broken(deadline: &Deadline, error: std::io::Error) -> Error {
    match deadline.remaining() {
        Err(passed) if is_try_again(&error) => passed,
        _ => Error::Connection { step: deadline.step().to_owned(), reason: error.to_string() },
    }
}

pub(crate) fn parse(line: &[u8]) -> std::result::Result<Message, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = value.get("id").and_then(Value::as_u64);
    if value.get("QMP").is_some() {
        Ok(Message::Greeting)
    } else if value.get("event").is_some() {
        Ok(Message::Event(Event {
            name: text(&value, "event"),
            data: value.get("data").cloned().unwrap_or(Value::Null),
        }))
    } else if let Some(result) =
        value.get("return").or_else(|| value.get("error").filter(|_| planted("error_as_result")))
    {
        Ok(Message::Reply { id, result: Ok(result.clone()) })
    } else if let Some(error) = value.get("error") {
        Ok(Message::Reply { id, result: Err((text(error, "class"), text(error, "desc"))) })
    } else {
        Err(format!("neither reply nor event: {}", String::from_utf8_lossy(line).trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A QEMU that answers each line with what `answer` says.
    fn peer(answer: fn(&Value) -> String) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        thread::spawn(move || {
            let mut writer = theirs.try_clone().expect("a second handle");
            writer.write_all(b"{\"QMP\": {\"version\": {}}}\r\n").expect("greeting");
            for line in BufReader::new(theirs).lines() {
                let Ok(line) = line else { return };
                let request: Value = serde_json::from_str(&line).expect("JSON");
                let reply = if request["execute"] == "qmp_capabilities" {
                    json!({ "return": {}, "id": request["id"] }).to_string() + "\n"
                } else {
                    answer(&request)
                };
                let _ = writer.write_all(reply.as_bytes());
            }
        });
        ours
    }

    fn start(stream: UnixStream) -> Qmp {
        Qmp::start(stream, &Deadline::new("greeting", LIMIT)).expect("greeting")
    }

    #[test]
    fn results_errors_and_events_are_told_apart() {
        let mut qmp = start(peer(|request| match request["execute"].as_str() {
            Some("good") => format!("{{\"event\":\"STOP\"}}\n{}\n", json!({ "return": 7, "id": request["id"] })),
            _ => {
                json!({ "error": { "class": "CommandNotFound", "desc": "no" }, "id": request["id"] }).to_string() + "\n"
            }
        }));
        assert_eq!(qmp.execute("good", json!({})).expect("a result"), json!(7));
        assert_eq!(qmp.wait_event("STOP", LIMIT).expect("kept").name, "STOP");
        assert!(matches!(qmp.execute("bad", json!({})), Err(Error::Qmp { class, .. }) if class == "CommandNotFound"));
        assert!(matches!(qmp.wait_event("RESUME", Duration::from_millis(20)), Err(Error::Timeout { .. })));
    }

    #[test]
    fn a_late_reply_is_not_taken_for_another_one() {
        let mut qmp = start(peer(|request| {
            if request["execute"] == "slow" {
                return String::new();
            }
            let late = json!({ "return": "late", "id": request["id"].as_u64().map(|id| id - 1) });
            format!("{late}\n{}\n", json!({ "return": "mine", "id": request["id"] }))
        }));
        assert!(matches!(qmp.execute_within("slow", json!({}), Duration::from_millis(20)), Err(Error::Timeout { .. })));
        assert_eq!(qmp.execute("next", json!({})).expect("a result"), json!("mine"));
    }

    #[test]
    fn a_closed_connection_and_garbage_are_errors() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        drop(theirs);
        assert!(matches!(Qmp::start(ours, &Deadline::new("greeting", LIMIT)), Err(Error::Connection { .. })));
        let mut qmp = start(peer(|_| "no json\n".into()));
        assert!(matches!(qmp.execute("x", json!({})), Err(Error::Connection { .. })));
    }
}
