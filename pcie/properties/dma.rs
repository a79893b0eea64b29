//! Maps, unmaps, writes and reads of a link against a plain array of bytes.
//!
//! The same memory is mapped at some addresses and reached through a client at others, so that a transfer that
//! overtakes another leaves or finds the wrong bytes. The client serves messages in order, as they are sent; its
//! answers come late and, between reads, out of order.

use super::Input;
use crate::dma_window::{Backing, MapError, Permissions};
use crate::guest_region::GuestRegion;
use crate::{
    Cause, Class, DmaFault, DmaPort, DmaRange, DmaTag, Iova, Link, LinkSettings, MessageId, MessageKind, Origin,
    Submitted,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sizes are small so that things meet; maps lie on multiples of a grain.
const MEMORY: usize = 512;
const SPACE: usize = 1024;
const GRAIN: usize = 32;

struct Map {
    start: usize,
    end: usize,
    offset: usize,
    permissions: Permissions,
}

/// What a byte of a pending read may turn out to be: what was there when it was submitted, or what later writes have
/// put there, since writes may pass reads.
struct Expected {
    at: usize,
    values: Vec<u8>,
}

struct World {
    link: Link,
    region: Arc<GuestRegion>,
    maps: Vec<Map>,
    /// What memory holds once everything submitted is done.
    memory: [u8; MEMORY],
    answers: Vec<(MessageId, Option<Vec<u8>>)>,
    expected: BTreeMap<DmaTag, Vec<Expected>>,
    calls: u64,
}

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut input = Input(bytes);
    let region = GuestRegion::anonymous(MEMORY).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let mut world = World {
        link: Link::new(LinkSettings::MODEL_HOST, 1),
        region: Arc::new(region),
        maps: Vec::new(),
        memory: [0; MEMORY],
        answers: Vec::new(),
        expected: BTreeMap::new(),
        calls: 0,
    };
    world.link.set_bus_master(true);
    // Two views of the memory to begin with: mapped, and by message.
    world.add_map(0, MEMORY / 2, 0, Permissions::READ_WRITE, false)?;
    world.add_map(MEMORY / 2, MEMORY, 0, Permissions::READ_WRITE, true)?;
    while !input.is_empty() {
        match input.byte() % 16 {
            0 => world.map(&mut input)?,
            1 => world.unmap(&mut input)?,
            2..=6 => world.write(&mut input)?,
            7..=10 => world.read(&mut input)?,
            11 | 12 => world.send()?,
            _ => world.answer(usize::from(input.byte()))?,
        }
    }
    world.drain()?;
    prop_assert_eq!(&world.contents(0, MEMORY)?[..], &world.memory[..]);
    prop_assert_eq!(world.link.ledger().total().crossings, world.calls);
    prop_assert!(world.link.has_room() && world.expected.is_empty());
    Ok(())
}

impl World {
    fn map(&mut self, input: &mut Input<'_>) -> Result<(), TestCaseError> {
        self.drain()?;
        let start = usize::from(input.byte()) % (SPACE / GRAIN) * GRAIN;
        let length = (usize::from(input.byte()) % 8 + 1) * GRAIN;
        let offset = usize::from(input.byte()) % (MEMORY / GRAIN) * GRAIN;
        let kind = input.byte();
        let permissions = Permissions { read: kind & 3 != 3, write: kind & 4 == 0 };
        self.add_map(start, start + length, offset.min(MEMORY - length), permissions, kind & 8 != 0)
    }

    fn add_map(
        &mut self,
        start: usize,
        end: usize,
        offset: usize,
        permissions: Permissions,
        by_message: bool,
    ) -> Result<(), TestCaseError> {
        let backing = match by_message {
            true => Backing::Message,
            false => Backing::Mapped { region: Arc::clone(&self.region), offset: offset as u64 },
        };
        let result = self.link.map(start as u64, (end - start) as u64, permissions, backing);
        let overlaps = self.maps.iter().any(|map| map.start < end && start < map.end);
        prop_assert_eq!(matches!(result, Err(MapError::Overlap { .. })), overlaps);
        prop_assert_eq!(result.is_ok(), !overlaps);
        if !overlaps {
            self.maps.push(Map { start, end, offset, permissions });
        }
        Ok(())
    }

    fn unmap(&mut self, input: &mut Input<'_>) -> Result<(), TestCaseError> {
        self.drain()?;
        let start = usize::from(input.byte()) % (SPACE / GRAIN) * GRAIN;
        let end = start + usize::from(input.byte()) % 16 * GRAIN;
        let before = self.maps.len();
        self.maps.retain(|map| !(start <= map.start && map.end <= end));
        prop_assert_eq!(self.link.unmap(start as u64, (end - start) as u64), before - self.maps.len());
        Ok(())
    }

    /// Where in memory the byte of an address lies, if it may be reached in this way.
    fn place(&self, iova: usize, write: bool) -> Option<usize> {
        let map = self.maps.iter().find(|map| map.start <= iova && iova < map.end)?;
        let allowed = if write { map.permissions.write } else { map.permissions.read };
        allowed.then_some(map.offset + iova - map.start)
    }

    fn places(&self, ranges: &[DmaRange], write: bool) -> Option<Vec<usize>> {
        let iovas = ranges.iter().flat_map(|range| (range.iova.0..).take(range.length_bytes as usize));
        iovas.map(|iova| self.place(iova as usize, write)).collect()
    }

