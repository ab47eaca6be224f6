//! When a store syncs what no put waits for.

use std::time::Duration;

use crate::{Task, TaskKind, Timestamp, Urgency};

/// Without a strategy that says otherwise, what was put is synced after this long, so that what held it can
/// be let go.
const UNSYNCED_MICROS_MAX: u64 = 30_000_000;

/// What a put promises when its caller leaves it to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStrategy {
    /// Nothing: the system writes when it likes.
    None,
    /// The same, and a sync is due this long after the first put that was not synced.
    Interval(Duration),
    /// A put is durable when its ticket resolves; puts that wait together share a sync.
    Grouped,
}

/// Since when a store has something that is not synced.
#[derive(Default)]
pub struct Unsynced {
    since: Option<Timestamp>,
}

impl Unsynced {
    /// The sync that is due. `bytes` is what it would write, as far as that is known, and `None` where there
    /// is nothing to sync.
    pub fn due(&mut self, sync: SyncStrategy, bytes: Option<u64>, now: Timestamp) -> Option<Task> {
        let Some(cost_bytes) = bytes else {
            self.since = None;
            return None;
        };
        // No later than now: the clock may have been put back.
        let since = self.since.map_or(now, |since| since.min(now));
        self.since = Some(since);
        let (wait_micros, urgency) = match sync {
            SyncStrategy::Interval(interval) => {
                let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
                (micros, Urgency::Normal)
            }
            SyncStrategy::None | SyncStrategy::Grouped => (UNSYNCED_MICROS_MAX, Urgency::Idle),
        };
        (since.0.saturating_add(wait_micros) <= now.0).then_some(Task {
            kind: TaskKind::Sync,
            subject: 0,
            urgency,
            cost_bytes,
        })
    }
}
