//! One client's conversation, without its socket: bytes in, at most one reply a line, bytes out.
//!
//! Both directions are bounded. While replies wait to be taken no further request is looked at, so a client that asks and
//! does not read costs one reply and one line.

use super::protocol::{MAX_REQUEST_BYTES, Reason, Refusal, Request, parse_request, reply_line};
use crate::planted::planted;
use serde_json::Value;

/// Whoever knows the answers.
pub trait Answers {
    fn answer(&mut self, request: Request) -> Result<Value, Refusal>;
}

impl<F: FnMut(Request) -> Result<Value, Refusal>> Answers for F {
    fn answer(&mut self, request: Request) -> Result<Value, Refusal> {
        self(request)
    }
}

#[derive(Debug, Default)]
pub struct Session {
    input: Vec<u8>,
    output: Vec<u8>,
    /// So much of the output has been taken.
    taken: usize,
    /// Nothing more is understood: the connection ends when the output is out.
    ending: bool,
}

impl Session {
    /// More input is wanted now.
    pub fn wants_input(&self) -> bool {
        !self.ending && self.output.is_empty()
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output[self.taken..]
    }

    /// The conversation is over.
    pub fn is_over(&self) -> bool {
        self.ending && self.output().is_empty()
    }

    /// So many bytes of the output have been sent; lines that waited for that are answered.
    pub fn sent(&mut self, bytes: usize, answers: &mut dyn Answers) {
        self.taken += bytes.min(self.output().len());
        if self.output().is_empty() {
            self.output.clear();
            self.taken = 0;
            self.answer_lines(answers);
        }
    }

    /// Bytes of the client.
    pub fn receive(&mut self, bytes: &[u8], answers: &mut dyn Answers) {
        if self.ending {
            return;
        }
        if planted("management_pieces_not_joined") && !bytes.contains(&b'\n') {
            return;
        }
        self.input.extend_from_slice(bytes);
        self.answer_lines(answers);
    }

    /// The client sends no more. A line without its end is not a request, and is not one that is executed.
    pub fn closed(&mut self) {
        self.ending = true;
    }

    /// Ends the conversation with a reason.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.output.extend_from_slice(reply_line(Err(refusal)).as_bytes());
        self.ending = true;
    }

    /// Bytes of lines that are not answered: bounded by the longest line and one receive.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.input.len()
    }

    fn answer_lines(&mut self, answers: &mut dyn Answers) {
        while self.output.is_empty() && !self.ending {
            let Some(end) = self.input.iter().take(MAX_REQUEST_BYTES).position(|byte| *byte == b'\n') else {
                if self.input.len() >= MAX_REQUEST_BYTES {
                    let message = format!("a request has at most {MAX_REQUEST_BYTES} bytes");
                    self.input = Vec::new();
                    self.refuse(Refusal::new(Reason::TooLong, message));
                }
                return;
            };
            let line = &self.input[..end];
            let answer = parse_request(line).and_then(|request| answers.answer(request));
            self.input.drain(..=end);
            if answer.is_err() && planted("management_error_unanswered") {
                continue;
            }
            self.output.extend_from_slice(reply_line(answer).as_bytes());
        }
    }
}
