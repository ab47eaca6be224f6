//! What the arbiter decides: the orders that a driver carries out.

use std::time::Duration;

use kvorum_backend::{StepBudget, Task, TaskKind};

/// Who owes upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The node's value log.
    ValueLog,
    /// The store of a vnode, by its partition's number.
    Store(u16),
}

/// One step to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose.
    pub owner: Owner,
    /// Of which task.
    pub task: Task,
    /// How much of it.
    pub budget: StepBudget,
    /// What the step is expected to cost, in bytes: the budget, or what is left of the task if that
    /// is known and less.
    pub declared_bytes: u64,
}

/// A step may cost this many times what it declared.
const OVERRUN_TIMES: u64 = 2;

impl Order {
    /// True when a step that cost this much is one of those that are not to be: twice what it declared is
    /// allowed. Syncs declare nothing.
    pub fn is_overrun_by(&self, cost_bytes: u64) -> bool {
        self.task.kind != TaskKind::Sync
            && cost_bytes > self.declared_bytes.saturating_mul(OVERRUN_TIMES)
    }
}

/// What a free worker does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look around and report [`crate::Looked`].
    Look,
    /// Ask what is owed and report [`crate::Told`].
    Ask(Owner),
    /// Do a step and report [`crate::Ended`].
    Step(Order),
    /// Sync these stores, as many at a time as pays, and report [`crate::Ended`] of each.
    Syncs(Vec<Order>),
    /// Do nothing for this long.
    Rest(Duration),
}
