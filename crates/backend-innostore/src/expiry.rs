//! Expiry of entries.

use std::time::Duration;

use kvorum_backend::{Fields, Timestamp};
use kvorum_planted_defects::is_planted;

/// The expiry rules of a store: by an entry's own time, and by the store's maximum age.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expiry {
    age_micros: Option<u64>,
}

impl Expiry {
    pub(crate) fn of(age: Option<Duration>) -> Self {
        Self {
            age_micros: age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
        }
    }

    /// True when entries expire by the time of their last change.
    pub(crate) fn is_by_age(&self) -> bool {
        self.age_micros.is_some()
    }

    /// True when an entry with these fields is expired at `now`.
    pub(crate) fn is_over(&self, fields: &Fields, now: Timestamp) -> bool {
        let by_age = self
            .age_micros
            .is_some_and(|age| fields.last_modified.0.saturating_add(age) <= now.0);
        (by_age || fields.is_expired(now)) && !is_planted!(ExpiredEntryReturned)
    }
}
