//! What a run has really done, counted where it is done; and the floors below which it fails.

use std::sync::atomic::{AtomicUsize, Ordering};

static GUESTS: AtomicUsize = AtomicUsize::new(0);
static PACKETS: AtomicUsize = AtomicUsize::new(0);

/// QEMU guests that ran a program of ours.
pub fn guests_booted(count: usize) {
    GUESTS.fetch_add(count, Ordering::Relaxed);
}

/// Packets that a program of others has read: twice, if two have.
pub fn packets_judged(count: usize) {
    PACKETS.fetch_add(count, Ordering::Relaxed);
}

/// The closing line.
pub fn line() -> String {
    let (guests, packets) = (GUESTS.load(Ordering::Relaxed), PACKETS.load(Ordering::Relaxed));
    format!("guests booted {guests}, packets judged outside {packets}")
}

/// Each floor that was not reached, as a sentence.
pub fn below_floors() -> Vec<String> {
    let text = include_str!("floors.txt");
    let floor = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<usize>().ok());
    let reached = [("guests booted", &GUESTS), ("packets judged outside", &PACKETS)];
    let short = reached.iter().filter_map(|(name, count)| {
        let count = count.load(Ordering::Relaxed);
        match floor(name) {
            Some(floor) if count >= floor => None,
            Some(floor) => Some(format!("{name} {count}, fewer than the floor of {floor}")),
            None => Some(format!("floors.txt has no line for {name:?}")),
        }
    });
    short.collect()
}
