//! What is said on a management socket: one JSON object a line, a request and its reply, in order.
//!
//! A request names the schema, so that a client and a server of different versions part with a sentence instead of a
//! misunderstanding: `{"schema":"rnic.management/1","request":"stat","adapter":"A"}`. A reply carries `ok` or `error`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Name and version of the protocol; a change that an old client would misread counts it up.
pub const SCHEMA: &str = "rnic.management/1";
/// The longest line of a client, its end included.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// The longest line of a server: pages are cut so that they stay far below.
pub const MAX_REPLY_BYTES: usize = 16 << 20;
/// Entries that one reply lists at most.
pub const MAX_ENTRIES: usize = 1024;

/// Where a list is to go on: the first entry that is wanted, and how many at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    #[serde(default)]
    pub from: u64,
    #[serde(default = "most")]
    pub limit: usize,
}

const fn most() -> usize {
    MAX_ENTRIES
}

impl Page {
    pub const fn from(from: u64) -> Self {
        Self { from, limit: MAX_ENTRIES }
    }

    /// The limit as far as it is granted.
    pub fn limit(&self) -> usize {
        self.limit.clamp(1, MAX_ENTRIES)
    }
}

/// What is counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// From the zero point that was set last, or the start.
    #[default]
    SinceZero,
    SinceStart,
    /// Between two values that the driver wrote to its MARK register.
    Between(u64, u64),
}

/// A kind of object that [`Request::Objects`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    QueuePairs,
    CompletionQueues,
    EventQueues,
    SharedReceiveQueues,
    Keys,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Who serves here, and which adapters.
    Server {},
    /// Totals by class, and by queue pair from number `queues_from` on.
    Stat {
        adapter: String,
        #[serde(default)]
        span: Span,
        /// Count from here from now on; the reply still has what was counted before.
        #[serde(default)]
        zero: bool,
        #[serde(default)]
        queues_from: u32,
    },
    /// The driver's marks.
    Marks { adapter: String },
    /// Crossings and packets; asking begins the record.
    Trace {
        adapter: String,
        crossings_from: u64,
        packets_from: u64,
        #[serde(default = "most")]
        limit: usize,
    },
    /// Ends the record.
    StopTrace { adapter: String },
    /// What there is one of.
    Show { adapter: String },
    /// A page of objects.
    Objects { adapter: String, kind: ObjectKind, page: Page },
    /// Diagnostics, from a sequence number on.
    Events { adapter: String, page: Page },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The line is no JSON object, or no request.
    BadRequest,
    /// The schema is another one.
    BadSchema,
    /// The line is longer than [`MAX_REQUEST_BYTES`]; the connection ends.
    TooLong,
    /// The client is not the user who started the server; the connection ends.
    NotYours,
    /// There are too many clients; the connection ends.
    Busy,
    /// There is no adapter, mark or list of this name.
    NotFound,
    /// The adapter's thread has ended or does not answer in time.
    Unavailable,
    /// A reason of a newer server.
    #[serde(other)]
    Other,
}

/// A reply without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub reason: Reason,
    pub message: String,
}

impl Refusal {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The line of a request.
pub fn request_line(request: &Request) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(request)?;
    value["schema"] = SCHEMA.into();
    Ok(value.to_string() + "\n")
}

