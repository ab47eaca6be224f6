//! Settings of a store, with the names of their `hanoidb.*` keys, if any.

use std::time::Duration;

use kvorum_backend::Belonging;
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{Compression, DoublingLevels, LsmSettings, SyncStrategy};

/// Levels below level 0. The last level has no limit; with units of 16 MiB, the limits end at 1
/// TiB.
pub const LEVELS: usize = 16;
/// This many flushes of any size are merged; see [`kvorum_lsm::DoublingLevels`].
const SMALL_FLUSHES: usize = 8;
/// With the first number of flushes on level 0, upkeep becomes urgent and puts pay more than their
/// share; with the second, they pay the most. The bound allows at most 18.
const SLOW_FROM_FLUSHES: usize = 20;
const SLOWEST_AT_FLUSHES: usize = 40;

/// Behaviour and performance of a store.
#[derive(Clone, Debug)]
pub struct HanoidbSettings {
    // Behaviour.
    /// The store's label and identity, as far as they are known at the opening.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`], and the time of syncs of the log.
    pub sync: SyncStrategy,
    /// Entries expire this long after their last modification; `None` for never.
    pub expiry: Option<Duration>,
    /// The period in which tables and blob files are read again, to find corruption; `None` for
    /// never.
    pub scrub_period: Option<Duration>,

    // Performance.
    /// Runs of level k have at most 2^k times this many bytes.
    pub unit_bytes: u64,
    /// A memtable of this many bytes is flushed: a unit or a little less, so that stores do not all
    /// flush at once.
    pub write_buffer_bytes: u64,
    /// Over the value log, a smaller memtable is flushed too when its oldest entry is more than
    /// this many segments behind the newest.
    pub log_segments_behind_max: u32,
    /// Blocks of tables of this many bytes.
    pub block_bytes: usize,
    /// Compression of bodies that are kept apart, and of tables from level 1 on; tables of flushes
    /// live too briefly.
    pub compression: Compression,
    /// Bodies of this many bytes or more are kept apart from their keys; `usize::MAX` for none. See
    /// [`kvorum_lsm::LsmSettings::blob_threshold_bytes`].
    pub blob_threshold_bytes: usize,
    /// The approximate maximum of a table's bytes.
    pub table_bytes_max: u64,
}

impl Default for HanoidbSettings {
    fn default() -> Self {
        let unit_bytes = 16 << 20;
        Self {
            belonging: Belonging::default(),
            sync: SyncStrategy::Grouped,
            expiry: None,
            scrub_period: LsmSettings::default().scrub_period,
            unit_bytes,
            write_buffer_bytes: unit_bytes,
            log_segments_behind_max: LsmSettings::default().log_segments_behind_max,
            block_bytes: 8 << 10,
            compression: Compression::None,
            blob_threshold_bytes: 512,
            table_bytes_max: 64 << 20,
        }
    }
}

impl From<&HanoidbSettings> for LsmSettings {
    fn from(settings: &HanoidbSettings) -> Self {
        Self {
            name: "hanoidb",
            belonging: settings.belonging.clone(),
            sync: settings.sync,
            expiry: settings.expiry,
            scrub_period: settings.scrub_period,
            memtable_bytes: settings.write_buffer_bytes,
            log_segments_behind_max: settings.log_segments_behind_max,
            blob_threshold_bytes: settings.blob_threshold_bytes,
            block_bytes: settings.block_bytes,
            compression: vec![Compression::None, settings.compression],
            blob_compression: settings.compression,
            compaction: &DoublingLevels,
            policy: PolicySettings {
                levels: DoublingLevels::tree_levels(LEVELS),
                level_zero_tables: SMALL_FLUSHES,
                base_bytes: settings.unit_bytes,
                table_bytes_max: settings.table_bytes_max,
                slow_from_tables: SLOW_FROM_FLUSHES,
                slowest_at_tables: SLOWEST_AT_FLUSHES,
                ..PolicySettings::default()
            },
            ..Self::default()
        }
    }
}
