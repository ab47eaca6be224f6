//! Settings of a store: behaviour and performance. Live objects are passed separately.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Belonging, SyncStrategy, Tag};
use kvorum_sst::{Compression, FilterKind, TableOptions};
use kvorum_tiers::Tiers;

use crate::leveled::Leveled;
use crate::policy::{Policy, PolicySettings};
use crate::{JournalPolicy, MemoryBudget, SharedCache};

/// Live objects that all stores of a node share.
#[derive(Clone)]
pub struct Shared {
    /// The block cache.
    pub cache: Arc<SharedCache>,
    /// The memory of all memtables together.
    pub memory: Arc<MemoryBudget>,
}

impl Shared {
    /// A cache and a budget of this many bytes.
    pub fn new(cache_bytes: u64, memtable_bytes: u64) -> Self {
        Self {
            cache: Arc::new(SharedCache::new(cache_bytes)),
            memory: Arc::new(MemoryBudget::new(memtable_bytes)),
        }
    }
}

/// Recalculates an entry's extra bytes from its kind, its head and, on demand, its body.
pub type Recalculate = fn(Tag, &Bytes, &dyn Fn() -> Option<Bytes>) -> Option<Bytes>;

/// The time at which bodies that stay in the value log are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionPoint {
    /// With the put.
    #[default]
    OnReceipt,
    /// At the move to a journal file by a collection: a put costs less, and a body that is soon
    /// replaced is never compressed. Only for a store with a journal.
    OnCompact,
}

/// Behaviour and performance of a store.
#[derive(Clone, Debug)]
pub struct LsmSettings {
    // Behaviour.
    /// The engine's name, for its status.
    pub name: &'static str,
    /// The store's label and identity, as far as they are known at the opening.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`].
    pub sync: SyncStrategy,
    /// Entries expire this long after their last modification; `None` for never. If an entry has an
    /// expiry of its own, the earlier time counts.
    pub expiry: Option<Duration>,
    /// The period in which tables and blob files are read again, to find corruption; `None` for
    /// never.
    pub scrub_period: Option<Duration>,

    // Performance.
    /// A memtable of this many bytes is flushed.
    pub memtable_bytes: u64,
    /// Over the value log: a memtable of any size is flushed when its oldest entry is more than
    /// this many segments behind the newest. A lower value means less to read after a crash, and
    /// more tables.
    pub log_segments_behind_max: u32,
    /// Bodies of this many bytes or more go to blob files, or stay in the value log if there is
    /// one; `usize::MAX` for none. Measured by `examples/lsm_operations` with bodies of 1,000 bytes,
    /// 300,000 keys loaded and then overwritten at random: blob files reduce the bytes written for
    /// each byte put, the log excluded, from 5.0 to 1.4, and halve the processor time of a put; reads
    /// cost the same. For smaller bodies, the frame and index entry of some 40 bytes cost more than a
    /// merge.
    pub blob_threshold_bytes: usize,
    /// True for keys whose entries the store keeps in a journal: in the value log and, after their
    /// segments are dropped, in journal files. `None` for a store without a journal. A journal needs
    /// a value log, and excludes tiers.
    pub journaled: Option<fn(&[u8]) -> bool>,
    /// True for kinds of entries whose removals the journal drops as soon as the tables do not need
    /// them. If all tables are lost after that, the removed entries come back.
    pub forgotten: fn(Tag) -> bool,
    /// Recalculates an entry's extra bytes when a table is rebuilt from the journal. If it returns
    /// `None`, the record's extra bytes are used.
    pub recalculated: Recalculate,
    /// Rules for rewriting journal files.
    pub journal_policy: JournalPolicy,
    /// A blob file is rewritten when this share of its bytes is garbage, in percent.
    pub blob_garbage_percent: u8,
    /// Data blocks of this many bytes before compression.
    pub block_bytes: usize,
    /// Entries from one restart point of a block to the next.
    pub restart_interval: u32,
    /// Index blocks of this many bytes.
    pub index_block_bytes: usize,
    /// Compression of each level's tables; the last element is for all deeper levels.
    pub compression: Vec<Compression>,
    /// Compression of blob files, and of bodies that stay in the value log.
    pub blob_compression: Compression,
    /// The time at which bodies that stay in the value log are compressed.
    pub compression_point: CompressionPoint,
    /// Bits for each key in filters of tables that will soon be merged; 0 for no filters at all.
    pub filter_bits_per_key: u8,
    /// The rule by which tables are merged.
    pub compaction: &'static dyn Policy,
    /// Rules for merging tables.
    pub policy: PolicySettings,
    /// The place of old tables; `None` for one directory.
    pub tiers: Option<Tiers>,
    /// Files are synced each time this many bytes of them were written.
    pub sync_every_bytes: u64,
}

