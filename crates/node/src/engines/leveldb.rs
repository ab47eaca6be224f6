//! The leveldb engine's settings from `leveldb.*`: memory for all of its stores, and the settings of
//! each store.

use kvorum_backend_leveldb::{LeveldbSettings, PolicySettings};
use kvorum_settings::{self as settings, Settings};

use super::shared_settings::{compression_of, segments_behind_max, sync_strategy};
use super::tree_memory::{Allowance, Memory};

/// `leveldb.limited_developer_mem`.
const DEVELOPER_BYTES: u64 = 256 << 20;
const DEVELOPER_WRITE_BUFFER_BYTES: u64 = 2 << 20;

/// The memory that the settings allow.
pub(super) fn allowance(leveldb: &settings::LeveldbSettings) -> Allowance {
    let least = leveldb.write_buffer_bytes_min;
    let allowed = Allowance {
        percent_max: leveldb.memory_percent_max,
        bytes_max: leveldb.memory_bytes_max,
        limit: u64::MAX,
        buffer: (least, leveldb.write_buffer_bytes_max.max(least)),
    };
    match leveldb.limited_developer_memory {
        false => allowed,
        true => Allowance {
            limit: DEVELOPER_BYTES,
            buffer: (DEVELOPER_WRITE_BUFFER_BYTES, DEVELOPER_WRITE_BUFFER_BYTES),
            ..allowed
        },
    }
}

/// The settings of one store; `drawn` is a random number.
pub(super) fn settings_of(settings: &Settings, memory: &Memory, drawn: u64) -> LeveldbSettings {
    let leveldb = &settings.leveldb;
    LeveldbSettings {
        sync: sync_strategy(&settings.leveldb_durability()),
        expiry: leveldb.expiry(),
        scrub_period: settings.maintenance.scrub_period,
        log_segments_behind_max: segments_behind_max(settings, drawn >> 32),
        write_buffer_bytes: memory.buffer_of(drawn),
        has_filter: leveldb.bloomfilter,
        block_bytes: usize::try_from(leveldb.block_bytes).unwrap_or(usize::MAX),
        block_restart_interval: u32::try_from(leveldb.block_restart_interval).unwrap_or(u32::MAX),
        compression: match leveldb.compression {
            true => compression_of(leveldb.compression_algorithm),
            false => compression_of(settings::Compression::None),
        },
        policy: PolicySettings {
            removals_trigger: leveldb.tombstones_trigger,
            rewrites_expired: !leveldb.expires_whole_files,
            ..PolicySettings::default()
        },
        ..LeveldbSettings::default()
    }
}

#[cfg(test)]
#[path = "leveldb_test.rs"]
mod tests;
