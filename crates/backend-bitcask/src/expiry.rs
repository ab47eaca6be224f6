//! Expiry: exact for single entries, estimated for the entries of a segment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_backend::{Fields, Timestamp};
use kvorum_planted_defects::is_planted;

use crate::BitcaskSettings;
use crate::segment_stats::SegmentStats;

/// The estimated bytes of a removal that replaces an entry.
const REMOVAL_BYTES_ABOUT: u64 = 80;

/// The rules of expiry: an entry's own, and the store's by age.
pub(crate) struct Expiry {
    age_micros: Option<u64>,
    /// The time for which an expired entry stays on disk.
    grace_micros: u64,
    /// The time of the last call for upkeep, in microseconds.
    known_time: AtomicU64,
}

/// The estimated expired share of a segment's live bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Expired {
    /// Bytes of the removals that replace expired entries, if these may hide older entries.
    pub(crate) fn removal_bytes(&self) -> u64 {
        let all = self.records.saturating_mul(REMOVAL_BYTES_ABOUT);
        all.min(self.bytes)
    }

    /// Bytes that a merge frees, if each expired entry becomes a removal.
    pub(crate) fn freed_bytes(&self) -> u64 {
        self.bytes - self.removal_bytes()
    }
}

impl Expiry {
    pub(crate) fn of(settings: &BitcaskSettings) -> Self {
        Self {
            age_micros: settings.expiry.map(micros),
            grace_micros: micros(settings.expiry_grace),
            known_time: AtomicU64::new(0),
        }
    }

    /// True when entries expire by the time of their last change.
    pub(crate) fn is_by_age(&self) -> bool {
        self.age_micros.is_some()
    }

    /// The time when an entry expires, by its own expiry or the store's.
    fn expiry_of(&self, fields: &Fields) -> Option<Timestamp> {
        let at_age = |age| Timestamp(fields.last_modified.0.saturating_add(age));
        let by_age = self.age_micros.map(at_age);
        match (fields.expiry, by_age) {
            (Some(own), Some(by_age)) => Some(own.min(by_age)),
            (own, by_age) => own.or(by_age),
        }
    }

    /// True when an entry is no longer shown.
    pub(crate) fn is_over(&self, fields: &Fields, now: Timestamp) -> bool {
        let is_over = self.expiry_of(fields).is_some_and(|expiry| expiry <= now);
        is_over && !is_planted!(ExpiredEntryReturned)
    }

    /// True when an expired entry's space may be freed.
    pub(crate) fn is_collectable(&self, fields: &Fields, now: Timestamp) -> bool {
        self.expiry_of(fields)
            .is_some_and(|expiry| expiry.0.saturating_add(self.grace_micros) <= now.0)
    }

    /// True when every entry of a segment has expired and its space may be freed.
    pub(crate) fn is_all_collectable(&self, stats: &SegmentStats, now: Timestamp) -> bool {
        let age = self.age_micros.unwrap_or(u64::MAX);
        let expired_by = stats.expires_by.min(stats.modified_by.saturating_add(age));
        let has_entries = stats.records > stats.removals;
        has_entries && expired_by.saturating_add(self.grace_micros) <= now.0
    }

    /// Notes the time of a call for upkeep, for the call's later parts.
    pub(crate) fn note_time(&self, now: Timestamp) {
        self.known_time.store(now.0, Ordering::Relaxed);
    }

    pub(crate) fn known_time(&self) -> Timestamp {
        Timestamp(self.known_time.load(Ordering::Relaxed))
    }

    /// The least expired share that a merge would find: some of the estimated entries may have
    /// become garbage before they expired.
    pub(crate) fn expired_in(&self, stats: &SegmentStats) -> Expired {
        let now = self.known_time();
        if self.is_all_collectable(stats, now) {
            return Expired {
                records: stats.live_records,
                bytes: stats.live_bytes,
            };
        }
        let gone_by = now.0.saturating_sub(self.grace_micros);
        let gone_bytes = stats.expiries.bytes_by(gone_by);
        let bytes = gone_bytes.saturating_sub(stats.garbage_bytes());
        let bytes = bytes.min(stats.live_bytes);
        Expired {
            records: scaled(stats.live_records, bytes, stats.live_bytes),
            bytes,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn scaled(whole: u64, part: u64, of: u64) -> u64 {
    let scaled = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