    fn write(&mut self, input: &mut Input<'_>) -> Result<(), TestCaseError> {
        let ranges = ranges(input);
        let stamp = input.byte();
        let length = ranges.iter().map(|range| range.length_bytes as usize).sum();
        let data: Vec<u8> = (0..length).map(|index| stamp.wrapping_add(index as u8)).collect();
        let result = self.link.write(Origin::new(Class::PayloadWrite, Cause::Maintenance), &ranges, &data);
        self.calls += u64::from(length > 0);
        match self.places(&ranges, true) {
            Some(places) => {
                prop_assert_eq!(result, Ok(()));
                for (&at, &byte) in places.iter().zip(&data) {
                    self.memory[at] = byte;
                    let pending = self.expected.values_mut().flatten();
                    pending.filter(|expected| expected.at == at).for_each(|expected| expected.values.push(byte));
                }
            }
            None => prop_assert_eq!(result, Err(DmaFault::UnsupportedRequest)),
        }
        Ok(())
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), TestCaseError> {
        let ranges = ranges(input);
        let length = ranges.iter().map(|range| range.length_bytes as usize).sum();
        let mut into = vec![0; length];
        let result = self.link.read(Origin::new(Class::PayloadRead, Cause::Maintenance), &ranges, &mut into);
        self.calls += u64::from(length > 0);
        match (result, self.places(&ranges, false)) {
            (Ok(Submitted::Ready), Some(places)) => {
                prop_assert!(places.iter().map(|&at| self.memory[at]).eq(into));
            }
            (Ok(Submitted::Pending(tag)), Some(places)) => {
                let bytes = places.iter().map(|&at| Expected { at, values: vec![self.memory[at]] }).collect();
                prop_assert!(self.expected.insert(tag, bytes).is_none());
            }
            (result, None) => prop_assert_eq!(result, Err(DmaFault::UnsupportedRequest)),
            (Err(fault), Some(_)) => return Err(TestCaseError::fail(format!("refused: {fault}"))),
        }
        Ok(())
    }

    /// The client serves one message; its answer waits. False if there is none.
    fn send_one(&mut self) -> Result<bool, TestCaseError> {
        let Some(message) = self.link.next_message() else { return Ok(false) };
        let answer = match message.kind {
            MessageKind::Read { iova, length_bytes } => {
                let range = DmaRange::new(iova, length_bytes);
                let places = self.places(&[range], false).ok_or_else(|| TestCaseError::fail("an unmapped read"))?;
                let bytes: Result<Vec<u8>, TestCaseError> =
                    places.iter().map(|&at| self.contents(at, 1).map(|byte| byte[0])).collect();
                Some(bytes?)
            }
            MessageKind::Write { iova, data } => {
                let range = DmaRange::new(iova, data.len() as u32);
                let places = self.places(&[range], true).ok_or_else(|| TestCaseError::fail("an unmapped write"))?;
                for (&at, byte) in places.iter().zip(data) {
                    let slice = self.region.slice(at as u64, 1).ok_or_else(|| TestCaseError::fail("past memory"))?;
                    crate::guest_copy::write(&[byte], &slice);
                }
                None
            }
        };
        self.answers.push((message.id, answer));
        Ok(true)
    }

    fn send(&mut self) -> Result<(), TestCaseError> {
        self.send_one()?;
        self.collect()
    }

    fn answer(&mut self, which: usize) -> Result<(), TestCaseError> {
        if !self.answers.is_empty() {
            let (id, answer) = self.answers.remove(which % self.answers.len());
            prop_assert!(self.link.message_answered(id, Ok(answer.as_deref().unwrap_or(&[]))));
        }
        self.collect()
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        while self.send_one()? || !self.answers.is_empty() {
            self.answer(0)?;
        }
        prop_assert!(self.expected.is_empty(), "reads without an answer: {:?}", self.expected.keys());
        Ok(())
    }

    fn collect(&mut self) -> Result<(), TestCaseError> {
        while let Some((tag, result)) = self.link.next_completion() {
            let expected = self.expected.remove(&tag).ok_or_else(|| TestCaseError::fail("an unknown tag"))?;
            let data = result.map_err(|fault| TestCaseError::fail(format!("{tag:?}: {fault}")))?;
            prop_assert_eq!(data.len(), expected.len());
            for (byte, Expected { at, values }) in data.iter().zip(&expected) {
                prop_assert!(values.contains(byte), "{tag:?}: {byte} at {at}, expected one of {values:?}");
            }
        }
        Ok(())
    }

    fn contents(&self, at: usize, length: usize) -> Result<Vec<u8>, TestCaseError> {
        let slice = self.region.slice(at as u64, length as u64).ok_or_else(|| TestCaseError::fail("past memory"))?;
        let mut bytes = vec![0; length];
        crate::guest_copy::read(&slice, &mut bytes);
        Ok(bytes)
    }
}

/// One to three ranges, of which some run into what is not mapped.
fn ranges(input: &mut Input<'_>) -> Vec<DmaRange> {
    let count = input.byte() % 3 + 1;
    (0..count)
        .map(|_| {
            let iova = usize::from(input.word()) % SPACE;
            DmaRange::new(Iova(iova as u64), u32::from(input.byte()) % 80)
        })
        .collect()
}
