//! The check against a map of a file and a client whose answers the test gives.

use super::*;
use rnic_pcie::dma_window::Permissions;
use rnic_pcie::{Cause, Class, DmaPort, Iova, LinkSettings, Origin};
use std::fs::File;
use std::os::unix::fs::FileExt;

const IOVA: u64 = 0x4000;

struct Rig {
    link: Link,
    /// What the map shows; the guest's own memory only where it is shared.
    file: File,
    check: SharingCheck,
    now_ns: u64,
}

impl Rig {
    fn new() -> Self {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(0x1000).expect("a page");
        let mut link = Link::new(LinkSettings::default(), 1);
        link.map_file(IOVA, 0x1000, Permissions::READ_WRITE, file.try_clone().expect("a handle"), 0).expect("a map");
        link.set_bus_master(true);
        Self { link, file, check: SharingCheck::default(), now_ns: 0 }
    }

    fn guest_writes(&self, bytes: &[u8]) {
        self.file.write_all_at(bytes, 0).expect("written");
    }

    fn device_reads(&mut self, bytes: usize) {
        let origin = Origin::new(Class::CommandFetch, Cause::Command { slot: 0 });
        let range = DmaRange::new(Iova(IOVA), bytes as u32);
        self.link.read(origin, &[range], &mut vec![0; bytes]).expect("read");
    }

    fn question(&mut self) -> Option<DmaRange> {
        self.check.question(&mut self.link, self.now_ns)
    }

    fn answer(&mut self, answer: Option<&[u8]>) -> Option<DmaRange> {
        self.check.answered(&self.link, answer, self.now_ns);
        self.now_ns += PAUSE_NS;
        self.check.take_stale()
    }
}

#[test]
fn one_look_is_enough_where_the_map_shows_what_the_client_reads() {
    let mut rig = Rig::new();
    assert_eq!(rig.question(), None, "nothing was read yet");
    rig.guest_writes(&[7; 64]);
    rig.device_reads(64);
    assert_eq!(rig.question(), Some(DmaRange::new(Iova(IOVA), 64)));
    assert_eq!(rig.question(), None, "one question at a time");
    assert_eq!(rig.answer(Some(&[7; 64])), None);
    assert_eq!(rig.check.verdict(), Some(true));
    rig.device_reads(64);
    assert_eq!(rig.question(), None, "it is known");
}

#[test]
fn a_map_that_stays_behind_is_stale_after_rounds_with_pauses() {
    let mut rig = Rig::new();
    rig.device_reads(64);
    let ledger = rig.link.last_sequence();
    for round in 1..=ROUNDS {
        assert!(rig.question().is_some(), "round {round}");
        let stale = rig.answer(Some(&[7; 64]));
        assert_eq!(stale.is_some(), round == ROUNDS, "round {round}");
        rig.now_ns -= 1;
        assert_eq!(rig.question(), None, "not before the pause is over");
        rig.now_ns += 1;
    }
    assert_eq!(rig.check.verdict(), Some(false));
    assert_eq!(rig.question(), None);
    assert_eq!(rig.link.last_sequence(), ledger, "no crossing is counted for it");
}

/// Shared memory that the guest writes all the time: whatever is answered was there at some moment.
#[test]
fn a_guest_that_writes_meanwhile_is_never_called_stale() {
    let mut rig = Rig::new();
    for tick in 0..=255u8 {
        rig.guest_writes(&[tick; 8]);
        rig.device_reads(8);
        if rig.question().is_some() {
            let answer = [tick.wrapping_add(1); 8];
            rig.guest_writes(&answer);
            let after = [tick.wrapping_add(2); 8];
            rig.guest_writes(&after);
            assert_eq!(rig.answer(Some(&answer)), None, "tick {tick}");
        }
    }
    assert_ne!(rig.check.verdict(), Some(false));
}

/// A word that the guest sets and clears, so that every look but the client's finds it cleared, is told by its beat:
/// one round in which the map moved, or the answer was another, and the count begins anew.
#[test]
fn a_beat_that_breaks_once_begins_anew() {
    for broken_map in [false, true] {
        let mut rig = Rig::new();
        rig.device_reads(8);
        for round in 1..2 * ROUNDS {
            let breaks = round % ROUNDS == 0;
            if breaks && broken_map {
                rig.guest_writes(&[9; 8]);
            }
            assert!(rig.question().is_some(), "round {round}");
            let answer = [if breaks && !broken_map { 8 } else { 7 }; 8];
            assert_eq!(rig.answer(Some(&answer)), None, "round {round}");
            rig.guest_writes(&[0; 8]);
        }
        assert_eq!(rig.check.verdict(), None);
    }
}

#[test]
fn zeros_say_nothing_and_are_not_asked_about_for_ever() {
    let mut rig = Rig::new();
    for _ in 0..QUESTIONS {
        rig.device_reads(64);
        assert!(rig.question().is_some());
        rig.answer(Some(&[0; 64]));
    }
    rig.device_reads(64);
    assert_eq!(rig.question(), None);
    assert_eq!(rig.check.verdict(), None);
}

#[test]
fn an_error_a_reset_and_an_unmap_leave_it_open() {
    let mut rig = Rig::new();
    rig.device_reads(64);
    assert!(rig.question().is_some());
    rig.answer(None);
    rig.device_reads(64);
    assert!(rig.question().is_some());
    rig.check.not_asked();
    assert_eq!(rig.answer(Some(&[7; 64])), None, "a late answer is no answer");
    rig.device_reads(64);
    assert!(rig.question().is_some());
    rig.link.unmap_all();
    assert_eq!(rig.answer(Some(&[7; 64])), None);
    assert_eq!(rig.check.verdict(), None);
    assert_eq!(rig.question(), None);
}

#[test]
fn a_long_read_is_looked_at_in_part_and_only_while_bus_mastering_is_on() {
    let mut rig = Rig::new();
    rig.device_reads(0x1000);
    rig.link.set_bus_master(false);
    assert_eq!(rig.question(), None);
    rig.link.set_bus_master(true);
    assert_eq!(rig.question(), Some(DmaRange::new(Iova(IOVA), MAX_BYTES)));
}