impl Default for LsmSettings {
    fn default() -> Self {
        Self {
            name: "lsm",
            belonging: Belonging::default(),
            sync: SyncStrategy::Grouped,
            expiry: None,
            scrub_period: Some(Duration::from_secs(30 * 86_400)),
            memtable_bytes: 32 << 20,
            log_segments_behind_max: 32,
            blob_threshold_bytes: 512,
            journaled: None,
            forgotten: |_| false,
            recalculated: |_, _, _| None,
            journal_policy: JournalPolicy::default(),
            blob_garbage_percent: 50,
            block_bytes: 4096,
            restart_interval: 16,
            index_block_bytes: 4096,
            compression: vec![Compression::None, Compression::None, Compression::Lz4],
            blob_compression: Compression::None,
            compression_point: CompressionPoint::OnReceipt,
            filter_bits_per_key: 10,
            compaction: &Leveled,
            policy: PolicySettings::default(),
            tiers: None,
            sync_every_bytes: 8 << 20,
        }
    }
}

impl LsmSettings {
    /// Compression of bodies that stay in the value log, when they are put: the setting for blob
    /// files, which the log replaces.
    pub(crate) fn log_compression(&self) -> Compression {
        match self.compression_point {
            CompressionPoint::OnReceipt => self.blob_compression,
            CompressionPoint::OnCompact => Compression::None,
        }
    }

    /// Options of a level's tables. `is_last` means that no level is below. Such a table lives
    /// long, so it gets the smaller filter, which takes longer to build.
    pub fn table_options(&self, level: usize, is_last: bool) -> TableOptions {
        let last = self.compression.last().copied().unwrap_or_default();
        let filter = match self.filter_bits_per_key {
            0 => FilterKind::None,
            _ if is_last && level > 0 => FilterKind::Fuse,
            bits_per_key => FilterKind::Bloom { bits_per_key },
        };
        TableOptions {
            block_bytes: self.block_bytes,
            restart_interval: self.restart_interval,
            has_hash_index: true,
            index_block_bytes: self.index_block_bytes,
            compression: self.compression.get(level).copied().unwrap_or(last),
            filter,
            has_segment_sets: true,
            sync_every_bytes: self.sync_every_bytes,
        }
    }

    /// Options of a blob file, which is read by number alone.
    pub fn blob_options(&self) -> TableOptions {
        TableOptions {
            compression: self.blob_compression,
            filter: FilterKind::None,
            has_segment_sets: false,
            has_hash_index: false,
            ..self.table_options(0, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that is soon merged has the filter that is built fastest, others have the smallest.
    #[test]
    fn young_tables_have_bloom_filters_and_the_oldest_fuse_filters() {
        let with = |filter_bits_per_key| LsmSettings {
            filter_bits_per_key,
            ..LsmSettings::default()
        };
        let bloom = FilterKind::Bloom { bits_per_key: 10 };
        for (level, is_last, expected) in [
            (0, false, bloom),
            (1, false, bloom),
            (5, false, bloom),
            (1, true, FilterKind::Fuse),
            (6, true, FilterKind::Fuse),
            // Tables of level 0 are merged soon, even if no level is below.
            (0, true, bloom),
        ] {
            let chosen = with(10).table_options(level, is_last).filter;
            assert_eq!(chosen, expected, "level {level}, last {is_last}");
            assert_eq!(
                with(0).table_options(level, is_last).filter,
                FilterKind::None
            );
        }
    }

    #[test]
    fn each_level_is_compressed_as_configured_and_deeper_ones_as_the_last() {
        let settings = LsmSettings::default();
        let of = |level| settings.table_options(level, false).compression;
        let expected = [
            Compression::None,
            Compression::None,
            Compression::Lz4,
            Compression::Lz4,
        ];
        assert_eq!([0, 1, 2, 5].map(of), expected);
    }
}
