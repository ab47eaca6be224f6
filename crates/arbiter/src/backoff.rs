//! Tasks that fail, or make no progress, are held back for increasing times.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::{Task, TaskKind};
use kvorum_runtime::Moment;

/// The delay after a first failure.
const FAILURE_DELAY: Duration = Duration::from_secs(1);
const FAILURE_DELAY_MAX: Duration = Duration::from_secs(300);
/// Acknowledged writes wait behind syncs, and the value log grows without them.
const SYNC_DELAY_MAX: Duration = Duration::from_secs(10);
/// Space may be freed at any time, and these tasks free space.
const NO_SPACE_DELAY_MAX: Duration = Duration::from_secs(5);
/// The delay after a step that did nothing.
const FRUITLESS_DELAY: Duration = Duration::from_millis(100);
const FRUITLESS_DELAY_MAX: Duration = Duration::from_secs(10);

/// A task of one owner, apart from its remaining cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId {
    pub(crate) kind: TaskKind,
    pub(crate) subject: u64,
}

impl TaskId {
    pub(crate) fn of(task: &Task) -> Self {
        Self {
            kind: task.kind,
            subject: task.subject,
        }
    }
}

/// The tasks of one owner that are held back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    holds: BTreeMap<TaskId, Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    times: u32,
    until: Moment,
    is_for_space: bool,
}

impl Backoff {
    /// The end of a task's hold, if it has one.
    pub(crate) fn held_until(&self, id: TaskId, now: Moment) -> Option<Moment> {
        let until = self.holds.get(&id)?.until;
        (until > now).then_some(until)
    }

    pub(crate) fn failed(&mut self, id: TaskId, now: Moment) {
        let most = match id.kind {
            TaskKind::Sync => SYNC_DELAY_MAX,
            _ => FAILURE_DELAY_MAX,
        };
        self.hold(id, now, FAILURE_DELAY, most);
    }

    pub(crate) fn had_no_space(&mut self, id: TaskId, now: Moment) {
        self.hold(id, now, FAILURE_DELAY, NO_SPACE_DELAY_MAX);
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.is_for_space = true;
        }
    }

    /// Ends the holds for space: there is space again.
    pub(crate) fn has_space(&mut self) {
        self.holds.retain(|_, hold| !hold.is_for_space);
    }

    pub(crate) fn got_nowhere(&mut self, id: TaskId, now: Moment) {
        self.hold(id, now, FRUITLESS_DELAY, FRUITLESS_DELAY_MAX);
    }

    pub(crate) fn went_well(&mut self, id: TaskId) {
        self.holds.remove(&id);
    }

    /// Removes tasks that are no longer due.
    pub(crate) fn keep(&mut self, tasks: &[Task], now: Moment) {
        let is_due = |id: &TaskId| tasks.iter().any(|task| TaskId::of(task) == *id);
        // A task that disappears and returns keeps its hold: only time ends it.
        self.holds
            .retain(|id, hold| is_due(id) || hold.until.plus(FAILURE_DELAY_MAX) > now);
    }

    fn hold(&mut self, id: TaskId, now: Moment, first: Duration, most: Duration) {
        let hold = self.holds.entry(id).or_insert(Hold {
            times: 0,
            until: now,
            is_for_space: false,
        });
        let delay = first.saturating_mul(1 << hold.times.min(20)).min(most);
        hold.times += 1;
        hold.until = now.plus(delay);
        hold.is_for_space = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TaskId = TaskId {
        kind: TaskKind::Merge,
        subject: 7,
    };

    #[test]
    fn each_failure_doubles_the_delay_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let mut now = Moment::default();
        let mut delays = Vec::new();
        for _ in 0..12 {
            backoff.failed(ID, now);
            let until = backoff.held_until(ID, now).unwrap();
            delays.push(until.since(now).as_secs());
            now = until;
            assert!(backoff.held_until(ID, now).is_none());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        backoff.went_well(ID);
        backoff.failed(ID, now);
        assert_eq!(backoff.held_until(ID, now), Some(now.plus(FAILURE_DELAY)));
    }

    /// Regression: after a full disk had room again, merges were held back for five more minutes.
    #[test]
    fn what_had_no_space_is_tried_again_soon_and_at_once_when_there_is() {
        let mut backoff = Backoff::default();
        let mut now = Moment::default();
        for _ in 0..10 {
            backoff.had_no_space(ID, now);
            now = backoff.held_until(ID, now).unwrap();
        }
        backoff.had_no_space(ID, now);
        let until = backoff.held_until(ID, now).unwrap();
        assert_eq!(until.since(now), NO_SPACE_DELAY_MAX);
        backoff.has_space();
        assert_eq!(backoff.held_until(ID, now), None);
        backoff.failed(ID, now);
        backoff.has_space();
        assert!(backoff.held_until(ID, now).is_some());
    }

    #[test]
    fn a_task_that_comes_and_goes_is_forgiven_by_time_alone() {
        let mut backoff = Backoff::default();
        backoff.failed(ID, Moment::default());
        backoff.keep(&[], Moment::default());
        assert!(backoff.held_until(ID, Moment::default()).is_some());
        backoff.keep(&[], Moment::from_start(Duration::from_secs(400)));
        assert!(backoff.held_until(ID, Moment::default()).is_none());
    }
}
