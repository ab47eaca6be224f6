//! The leveldb engine's settings from `leveldb.*`: how the node's memory is shared out, and what each
//! store is told.

use kvorum_backend_leveldb::{Compression, LeveldbSettings, PolicySettings, Shared, SyncStrategy};
use kvorum_settings::{self as settings, DurabilityMode, Settings};

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
    let durability = settings.leveldb_durability();
    let (least, most) = memory.write_buffer;
    LeveldbSettings {
        // With the node's commit log in front, a second log would only be written.
        has_log: durability.mode != DurabilityMode::Grouped,
        sync: match durability.mode {
            DurabilityMode::Grouped | DurabilityMode::None => SyncStrategy::None,
            DurabilityMode::Interval => SyncStrategy::Interval(durability.interval),
        },
        expiry: leveldb.expiry(),
        write_buffer_bytes: least + drawn % (most - least + 1),
        has_filter: leveldb.bloomfilter,
        block_bytes: usize::try_from(leveldb.block_bytes).unwrap_or(usize::MAX),
        block_restart_interval: u32::try_from(leveldb.block_restart_interval).unwrap_or(u32::MAX),
        compression: match leveldb.compression_algorithm {
            _ if !leveldb.compression => Compression::None,
            settings::Compression::None => Compression::None,
            settings::Compression::Lz4 => Compression::Lz4,
            settings::Compression::Zstd => Compression::Zstd(super::ZSTD_LEVEL),
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
mod tests {
    use std::time::Duration;

    use kvorum_settings::Configuration;

    use super::*;

    const GIGABYTE: u64 = 1 << 30;

    fn loaded(lines: &[&str]) -> Settings {
        let no_more: [&str; 0] = [];
        Configuration::load(&lines.join("\n"), &no_more)
            .unwrap()
            .settings
    }

    fn memory(lines: &[&str], machine: Option<u64>) -> Memory {
        Memory::of(&loaded(lines).leveldb, machine, 64)
    }

    fn store(lines: &[&str]) -> LeveldbSettings {
        settings_of(&loaded(lines), &memory(lines, Some(GIGABYTE)), 5)
    }

    #[test]
    fn cache_and_write_buffers_together_take_what_is_allowed() {
        let all = |memory: Memory| memory.cache + memory.write_buffers;
        let allowed = |lines: &[&str]| all(memory(lines, Some(100 * GIGABYTE)));
        assert_eq!(allowed(&[]), 70 * GIGABYTE);
        assert_eq!(
            allowed(&["leveldb.maximum_memory.percent = 30"]),
            30 * GIGABYTE
        );
        assert_eq!(allowed(&["leveldb.maximum_memory = 3GB"]), 3 * GIGABYTE);
        assert_eq!(allowed(&["leveldb.maximum_memory = 99GB"]), 70 * GIGABYTE);
        assert_eq!(
            allowed(&["leveldb.limited_developer_mem = on"]),
            DEVELOPER_BYTES
        );
        // A container's limit is the machine.
        assert_eq!(all(memory(&[], Some(GIGABYTE))), GIGABYTE / 100 * 70);
        assert_eq!(all(memory(&[], None)), MEMORY_BYTES_UNKNOWN);
        assert_eq!(
            all(memory(&["leveldb.maximum_memory = 1GB"], None)),
            GIGABYTE
        );
    }

    #[test]
    fn write_buffers_take_no_more_than_they_can_use_nor_the_whole_memory() {
        let small = memory(&[], Some(GIGABYTE));
        assert_eq!(small.write_buffers, GIGABYTE / 100 * 70 / 100 * 40);
        let large = memory(&[], Some(1000 * GIGABYTE));
        assert_eq!(large.write_buffers, 2 * 64 * (60 << 20));
        let developer = memory(&["leveldb.limited_developer_mem = on"], Some(GIGABYTE));
        assert_eq!(developer.write_buffer, (2 << 20, 2 << 20));
    }

    #[test]
    fn each_store_draws_the_size_of_its_write_buffer() {
        let lines = [
            "leveldb.write_buffer_size_min = 1MB",
            "leveldb.write_buffer_size_max = 3MB",
        ];
        let (settings, memory) = (loaded(&lines), memory(&lines, None));
        let sizes: Vec<u64> = [0, 77, u64::MAX, 2 << 20]
            .map(|drawn| settings_of(&settings, &memory, drawn).write_buffer_bytes)
            .into();
        assert_eq!(sizes[0], 1 << 20);
        assert_eq!(sizes[3], 3 << 20);
        assert!(
            sizes.iter().all(|it| (1 << 20..=3 << 20).contains(it)),
            "{sizes:?}"
        );
        assert_eq!(
            store(&["leveldb.write_buffer_size_min = 90MB"]).write_buffer_bytes,
            90 << 20
        );
    }

    #[test]
    fn every_other_key_reaches_the_store() {
        let default = store(&[]);
        assert!(!default.has_log && default.has_filter && default.expiry.is_none());
        assert_eq!(default.compression, Compression::Lz4);
        assert_eq!(default.policy.removals_trigger, Some(1000));
        assert!(!default.policy.rewrites_expired);
        assert!(!store(&["leveldb.bloomfilter = off"]).has_filter);
        assert_eq!(store(&["leveldb.block.size = 16KB"]).block_bytes, 16 << 10);
        let interval = store(&["leveldb.block.restart_interval = 4"]);
        assert_eq!(interval.block_restart_interval, 4);
        let plain = store(&["leveldb.compression = off"]);
        assert_eq!(plain.compression, Compression::None);
        let dense = store(&["leveldb.compression.algorithm = zstd"]);
        assert_eq!(dense.compression, Compression::Zstd(1));
        let trigger = store(&["leveldb.compaction.trigger.tombstone_count = off"]);
        assert_eq!(trigger.policy.removals_trigger, None);
        let kept = "leveldb.expiration.retention_time = 30";
        assert_eq!(store(&[kept]).expiry, None);
        let expiring = store(&[kept, "leveldb.expiration = on"]);
        assert_eq!(expiring.expiry, Some(Duration::from_secs(30 * 60)));
        let mode = store(&["leveldb.expiration.mode = normal"]);
        assert!(mode.policy.rewrites_expired);
    }

    #[test]
    fn without_the_commit_log_a_store_has_its_own() {
        for lines in [&["durability = none"][..], &["leveldb.sync_on_write = off"]] {
            let none = store(lines);
            assert!(none.has_log);
            assert_eq!(none.sync, SyncStrategy::None);
        }
        let interval = store(&["durability = interval", "durability.interval = 3s"]);
        assert!(interval.has_log);
        assert_eq!(
            interval.sync,
            SyncStrategy::Interval(Duration::from_secs(3))
        );
        assert!(!store(&["durability = none", "leveldb.sync_on_write = on"]).has_log);
    }
}
