//! Expiry of entries.

use kvorum_backend::{Fields, Timestamp};
use kvorum_planted_defects::is_planted;
use kvorum_sst::Facts;

use crate::LsmSettings;

/// The expiry rules of a store: by an entry's own time, and by the store's maximum age.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expiry {
    age_micros: Option<u64>,
}

impl Expiry {
    pub(crate) fn of(settings: &LsmSettings) -> Self {
        let age = settings.expiry;
        Self {
            age_micros: age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
        }
    }

    pub(crate) fn age_micros(&self) -> Option<u64> {
        self.age_micros
    }

    /// True when an entry with these fields is expired at `now`.
    pub(crate) fn is_over(&self, fields: &Fields, now: Timestamp) -> bool {
        let by_age = self
            .age_micros
            .is_some_and(|age| fields.last_modified.0.saturating_add(age) <= now.0);
        (by_age || fields.is_expired(now)) && !is_planted!(ExpiredEntryReturned)
    }

    /// The same for a table's facts about an entry.
    pub(crate) fn is_over_by(&self, facts: &Facts, now: Timestamp) -> bool {
        let fields = Fields {
            last_modified: Timestamp(facts.last_modified),
            expiry: facts.expiry.map(Timestamp),
            ..Fields::default()
        };
        self.is_over(&fields, now)
    }
}
