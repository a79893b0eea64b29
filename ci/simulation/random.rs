//! Chance, repeatable. In: a seed. Out: the same decisions in every run.

/// splitmix64 (Steele, Lea, Flood): every seed is as good as any other.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A generator of its own for one purpose, so that draws for another do not shift it.
    pub fn fork(&mut self) -> Self {
        Self(self.draw())
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn per_million(&mut self, share: u32) -> bool {
        self.below(1_000_000) < u64::from(share)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// The place of one of the weights, in proportion to them.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let mut left = self.below(weights.clone().map(u64::from).sum::<u64>().max(1));
        for (place, weight) in weights.enumerate() {
            match left.checked_sub(weight.into()) {
                Some(rest) => left = rest,
                None => return place,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_repeatable_fair_and_in_bounds() {
        let draws = |seed| {
            let mut random = Random::new(seed);
            std::iter::repeat_with(|| random.below(10)).take(10_000).collect::<Vec<_>>()
        };
        assert_eq!(draws(3), draws(3));
        assert_ne!(draws(3), draws(4));
        for value in 0..10 {
            let count = draws(3).iter().filter(|draw| **draw == value).count();
            // Five standard deviations of a binomial of 10,000 and 0.1 are 150.
            assert!((850..=1150).contains(&count), "{value}: {count}");
        }
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| (5..=7).contains(&random.between(5, 7))));
        assert!((0..1000).all(|_| random.weighted([0, 3, 0, 1].into_iter()) % 2 == 1));
    }
}