/// Understands a line without its end.
pub fn parse_request(line: &[u8]) -> Result<Request, Refusal> {
    let bad = |message: String| Refusal::new(Reason::BadRequest, message);
    let value: Value = serde_json::from_slice(line).map_err(|error| bad(format!("the line is not JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err(bad("the line is not a JSON object".into()));
    };
    match fields.remove("schema") {
        Some(Value::String(schema)) if schema == SCHEMA => {}
        found => {
            let found = found.map_or("no schema".into(), |found| found.to_string());
            let message = format!("this server speaks {SCHEMA:?}, the request says {found}");
            return Err(Refusal::new(Reason::BadSchema, message));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| bad(format!("the request is not known: {error}")))
}

/// The line of a reply, with its end.
pub fn reply_line(answer: Result<Value, Refusal>) -> String {
    let reply = match answer {
        Ok(value) => json!({ "schema": SCHEMA, "ok": value }),
        Err(refusal) => json!({ "schema": SCHEMA, "error": refusal }),
    };
    reply.to_string() + "\n"
}

/// What a line of the server says: its answer, or why there is none.
pub fn parse_reply(line: &[u8]) -> Result<Result<Value, Refusal>, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("the reply is not JSON: {error}"))?;
    match value.get("schema") {
        Some(Value::String(schema)) if schema == SCHEMA => {}
        Some(found) => return Err(format!("the server speaks {found}, this program {SCHEMA:?}")),
        None => return Err("the reply has no schema".to_owned()),
    }
    let Value::Object(mut fields) = value else { return Err("the reply is not an object".into()) };
    match (fields.remove("ok"), fields.remove("error")) {
        (Some(answer), None) => Ok(Ok(answer)),
        (None, Some(error)) => match serde_json::from_value(error) {
            Ok(refusal) => Ok(Err(refusal)),
            Err(error) => Err(format!("the server's error is not understood: {error}")),
        },
        _ => Err("the reply has neither an answer nor an error".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        let adapter = || "A".to_owned();
        let requests = [
            Request::Server {},
            Request::Stat { adapter: adapter(), span: Span::Between(1, u64::MAX), zero: true, queues_from: 7 },
            Request::Marks { adapter: adapter() },
            Request::Trace { adapter: adapter(), crossings_from: 1, packets_from: 2, limit: 3 },
            Request::StopTrace { adapter: adapter() },
            Request::Show { adapter: adapter() },
            Request::Objects { adapter: adapter(), kind: ObjectKind::Keys, page: Page::from(9) },
            Request::Events { adapter: adapter(), page: Page::from(u64::MAX) },
        ];
        for request in requests {
            let line = request_line(&request).expect("a line");
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(parse_request(line.trim_end().as_bytes()), Ok(request));
        }
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        let refused = |line: &str| parse_request(line.as_bytes()).expect_err(line);
        let cases = [
            ("", Reason::BadRequest, "not JSON"),
            ("[]", Reason::BadRequest, "not a JSON object"),
            ("{}", Reason::BadSchema, "no schema"),
            (r#"{"schema":"rnic.management/2","request":"server"}"#, Reason::BadSchema, "rnic.management/2"),
            (r#"{"schema":"rnic.management/1","request":"sver"}"#, Reason::BadRequest, "sver"),
            (r#"{"schema":"rnic.management/1","request":"show"}"#, Reason::BadRequest, "adapter"),
            (r#"{"schema":"rnic.management/1","request":"server","adapter":"A"}"#, Reason::BadRequest, "adapter"),
        ];
        for (line, reason, words) in cases {
            let refusal = refused(line);
            assert_eq!(refusal.reason, reason, "{line}: {refusal}");
            assert!(refusal.message.contains(words), "{line}: {refusal}");
        }
    }

    #[test]
    fn replies_are_answers_or_errors_and_nothing_else() {
        let refusal = Refusal::new(Reason::NotFound, "no adapter B");
        for answer in [Ok(json!({"a": 1})), Ok(Value::Null), Err(refusal)] {
            let line = reply_line(answer.clone());
            assert_eq!(parse_reply(line.trim_end().as_bytes()), Ok(answer));
        }
        for line in ["", "{}", r#"{"schema":"x/1","ok":1}"#, r#"{"schema":"rnic.management/1"}"#, "[1]"] {
            assert!(parse_reply(line.as_bytes()).is_err(), "{line}");
        }
        let newer = r#"{"schema":"rnic.management/1","error":{"reason":"tired","message":"m"}}"#;
        assert_eq!(parse_reply(newer.as_bytes()), Ok(Err(Refusal::new(Reason::Other, "m"))));
    }
}
