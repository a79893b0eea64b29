//! What a responder remembers of the READs and atomics that it has answered, so that it can answer them again: one slot
//! a request, the oldest is used anew. A table of its own, by QPN, as few packets need it.

use super::image::{Image, Reader, Writer};
use crate::numbers::Key;
use crate::planted::planted;
use rnic_abi::limits::{MAX_RD_ATOMIC, RD_ATOMIC_CONTEXT_BYTES};
use rnic_wire::Psn;

const SLOTS: usize = MAX_RD_ATOMIC as usize;

/// A READ that was accepted: the range whose parts may be asked for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnsweredRead {
    pub first_psn: Psn,
    pub address: u64,
    pub rkey: Key,
    pub length_bytes: u32,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answered {
    #[default]
    Nothing,
    Read(AnsweredRead),
    /// An atomic is executed once: its duplicates get what was there before it.
    Atomic {
        psn: Psn,
        original: u64,
    },
    /// An ATOMIC_WRITE or a FLUSH, whose answer holds nothing.
    Placed {
        psn: Psn,
    },
}

/// The slots of one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdAtomicContext {
    /// The slot that is used next.
    next: u8,
    slots: [Answered; SLOTS],
}

impl RdAtomicContext {
    /// Remembers a request in one of `slots` places, in the place of the oldest.
    pub fn remember(&mut self, answered: Answered, slots: u8) {
        let slots = (slots + u8::from(planted("one_place_more"))).clamp(1, MAX_RD_ATOMIC);
        let at = self.next % slots;
        self.slots[usize::from(at)] = answered;
        self.next = (at + 1) % slots;
    }

    /// The READ whose responses these PSNs are.
    pub fn read_at(&self, psn: Psn, path_mtu_bytes: u32) -> Option<AnsweredRead> {
        self.slots.iter().find_map(|slot| match slot {
            Answered::Read(read) => {
                let packets = read.length_bytes.div_ceil(path_mtu_bytes).max(1);
                psn.is_within(read.first_psn, packets).then_some(*read)
            }
            _ => None,
        })
    }

    /// An ATOMIC_WRITE or a FLUSH had this PSN.
    pub fn placed_at(&self, wanted: Psn) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Answered::Placed { psn } if *psn == wanted))
    }

    /// What an atomic found.
    pub fn atomic_at(&self, wanted: Psn) -> Option<u64> {
        self.slots.iter().find_map(|slot| match slot {
            Answered::Atomic { psn, original } if *psn == wanted => Some(*original),
            _ => None,
        })
    }
}

const NOTHING: u8 = 0;
const READ: u8 = 1;
const ATOMIC: u8 = 2;
const PLACED: u8 = 3;

impl Image for RdAtomicContext {
    const BYTES: usize = RD_ATOMIC_CONTEXT_BYTES as usize;

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.next);
        for slot in &self.slots {
            let (kind, psn, word, key, length) = match *slot {
                Answered::Nothing => (NOTHING, Psn::default(), 0, 0, 0),
                Answered::Read(read) => (READ, read.first_psn, read.address, read.rkey.0, read.length_bytes),
                Answered::Atomic { psn, original } => (ATOMIC, psn, original, 0, 0),
                Answered::Placed { psn } => (PLACED, psn, 0, 0, 0),
            };
            out.u8(kind);
            out.u32(psn.get());
            out.u64(word);
            out.u32(key);
            out.u32(length);
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        let mut context = Self { next: bytes.u8().filter(|next| *next < MAX_RD_ATOMIC)?, ..Self::default() };
        for slot in &mut context.slots {
            let kind = bytes.u8()?;
            let psn = bytes.u32().filter(|psn| *psn <= 0xff_ffff).map(Psn::new)?;
            let (word, rkey, length_bytes) = (bytes.u64()?, Key(bytes.u32()?), bytes.u32()?);
            *slot = match kind {
                NOTHING => Answered::Nothing,
                READ => Answered::Read(AnsweredRead { first_psn: psn, address: word, rkey, length_bytes }),
                ATOMIC => Answered::Atomic { psn, original: word },
                PLACED => Answered::Placed { psn },
                _ => return None,
            };
        }
        Some(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(psn: u32, length_bytes: u32) -> Answered {
        Answered::Read(AnsweredRead { first_psn: Psn::new(psn), address: 0x1000, rkey: Key(0x100), length_bytes })
    }

    #[test]
    fn the_oldest_slot_is_used_anew_and_no_other() {
        let mut context = RdAtomicContext::default();
        for psn in 0..5 {
            context.remember(Answered::Atomic { psn: Psn::new(psn), original: psn.into() }, 3);
        }
        let found: Vec<_> = (0..5).map(|psn| context.atomic_at(Psn::new(psn))).collect();
        assert_eq!(found, [None, None, Some(2), Some(3), Some(4)]);
    }

    #[test]
    fn a_read_is_found_at_each_of_its_responses_across_the_wrap() {
        let mut context = RdAtomicContext::default();
        context.remember(read(0xff_fffe, 1000), 1);
        let found: Vec<_> =
            [0xff_fffd, 0xff_fffe, 0xff_ffff, 0, 1, 2].map(|psn| context.read_at(Psn::new(psn), 256).is_some()).into();
        assert_eq!(found, [false, true, true, true, true, false]);
        context.remember(read(7, 0), 1);
        assert!(context.read_at(Psn::new(7), 256).is_some(), "a READ of no bytes has one response");
        assert!(context.read_at(Psn::new(8), 256).is_none());
    }

    #[test]
    fn an_image_comes_back_and_a_spoilt_one_does_not() {
        let mut context = RdAtomicContext::default();
        for psn in 0..20 {
            context.remember(read(psn, 300), MAX_RD_ATOMIC);
            context.remember(Answered::Atomic { psn: Psn::new(psn), original: u64::MAX }, MAX_RD_ATOMIC);
            context.remember(Answered::Placed { psn: Psn::new(psn) }, MAX_RD_ATOMIC);
        }
        let mut image = [0; RdAtomicContext::BYTES];
        context.to_bytes(&mut image);
        assert_eq!(RdAtomicContext::from_bytes(&image), Ok(context));
        image[9] ^= 0x10;
        assert!(RdAtomicContext::from_bytes(&image).is_err());
    }
}
