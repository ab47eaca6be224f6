//! The merges in progress, and the space that they need: a merge takes space for its copies before
//! it frees any.
//!
//! A merge begins when there is room for its copies beside those of all merges in progress. If
//! space is scarce already, merges continue one after another, since the reserve is enough for one.

use std::collections::BTreeMap;

use kvorum_backend::{Task, TaskKind};

use crate::backoff::TaskId;
use crate::order::{Order, Owner};

pub(crate) type MergeId = (Owner, TaskId);

/// Merges that were begun and are not done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merges {
    /// The bytes that each merge writes, by its task at the beginning.
    begun: BTreeMap<MergeId, u64>,
    /// The merge of the last step.
    last: Option<MergeId>,
}

impl Merges {
    pub(crate) fn begins(&mut self, order: &Order) {
        if copies(order.task.kind) {
            let id = id_of(order.owner, &order.task);
            self.begun.entry(id).or_insert(copied_bytes(&order.task));
        }
    }

    /// Notes how a step ended.
    pub(crate) fn ended(&mut self, order: &Order, goes_on: bool) {
        let id = id_of(order.owner, &order.task);
        if !copies(order.task.kind) {
            return;
        }
        if goes_on {
            self.last = Some(id);
        } else {
            self.begun.remove(&id);
            self.last = self.last.filter(|last| *last != id);
        }
    }

    /// Removes merges without a due task.
    pub(crate) fn keep(&mut self, is_due: impl Fn(&MergeId) -> bool) {
        self.begun.retain(|id, _| is_due(id));
    }

    /// The merge of the last step.
    pub(crate) fn last(&self) -> Option<MergeId> {
        self.last
    }

    /// True when a task has to wait for merges in progress: for `sole`, or for room.
    pub(crate) fn is_to_wait(
        &self,
        owner: Owner,
        task: &Task,
        sole: Option<MergeId>,
        room_bytes: u64,
    ) -> bool {
        let id = id_of(owner, task);
        if !copies(task.kind) || sole == Some(id) {
            return false;
        }
        if sole.is_some() {
            return true;
        }
        let taken_bytes: u64 = self.begun.values().sum();
        let is_first = self.begun.is_empty();
        let has_begun = self.begun.contains_key(&id);
        !is_first && !has_begun && taken_bytes.saturating_add(copied_bytes(task)) > room_bytes
    }
}

fn id_of(owner: Owner, task: &Task) -> MergeId {
    (owner, TaskId::of(task))
}

/// True for work that writes copies before it removes anything.
fn copies(kind: TaskKind) -> bool {
    matches!(
        kind,
        TaskKind::Merge | TaskKind::Collect | TaskKind::Compact
    )
}

/// The most that a merge writes, in bytes: half of its cost, since it reads as much.
fn copied_bytes(task: &Task) -> u64 {
    task.cost_bytes / 2
}
