//! Settings of a store, with the names of the `leveldb.*` keys.

use std::time::Duration;

use kvorum_backend::Belonging;
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{Compression, LsmSettings, SyncStrategy};
use kvorum_tiers::Tiers;

/// Behaviour and performance of a store.
#[derive(Clone, Debug)]
pub struct LeveldbSettings {
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
    /// A memtable of this many bytes is flushed. Each store should have another figure, so that
    /// they do not all flush at once.
    pub write_buffer_bytes: u64,
    /// Over the value log, a smaller memtable is flushed too when its oldest entry is more than
    /// this many segments behind the newest.
    pub log_segments_behind_max: u32,
    /// True if tables have filters.
    pub has_filter: bool,
    /// Data blocks of this many bytes.
    pub block_bytes: usize,
    /// Keys from one restart point of a block to the next.
    pub block_restart_interval: u32,
    /// Compression of tables from level 2 on; younger tables live too briefly for compression to
    /// pay.
    pub compression: Compression,
    /// Bodies of this many bytes or more are kept apart from their keys; `usize::MAX` for none. See
    /// [`kvorum_lsm::LsmSettings::blob_threshold_bytes`].
    pub blob_threshold_bytes: usize,
    /// Rules for merging tables.
    pub policy: PolicySettings,
    /// The place of old tables; `None` for one directory.
    pub tiers: Option<Tiers>,
}

impl Default for LeveldbSettings {
    fn default() -> Self {
        Self {
            belonging: Belonging::default(),
            sync: SyncStrategy::Grouped,
            expiry: None,
            scrub_period: LsmSettings::default().scrub_period,
            write_buffer_bytes: 45 << 20,
            log_segments_behind_max: LsmSettings::default().log_segments_behind_max,
            has_filter: true,
            block_bytes: 4096,
            block_restart_interval: 16,
            compression: Compression::Lz4,
            blob_threshold_bytes: 512,
            policy: PolicySettings::default(),
            tiers: None,
        }
    }
}

impl From<&LeveldbSettings> for LsmSettings {
    fn from(settings: &LeveldbSettings) -> Self {
        let young = Compression::None;
        Self {
            name: "leveldb",
            belonging: settings.belonging.clone(),
            sync: settings.sync,
            expiry: settings.expiry,
            scrub_period: settings.scrub_period,
            memtable_bytes: settings.write_buffer_bytes,
            blob_threshold_bytes: settings.blob_threshold_bytes,
            block_bytes: settings.block_bytes,
            restart_interval: settings.block_restart_interval,
            compression: vec![young, young, settings.compression],
            blob_compression: settings.compression,
            log_segments_behind_max: settings.log_segments_behind_max,
            filter_bits_per_key: if settings.has_filter { 10 } else { 0 },
            policy: settings.policy.clone(),
            tiers: settings.tiers.clone(),
            ..Self::default()
        }
    }
}
