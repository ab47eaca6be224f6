//! Settings of the engine: plain values. Components are passed separately.

use std::time::Duration;

use kvorum_backend::{Belonging, DayHours, SyncStrategy, Timestamp};
use kvorum_segment::Compression;

/// Behaviour and performance of a store. Defaults are Riak's where Riak has the setting, except for
/// durability.
#[derive(Clone, Debug)]
pub struct BitcaskSettings {
    // Behaviour.
    /// The store's label and identity, as far as they are known at the opening.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`].
    pub sync: SyncStrategy,
    /// Entries expire this long after they were last modified; `None` for never. If an entry has an
    /// expiry of its own, the earlier time counts.
    pub expiry: Option<Duration>,
    /// The time for which an expired entry stays on disk before its space is reclaimed: larger
    /// values reclaim more at once.
    pub expiry_grace: Duration,
    /// Rules for reclaiming space.
    pub merge: MergeSettings,

    // Performance.
    /// The limit of a segment's length, in bytes; a segment is finished before a record that would
    /// exceed the limit. A larger entry gets a segment of its own. A small store gets smaller
    /// segments, since garbage in the active segment cannot be freed.
    pub file_bytes_max: u64,
    /// Compression of new bodies.
    pub compression: Compression,
    /// A checkpoint is due after this many bytes of records, or after 16 times its own size if that
    /// is more. This limits the replay after a crash. Many small records make a checkpoint due
    /// earlier.
    pub checkpoint_after_bytes: u64,

    /// With the value log: a checkpoint is also due when the log is more than this many segments
    /// ahead of uncovered records. A larger value means fewer writes, and more reads after a crash.
    pub log_segments_behind_max: u32,
    /// With the value log: a log hint is written when this many records have none. A larger value
    /// means fewer files, and more fronts to read for each part of a fold.
    pub log_hint_records_min: u64,
    /// The number of log hints of about one size that are merged into one. A larger value means
    /// fewer writes, and more open files.
    pub log_hints_merged: usize,
    /// The period in which sealed segments are read again, to find corruption; `None` for never.
    pub scrub_period: Option<Duration>,

    /// Replaces the keyed hash, to make different keys collide.
    #[cfg(any(test, feature = "chosen-fingerprints"))]
    pub fingerprint: Option<fn(&[u8]) -> u64>,
}

/// Rules for merging segments: a *trigger* starts a round of merges, in which every segment that
/// meets a *threshold* is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeSettings {
    /// The time when merging is allowed at all.
    pub policy: MergePolicy,
    /// Trigger: the share of garbage among a segment's records, in percent.
    pub fragmentation_trigger_percent: u8,
    /// Trigger: garbage bytes in a segment.
    pub garbage_bytes_trigger: u64,
    /// Trigger: the share of garbage among all bytes of the store, in percent; above 100 for never.
    /// It bounds the space of a store, which the triggers of single segments do not. One segment at
    /// a time is merged, regardless of the thresholds, until the share is lower.
    pub store_garbage_trigger_percent: u8,
    /// Threshold: as the trigger of the same name.
    pub fragmentation_threshold_percent: u8,
    /// Threshold: as the trigger of the same name.
    pub garbage_bytes_threshold: u64,
    /// Threshold: a finished segment is smaller than this, in bytes; 0 to leave small segments
    /// alone.
    pub small_file_threshold_bytes: u64,
}

/// Times when merging is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePolicy {
    /// At any time.
    Always,
    /// Never: garbage takes its space for ever.
    Never,
    /// In these hours.
    Window(DayHours),
}

impl Default for BitcaskSettings {
    fn default() -> Self {
        Self {
            belonging: Belonging::default(),
            sync: SyncStrategy::Grouped,
            expiry: None,
            expiry_grace: Duration::ZERO,
            merge: MergeSettings::default(),
            file_bytes_max: 2 << 30,
            compression: Compression::None,
            checkpoint_after_bytes: 64 << 20,
            log_segments_behind_max: 32,
            log_hint_records_min: 4096,
            log_hints_merged: 32,
            scrub_period: Some(Duration::from_secs(30 * 86_400)),
            #[cfg(any(test, feature = "chosen-fingerprints"))]
            fingerprint: None,
        }
    }
}

impl Default for MergeSettings {
    fn default() -> Self {
        Self {
            policy: MergePolicy::Always,
            fragmentation_trigger_percent: 60,
            garbage_bytes_trigger: 512 << 20,
            store_garbage_trigger_percent: 30,
            fragmentation_threshold_percent: 40,
            garbage_bytes_threshold: 128 << 20,
            small_file_threshold_bytes: 10 << 20,
        }
    }
}

impl MergePolicy {
    /// True when merging is allowed at this time of the day.
    pub fn allows(self, now: Timestamp) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Window(hours) => hours.contain(now),
        }
    }
}
