//! Settings that the engines on the disk have in common.

use kvorum_backend::SyncStrategy;
use kvorum_backend_leveldb::Compression;
use kvorum_settings::{self as settings, Durability, DurabilityMode, Settings};

/// Zstandard's level for values: the fastest, which is still much denser than LZ4.
pub(super) const ZSTD_LEVEL: i32 = 1;

/// The compression of bodies or tables in merge trees.
pub(super) fn compression_of(asked: settings::Compression) -> Compression {
    match asked {
        settings::Compression::None => Compression::None,
        settings::Compression::Lz4 => Compression::Lz4,
        settings::Compression::Zstd => Compression::Zstd(ZSTD_LEVEL),
    }
}

/// The sync strategy of a store.
pub(super) fn sync_strategy(durability: &Durability) -> SyncStrategy {
    match durability.mode {
        DurabilityMode::Grouped => SyncStrategy::Grouped,
        DurabilityMode::None => SyncStrategy::None,
        DurabilityMode::Interval => SyncStrategy::Interval(durability.interval),
    }
}

/// Number of segments of the value log by which a store's own files may lag: at random between half
/// of the allowed number and all of it. With one bound for all, stores with equal writes would
/// flush in the same seconds.
pub(super) fn segments_behind_max(settings: &Settings, drawn: u64) -> u32 {
    let log = &settings.value_log;
    let most = (log.bytes_max / log.segment_bytes.max(1)).max(1);
    let segments = most - drawn % (most / 2 + 1);
    u32::try_from(segments).unwrap_or(u32::MAX)
}
