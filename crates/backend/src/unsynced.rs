//! The time of syncs that no put waits for.

use std::time::Duration;

use crate::{Task, TaskKind, Timestamp, Urgency};

/// The time after which puts are synced if no strategy syncs them, so that their memory or log can
/// be freed.
const UNSYNCED_MICROS_MAX: u64 = 30_000_000;

/// The promise of a put whose caller leaves it to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStrategy {
    /// Nothing: the system writes at any time.
    None,
    /// Nothing, but a sync is due this long after the first unsynced put.
    Interval(Duration),
    /// A put is durable when its ticket resolves; puts that wait together share a sync.
    Grouped,
}

/// The time at which a store's oldest unsynced data were put.
#[derive(Default)]
pub struct Unsynced {
    since: Option<Timestamp>,
}

impl Unsynced {
    /// The due sync. `bytes` are the bytes that it would write, if known. `None` if there is
    /// nothing to sync.
    pub fn due(&mut self, sync: SyncStrategy, bytes: Option<u64>, now: Timestamp) -> Option<Task> {
        let Some(cost_bytes) = bytes else {
            self.since = None;
            return None;
        };
        // No later than now: the clock may have been set back.
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
