//! The link between two ports: a bounded ring with one producer and one consumer.
//!
//! In: full frames from the sending port. Out: the same frames at the receiving port.
//! A slot always holds a buffer: the producer swaps its full one for the slot's empty one, the consumer
//! the other way round, so a packet costs neither a copy nor an allocation. A slot's first buffer is made
//! when the ring first reaches it, so an idle link costs a few kilobytes.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Keeps what one side writes off the cache lines of what the other side writes (two lines, as x86 prefetches pairs).
#[repr(align(128))]
struct Padded<T>(T);

/// What both halves share. Indices count up for ever and are reduced to a slot by `mask`.
///
/// Invariant: `consumed <= produced <= consumed + slots.len()`, in wrapping arithmetic. The consumer owns the slots
/// `consumed..produced`, the producer all others; ownership passes with a Release store of the index, taken by an Acquire load.
struct Ring<T> {
    produced: Padded<AtomicUsize>,
    consumed: Padded<AtomicUsize>,
    /// The producer sleeps until there is room again.
    producer_waits: Padded<AtomicBool>,
    /// One half has left; whoever leaves second counts what remains.
    left: AtomicBool,
    slots: Box<[UnsafeCell<Option<T>>]>,
    fresh: fn() -> T,
}

// SAFETY: the two halves are neither Clone nor Copy, so one thread produces and one consumes; by the invariant above
// a slot is reached by the side that owns it only. `T: Send` because items change threads through the slots.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, index: usize) -> *mut Option<T> {
        // The length is a power of two, so the mask keeps the index within the slice.
        self.slots[index & (self.slots.len() - 1)].get()
    }
}

/// The half that gives items away.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    produced: usize,
    /// The last `consumed` seen: asked for again only when the ring looks full.
    consumed_seen: usize,
}

/// The half that takes items.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    consumed: usize,
    /// The last `produced` seen: asked for again only when the ring looks empty.
    produced_seen: usize,
}

/// Makes a ring of at least `capacity` slots (rounded up to a power of two); `fresh` makes a slot's first buffer.
pub fn ring<T>(capacity: usize, fresh: fn() -> T) -> (Producer<T>, Consumer<T>) {
    let ring = Arc::new(Ring {
        produced: Padded(AtomicUsize::new(0)),
        consumed: Padded(AtomicUsize::new(0)),
        producer_waits: Padded(AtomicBool::new(false)),
        left: AtomicBool::new(false),
        slots: (0..capacity.max(2).next_power_of_two()).map(|_| UnsafeCell::new(None)).collect(),
        fresh,
    });
    let producer = Producer { ring: Arc::clone(&ring), produced: 0, consumed_seen: 0 };
    (producer, Consumer { ring, consumed: 0, produced_seen: 0 })
}

impl<T> Producer<T> {
    /// How many items can be pushed now; at least `enough` if there is that much room, without touching the
    /// consumer's cache line when what was seen before already suffices.
    pub fn room(&mut self, enough: usize) -> usize {
        let capacity = self.ring.slots.len();
        let seen = capacity - self.produced.wrapping_sub(self.consumed_seen);
        // At least 1: a 0 that was seen before is never good enough, the consumer may have moved since.
        if seen >= enough.clamp(1, capacity) {
            return seen;
        }
        self.consumed_seen = self.ring.consumed.0.load(Ordering::Acquire);
        capacity - self.produced.wrapping_sub(self.consumed_seen)
    }

    /// Swaps `item` with an empty slot's buffer. False, and nothing changed, if the ring is full.
    pub fn push(&mut self, item: &mut T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: room for one means `produced - consumed < len`, so the producer owns this slot until the store below.
        let slot = unsafe { &mut *self.ring.slot(self.produced) };
        match slot {
            Some(buffer) => std::mem::swap(buffer, item),
            None => *slot = Some(std::mem::replace(item, (self.ring.fresh)())),
        }
        self.produced = self.produced.wrapping_add(1);
        self.ring.produced.0.store(self.produced, Ordering::Release);
        true
    }

    /// Asks for a wake-up when there is room again. The caller puts a SeqCst fence behind it, then looks at `room` once more.
    pub fn wait_for_room(&self, waits: bool) {
        self.ring.producer_waits.0.store(waits, Ordering::Relaxed);
    }

    /// Leaves the ring; what remains in it if the consumer has left before, and so will never be taken.
    pub fn leave(self) -> usize {
        if !self.ring.left.swap(true, Ordering::AcqRel) {
            return 0;
        }
        self.produced.wrapping_sub(self.ring.consumed.0.load(Ordering::Acquire))
    }
}

