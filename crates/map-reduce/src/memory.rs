//! The memory of a job, and its limit.

use crate::failure::Failure;
use crate::term::Term;

/// The memory limit of a job, in bytes: waiting inputs and results, and terms of reduce phases.
pub const JOB_BYTES_MAX: usize = 64 << 20;

/// The account of one job.
#[derive(Debug)]
pub(crate) struct Memory {
    used: usize,
    bytes_max: usize,
}

impl Memory {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { used: 0, bytes_max }
    }

    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Takes room for a phase.
    pub(crate) fn take(&mut self, phase: usize, bytes: usize) -> Result<(), Failure> {
        let used = self.used.saturating_add(bytes);
        if used > self.bytes_max {
            let bytes_max = self.bytes_max;
            return Err(Failure::Memory { phase, bytes_max });
        }
        self.used = used;
        Ok(())
    }

    /// Returns room.
    pub(crate) fn give(&mut self, bytes: usize) {
        assert!(bytes <= self.used, "a job gives back what it has taken");
        self.used -= bytes;
    }
}

/// The memory of terms.
pub(crate) fn bytes_of(terms: &[Term]) -> usize {
    terms.iter().map(Term::bytes).sum()
}
