//! The bitcask engine's settings from `bitcask.*`, and the cache that its stores share.

use std::sync::Arc;

use kvorum_backend::DayHours;
use kvorum_backend_bitcask::{BitcaskSettings, Compression, MergePolicy, MergeSettings, ReadCache};
use kvorum_settings::{self as settings, Settings, StorageBackend};

use super::shared_settings::{ZSTD_LEVEL, segments_behind_max, sync_strategy};

/// The part of all memory that `bitcask.read_cache = auto` takes: one in this many bytes.
const READ_CACHE_SHARE: u64 = 32;

/// The settings of one store.
pub(super) fn settings_of(settings: &Settings, drawn: u64) -> BitcaskSettings {
    let bitcask = &settings.bitcask;
    BitcaskSettings {
        sync: sync_strategy(&settings.bitcask_durability()),
        expiry: bitcask.expiry,
        scrub_period: settings.maintenance.scrub_period,
        expiry_grace: bitcask.expiry_grace,
        merge: MergeSettings {
            policy: merge_policy(settings),
            fragmentation_trigger_percent: bitcask.merge_trigger_fragmentation_percent,
            garbage_bytes_trigger: bitcask.merge_trigger_garbage_bytes,
            store_garbage_trigger_percent: bitcask.merge_garbage_share_max_percent,
            fragmentation_threshold_percent: bitcask.merge_threshold_fragmentation_percent,
            garbage_bytes_threshold: bitcask.merge_threshold_garbage_bytes,
            small_file_threshold_bytes: bitcask.merge_threshold_small_file_bytes.unwrap_or(0),
        },
        file_bytes_max: bitcask.file_bytes_max,
        compression: match bitcask.compression {
            settings::Compression::None => Compression::None,
            settings::Compression::Lz4 => Compression::Lz4,
            settings::Compression::Zstd => Compression::Zstd(ZSTD_LEVEL),
        },
        log_segments_behind_max: segments_behind_max(settings, drawn),
        ..BitcaskSettings::default()
    }
}

/// The times at which space may be freed.
pub(super) fn merge_policy(settings: &Settings) -> MergePolicy {
    let bitcask = &settings.bitcask;
    match bitcask.merge_policy {
        settings::MergePolicy::Always => MergePolicy::Always,
        settings::MergePolicy::Never => MergePolicy::Never,
        settings::MergePolicy::Window => MergePolicy::Window(DayHours {
            first: bitcask.merge_window_start_hour,
            last: bitcask.merge_window_end_hour,
        }),
    }
}

/// The read cache; `machine` is the memory of the machine or the container, if that is known.
pub(super) fn read_cache(settings: &Settings, machine: Option<u64>) -> Option<Arc<ReadCache>> {
    if settings.node.storage_backend != StorageBackend::Bitcask {
        return None;
    }
    let share = || machine.unwrap_or(0) / READ_CACHE_SHARE;
    let bytes_max = settings.bitcask.read_cache_bytes.unwrap_or_else(share);
    (bytes_max > 0).then(|| Arc::new(ReadCache::new(bytes_max)))
}

#[cfg(test)]
#[path = "bitcask_test.rs"]
mod tests;
