//! Chance, repeatable: in: a seed. Out: the same numbers in every run.

use std::fmt;

/// xorshift64* (Marsaglia; Vigna): small, fast, and good enough to decide what happens to a frame.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // The finalizer of splitmix64 sets near seeds far apart; the generator's state must not be 0.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((state ^ (state >> 31)).max(1))
    }

    fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A number below `bound`, which is not 0; the bias is below 2^-15 for what frames need.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// A probability in units of 2^-32, so that deciding needs no floating point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Probability(u64);

impl Probability {
    const ONE: u64 = 1 << 32;
    pub const NEVER: Self = Self(0);
    pub const ALWAYS: Self = Self(Self::ONE);

    /// None for anything but 0 to 1.
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then(|| Self((fraction * Self::ONE as f64).round() as u64))
    }

    pub fn fraction(self) -> f64 {
        self.0 as f64 / Self::ONE as f64
    }

    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// This probability times `part / whole`; `part` is at most `whole`, which is not 0.
    pub fn scaled(self, part: u64, whole: u64) -> Self {
        Self((u128::from(self.0) * u128::from(part) / u128::from(whole)) as u64)
    }

    /// Draws only where chance decides, so that what is switched off does not shift what is on.
    pub fn happens(self, random: &mut Random) -> bool {
        match self {
            Self::NEVER => false,
            Self::ALWAYS => true,
            Self(limit) => u64::from(random.next_u32()) < limit,
        }
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_repeatable_and_fair() {
        let draws = |seed| {
            (0..4)
                .map({
                    let mut random = Random::new(seed);
                    move |_| random.next_u32()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));

        let mut random = Random::new(1);
        let tenth = Probability::from_fraction(0.1).unwrap();
        let hits = (0..100_000).filter(|_| tenth.happens(&mut random)).count();
        // Five standard deviations of a binomial of 100,000 and 0.1 are 474.
        assert!((9_526..=10_474).contains(&hits), "{hits} of 100,000");

        let mut seen = [0u32; 10];
        (0..100_000).for_each(|_| seen[random.below(10) as usize] += 1);
        assert!(seen.iter().all(|count| (9_526..=10_474).contains(count)), "{seen:?}");
    }

    #[test]
    fn only_fractions_are_probabilities() {
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Probability::from_fraction(fraction), None);
        }
        assert_eq!(Probability::from_fraction(0.0), Some(Probability::NEVER));
        assert_eq!(Probability::from_fraction(1.0), Some(Probability::ALWAYS));
    }
}
