//! Arbitrary lines in arbitrary pieces, read back at any pace.
//!
//! The judge is a simple reading of the whole stream: it is cut at its line ends, each line has one reply, a line that is
//! too long has one and ends everything. What is held stays bounded whatever comes.

use super::super::protocol::{MAX_REQUEST_BYTES, Reason, Refusal, Request, parse_reply, parse_request, request_line};
use super::super::session::{Answers, Session};
use crate::planted::with_planted;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest piece that is received at once.
const PIECE_BYTES: usize = 16 << 10;

/// One run: what the client has sent, what came back.
#[derive(Default)]
struct Run {
    session: Session,
    /// Sent and not received yet.
    piece: Vec<u8>,
    stream: Vec<u8>,
    replies: Vec<u8>,
    answered: usize,
}

impl Run {
    fn with_answers(&mut self, work: impl FnOnce(&mut Session, &mut dyn Answers)) {
        let answered = &mut self.answered;
        let mut answers = |request: Request| {
            *answered += 1;
            match request {
                Request::Server {} => Ok(json!({ "name": "main" })),
                _ => Err(Refusal::new(Reason::NotFound, "no adapter")),
            }
        };
        work(&mut self.session, &mut answers);
    }

    fn step(&mut self, code: u8, argument: u8) -> Result<(), TestCaseError> {
        let adapter = || "A".to_owned();
        match code % 10 {
            0 => self.say(&Request::Server {}),
            1 => self.say(&Request::Show { adapter: adapter() }),
            2 => self.say(&Request::StopTrace { adapter: "x".repeat(argument.into()) }),
            3 => self.piece.extend([argument, b'{', argument]),
            4 => self.piece.push(b'\n'),
            5 => self.piece.extend(vec![argument; 257 * usize::from(argument)]),
            6 => self.piece.extend(br#"{"schema":"rnic.management/1","request":"#),
            7 => return self.receive(argument.into()),
            8 => self.read(argument.into()),
            _ => return self.receive(usize::MAX),
        }
        Ok(())
    }

    fn say(&mut self, request: &Request) {
        self.piece.extend(request_line(request).unwrap_or_default().as_bytes());
    }

    /// The session gets up to so many of the bytes that wait, as a socket would give them: while it wants some.
    fn receive(&mut self, most: usize) -> Result<(), TestCaseError> {
        let mut left = most;
        while left > 0 && !self.piece.is_empty() && self.session.wants_input() {
            let length = self.piece.len().min(left).min(PIECE_BYTES);
            let bytes: Vec<u8> = self.piece.drain(..length).collect();
            self.stream.extend(&bytes);
            left -= length;
            self.with_answers(|session, answers| session.receive(&bytes, answers));
            prop_assert!(self.session.held_bytes() <= MAX_REQUEST_BYTES + PIECE_BYTES);
            prop_assert!(self.session.output().len() < 1 << 20, "one reply at a time");
        }
        Ok(())
    }

    fn read(&mut self, most: usize) {
        let taken = self.session.output().len().min(most);
        self.replies.extend(&self.session.output()[..taken].to_vec());
        self.with_answers(|session, answers| session.sent(taken, answers));
    }

    /// Both sides do what they can until nothing moves any more.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        loop {
            self.read(usize::MAX);
            self.receive(usize::MAX)?;
            let stuck = self.piece.is_empty() || self.session.is_over();
            if stuck && self.session.output().is_empty() {
                return Ok(());
            }
        }
    }
}

/// Replies that the stream should have, those of known requests among them, and whether it ends too long.
fn simple_reading(mut stream: &[u8]) -> (usize, usize, bool) {
    let (mut replies, mut known) = (0, 0);
    loop {
        let Some(end) = stream.iter().position(|byte| *byte == b'\n').filter(|end| *end < MAX_REQUEST_BYTES) else {
            let too_long = stream.len() >= MAX_REQUEST_BYTES;
            return (replies + usize::from(too_long), known, too_long);
        };
        replies += 1;
        known += usize::from(parse_request(&stream[..end]).is_ok());
        stream = &stream[end + 1..];
    }
}

fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut run = Run::default();
    for step in bytes.chunks_exact(2) {
        run.step(step[0], step[1])?;
    }
    run.finish()?;
    let (replies, known, ends) = simple_reading(&run.stream);
    let lines: Vec<&[u8]> = run.replies.split_inclusive(|byte| *byte == b'\n').collect();
    prop_assert_eq!(lines.len(), replies, "one reply a line");
    prop_assert_eq!(run.answered, known, "each known request is answered once");
    prop_assert_eq!(run.session.is_over(), ends);
    for line in lines {
        let understood = line.strip_suffix(b"\n").map(parse_reply);
        prop_assert!(matches!(understood, Some(Ok(_))), "{:?}", understood);
    }
    Ok(())
}

fn run_cases(limit: Duration) -> Result<u32, String> {
    let start = Instant::now();
    let cases = std::cell::Cell::new(0u32);
    let config = Config { cases: 200_000, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&prop::collection::vec(any::<u8>(), 0..120), |bytes| {
        if start.elapsed() > limit {
            return Ok(());
        }
        cases.set(cases.get() + 1);
        body(&bytes)
    });
    outcome.map(|()| cases.get()).map_err(|error| error.to_string())
}

fn run_corpus() -> Result<u32, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/management_session");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus") {
        let path = entry.expect("an input").path();
        let bytes = std::fs::read(&path).expect("an input");
        body(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        inputs += 1;
    }
    Ok(inputs)
}

#[test]
fn property_any_conversation_has_one_reply_a_line() {
    assert!(run_corpus().expect("the corpus holds") >= 6);
    let cases = run_cases(Duration::from_secs(10)).expect("the property holds");
    assert!(cases > 500, "only {cases} cases in the time");
}

#[test]
fn property_the_planted_bugs_of_a_conversation_are_found() {
    for bug in ["management_pieces_not_joined", "management_error_unanswered"] {
        let found = with_planted(bug, || run_cases(Duration::from_secs(20)));
        assert!(found.is_err(), "{bug} was not found in {found:?} cases");
        let found = with_planted(bug, run_corpus);
        assert!(found.is_err(), "{bug} was not found by {found:?} committed inputs");
    }
}
