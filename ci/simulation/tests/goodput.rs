//! What loss costs the engine, against a model of the same rule that shares no code with it, and against the formula.
//!
//! `RNIC_GOODPUT_PACKETS` says how many packets each case has; without it few, so that the suite stays quick.

use rnic_simulation::goodput::{Case, SLOT_NS, measure};
use std::collections::VecDeque;

const WINDOWS: [u32; 3] = [16, 64, 256];
/// Longer than the longest way.
const TIMEOUT: u8 = 4;
const LOSSES: [f64; 4] = [0.0001, 0.001, 1.0 / 256.0, 0.01];

fn packets() -> u64 {
    let wanted = std::env::var("RNIC_GOODPUT_PACKETS").ok();
    wanted.map_or(100_000, |text| text.parse().expect("a number of packets in RNIC_GOODPUT_PACKETS"))
}

/// xorshift64*, of its own.
struct Chance(u64);

impl Chance {
    fn below(&mut self, share: f64) -> bool {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64) < share
    }
}

/// What the receiver says of a packet.
enum Heard {
    Acknowledged(u64),
    Missing(u64),
}

/// Go-back-N by its rule: slots for so many packets. The sender sends the next packet of its window in each slot; what is
/// lost is named once, when the next packet comes, and the timer has the rest.
fn model(window: u64, loss: f64, packets: u64, seed: u64) -> f64 {
    let timeout = (4096 << TIMEOUT) / SLOT_NS;
    let mut chance = Chance(seed);
    let (mut oldest, mut next, mut highest) = (0u64, 0u64, 0u64);
    let (mut expected, mut named) = (0u64, false);
    let (mut slot, mut since) = (0u64, 0u64);
    // What comes back, and in which slot.
    let mut back: VecDeque<(u64, Heard)> = VecDeque::new();
    while oldest < packets {
        slot += 1;
        while back.front().is_some_and(|(due, _)| *due <= slot) {
            match back.pop_front().map(|(_, heard)| heard) {
                Some(Heard::Acknowledged(psn)) if psn >= oldest => {
                    (oldest, since) = (psn + 1, slot);
                    next = next.max(oldest);
                }
                Some(Heard::Missing(psn)) if psn >= oldest => (oldest, next, since) = (psn, psn, slot),
                _ => {}
            }
        }
        if oldest < highest && slot - since >= timeout {
            (next, since) = (oldest, slot);
        }
        if next < packets && next - oldest < window {
            if oldest == highest {
                since = slot;
            }
            let psn = next;
            next += 1;
            highest = highest.max(next);
            if chance.below(loss) {
                continue;
            }
            let due = slot + window;
            if psn == expected {
                (expected, named) = (expected + 1, false);
                back.push_back((due, Heard::Acknowledged(psn)));
            } else if psn < expected {
                back.push_back((due, Heard::Acknowledged(expected - 1)));
            } else if !std::mem::replace(&mut named, true) {
                back.push_back((due, Heard::Missing(expected)));
            }
        }
    }
    packets as f64 / (slot - window) as f64
}

/// The way takes as long as the window: without loss neither waits for the other.
fn going_back(window: u32, loss: f64, packets: u64) -> Case {
    Case { window, way: window, timeout: TIMEOUT, loss, packets, selective: false, seed: 7 }
}

fn formula(window: u32, loss: f64) -> f64 {
    (1.0 - loss) / (1.0 + loss * f64::from(window - 1))
}

#[test]
fn the_model_without_loss_is_the_whole_wire_and_with_loss_near_the_formula() {
    for window in WINDOWS {
        assert!((model(window.into(), 0.0, 10_000, 1) - 1.0).abs() < 1e-3, "window {window}");
        let (seen, said) = (model(window.into(), 0.001, 1_000_000, 1), formula(window, 0.001));
        assert!((seen / said - 1.0).abs() < 0.15, "window {window}: {seen:.4} and {said:.4}");
    }
}

#[test]
fn loss_costs_what_going_back_costs() {
    for window in WINDOWS {
        for loss in LOSSES {
            let case = going_back(window, loss, packets());
            let found = measure(&case).expect("a run");
            let expected = model(window.into(), loss, 4_000_000, 99);
            let (share, said) = (found.share(), formula(window, loss));
            println!("window {window}, loss {loss:.5}: {share:.4}, model {expected:.4}, formula {said:.4}, {found:?}");
            assert!((share / expected - 1.0).abs() < 0.05, "{case:?}: {share:.4}, and the model has {expected:.4}");
            assert!(found.timeouts > 0 || (share / said - 1.0).abs() < 0.15, "{case:?}: {share:.4}, not {said:.4}");
        }
    }
}

#[test]
fn without_loss_every_slot_is_used_and_selectively_nearly_every_one() {
    for window in WINDOWS {
        let whole = measure(&going_back(window, 0.0, 20_000)).expect("a run");
        assert!(whole.share() > 0.999 && whole.timeouts == 0, "window {window}: {whole:?}");
        // There is room in the window for what follows a gap until it is closed.
        let timeout = if window > 64 { 2 } else { 1 };
        let case = Case { window, way: window / 4, timeout, loss: 0.01, packets: packets(), selective: true, seed: 5 };
        let found = measure(&case).expect("a run");
        println!("window {window}, selective, loss 0.01: {:.4}, {found:?}", found.share());
        assert!(found.share() > 0.95 * whole.share(), "{case:?}: {:.4}", found.share());
    }
}
