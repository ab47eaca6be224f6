//! The range of the differences found, so that the next exchange need not read the rest.

use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;

use crate::entry_summary::EntrySummary;

/// A range of entries: those changed at some time or later, in one bucket if all differences are in
/// one.
///
/// A replica that missed writes for a while differs in the entries changed since then. The range
/// has no end: the newest missed entry may not be found yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeHint {
    /// The prefix that the storage keys of the bucket share; `None` for all buckets.
    pub bucket_prefix: Option<Vec<u8>>,
    /// The earliest change, in microseconds since the Unix epoch.
    pub modified_from: u64,
    /// The latest change; `u64::MAX` for the present and later.
    pub modified_to: u64,
}

impl RangeHint {
    /// True for an entry of the range.
    pub fn admits(&self, key: &StorageKey, modified: u64) -> bool {
        let is_of_bucket = self
            .bucket_prefix
            .as_ref()
            .is_none_or(|prefix| key.as_bytes().starts_with(prefix));
        is_of_bucket && (self.modified_from..=self.modified_to).contains(&modified)
    }

    /// The range of all listed versions of the differing keys. `None` without differences.
    pub(crate) fn over<'a>(different: impl Iterator<Item = &'a EntrySummary>) -> Option<Self> {
        let mut hint: Option<Self> = None;
        for seen in different {
            let prefix = bucket_prefix(&seen.key);
            let hint = hint.get_or_insert_with(|| Self {
                bucket_prefix: prefix.map(<[u8]>::to_vec),
                modified_from: seen.modified,
                modified_to: 0,
            });
            if hint.bucket_prefix.as_deref() != prefix {
                hint.bucket_prefix = None;
            }
            hint.modified_from = hint.modified_from.min(seen.modified);
            hint.modified_to = hint.modified_to.max(seen.modified);
        }
        hint.map(|hint| match is_planted!(RangeHintSkipsNewest) {
            true => hint,
            false => Self {
                modified_to: u64::MAX,
                ..hint
            },
        })
    }
}

fn bucket_prefix(key: &StorageKey) -> Option<&[u8]> {
    key.as_bytes().get(..key.bucket_prefix_len().ok()?)
}
