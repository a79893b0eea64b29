//! Arbitrary bytes in arbitrary pieces, with descriptors and DMA requests in between.
//!
//! The judge is a second, much simpler reading of the same stream: it cuts it at the sizes the headers say and
//! expects, for every message that is not a reply and does not say NO_REPLY, exactly one reply with its id and
//! command, in order; the connection ends only where a size cannot be.

use super::super::connection::{CloseReason, Closed};
use super::super::message::{Command, Header, MAX_MESSAGE_BYTES, header_flags};
use super::super::output::OUTPUT_BOUND_BYTES;
use super::super::parser::INPUT_BUFFER_BYTES;
use super::recorder::Call;
use super::rig::{Rig, Seen, message, qemu_version};
use crate::planted::with_planted;
use crate::search;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use zerocopy::FromBytes;

/// Reads the instructions out of the fuzzed bytes.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u32 {
        // Small numbers, numbers near the limits, and any number.
        match self.byte() % 4 {
            0 => u32::from(self.byte()),
            1 => u32::MAX - u32::from(self.byte()),
            2 => 1 << (self.byte() % 32),
            _ => u32::from_ne_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken.to_vec()
    }
}

/// A message whose body has mostly the right length and fields of interest.
fn likely_message(script: &mut Script<'_>) -> Vec<u8> {
    let command = u16::from(script.byte() % 20);
    let words = match command {
        2 => 8,
        3 => 6,
        5 => 8,
        4 | 7 | 9 => 4,
        8 => 5,
        10 => 6,
        15 => 8,
        _ => usize::from(script.byte() % 4),
    };
    let mut body: Vec<u8> = (0..words).flat_map(|_| script.word().to_ne_bytes()).collect();
    if script.byte().is_multiple_of(8) {
        body.extend(script.bytes());
    }
    let flags = u32::from(script.byte()) & 0x3f;
    // Mostly commands.
    let flags = if flags & 0xf > 2 { flags & !0xf } else { flags };
    let mut bytes = message(u16::from(script.byte()), Command(command), flags, &body);
    if script.byte() == 0xff {
        let size = script.word();
        bytes[4..8].copy_from_slice(&size.to_ne_bytes());
    }
    bytes
}

/// What the simple reading expects.
#[derive(Default)]
struct Expected {
    replies: Vec<(u16, u16)>,
    ends: bool,
}

fn simple_reading(mut stream: &[u8]) -> Expected {
    let mut expected = Expected::default();
    while let Ok((header, _)) = Header::read_from_prefix(stream) {
        let size = header.size_bytes as usize;
        if !(16..=MAX_MESSAGE_BYTES).contains(&size) {
            expected.ends = true;
            break;
        }
        let Some(rest) = stream.get(size..) else { break };
        stream = rest;
        if header.flags & 0xf != header_flags::REPLY && header.flags & header_flags::NO_REPLY == 0 {
            expected.replies.push((header.message_id, header.command));
        }
    }
    expected
}

/// One run: the connection, what was sent, what came back.
struct Run {
    rig: Rig,
    stream: Vec<u8>,
    seen: Vec<Seen>,
    /// DMA requests the client has seen and not answered.
    asked: Vec<Header>,
    accepted: BTreeSet<u64>,
    end: Option<Closed>,
}

