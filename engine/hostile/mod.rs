//! Hostile input: what a guest, a peer and a host's memory can do, in seven bodies.
//!
//! Each body takes bytes, reads them as a script and checks what must hold whatever they say: no panic, no step
//! without end, no byte written where nobody allowed it, an answer or a completion for everything that was asked,
//! a diagnostic for every refusal, and queue pairs beside the attacked one that go on. The corpus of a body is run
//! first, then a search; and each body must find the bug that is planted for it.

mod accesses;
mod commands;
mod corpus;
mod frames;
mod memory;
mod traffic;
mod unreliable;
mod work_requests;
mod world;

pub(crate) use corpus::reached;
use proptest::prelude::*;

/// Values out of bytes; zeros when they have ended.
pub(crate) struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.word())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.word())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.word())
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    /// One of these.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}

fn scripts() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..400)
}

macro_rules! body_tests {
    ($($name:ident, $bug:literal;)*) => {
        $(mod $name {
            use crate::planted::with_planted;
            use crate::search;

            #[test]
            fn any_bytes_are_survived() {
                search::finds_nothing(
                    env!("CARGO_MANIFEST_DIR"),
                    stringify!($name),
                    &super::super::scripts(),
                    super::super::$name::body,
                );
            }

            #[test]
            fn the_planted_bug_is_found() {
                with_planted($bug, || search::finds($bug, &super::super::scripts(), super::super::$name::body));
            }
        })*
    };
}

mod tests {
    body_tests! {
        accesses, "doorbell_length_unchecked";
        commands, "refusal_undiagnosed";
        work_requests, "key_range_unchecked";
        frames, "ghost_acknowledgements_count";
        memory, "waiter_forgotten";
        traffic, "duplicates_executed";
        unreliable, "key_range_unchecked";
    }

    #[test]
    fn a_read_that_completes_without_its_response_is_found() {
        let bug = "passed_over_reads_complete";
        crate::planted::with_planted(bug, || {
            crate::search::corpus_finds(env!("CARGO_MANIFEST_DIR"), "traffic", bug, super::traffic::body);
        });
    }
}
