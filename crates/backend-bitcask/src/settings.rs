//! The knobs of the engine: plain values, apart from the components that are passed in beside them.

use std::time::Duration;

use kvorum_backend::{Belonging, DayHours, SyncStrategy, Timestamp};
use kvorum_segment::Compression;

/// How a store behaves and how it performs. Defaults are Riak's where Riak has the setting, except
/// for durability.
#[derive(Clone, Debug)]
pub struct BitcaskSettings {
    // Behaviour.
    /// The opener's knowledge of the store.
    pub belonging: Belonging,
    /// What [`kvorum_backend::Durability::BackendDefault`] promises.
    pub sync: SyncStrategy,
    /// Entries are gone this long after they were last modified; `None` for never. An entry's own
    /// expiry counts as well, whichever comes first.
    pub expiry: Option<Duration>,
    /// How long an expired entry is left on disk before space is reclaimed: larger values reclaim
    /// more at once.
    pub expiry_grace: Duration,
    /// When space is reclaimed.
    pub merge: MergeSettings,

    // Performance.
    /// A segment is finished when the next record would make it longer than this, in bytes. An entry
    /// larger than that gets a segment of its own. A store with little gets smaller segments, for the
    /// dead bytes of the one being written cannot be freed.
    pub file_bytes_max: u64,
    /// How new bodies are stored.
    pub compression: Compression,
    /// A checkpoint is due after this many bytes of records, or after 16 times its own size if that
    /// is more: what a crash leaves to be replayed. Many small records make one due sooner.
    pub checkpoint_after_bytes: u64,

    /// With the value log: a checkpoint is due as well when the log is this many segments ahead of
    /// one that holds something not covered. Larger: less is written, more is read after a crash.
    pub log_segments_behind_max: u32,
    /// With the value log: a log hint is written when no log hint speaks of so many records. Larger:
    /// fewer files, more fronts to be read by each part of a fold.
    pub log_hint_records_min: u64,
    /// So many log hints of about one size become one. Larger: less is written, more files are open.
    pub log_hints_merged: usize,
    /// Sealed segments are read again within this time, to find rot; `None` for never.
    pub scrub_period: Option<Duration>,

    /// Replaces the keyed hash, to make different keys collide.
    #[cfg(any(test, feature = "chosen-fingerprints"))]
    pub fingerprint: Option<fn(&[u8]) -> u64>,
}

/// When a segment is merged: a *trigger* starts a round of merges, and every segment that meets a
/// *threshold* is merged in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeSettings {
    /// When merging is allowed at all.
    pub policy: MergePolicy,
    /// Trigger: this share of a segment's records is dead, in percent.
    pub fragmentation_trigger_percent: u8,
    /// Trigger: a segment holds this many dead bytes.
    pub dead_bytes_trigger: u64,
    /// Trigger: this share of all bytes of the store is dead, in percent; beyond 100 for never.
    /// Bounds the space that a store takes, which the triggers of single segments do not. One segment
    /// is merged at a time, whatever the thresholds say, until the share is lower.
    pub store_dead_trigger_percent: u8,
    /// Threshold: as the trigger of the same name.
    pub fragmentation_threshold_percent: u8,
    /// Threshold: as the trigger of the same name.
    pub dead_bytes_threshold: u64,
    /// Threshold: a finished segment is smaller than this, in bytes; 0 to leave small ones alone.
    pub small_file_threshold_bytes: u64,
}

/// When merging is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePolicy {
    /// At any time.
    Always,
    /// Never: space of dead entries is not reclaimed.
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
            dead_bytes_trigger: 512 << 20,
            store_dead_trigger_percent: 30,
            fragmentation_threshold_percent: 40,
            dead_bytes_threshold: 128 << 20,
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
