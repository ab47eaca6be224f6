//! The leveldb engine's settings from `leveldb.*`: how the node's memory is shared out, and what each
//! store is told.

use kvorum_backend_leveldb::{Compression, LeveldbSettings, PolicySettings, Shared};
use kvorum_settings::{self as settings, Settings};

use super::shared_settings::{ZSTD_LEVEL, segments_behind_max, sync_strategy};

/// Where the system does not tell how much memory there is: what Riak takes then.
const MEMORY_BYTES_UNKNOWN: u64 = 2_684_354_560;
/// The least: an empty store has to have room for some blocks.
const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// `leveldb.limited_developer_mem`.
const DEVELOPER_BYTES: u64 = 256 << 20;
const DEVELOPER_WRITE_BUFFER_BYTES: u64 = 2 << 20;
/// All write buffers together may take this part of the memory; the block cache has the rest.
const WRITE_BUFFERS_PERCENT: u64 = 40;
/// While one write buffer of a partition is written to a table, the next one fills.
const WRITE_BUFFERS_EACH: u64 = 2;

/// How the memory of the leveldb engine is shared out on a node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// The block cache.
    pub(super) cache: u64,
    /// All write buffers together.
    pub(super) write_buffers: u64,
    /// From how many bytes on a store writes its buffer to a table, at least and at most.
    pub(super) write_buffer: (u64, u64),
}

impl Memory {
    /// `machine` is what the machine or the container has, if that is known.
    pub(super) fn of(
        leveldb: &settings::LeveldbSettings,
        machine: Option<u64>,
        partitions: u64,
    ) -> Self {
        let share = machine.map(|bytes| bytes / 100 * u64::from(leveldb.memory_percent_max));
        let most = match (share, leveldb.memory_bytes_max) {
            (Some(share), Some(most)) => share.min(most),
            (share, most) => share.or(most).unwrap_or(MEMORY_BYTES_UNKNOWN),
        };
        let least = leveldb.write_buffer_bytes_min;
        let (most, write_buffer) = if leveldb.limited_developer_memory {
            let each = DEVELOPER_WRITE_BUFFER_BYTES;
            (most.min(DEVELOPER_BYTES), (each, each))
        } else {
            (most, (least, leveldb.write_buffer_bytes_max.max(least)))
        };
        let most = most.max(MEMORY_BYTES_MIN);
        let wanted = write_buffer
            .1
            .saturating_mul(WRITE_BUFFERS_EACH * partitions);
        let write_buffers = wanted.min(most / 100 * WRITE_BUFFERS_PERCENT);
        Self {
            cache: most - write_buffers,
            write_buffers,
            write_buffer,
        }
    }

    /// The cache and the budget, of these sizes.
    pub(super) fn shared(&self) -> Shared {
        Shared::new(self.cache, self.write_buffers)
    }
}

/// The settings of one store; `drawn` is a random number.
pub(super) fn settings_of(settings: &Settings, memory: &Memory, drawn: u64) -> LeveldbSettings {
    let leveldb = &settings.leveldb;
    let (least, most) = memory.write_buffer;
    LeveldbSettings {
        sync: sync_strategy(&settings.leveldb_durability()),
        expiry: leveldb.expiry(),
        scrub_period: settings.maintenance.scrub_period,
        log_segments_behind_max: segments_behind_max(settings, drawn >> 32),
        write_buffer_bytes: least + drawn % (most - least + 1),
        has_filter: leveldb.bloomfilter,
        block_bytes: usize::try_from(leveldb.block_bytes).unwrap_or(usize::MAX),
        block_restart_interval: u32::try_from(leveldb.block_restart_interval).unwrap_or(u32::MAX),
        compression: match leveldb.compression_algorithm {
            _ if !leveldb.compression => Compression::None,
            settings::Compression::None => Compression::None,
            settings::Compression::Lz4 => Compression::Lz4,
            settings::Compression::Zstd => Compression::Zstd(ZSTD_LEVEL),
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
