//! What a port counts. In: one event after another from the thread that owns the port. Out: a snapshot for any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a frame, or one of its copies, was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// Too short for an Ethernet header.
    Runt,
    /// Its destination is behind the port it came from.
    Hairpin,
    /// To be flooded, but the switch has no other port.
    NoOtherPort,
    /// Transmitted although [`crate::Port::room`] said that there was none.
    NoRoom,
    /// On its way to a port that left the switch.
    PortLeft,
    /// Beyond the limit of the egress queue.
    QueueFull,
    /// Lost by the impairment.
    Loss,
    /// Dropped by the fault script.
    Fault,
}

impl DropReason {
    /// Every reason, in the order of the reports.
    pub const ALL: [Self; 8] = [
        Self::Runt,
        Self::Hairpin,
        Self::NoOtherPort,
        Self::NoRoom,
        Self::PortLeft,
        Self::QueueFull,
        Self::Loss,
        Self::Fault,
    ];

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runt => "drop_runt",
            Self::Hairpin => "drop_hairpin",
            Self::NoOtherPort => "drop_no_other_port",
            Self::NoRoom => "drop_no_room",
            Self::PortLeft => "drop_port_left",
            Self::QueueFull => "drop_queue_full",
            Self::Loss => "drop_loss",
            Self::Fault => "drop_fault",
        }
    }
}

/// A count with one writer, the port's thread: no locked instruction is needed, only an atomic store.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The live counters of a port, on cache lines of their own: the ports that send to it read what lies beside.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $(pub $name: Counter,)*
            drops: [Counter; DropReason::ALL.len()],
        }

        /// A port's counts at one moment. Frames and bytes are those of Ethernet without its check sequence.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct PortStatistics {
            $($(#[$doc])* pub $name: u64,)*
            /// By [`DropReason`], in the order of [`DropReason::ALL`].
            pub drops: [u64; DropReason::ALL.len()],
        }

        impl Counters {
            pub fn snapshot(&self) -> PortStatistics {
                PortStatistics { $($name: self.$name.get(),)* drops: std::array::from_fn(|reason| self.drops[reason].get()) }
            }
        }

        impl PortStatistics {
            /// Every count with its name, the drops last.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let counts = [$((stringify!($name), self.$name),)*];
                counts.into_iter().chain(DropReason::ALL.map(|reason| (reason.name(), self.dropped(reason))))
            }
        }
    };
}

counters! {
    /// Frames given to the switch.
    transmitted_frames,
    transmitted_bytes,
    /// Those of them that went to all other ports.
    flooded_frames,
    /// Copies put into the rings of other ports: one for a unicast frame, several for a flooded one.
    forwarded_frames,
    /// Copies taken out of the rings from other ports, before the egress half.
    arrived_frames,
    /// Frames that the port took from the switch, behind the egress half.
    received_frames,
    received_bytes,
    /// Frames that were not where the table had them, or not in it.
    learned_frames,
    /// Egress half: marked Congestion Experienced.
    marked_frames,
    duplicated_frames,
    corrupted_frames,
    reordered_frames,
}

impl Counters {
    pub fn drop(&self, reason: DropReason, count: u64) {
        self.drops[reason as usize].add(count);
    }
}

impl PortStatistics {
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_name_of_its_own() {
        let counters = Counters::default();
        for (count, reason) in DropReason::ALL.into_iter().enumerate() {
            counters.drop(reason, count as u64 + 1);
        }
        let statistics = counters.snapshot();
        assert_eq!(statistics.drops, [1, 2, 3, 4, 5, 6, 7, 8]);
        let names: std::collections::BTreeSet<_> = statistics.named().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 12 + DropReason::ALL.len());
    }
}
