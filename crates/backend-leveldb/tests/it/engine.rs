//! The engine with settings so small that a few dozen writes fill memtables, tables and blob files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_conformance::{EngineUnderTest, Opening};
use kvorum_backend_leveldb::{Compression, Leveldb, LeveldbSettings, Shared, SyncStrategy, Tiers};
use kvorum_lsm::policy::PolicySettings;

/// The variation with two directories.
const TIERED: u32 = 3;

/// Leveldb for the suite.
pub(crate) struct Engine;

impl EngineUnderTest for Engine {
    fn name(&self) -> &str {
        "leveldb"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let settings = LeveldbSettings {
            tiers: (opening.variation == TIERED).then(|| Tiers {
                slow_directory: slow_directory(opening),
                from_level: 2,
            }),
            ..small_settings(opening.variation)
        };
        let disk = opening.disk();
        let draw = opening.draw.clone();
        let store = Leveldb::open(disk, &opening.directory, &settings, shared(), draw, None)?;
        Ok(Box::new(store))
    }

    fn directories(&self, opening: &Opening) -> Vec<PathBuf> {
        let mut directories = vec![opening.directory.clone()];
        if opening.variation == TIERED {
            directories.push(slow_directory(opening));
        }
        directories
    }

    /// The store's own segments, which are the log of a store without a value log.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.segment"]
    }

    fn variations(&self) -> u32 {
        4
    }

    /// Many small files, and a manifest that is written twice for each change.
    fn slowness(&self) -> usize {
        3
    }

    /// The keys of a block, which has many keys that share most of their bytes.
    fn keys_lost_per_flip_max(&self) -> usize {
        10
    }
}

/// The slow directory of a store over two directories.
fn slow_directory(opening: &Opening) -> PathBuf {
    Path::new("slow").join(&opening.directory)
}

/// A cache and a budget for one store.
pub(crate) fn shared() -> Shared {
    Shared::new(64 << 10, 1 << 20)
}

pub(crate) fn small_settings(variation: u32) -> LeveldbSettings {
    let eager = LeveldbSettings {
        write_buffer_bytes: 3_000,
        block_bytes: 300,
        block_restart_interval: 2,
        blob_threshold_bytes: 600,
        compression: Compression::Lz4,
        policy: PolicySettings {
            levels: 4,
            level_zero_tables: 2,
            base_bytes: 6_000,
            multiplier: 3,
            table_bytes_max: 3_000,
            slow_from_tables: 3,
            slowest_at_tables: 6,
            ..PolicySettings::default()
        },
        ..LeveldbSettings::default()
    };
    match variation {
        0 => eager,
        // Everything inline and compressed, one big level.
        1 => LeveldbSettings {
            blob_threshold_bytes: usize::MAX,
            write_buffer_bytes: 8_000,
            block_bytes: 500,
            compression: Compression::Zstd(1),
            sync: SyncStrategy::None,
            ..eager
        },
        // Two directories, with many levels.
        TIERED => LeveldbSettings {
            policy: PolicySettings {
                base_bytes: 3_000,
                multiplier: 2,
                ..eager.policy
            },
            blob_threshold_bytes: 1_500,
            ..eager
        },
        // All bodies apart. All tables have filters: without a filter, a lost block hides every key
        // in its range, also those of older layers.
        _ => LeveldbSettings {
            scrub_period: Some(Duration::from_micros(2_500)),
            blob_threshold_bytes: 1,
            block_bytes: 120,
            block_restart_interval: 1,
            compression: Compression::None,
            ..eager
        },
    }
}
