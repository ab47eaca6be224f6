//! The groups of the suite, and the effort of a run.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::EngineUnderTest;

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Each sentence of the contract by itself.
    Sentences,
    /// Random scripts against a model.
    Model,
    /// Power cuts at every disk operation.
    Crash,
    /// Failing disk operations.
    Faults,
    /// Damaged, missing, older and mixed-up files.
    Damage,
}

/// The share of all possible trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Samples, drawn by the seed: seconds.
    Quick,
    /// All bounded trials, and many more random scripts: minutes.
    Long,
}

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The source of all random choices.
    pub seed: u64,
    /// The effort.
    pub effort: Effort,
}

impl Plan {
    /// Samples drawn by `seed`.
    pub fn quick(seed: u64) -> Self {
        Self {
            seed,
            effort: Effort::Quick,
        }
    }

    /// `quick` many in a quick run, `long` many in a long one.
    pub(crate) fn amount(&self, quick: usize, long: usize) -> usize {
        match self.effort {
            Effort::Quick => quick,
            Effort::Long => long,
        }
    }

    /// As [`Plan::amount`], less for a slow engine in a quick run.
    pub(crate) fn share(&self, engine: &dyn EngineUnderTest, quick: usize, long: usize) -> usize {
        let quick = quick.div_ceil(engine.slowness().max(1));
        self.amount(quick, long)
    }

    /// A source of randomness for this part of the run.
    pub(crate) fn rng(&self, part: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(part);
        rng
    }
}
