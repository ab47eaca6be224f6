//! The random stream of one worker, for everything that the worker draws.
//!
//! Seeds are those of basho_bench: worker i starts from `{A+i, B+i, C+i}`, so that a run repeats
//! its operations, keys and sizes. The generator is ChaCha8 and not Erlang's, so draws are the same
//! in all runs of this tool, but not in basho_bench.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// The three integers of `rng_seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [i64; 3]);

impl Seed {
    /// The seed of the worker with this id.
    pub fn of_worker(self, worker: u32) -> Self {
        Self(self.0.map(|part| part.wrapping_add(i64::from(worker))))
    }
}

/// A worker's stream of random numbers.
#[derive(Debug, Clone)]
pub struct WorkerRandom {
    generator: ChaCha8Rng,
}

impl WorkerRandom {
    /// A stream that depends only on the seed.
    pub fn new(seed: Seed) -> Self {
        let mut bytes = [0_u8; 32];
        for (slot, part) in bytes.chunks_exact_mut(8).zip(seed.0) {
            slot.copy_from_slice(&part.to_le_bytes());
        }
        Self {
            generator: ChaCha8Rng::from_seed(bytes),
        }
    }

    /// Uniform in `1..=max`; 1 if `max` is 0.
    pub fn uniform(&mut self, max: u64) -> u64 {
        // The high half of a 128-bit product: its bias is below max / 2^64.
        let wide = u128::from(self.generator.next_u64()) * u128::from(max);
        u64::try_from(wide >> 64).unwrap_or(0) + 1
    }

    /// Uniform in `[0, 1)`, in steps of 2^-53.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a number of 53 bits is exact in a float"
    )]
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.generator.next_u64() >> 11) as f64 * STEP
    }

    /// Exponentially distributed with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// Poisson distributed with the given mean: the number of waits of mean 1 that fit into it.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        let mut left = mean;
        let mut count = 0;
        loop {
            left -= self.exponential(1.0);
            if left < 0.0 {
                return count;
            }
            count += 1;
        }
    }

    /// Fills the buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.generator.fill_bytes(bytes);
    }

    /// A random printable character, codes 32 to 126.
    pub fn printable(&mut self) -> u8 {
        u8::try_from(31 + self.uniform(95)).unwrap_or(b' ')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams_and_workers_differ() {
        let draw = |worker| {
            let mut random = WorkerRandom::new(Seed([42, 23, 12]).of_worker(worker));
            (0..8).map(|_| random.uniform(1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn uniform_covers_its_bounds_and_no_more() {
        let mut random = WorkerRandom::new(Seed([1, 2, 3]));
        let drawn: std::collections::BTreeSet<u64> = (0..500).map(|_| random.uniform(5)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(random.uniform(0), 1);
    }

    #[test]
    fn the_exponential_has_its_mean() {
        let mut random = WorkerRandom::new(Seed([1, 2, 3]));
        let sum: f64 = (0..100_000).map(|_| random.exponential(500.0)).sum();
        assert!((sum / 100_000.0 - 500.0).abs() < 10.0);
    }
}
