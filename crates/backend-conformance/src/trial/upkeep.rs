//! Maintenance, stepped by the script in place of an arbiter.

use kvorum_backend::{StepBudget, Task};

use super::Trial;
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, Violation};

/// The budget of a step that has to make progress.
const WIDE_BUDGET_BYTES: u64 = 1 << 20;
/// The most that a step's cost may exceed its budget and one entry: headers, footers and checksums.
const FRAMING_BYTES: u64 = 4096;
/// The most steps of the wide budget for a task on a store of a script's size.
const STEPS_MAX: usize = 10_000;
/// Rounds over due tasks. A task may cause another one: a merge, for example, causes the writing of a hint.
const ROUNDS: usize = 4;

impl Trial<'_> {
    pub(super) fn maintain(&mut self, pick: usize, budget_bytes: u64) -> Checked {
        let due = self.store()?.maintenance_due(self.now);
        if due.is_empty() {
            return Ok(());
        }
        self.maintenance_step(&due[pick % due.len()], budget_bytes)?;
        Ok(())
    }

    /// Does all due upkeep, and the tasks that it causes.
    pub(crate) fn maintain_all(&mut self) -> Checked {
        for _ in 0..ROUNDS {
            for task in self.store()?.maintenance_due(self.now) {
                self.finish(&task)?;
            }
        }
        self.check_all()
    }

    fn finish(&self, task: &Task) -> Checked {
        for _ in 0..STEPS_MAX {
            if self.maintenance_step(task, WIDE_BUDGET_BYTES)? {
                return Ok(());
            }
        }
        Err(Violation::of(17, format!("{task:?} never ends")))
    }

    fn maintenance_step(&self, task: &Task, budget_bytes: u64) -> Checked<bool> {
        let budget = StepBudget {
            bytes: budget_bytes,
        };
        let outcome = self
            .store()?
            .maintenance_step(task, budget, self.now)
            .must("a maintenance step")?;
        // Read once and written once.
        let most = budget_bytes + 2 * self.entry_bytes_max + FRAMING_BYTES;
        ensure(outcome.cost_bytes <= most, 17, || {
            format!(
                "a step of {task:?} cost {} bytes with a budget of {budget_bytes}",
                outcome.cost_bytes
            )
        })?;
        Ok(outcome.is_done)
    }
}