impl<T> Consumer<T> {
    /// Whether an item waits, as far as this side knows without asking the producer's cache line when it need not.
    pub fn is_empty(&mut self) -> bool {
        if self.consumed == self.produced_seen {
            self.produced_seen = self.ring.produced.0.load(Ordering::Acquire);
        }
        self.consumed == self.produced_seen
    }

    /// Swaps the oldest item with `item`. False, and nothing changed, if the ring is empty.
    pub fn pop(&mut self, item: &mut T) -> bool {
        if self.is_empty() {
            return false;
        }
        // SAFETY: `consumed < produced`, so the consumer owns this slot until the store below; the Acquire load of
        // `produced` made the producer's writes to it visible.
        let slot = unsafe { &mut *self.ring.slot(self.consumed) };
        if let Some(buffer) = slot {
            std::mem::swap(buffer, item);
        }
        self.consumed = self.consumed.wrapping_add(1);
        self.ring.consumed.0.store(self.consumed, Ordering::Release);
        true
    }

    /// Whether to look (behind a SeqCst fence) if the producer sleeps for room. Every half ring and when the ring runs
    /// empty is enough: a producer that sleeps found the ring full, so the consumer passes such a point before it runs out.
    pub fn at_checkpoint(&self) -> bool {
        let half = self.ring.slots.len() / 2;
        self.consumed == self.produced_seen || self.consumed & (half - 1) == 0
    }

    /// Takes the producer's request to be woken, if there is one.
    pub fn take_producer_waits(&self) -> bool {
        let waits = &self.ring.producer_waits.0;
        waits.load(Ordering::Relaxed) && waits.swap(false, Ordering::AcqRel)
    }

    /// Whether the producer has left: nothing comes after what is in the ring now.
    pub fn producer_left(&self) -> bool {
        self.ring.left.load(Ordering::Acquire)
    }

    /// Leaves the ring; what remains in it if the producer has left before, so that nobody else counts it.
    pub fn leave(self) -> usize {
        if !self.ring.left.swap(true, Ordering::AcqRel) {
            return 0;
        }
        self.ring.produced.0.load(Ordering::Acquire).wrapping_sub(self.consumed)
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("produced", &self.produced).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("consumed", &self.consumed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn behaves_as_a_bounded_queue(capacity in 1usize..9, steps in proptest::collection::vec(any::<bool>(), 0..200)) {
            let (mut producer, mut consumer) = ring(capacity, || Box::new(0u32));
            let capacity = capacity.max(2).next_power_of_two();
            let mut model = VecDeque::new();
            for (step, push) in steps.into_iter().enumerate() {
                if push {
                    let mut item = Box::new(step as u32);
                    let taken = producer.push(&mut item);
                    prop_assert_eq!(taken, model.len() < capacity);
                    if taken { model.push_back(step as u32) } else { prop_assert_eq!(*item, step as u32) }
                } else {
                    let mut item = Box::new(u32::MAX);
                    let got = consumer.pop(&mut item);
                    prop_assert_eq!(got.then_some(*item), model.pop_front());
                }
                // However little is asked for, 0 must be the truth: a producer goes to sleep on it.
                prop_assert_eq!(producer.room(0) == 0, model.len() == capacity);
                prop_assert_eq!(producer.room(capacity), capacity - model.len());
                prop_assert_eq!(consumer.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the two halves belong to two threads")]
    fn two_threads_lose_and_reorder_nothing() {
        let count: u32 = if cfg!(miri) { 500 } else { 1_000_000 };
        let (mut producer, mut consumer) = ring(8, || Box::new(0u32));
        let sender = std::thread::spawn(move || {
            let mut item = Box::new(0);
            for number in 0..count {
                *item = number;
                while !producer.push(&mut item) {
                    std::thread::yield_now();
                }
            }
        });
        let mut item = Box::new(0);
        for number in 0..count {
            while !consumer.pop(&mut item) {
                std::thread::yield_now();
            }
            assert_eq!(*item, number);
        }
        sender.join().unwrap();
        assert!(!consumer.pop(&mut item));
    }

    #[test]
    fn whoever_leaves_second_counts_what_remains() {
        for producer_first in [false, true] {
            let (mut producer, consumer) = ring(4, || 0u8);
            for item in 0..3 {
                assert!(producer.push(&mut item.clone()));
            }
            let counted = if producer_first {
                (producer.leave(), consumer.leave())
            } else {
                let c = consumer.leave();
                (c, producer.leave())
            };
            assert_eq!(counted, (0, 3));
        }
    }
}
