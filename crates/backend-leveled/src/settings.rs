//! Settings of a store, under the names that `leveled.*` keys have where they have one.

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
    /// The opener's knowledge of the store.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`], and the time of syncs of the journal.
    pub sync: SyncStrategy,
    /// Entries are gone this long after their last modification; `None` for never.
    pub expiry: Option<Duration>,
    /// Tables and journal files are read again within this time, to find rot; `None` for never.
    pub scrub_period: Option<Duration>,

    // Performance.
    /// The ledger's memtable is flushed when it takes this many bytes.
    pub ledger_buffer_bytes: u64,
    /// A smaller one is flushed as well when the oldest of what it has stands more than so many segments of the
    /// journal behind the newest: that is what is read again after a crash.
    pub log_segments_behind_max: u32,
    /// Compression of bodies.
    pub compression: Compression,
    /// When they are: `compression` holds from then on.
    pub compression_point: CompressionPoint,
    /// Compression of the ledger's tables.
    pub ledger_compression: Compression,
    /// The first level of which tables are.
    pub ledger_compressed_from_level: usize,
    /// Blocks of the ledger's tables of this many bytes.
    pub block_bytes: usize,
    /// When journal files are rewritten.
    pub journal_policy: JournalPolicy,
    /// When tables of the ledger are merged.
    pub policy: PolicySettings,

    // Kinds of entries.
    /// True for kinds whose removals the journal does not keep for the sake of older records (`recovr`):
    /// [`LsmSettings::forgotten`].
    pub forgotten: fn(Tag) -> bool,
    /// The list of an entry's index entries, as [`kvorum_index_entries::listing`] has it, for kinds of which it is
    /// taken anew when the ledger is made again (`recalc`): [`LsmSettings::recalculated`].
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
            // Index entries have no bodies, and those of objects are in the journal.
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
