//! What two programs tell each other before and around an RDMA operation: JSON lines over any stream.
//!
//! In: a stream and this side's endpoint. Out: the peer's. Lines are bounded; a peer that says something else is an
//! error, not a wait.

use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};

/// The longest line a peer may send.
const LONGEST_LINE: u64 = 4096;

/// What a side is reached by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub gid: [u8; 16],
    pub mac: [u8; 6],
    pub qpn: u32,
    /// The first PSN this side sends.
    pub psn: u32,
    /// Where this side's buffer begins for the peer, its key and its length.
    pub address: u64,
    pub rkey: u32,
    pub length_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("exchanging with the peer: {0}")]
    Io(#[from] std::io::Error),
    #[error("the peer said {line:?} instead of {expected}: {reason}")]
    Unexpected { line: String, expected: String, reason: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case", deny_unknown_fields)]
enum Message {
    Endpoint { endpoint: Endpoint },
    Reached { step: String },
}

/// A conversation with the peer.
#[derive(Debug)]
pub struct Exchange<S> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Exchange<S> {
    /// Give the stream its own read limit, if it has one: a silent peer must not hang the caller.
    pub fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Tells this side's endpoint and returns the peer's.
    pub fn endpoints(&mut self, own: Endpoint) -> Result<Endpoint, ExchangeError> {
        self.say(&Message::Endpoint { endpoint: own })?;
        match self.hear("an endpoint")? {
            (Message::Endpoint { endpoint }, _) => Ok(endpoint),
            (_, line) => Err(unexpected(line, "an endpoint", "another message")),
        }
    }

    /// Waits until both sides have reached the same step.
    pub fn meet(&mut self, step: &str) -> Result<(), ExchangeError> {
        self.say(&Message::Reached { step: step.into() })?;
        match self.hear(step)? {
            (Message::Reached { step: other }, _) if other == step => Ok(()),
            (_, line) => Err(unexpected(line, step, "another step")),
        }
    }

    pub fn into_stream(self) -> S {
        self.stream.into_inner()
    }

    fn say(&mut self, message: &Message) -> Result<(), ExchangeError> {
        let mut line = serde_json::to_string(message).map_err(std::io::Error::from)?;
        line.push('\n');
        let stream = self.stream.get_mut();
        stream.write_all(line.as_bytes())?;
        Ok(stream.flush()?)
    }

    fn hear(&mut self, expected: &str) -> Result<(Message, String), ExchangeError> {
        let mut line = Vec::new();
        self.stream.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line).into_owned();
        if line.last() != Some(&b'\n') {
            return Err(unexpected(text, expected, "no whole line"));
        }
        match serde_json::from_slice(&line) {
            Ok(message) => Ok((message, text)),
            Err(error) => Err(unexpected(text, expected, &error.to_string())),
        }
    }
}

fn unexpected(line: String, expected: &str, reason: &str) -> ExchangeError {
    let line = line.chars().take(100).collect();
    ExchangeError::Unexpected { line, expected: expected.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Exchange<UnixStream>, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        (Exchange::new(a), b)
    }

    #[test]
    fn both_sides_learn_the_other_endpoint_and_meet() {
        let (mut a, b) = pair();
        let endpoint = |qpn| Endpoint { qpn, rkey: 0x15a, address: u64::MAX, ..Endpoint::default() };
        let peer = std::thread::spawn(move || {
            let mut b = Exchange::new(b);
            let heard = b.endpoints(endpoint(0x12)).unwrap();
            b.meet("ready").unwrap();
            heard
        });
        assert_eq!(a.endpoints(endpoint(0x11)).unwrap(), endpoint(0x12));
        a.meet("ready").unwrap();
        assert_eq!(peer.join().unwrap(), endpoint(0x11));
    }

    #[test]
    fn a_peer_that_says_something_else_is_an_error() {
        for line in ["{}\n", "\n", "{\"message\":\"reached\",\"step\":\"other\"}\n", "no line"] {
            let (mut a, mut b) = pair();
            b.write_all(line.as_bytes()).unwrap();
            b.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(matches!(a.meet("ready"), Err(ExchangeError::Unexpected { .. })), "{line}");
        }
        let (mut a, mut b) = pair();
        b.write_all(&[b'x'; 2 * LONGEST_LINE as usize]).unwrap();
        assert!(matches!(a.endpoints(Endpoint::default()), Err(ExchangeError::Unexpected { .. })));
    }
}