impl Run {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 => self.feed(&script.bytes(), 0),
            1 => self.request_dma(script),
            2 => self.answer_dma(script),
            3 => {
                let bytes = likely_message(script);
                let fds = usize::from(script.byte() % 20);
                self.feed(&bytes, fds);
            }
            4 => {
                let bytes: Vec<u8> = (0..script.byte() % 8).flat_map(|_| likely_message(script)).collect();
                let cut = usize::from(script.byte()).min(bytes.len());
                self.feed(&bytes[..cut], 0);
                self.pump(script);
                self.feed(&bytes[cut..], usize::from(script.byte() % 3));
            }
            5 => self.pump(script),
            _ => {
                let bytes = likely_message(script);
                self.feed(&bytes, 0);
            }
        }
    }

    fn feed(&mut self, bytes: &[u8], fds: usize) {
        if bytes.is_empty() || self.end.is_some() {
            return;
        }
        let file = std::io::stderr();
        self.rig.send_fds(bytes, &vec![file.as_fd(); fds]);
        self.stream.extend_from_slice(bytes);
    }

    fn pump(&mut self, script: &mut Script<'_>) {
        let budget = u32::from(script.byte() % 4) + 1;
        self.serve(budget);
        self.collect();
    }

    fn serve(&mut self, budget: u32) {
        if self.end.is_none() {
            self.end = self.rig.server.on_readable(&mut self.rig.device, budget).err();
        }
    }

    fn collect(&mut self) {
        if self.end.is_none() && self.rig.server.wants_write() {
            self.end = self.rig.server.on_writable(&mut self.rig.device).err();
        }
        for seen in self.rig.seen() {
            if seen.header.is_reply() { self.seen.push(seen) } else { self.asked.push(seen.header) }
        }
    }

    fn request_dma(&mut self, script: &mut Script<'_>) {
        let id = self.accepted.len() as u64;
        let (iova, length) = (u64::from(script.word()) << 12, script.word() % 70);
        let taken = match script.byte() % 2 {
            0 => self.rig.server.request_dma_read(id, iova, length),
            _ => self.rig.server.request_dma_write(id, iova, &vec![7; length as usize]),
        };
        if taken.is_ok() {
            self.accepted.insert(id);
        }
    }

    fn answer_dma(&mut self, script: &mut Script<'_>) {
        if self.asked.is_empty() {
            return;
        }
        let request = self.asked.swap_remove(usize::from(script.byte()) % self.asked.len());
        let flags = header_flags::REPLY | if script.byte().is_multiple_of(4) { header_flags::ERROR } else { 0 };
        let body: Vec<u8> = (0..script.byte() % 6).flat_map(|_| script.word().to_ne_bytes()).collect();
        self.feed(&message(request.message_id, request.command(), flags, &body), 0);
    }

    /// Lets both sides finish.
    fn settle(&mut self) {
        loop {
            let before = self.seen.len() + self.rig.device.calls.len();
            while self.end.is_none() && !self.idle() {
                self.serve(1000);
                self.collect();
            }
            if before == self.seen.len() + self.rig.device.calls.len() {
                return;
            }
        }
    }

    fn idle(&self) -> bool {
        let unread = rustix::io::ioctl_fionread(&self.rig.server).unwrap_or(0);
        unread == 0 && !self.rig.server.has_work() && !self.rig.server.wants_write()
    }
}

fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut script = Script(bytes);
    let mut run = Run {
        rig: Rig::connected(),
        stream: vec![],
        seen: vec![],
        asked: vec![],
        accepted: BTreeSet::new(),
        end: None,
    };
    if !script.byte().is_multiple_of(8) {
        run.feed(&qemu_version(), 0);
        run.pump(&mut script);
    }
    let bound = INPUT_BUFFER_BYTES + MAX_MESSAGE_BYTES + 2 * OUTPUT_BOUND_BYTES + MAX_MESSAGE_BYTES;
    while !script.0.is_empty() && run.end.is_none() {
        run.step(&mut script);
        prop_assert!(run.rig.server.memory_bytes() <= bound, "{} bytes held", run.rig.server.memory_bytes());
        prop_assert!(run.rig.server.held_fds() <= 32);
    }
    run.settle();
    judge(&mut run)
}

fn judge(run: &mut Run) -> Result<(), TestCaseError> {
    let expected = simple_reading(&run.stream);
    let replies: Vec<(u16, u16)> = run.seen.iter().map(|s| (s.header.message_id, s.header.command)).collect();
    prop_assert_eq!(replies, expected.replies);
    for seen in &run.seen {
        let is_error = seen.header.flags & header_flags::ERROR != 0;
        prop_assert_eq!(is_error, seen.header.error != 0);
        prop_assert!(!is_error || seen.body.is_empty());
    }
    match run.end {
        Some(Closed { reason: CloseReason::FramingLost(_) }) => prop_assert!(expected.ends),
        Some(closed) => prop_assert!(false, "closed without cause: {}", closed),
        None => prop_assert!(!expected.ends, "framing is lost, and the connection lives"),
    }
    let negotiated = run.rig.server.client().is_some();
    run.rig.server.shutdown(&mut run.rig.device);
    let mut answered: Vec<u64> = vec![];
    let mut disconnects = 0;
    for call in run.rig.device.take() {
        match call {
            Call::Answered { id, .. } => answered.push(id),
            Call::Disconnected => disconnects += 1,
            _ => {}
        }
    }
    prop_assert_eq!(disconnects, u32::from(negotiated));
    answered.sort_unstable();
    prop_assert_eq!(answered, run.accepted.iter().copied().collect::<Vec<_>>(), "each DMA request has one answer");
    Ok(())
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..600)
}

#[test]
fn arbitrary_streams_hold() {
    search::finds_nothing(env!("CARGO_MANIFEST_DIR"), "vfio_user_stream", &streams(), body);
}

#[test]
fn a_planted_bug_is_found() {
    for bug in ["vfio_user_error_to_no_reply", "vfio_user_body_not_drained", "vfio_user_revoked_twice"] {
        with_planted(bug, || search::finds(bug, &streams(), body));
        let corpus = search::corpus(env!("CARGO_MANIFEST_DIR"), "vfio_user_stream");
        let found = with_planted(bug, || corpus.iter().any(|(_, bytes)| body(bytes).is_err()));
        assert!(found, "{bug} was not found by the committed inputs");
    }
}
