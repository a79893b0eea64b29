//! Rings and descriptors of arbitrary bytes, frames from the switch, reads answered in any order.
//!
//! The judge is a second, much simpler reading of the same memory, that knows no reads, no order and no interrupts: chain
//! by chain, what a frame is, where bytes go, and which rule is broken first. Between two runs the driver writes
//! whatever it likes; while the device runs, memory stands still.

use super::Answers;
use super::driver::{BUFFERS, Driver, INDIRECT, NEXT, WRITE, available, descriptor, used};
use super::rig::{BASE, MEMORY};
use crate::function::ethernet::device::{FEATURES, RECEIVE, TRANSMIT, feature};
use crate::planted::with_planted;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

/// Small, so that indices wrap and chains meet.
const SIZE: u16 = 8;
const HEADER: usize = 12;
/// Where buffers are that the device writes.
const WRITTEN: u64 = BUFFERS + 0x8000;
const FRAME_MAX: usize = 9216;

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
}

/// What a chain is, or the number of the rule that it breaks.
type Walked = Result<(Vec<(u64, usize)>, Vec<(u64, usize)>), u16>;

/// One queue in the simple reading.
#[derive(Default)]
struct Reading {
    seen: u16,
    taken: u16,
    look: bool,
    heads: VecDeque<u16>,
    used: Vec<(u32, u32)>,
}

struct Model {
    memory: Vec<u8>,
    queues: [Reading; 2],
    fault: Option<u16>,
    sent: Vec<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    lent: Vec<(u16, Vec<(u64, usize)>)>,
    mergeable: bool,
    /// The device has not looked at received frames since this was set.
    receive_due: bool,
}

impl Model {
    fn bytes(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(at.checked_sub(BASE)?).ok()?;
        self.memory.get(start..start.checked_add(length)?).map(<[u8]>::to_vec)
    }

    fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.bytes(at, 2).expect("rings are in memory").try_into().expect("two bytes"))
    }

    /// The next chain's head, as the available ring has it.
    fn next_head(&mut self, queue: usize) -> Result<Option<u16>, u16> {
        loop {
            let (taken, seen) = (self.queues[queue].taken, self.queues[queue].seen);
            if let Some(head) = self.queues[queue].heads.pop_front() {
                return if head < SIZE { Ok(Some(head)) } else { Err(4) };
            } else if taken != seen {
                // What is read together: up to the end of the ring.
                let count = seen.wrapping_sub(taken).min(SIZE - taken % SIZE);
                for place in 0..count {
                    let head = self.word(available(queue) + 4 + 2 * u64::from(taken % SIZE + place));
                    self.queues[queue].heads.push_back(head);
                }
                self.queues[queue].taken = taken.wrapping_add(count);
            } else if std::mem::take(&mut self.queues[queue].look) {
                let index = self.word(available(queue) + 2);
                if index.wrapping_sub(taken) > SIZE {
                    return Err(3);
                }
                self.queues[queue].seen = index;
            } else {
                return Ok(None);
            }
        }
    }

    fn walk(&self, queue: usize, head: u16) -> Walked {
        let (mut readable, mut writable) = (Vec::new(), Vec::new());
        let (mut table, mut entries, mut at, mut left) = (super::driver::table(queue), SIZE, head, SIZE);
        loop {
            let bytes = self.bytes(table + 16 * u64::from(at), 16).ok_or(10u16)?;
            let address = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
            let length = u32::from_le_bytes(bytes[8..12].try_into().expect("four")) as usize;
            let (flags, next) =
                (u16::from_le_bytes([bytes[12], bytes[13]]), u16::from_le_bytes([bytes[14], bytes[15]]));
            let nested = entries != SIZE || table != super::driver::table(queue);
            if flags & INDIRECT != 0 {
                // A nested one is refused whatever its length; its table may have had more entries than the queue.
                let room = 256 - usize::from(SIZE.saturating_sub(left));
                if nested || flags & NEXT != 0 || length == 0 || !length.is_multiple_of(16) || length / 16 > room {
                    return Err(7);
                }
                self.bytes(address, length).ok_or(10u16)?;
                (table, entries, at, left) = (address, (length / 16) as u16, 0, (length / 16) as u16);
                continue;
            }
            match (length, flags & WRITE != 0) {
                (0, _) => {}
                (_, true) => writable.push((address, length)),
                (_, false) if writable.is_empty() => readable.push((address, length)),
                (_, false) => return Err(8),
            }
            if flags & NEXT == 0 {
                return Ok((readable, writable));
            }
            left -= 1;
            // In an indirect table the next place is judged first, in the queue's own the length.
            match nested {
                false if left == 0 => return Err(6),
                _ if next >= entries => return Err(5),
                _ if left == 0 => return Err(6),
                _ => at = next,
            }
        }
    }

    fn transmit(&mut self) -> Result<(), u16> {
        while let Some(head) = self.next_head(TRANSMIT)? {
            let (readable, writable) = self.walk(TRANSMIT, head)?;
            let length: usize = readable.iter().map(|range| range.1).sum();
            if !writable.is_empty() || length < HEADER {
                return Err(9);
            }
            if length <= HEADER + FRAME_MAX {
                let mut bytes = Vec::new();
                for (at, length) in readable {
                    bytes.extend(self.bytes(at, length).ok_or(10u16)?);
                }
                self.sent.extend(frame_of(&bytes));
            }
            self.queues[TRANSMIT].used.push((head.into(), 0));
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), u16> {
        while self.receive_due
            && let Some(frame) = self.waiting.front()
        {
            let needed = HEADER + frame.len();
            let total = |lent: &[(u16, Vec<(u64, usize)>)]| -> usize {
                lent.iter().flat_map(|(_, ranges)| ranges).map(|range| range.1).sum()
            };
            while total(&self.lent) < needed && (self.mergeable || self.lent.is_empty()) {
                let Some(head) = self.next_head(RECEIVE)? else {
                    self.receive_due = false;
                    return Ok(());
                };
                let (readable, writable) = self.walk(RECEIVE, head)?;
                let length: usize = writable.iter().map(|range| range.1).sum();
                if self.lent.len() >= SIZE.into() || !readable.is_empty() || length < HEADER {
                    return Err(9);
                }
                self.lent.push((head, writable));
            }
            let Some(frame) = self.waiting.pop_front() else { break };
            if total(&self.lent) < needed {
                continue;
            }
            self.scatter(&frame)?;
        }
        self.receive_due = false;
        Ok(())
    }

    fn scatter(&mut self, frame: &[u8]) -> Result<(), u16> {
        let mut buffers = 0;
        let mut room = 0;
        while room < HEADER + frame.len() {
            room += self.lent[buffers].1.iter().map(|range| range.1).sum::<usize>();
            buffers += 1;
        }
        let mut bytes = vec![0; 10];
        bytes.extend((buffers as u16).to_le_bytes());
        bytes.extend(frame);
        let mut rest = &bytes[..];
        let mut places = Vec::new();
        let mut used = Vec::new();
        for (head, ranges) in self.lent.drain(..buffers) {
            let before = rest.len();
            for (at, length) in ranges {
                let (piece, after) = rest.split_at(length.min(rest.len()));
                places.push((at, piece));
                rest = after;
            }
            used.push((u32::from(head), (before - rest.len()) as u32));
        }
        let reached = places.iter().all(|(at, piece)| piece.is_empty() || self.bytes(*at, piece.len()).is_some());
        if !reached {
            return Err(10);
        }
        for (at, piece) in places.into_iter().filter(|(_, piece)| !piece.is_empty()) {
            let start = (at - BASE) as usize;
            self.memory[start..start + piece.len()].copy_from_slice(piece);
        }
        self.queues[RECEIVE].used.extend(used);
        Ok(())
    }
}

/// The frame of a payload, if it is one, with the checksum that its header asks for.
fn frame_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut frame = bytes.get(HEADER..).filter(|frame| frame.len() >= 14)?.to_vec();
    if bytes[1] != 0 {
        return None;
    }
    if bytes[0] & 1 == 1 {
        let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (start, place) = (word(6), word(6) + word(8));
        if place + 2 > frame.len() {
            return None;
        }
        let mut sum = 0u32;
        for pair in frame[start..].chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = if sum == 0xffff { 0xffff } else { !(sum as u16) };
        frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(frame)
}

