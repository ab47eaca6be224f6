//! Shrinking: the shortest script found that still breaks the contract.
//!
//! Steps are removed in halves, quarters and so on down to single ones (delta debugging), then the
//! writes of batches. A store is opened for each attempt, so attempts are bounded.

use crate::script::{Script, Step};
use crate::{Checked, Violation};

/// The most scripts that are tried.
const ATTEMPTS_MAX: usize = 600;

/// Checks a script. The violation is that of the smallest failing one found.
pub(crate) fn check_script(
    script: Script,
    variation: u32,
    check: impl Fn(&Script) -> Checked,
) -> Checked {
    let Err(violation) = check(&script) else {
        return Ok(());
    };
    let mut search = Search {
        best: script,
        violation,
        attempts: 0,
        check,
    };
    search.drop_steps();
    search.drop_writes();
    search.drop_steps();
    let script = search.best;
    Err(search
        .violation
        .after(format!("variation {variation} of {script}")))
}

struct Search<F> {
    best: Script,
    violation: Violation,
    attempts: usize,
    check: F,
}

impl<F: Fn(&Script) -> Checked> Search<F> {
    fn keeps_failing(&mut self, candidate: Script) -> bool {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            return false;
        }
        let Err(violation) = (self.check)(&candidate) else {
            return false;
        };
        self.best = candidate;
        self.violation = violation;
        true
    }

    fn drop_steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < self.best.steps.len() {
                let mut candidate = self.best.clone();
                let end = (start + size).min(candidate.steps.len());
                candidate.steps.drain(start..end);
                if !self.keeps_failing(candidate) {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    fn drop_writes(&mut self) {
        for step in 0..self.best.steps.len() {
            let mut number = 0;
            while let Some(candidate) = without_write(&self.best, step, number) {
                if !self.keeps_failing(candidate) {
                    number += 1;
                }
            }
        }
    }
}

fn without_write(script: &Script, step: usize, number: usize) -> Option<Script> {
    let mut candidate = script.clone();
    match candidate.steps.get_mut(step)? {
        Step::Put { writes, .. } if number < writes.len() && writes.len() > 1 => {
            writes.remove(number);
            Some(candidate)
        }
        _ => None,
    }
}
