//! Settings of a store, with the names of their `leveled.*` keys, if any.

use std::time::Duration;

use kvorum_backend::{Belonging, Tag};
use kvorum_index_entries::keyspace::is_object;
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{
    Compression, CompressionPoint, JournalPolicy, LsmSettings, Recalculate, SyncStrategy,
};

/// Behaviour and performance of a store.
#[derive(Clone, Debug)]
pub struct LeveledSettings {
    // Behaviour.
    /// The store's label and identity, as far as they are known at the opening.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`], and the time of syncs of the journal.
    pub sync: SyncStrategy,
    /// Entries expire this long after their last modification; `None` for never.
    pub expiry: Option<Duration>,
    /// The period in which tables and journal files are read again, to find corruption; `None` for
    /// never.
    pub scrub_period: Option<Duration>,

    // Performance.
    /// The size at which the ledger's memtable is flushed.
    pub ledger_buffer_bytes: u64,
    /// A smaller memtable is flushed too when its oldest entry is more than this many segments of
    /// the journal behind the newest, since these would be read after a crash.
    pub log_segments_behind_max: u32,
    /// Compression of bodies.
    pub compression: Compression,
    /// The time at which bodies are compressed.
    pub compression_point: CompressionPoint,
    /// Compression of the ledger's tables.
    pub ledger_compression: Compression,
    /// The first level with compressed tables.
    pub ledger_compressed_from_level: usize,
    /// The size of blocks of the ledger's tables, in bytes.
    pub block_bytes: usize,
    /// Rules for rewriting journal files.
    pub journal_policy: JournalPolicy,
    /// Rules for merging tables of the ledger.
    pub policy: PolicySettings,

    // Kinds of entries.
    /// True for kinds whose removals the journal may drop despite older records (`recovr`):
    /// [`LsmSettings::forgotten`].
    pub forgotten: fn(Tag) -> bool,
    /// The list of an entry's index entries, in the form of [`kvorum_index_entries::listing`], for
    /// kinds whose lists are recalculated when the ledger is rebuilt (`recalc`):
    /// [`LsmSettings::recalculated`].
    pub recalculated: Recalculate,
}

impl Default for LeveledSettings {
    fn default() -> Self {
        let lsm = LsmSettings::default();
        Self {
            belonging: Belonging::default(),
            sync: SyncStrategy::Grouped,
            expiry: None,
            scrub_period: lsm.scrub_period,
            ledger_buffer_bytes: 32 << 20,
            log_segments_behind_max: lsm.log_segments_behind_max,
            compression: Compression::Lz4,
            compression_point: CompressionPoint::OnReceipt,
            ledger_compression: Compression::Lz4,
            ledger_compressed_from_level: 2,
            block_bytes: 4096,
            journal_policy: JournalPolicy::default(),
            policy: PolicySettings::default(),
            forgotten: |_| false,
            recalculated: |_, _, _| None,
        }
    }
}

impl From<&LeveledSettings> for LsmSettings {
    fn from(settings: &LeveledSettings) -> Self {
        let mut compression = vec![Compression::None; settings.ledger_compressed_from_level];
        compression.push(settings.ledger_compression);
        Self {
            name: "leveled",
            belonging: settings.belonging.clone(),
            sync: settings.sync,
            expiry: settings.expiry,
            scrub_period: settings.scrub_period,
            memtable_bytes: settings.ledger_buffer_bytes,
            log_segments_behind_max: settings.log_segments_behind_max,
            // Index entries have no bodies, and bodies of objects are in the journal.
            blob_threshold_bytes: usize::MAX,
            blob_compression: settings.compression,
            compression_point: settings.compression_point,
            compression,
            block_bytes: settings.block_bytes,
            journaled: Some(is_object),
            journal_policy: settings.journal_policy,
            policy: settings.policy.clone(),
            forgotten: settings.forgotten,
            recalculated: settings.recalculated,
            ..Self::default()
        }
    }
}
