//! 24-bit sequence numbers: packet sequence numbers and message sequence numbers.
//!
//! Arithmetic is modulo 2^24. "Before" and "after" are those of a window of half the space: one number is before
//! another when the way forward from it is shorter than 2^23 steps.

use core::fmt;

/// Numbers in the space.
pub const MODULUS: u32 = 1 << 24;
const MASK: u32 = MODULUS - 1;

macro_rules! sequence_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The low 24 bits of `value`.
            #[inline(always)]
            pub const fn new(value: u32) -> Self {
                Self(value & MASK)
            }

            #[inline(always)]
            pub const fn get(self) -> u32 {
                self.0
            }

            #[inline(always)]
            pub const fn next(self) -> Self {
                self.add(1)
            }

            #[inline(always)]
            pub const fn add(self, steps: u32) -> Self {
                Self::new(self.0.wrapping_add(steps))
            }

            #[inline(always)]
            pub const fn subtract(self, steps: u32) -> Self {
                Self::new(self.0.wrapping_sub(steps))
            }

            /// Steps forward from `earlier` to `self`, 0 to 2^24 - 1.
            #[inline(always)]
            pub const fn distance_from(self, earlier: Self) -> u32 {
                self.0.wrapping_sub(earlier.0) & MASK
            }

            /// `self` relative to `other`: negative before it, positive after it; -2^23 to 2^23 - 1.
            #[inline(always)]
            pub const fn compare(self, other: Self) -> i32 {
                // The difference moved to the top of the word takes the word's own sign.
                (self.0.wrapping_sub(other.0) << 8) as i32 >> 8
            }

            #[inline(always)]
            pub const fn is_before(self, other: Self) -> bool {
                self.compare(other) < 0
            }

            #[inline(always)]
            pub const fn is_after(self, other: Self) -> bool {
                self.compare(other) > 0
            }

            /// Whether `self` is one of the `length` numbers from `first` on.
            #[inline(always)]
            pub const fn is_within(self, first: Self, length: u32) -> bool {
                self.distance_from(first) < length
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:#08x}", self.0)
            }
        }
    };
}

sequence_number! {
    /// A packet sequence number.
    Psn
}

sequence_number! {
    /// A message sequence number.
    Msn
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_space_wraps() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).subtract(1), last);
        assert_eq!(Psn::new(0).distance_from(last), 1);
        assert!(last.is_before(Psn::new(0)) && Psn::new(0).is_after(last));
        assert_eq!(Psn::new(0x100_0005), Psn::new(5));
        assert_eq!(Psn::new(0xab).to_string(), "0x0000ab");
    }

    #[test]
    fn the_window_is_half_the_space() {
        let origin = Psn::new(7);
        assert_eq!(origin.add(0x7f_ffff).compare(origin), 0x7f_ffff);
        assert_eq!(origin.add(0x80_0000).compare(origin), -0x80_0000);
        assert!(origin.is_within(origin, 1) && !origin.is_within(origin, 0));
        assert!(origin.add(9).is_within(origin, 10) && !origin.add(10).is_within(origin, 10));
    }

    proptest! {
        #[test]
        fn addition_and_distance_agree(start: u32, steps: u32) {
            let (start, moved) = (Psn::new(start), Psn::new(start).add(steps));
            prop_assert!(moved.get() < MODULUS);
            prop_assert_eq!(u64::from(moved.get()), (u64::from(start.get()) + u64::from(steps)) % u64::from(MODULUS));
            prop_assert_eq!(moved.distance_from(start), steps % MODULUS);
            prop_assert_eq!(moved.subtract(steps), start);
        }

        #[test]
        fn comparison_is_the_shorter_way(left: u32, right: u32) {
            let (left, right) = (Psn::new(left), Psn::new(right));
            let forward = i64::from(left.distance_from(right));
            let expected = if forward < 1 << 23 { forward } else { forward - (1 << 24) };
            prop_assert_eq!(i64::from(left.compare(right)), expected);
            prop_assert_eq!(left.is_after(right), expected > 0);
            prop_assert_eq!(left.is_before(right), expected < 0);
            if expected.unsigned_abs() != 1 << 23 {
                prop_assert_eq!(right.compare(left), -left.compare(right));
            }
        }
    }
}
