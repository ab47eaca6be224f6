//! Random numbers: seeded by the system in production, by a number in a simulation.
//!
//! A process has one generator behind a lock, not one for each thread: a request draws few numbers,
//! and a simulation then has one sequence, however tasks are placed.

use parking_lot::Mutex;
use rand::rngs::SysRng;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::{Result, RuntimeError};

/// Gives random numbers.
pub trait Randomness: Send + Sync {
    /// Fills a buffer with random bytes.
    fn fill(&self, buffer: &mut [u8]);

    /// A random number.
    fn next_u64(&self) -> u64;
}

/// A generator that gives the same numbers for the same seed, in any version of this program.
pub struct SeededRandomness {
    generator: Mutex<ChaCha12Rng>,
}

impl SeededRandomness {
    /// A generator from a seed chosen by the caller. Its numbers can be predicted from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            generator: Mutex::new(ChaCha12Rng::seed_from_u64(seed)),
        }
    }

    /// A generator from a seed of the system.
    pub(crate) fn from_system() -> Result<Self> {
        let generator = ChaCha12Rng::try_from_rng(&mut SysRng)
            .map_err(|error| RuntimeError::Entropy(error.to_string()))?;
        Ok(Self {
            generator: Mutex::new(generator),
        })
    }
}

impl Randomness for SeededRandomness {
    fn fill(&self, buffer: &mut [u8]) {
        self.generator.lock().fill_bytes(buffer);
    }

    fn next_u64(&self) -> u64 {
        self.generator.lock().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let draw = |seed| {
            let randomness = SeededRandomness::new(seed);
            let mut bytes = [0; 20];
            randomness.fill(&mut bytes);
            (bytes, randomness.next_u64())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // Recorded, so that a new version of the generator is noticed: old seeds must replay.
        assert_eq!(SeededRandomness::new(7).next_u64(), 559_256_596_868_823_998);
    }

    #[test]
    fn the_system_gives_another_seed_each_time() {
        let draw = || SeededRandomness::from_system().unwrap().next_u64();
        assert_ne!(draw(), draw());
    }
}