thread_local! {
    /// The most frames that a case without a fault sent, and received.
    static COVERED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

struct Run {
    driver: Driver,
    model: Model,
    /// What came back, of both queues.
    used: [Vec<(u32, u32)>; 2],
}

impl Run {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.driver.rig.write_memory(at, bytes);
        let start = (at - BASE) as usize;
        self.model.memory[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// A descriptor with mostly sensible fields. What is read and what is written lie apart, so that nothing depends on
    /// which queue comes first.
    fn descriptor(script: &mut Script<'_>) -> Vec<u8> {
        let flags = match script.byte() % 8 {
            0 => u16::from(script.byte()),
            1 => INDIRECT,
            2 | 3 => NEXT,
            4 => WRITE | NEXT,
            5 | 6 => WRITE,
            _ => 0,
        };
        let written = flags & WRITE != 0 && flags & INDIRECT == 0;
        let place = 16 * u64::from(script.byte());
        let address = match script.byte() % 32 {
            0 => u64::MAX - place,
            1 if !written => BASE + MEMORY as u64 - place,
            _ if written => WRITTEN + place,
            _ => BUFFERS + place,
        };
        let length = match script.byte() % 16 {
            0 => 16 * u32::from(script.byte()),
            1 => u32::from(script.byte()) << 24,
            2 => 0,
            3..=5 if flags & INDIRECT != 0 => 16 * u32::from(script.byte() % 4),
            _ => 12 + u32::from(script.byte()),
        };
        let next = script.byte();
        let next = u16::from(if next & 0xf0 == 0xf0 { next } else { next % SIZE as u8 });
        descriptor(address, length, flags, next)
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let queue = usize::from(script.byte() & 1);
        match script.byte() % 8 {
            0 | 1 => {
                let at = super::driver::table(queue) + 16 * u64::from(script.byte() % SIZE as u8);
                self.write(at, &Self::descriptor(script));
            }
            2..=3 => self.make_available(queue, script),
            4 => {
                // An indirect table's.
                let at = BUFFERS + 16 * u64::from(script.byte());
                self.write(at, &Self::descriptor(script));
            }
            5 => {
                let contents = [script.byte(), script.byte()];
                let at = BUFFERS + 16 * u64::from(script.byte());
                self.write(at, &contents);
            }
            _ => {
                let length = 14 + 3 * usize::from(script.byte());
                let frame = [vec![0xff; 6], vec![script.byte(); length - 6]].concat();
                self.driver.rig.receive(&frame);
                if self.model.fault.is_none() {
                    self.model.waiting.push_back(frame);
                    self.model.receive_due = true;
                }
            }
        }
    }

    /// Entries and index, mostly by the rules.
    fn make_available(&mut self, queue: usize, script: &mut Script<'_>) {
        let index = self.model.word(available(queue) + 2);
        let count = u16::from(script.byte() % 4);
        for place in 0..count {
            let head = script.byte();
            let head = u16::from(if head == 0xff { head } else { head % SIZE as u8 });
            let at = available(queue) + 4 + 2 * u64::from(index.wrapping_add(place) % SIZE);
            self.write(at, &head.to_le_bytes());
        }
        let far = script.byte();
        let step = if far == 0xff { u16::from(script.byte()) } else { count };
        self.write(available(queue) + 2, &index.wrapping_add(step).to_le_bytes());
    }

    /// Both are told, and run until nothing moves.
    fn settle(&mut self, script: &mut Script<'_>) -> Result<(), TestCaseError> {
        for queue in [RECEIVE, TRANSMIT] {
            self.driver.notify(queue);
            self.model.queues[queue].look = true;
        }
        self.model.receive_due = true;
        self.driver.rig.hold.store(script.byte() & 1 == 1, Ordering::Relaxed);
        let mut rounds = 0;
        while self.driver.rig.step() || self.driver.rig.release(script.byte().into()) {
            rounds += 1;
            prop_assert!(rounds < 10_000, "the device never comes to rest");
        }
        if self.model.fault.is_some() {
            return Ok(());
        }
        // The two queues do not share memory that matters to the other, but a fault of one stops both: the device
        // transmits first.
        self.model.fault = self.model.transmit().and_then(|()| self.model.receive()).err();
        Ok(())
    }

    fn judge(&mut self) -> Result<(), TestCaseError> {
        let number = self.driver.rig.device.fault().map(|fault| fault.number());
        prop_assert_eq!(number.is_some(), self.model.fault.is_some(), "{:?} and {:?}", number, self.model.fault);
        for queue in [RECEIVE, TRANSMIT] {
            let found = self.driver.used(queue);
            self.used[queue].extend(found);
        }
        if number.is_some() {
            // Which queue broke first depends on answers; what came before is right all the same.
            prop_assert!(
                self.model.sent.starts_with(&self.driver.rig.sent)
                    || self.driver.rig.sent.starts_with(&self.model.sent)
            );
            return Ok(());
        }
        prop_assert_eq!(&self.driver.rig.sent, &self.model.sent);
        let counters = self.driver.rig.device.counters();
        let (sent, received) = COVERED.get();
        COVERED.set((sent.max(counters.transmitted_frames), received.max(counters.received_frames)));
        for queue in [RECEIVE, TRANSMIT] {
            prop_assert_eq!(&self.used[queue], &self.model.queues[queue].used, "queue {}", queue);
        }
        // Every byte outside the used rings is as the driver, or a frame, has left it.
        let mut memory = self.driver.rig.read_memory(BASE, MEMORY);
        for queue in [RECEIVE, TRANSMIT] {
            let start = (used(queue) - BASE) as usize;
            let ring = start..start + 4 + 8 * usize::from(SIZE);
            let shadow = self.model.memory[ring.clone()].to_vec();
            memory[ring].copy_from_slice(&shadow);
        }
        prop_assert!(memory == self.model.memory, "memory differs");
        Ok(())
    }
}

fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut script = Script(bytes);
    let mergeable = script.byte() & 1 == 0;
    let features = if mergeable { FEATURES } else { FEATURES & !feature(VIRTIO_NET_F_MRG_RXBUF) };
    let driver = Driver::with(Answers::AtOnce, features, SIZE);
    let model = Model {
        memory: vec![0; MEMORY],
        queues: Default::default(),
        fault: None,
        sent: Vec::new(),
        waiting: VecDeque::new(),
        lent: Vec::new(),
        mergeable,
        receive_due: false,
    };
    let mut run = Run { driver, model, used: Default::default() };
    run.settle(&mut Script(&[]))?;
    while !script.0.is_empty() {
        for _ in 0..=script.byte() % 8 {
            run.step(&mut script);
        }
        run.settle(&mut script)?;
        run.judge()?;
    }
    Ok(())
}

/// Runs the body on arbitrary bytes; the error is what the runner reports.
fn run_cases(limit: Duration) -> Result<u32, String> {
    let start = Instant::now();
    let cases = std::cell::Cell::new(0u32);
    let config = Config { cases: 200_000, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&prop::collection::vec(any::<u8>(), 0..300), |bytes| {
        if start.elapsed() > limit {
            return Ok(());
        }
        cases.set(cases.get() + 1);
        body(&bytes)
    });
    outcome.map(|()| cases.get()).map_err(|error| error.to_string())
}

/// Runs the body on the committed inputs; gives how many there are.
fn run_corpus() -> Result<u32, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/virtqueue");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        body(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        inputs += 1;
    }
    Ok(inputs)
}

#[test]
fn arbitrary_rings_hold() {
    assert!(run_corpus().unwrap() > 0);
    let cases = run_cases(Duration::from_secs(10)).unwrap();
    assert!(cases > 500, "only {cases} cases in the time");
    let (sent, received) = COVERED.get();
    assert!(sent > 1 && received > 1, "cases that get nowhere: {sent} sent, {received} received");
}

#[test]
fn a_planted_bug_is_found() {
    for bug in ["net_next_unchecked", "net_index_unchecked"] {
        let found = with_planted(bug, || run_cases(Duration::from_secs(20)));
        assert!(found.is_err(), "{bug} was not found in {found:?} cases");
        let found = with_planted(bug, run_corpus);
        assert!(found.is_err(), "{bug} was not found by {found:?} committed inputs");
    }
}
