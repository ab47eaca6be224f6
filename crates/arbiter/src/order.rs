//! Decisions of the arbiter: the orders that a driver carries out.

use std::time::Duration;

use kvorum_backend::{StepBudget, Task, TaskKind};

/// Owners of upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The node's value log.
    ValueLog,
    /// The store of a vnode, by its partition's number.
    Store(u16),
}

/// One step of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its owner.
    pub owner: Owner,
    /// Its task.
    pub task: Task,
    /// The budget of the step.
    pub budget: StepBudget,
    /// The expected cost of the step, in bytes: the budget, or the rest of the task if that is
    /// known and less.
    pub declared_bytes: u64,
}

/// The allowed cost of a step, as a multiple of the declared one.
const OVERRUN_TIMES: u64 = 2;

impl Order {
    /// True when a step that cost this much is an overrun: more than twice the declared cost. Syncs
    /// declare none.
    pub fn is_overrun_by(&self, cost_bytes: u64) -> bool {
        self.task.kind != TaskKind::Sync
            && cost_bytes > self.declared_bytes.saturating_mul(OVERRUN_TIMES)
    }
}

/// The next action of a free worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Take a look and report [`crate::Looked`].
    Look,
    /// Query the backlog and report [`crate::Answer`].
    Ask(Owner),
    /// Do a step and report [`crate::Ended`].
    Step(Order),
    /// Sync these stores, with a useful number in parallel, and report [`crate::Ended`] of each.
    Syncs(Vec<Order>),
    /// Do nothing for this long.
    Rest(Duration),
}
