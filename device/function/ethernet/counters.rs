//! What the Ethernet function has done, since it came up.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Counts that only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct EthernetCounters { $($(#[$doc])* pub $name: u64,)* }

        impl EthernetCounters {
            /// Every counter with its name, in the order of the reports.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Frames of the driver that the switch got, and their bytes.
    transmitted_frames;
    transmitted_bytes;
    /// Frames of the driver that are none (too short, too long, a checksum outside, segmentation), or sent while the link
    /// is down.
    transmit_dropped;
    /// Frames from the switch that the driver got, and their bytes.
    received_frames;
    received_bytes;
    /// Not for this function, as the driver's receive mode and address table say.
    received_filtered;
    /// No driver, one that has to reset the device, or the link is down.
    received_unattended;
    /// The driver has lent no buffers for so long that no more frames are kept.
    received_overrun;
    /// Longer than the driver's buffer, where one frame has one.
    received_too_long;
    /// Commands of the control queue.
    commands;
    /// Times the device has stopped and asked for a reset.
    faults;
    /// Register accesses that mean nothing: another size or place than the field's, or a queue there is none of.
    refused_accesses;
}
